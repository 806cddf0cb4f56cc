// Applies changes to Redis: many installs at once, the changes of one install, or of one user's
// record, one after another,
// each begun again until Redis took it whole. Writes the markers and watches that they stay.

internal import Base
internal import EventLoop
internal import Redis

internal final class RedisIndexWriter: IndexWriter {
    var delegate: (any IndexWriterDelegate)?
    let layout: RedisLayout
    /// When a fuse trips.
    let fusePolicy: FusePolicy
    /// How many addresses of a user lie in the key that look-ups read in one piece.
    var entriesPerKey = IndexLimits.entriesPerKey
    private let client: RedisClient
    private let loop: EventLoop
    /// The changes of each install and user that has any, the first one running.
    private var runs: [String: [ChangeRun]] = [:]
    /// Runs whose step waits for a connection or for Redis to be able to write again.
    private var waiting: [ChangeRun] = []
    private let markers: MarkerWriter
    private let reconciler: Reconciler
    private let sweeper: StalenessSweeper
    private let eviction: EvictionCheck?
    private lazy var retryTimer = LoopTimer { [unowned self] in sendWaiting() }

    /// How long Redis may refuse a change before the operator hears of it.
    var refusalPatience = TimeSpan.seconds(10)
    private let warning: ((String) -> Void)?
    private var late = LateCount()
    private var young = YoungFuses()

    /// After so many steps the writer falls silent, as if its process had died: tests of crash
    /// safety stop it after each one.
    var stepBudget = Int.max
    /// A step was not taken for that reason.
    private(set) var isExhausted = false

    init(
        _ index: RedisTokenIndex, on loop: EventLoop, observer: ((RedisEvent) -> Void)?,
        warning: ((String) -> Void)?
    ) {
        layout = index.layout
        fusePolicy = index.fusePolicy
        self.loop = loop
        let client = RedisClient(index.configuration, on: loop)
        self.client = client
        self.warning = warning
        eviction = warning.map { EvictionCheck(client, on: loop, $0) }
        markers = MarkerWriter(client, layout: layout, on: loop)
        reconciler = Reconciler(client, layout: layout, on: loop)
        sweeper = StalenessSweeper(
            client, layout: layout, on: loop, staleness: index.staleness, policy: index.sweep)
        markers.applyFrom = { [unowned self] in
            sweeper.indexIncomplete()
            late.begin()
            delegate?.applyFrom($0)
        }
        markers.written = { [unowned self] in
            sweeper.indexCompleted()
            delegate?.markersWritten()
        }
        sweeper.note = { [unowned self] in note($0) }
        eviction?.told = { [unowned self] in note(.evicts($0)) }
        reconciler.relist = { [unowned self] in relist($0, $1) }
        markers.wipe = { [reconciler] in reconciler.wipe($0) }
        markers.reconcile = { [reconciler] in reconciler.reconcile($0) }
        markers.tidy = { [reconciler] in reconciler.tidy() }
        client.observer = { [unowned self] event in
            observer?(event)
            if event == .ready {
                sendWaiting()
                markers.connected()
                eviction?.start()
            }
        }
        client.start()
    }

    var now: UnixMillis { loop.wall }
    var clock: MonotonicTime { loop.now }

    func apply(_ change: IndexChange, at position: TopicPosition, tag: UInt64) {
        if case .invalidation(let record) = change { late.drop(record.addressID) }
        begin(ChangeRun(change, at: position, tag: tag, writer: self))
    }

    /// Lists an install's addresses anew, in turn with its changes.
    private func relist(_ id: AddressID, _ done: @escaping () -> Void) {
        begin(ChangeRun(relisting: id, writer: self, done))
    }

    private func begin(_ run: ChangeRun) {
        let subject = run.subject
        if runs[subject] != nil {
            runs[subject]?.append(run)
        } else {
            runs[subject] = [run]
            run.start()
        }
    }

    func assign(_ partitions: [IndexTopicPartition], of total: Int) {
        markers.assign(partitions, of: total)
    }

    func mark(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        for (record, position) in late.end() {
            begin(ChangeRun(recounting: record, at: position, writer: self))
        }
        markers.mark(positions, asOf: asOf ?? now)
    }

    func renew(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        markers.renew(positions, asOf: asOf ?? now)
        for (name, reason) in young.due(at: now) { weigh(name, reason: reason) }
    }

    func rebuild() { markers.rebuild() }

    func stop() {
        loop.cancel(retryTimer)
        markers.stop()
        reconciler.stop()
        sweeper.stop()
        eviction?.stop()
        for run in runs.values.joined() { run.cancel() }
        runs = [:]
        client.close()
        waiting = []
        delegate = nil
    }

    // MARK: - Beside the changes

    /// Whether the topics are not read to their end yet.
    var isReadingBack: Bool { late.isReading }

    /// Whether a verdict is to be counted later.
    func setAside(_ record: InvalidationRecord, at position: TopicPosition) -> Bool {
        late.setAside(record, at: position, now: now)
    }

    /// Has said again what a record that was just applied would make a compacted topic forget.
    func restate(_ id: AddressID) {
        // What the topics say behind it is not known yet; the sweeper looks when it is.
        guard !late.isReading else { return }
        describe(id) { [weak self] report in
            if let record = report?.restatement { self?.note(.publish(record)) }
        }
    }

    func note(_ notice: IndexNotice) { delegate?.noticed(notice) }

    /// Runs a script of no consequence for a change; nil when there is no reply.
    func ask(
        _ script: RedisScript, _ keys: [String], _ arguments: [String],
        _ done: @escaping (RedisReply?) -> Void
    ) {
        RedisQuestion.ask(client, script, keys, arguments.map { Array($0.utf8) }) {
            done(try? $0.get())
        }
    }

    /// What the index knows of an address; nil when that is nothing, or nobody answers.
    func describe(_ id: AddressID, _ done: @escaping (AddressReport?) -> Void) {
        ask(OperatorScripts.describe, [layout.install(id)], []) { reply in
            var found: AddressReport?
            reply?.forEachElement { element in
                if let report = AddressReport(element), report.id == id { found = report }
            }
            done(found)
        }
    }

    // MARK: - Fuses

    /// Keys and arguments of `FuseScripts.tally`.
    func tally(
        _ id: String, _ name: FuseName, reason: String, at time: Int64
    ) -> (keys: [String], arguments: [String]) {
        (
            [layout.answers(name), layout.judged(name), layout.trippedFuses],
            [
                String(now.value), id, String(time), String(fusePolicy.window.millis),
                String(fusePolicy.tokensMin), String(fusePolicy.permille), name.text,
                name.id(at: now), reason, String(FusePolicy.weighedAfter.millis),
            ]
        )
    }

    /// Weighs a fuse again when its verdicts are old enough.
    func weighLater(_ name: FuseName, reason: String) { young.add(name, reason, at: now) }

    private func weigh(_ name: FuseName, reason: String) {
        let question = tally("", name, reason: reason, at: now.value)
        ask(FuseScripts.tally, question.keys, question.arguments) { [weak self] reply in
            let words = reply?.elements.compactMap(\.text) ?? []
            if reply == nil || words.first == "young" { self?.weighLater(name, reason: reason) }
            guard words.count >= 2, words[0] == "trips" else { return }
            self?.tripped(
                name, words[1], reason: reason, count: words.count - 2, others: words[2...])
        }
    }

    /// A fuse has tripped: those who were judged before it did are held as well.
    func tripped(
        _ name: FuseName, _ fuseID: String, reason: String, count: Int,
        others: ArraySlice<String>
    ) {
        note(
            .fuseTripped(
                TrippedFuse(id: fuseID, name: name, since: now, reason: reason, held: count)))
        for text in others {
            guard let id = AddressID(text) else { continue }
            describe(id) { [weak self] report in
                guard let record = report?.heldRecord(by: fuseID, name) else { return }
                self?.note(.publish(record))
            }
        }
    }

    // MARK: - Steps

    func send(
        _ script: RedisScript, _ keys: [String], _ arguments: [[UInt8]], for run: ChangeRun
    ) {
        guard stepBudget > 0 else {
            isExhausted = true
            return
        }
        guard !markers.holdsChanges else { return wait(run) }
        stepBudget -= 1
        let error = client.run(script, keys: keys, arguments: arguments, to: run, tag: 0)
        if error != nil { wait(run) }
    }

    func stepFailed(_ run: ChangeRun, _ error: RedisError) {
        if case .refused(let refusal) = error, isFinal(refusal, refusals: run.refusals) {
            return finished(run, .refused(IndexRefusal.text(refusal)))
        }
        if case .refused(let refusal) = error, loop.now - run.refusedSince >= refusalPatience {
            warning?(
                "Redis has refused changes of the index for \(refusalPatience.millis / 1_000) s "
                    + "and more: \(refusal); \(Self.remedy(refusal))")
        }
        wait(run)
    }

    /// What an operator can do about a refusal that does not end by itself.
    private static func remedy(_ refusal: RedisRefusal) -> String {
        switch refusal.kind {
        case .tryAgain, .ask, .moved:
            "a slot of the cluster is on its way to another node and does not arrive: "
                + "redis-cli --cluster fix"
        case .clusterDown: "a part of the cluster has no master: redis-cli --cluster check"
        case .outOfMemory: "it needs more memory, or cannot write to its disk"
        case .authentication: "the user of redis.username may not do what it needs"
        default: "they wait until it takes them"
        }
    }

    /// A key of the wrong type stays so; an error without a known cause gets a few attempts.
    private func isFinal(_ refusal: RedisRefusal, refusals: Int) -> Bool {
        switch refusal.kind {
        case .wrongType: true
        case .other: refusals >= Self.refusalsMax
        default: false
        }
    }

    func finished(_ run: ChangeRun, _ result: ChangeResult) {
        let subject = run.subject
        runs[subject]?.removeFirst()
        if let next = runs[subject]?.first {
            next.start()
        } else {
            runs[subject] = nil
        }
        if case .change = run.work {
            delegate?.changeFinished(tag: run.tag, result)
        } else {
            run.relisted()
        }
    }

    private func wait(_ run: ChangeRun) {
        waiting.append(run)
        // A connection that comes back sends them at once; the timer is for what Redis refused.
        if !retryTimer.isScheduled {
            loop.schedule(retryTimer, at: loop.now + IndexLimits.readinessInterval)
        }
    }

    private func sendWaiting() {
        guard !waiting.isEmpty else { return }
        guard client.isUsable else {
            loop.schedule(retryTimer, at: loop.now + IndexLimits.readinessInterval)
            return
        }
        let runs = waiting
        waiting = []
        for run in runs { run.restart() }
    }

    private static let refusalsMax = 5
}

extension IndexRefusal {
    /// Says that Redis refuses a change.
    static func text(_ refusal: RedisRefusal) -> String { "Redis refuses it: \(refusal)" }
}
