// The index for demonstrations, development and tests: one store per process, the same rules and
// the same test suite as the one in Redis. Readers on lanes and the writer reach the store under
// one lock, which is held for one change or one turn's look-ups.

public import Base
public import EventLoop
internal import Synchronization

/// A process-wide store that makes readers and writers.
public final class InMemoryTokenIndex: Sendable {
    private let state: Mutex<IndexState>
    private let notes = Mutex(NoteBook())
    private let complete = Atomic<Bool>(false)
    private let time: any TimeSource
    private let staleness: StalenessPolicy
    fileprivate let sweepPolicy: SweepPolicy
    private let lagMax: TimeSpan?
    /// As of when it shows the topics, in ms; not kept up where nobody feeds it.
    private let asOf: Atomic<Int64>

    /// An empty store. Look-ups wait until it is marked complete, and while the topics are more
    /// than `lagMax` ahead of what its writer said it has applied; nil for no bound.
    public init(
        time: any TimeSource = SystemTime.shared, staleness: StalenessPolicy = .never,
        sweep: SweepPolicy = .never, fusePolicy: FusePolicy = FusePolicy(),
        lagMax: TimeSpan? = nil
    ) {
        self.time = time
        self.staleness = staleness
        sweepPolicy = sweep
        self.lagMax = lagMax
        asOf = Atomic(time.wall.value)
        var state = IndexState()
        state.fusePolicy = fusePolicy
        self.state = Mutex(state)
    }

    /// Says whether everything that the topics hold has been applied once.
    public func mark(complete isComplete: Bool) {
        complete.store(isComplete, ordering: .releasing)
    }

    /// Whether everything that the topics hold has been applied once.
    public var isComplete: Bool { complete.load(ordering: .acquiring) }

    /// Why look-ups wait; nil when they do not.
    fileprivate var hindrance: String? {
        guard isComplete else { return "the topics have not been read to their end yet" }
        guard let lagMax else { return nil }
        let shown = UnixMillis(asOf.load(ordering: .acquiring))
        return time.wall - shown > lagMax ? TrustRule.lagText(lagMax) : nil
    }

    /// Says as of when all that the topics hold is applied; nil: as of now.
    fileprivate func renew(asOf moment: UnixMillis?) {
        let moment = (moment ?? time.wall).value
        _ = asOf.max(moment, ordering: .acquiringAndReleasing)
    }

    /// How many addresses may be sent to, over all users.
    public var addressCount: Int { state.withLock { $0.listedCount } }

    /// A reader for one lane.
    public func reader(
        on loop: EventLoop, addressesPerUser: Int = IndexLimits.addressesPerUser
    ) -> any TokenIndex {
        InMemoryReader(store: self, loop: loop, addressesPerUser: addressesPerUser)
    }

    /// A writer; changes are applied within the call, under the lock.
    public func writer() -> any IndexWriter { InMemoryWriter(store: self) }

    /// Applies a change at once. No fuse counts it: what fuses made of the topics stands in them.
    @discardableResult
    public func apply(_ change: IndexChange, at position: TopicPosition) -> ChangeResult {
        var reading = IndexState.Reading()
        reading.late.begin()
        return apply(change, at: position, &reading)
    }

    fileprivate func apply(
        _ change: IndexChange, at position: TopicPosition, _ reading: inout IndexState.Reading
    ) -> ChangeResult {
        let now = time.wall
        return state.withLock { $0.apply(change, at: position, now: now, &reading) }
    }

    /// A user's addresses at this moment, and how many over the limit were left out.
    public func addresses(
        app: String, userID: String, limit: Int = IndexLimits.addressesPerUser
    ) -> (addresses: [DeviceAddress], dropped: Int) {
        var found = NewestAddresses(limit: limit)
        let now = time.wall
        state.withLock {
            $0.addresses(of: userID, app: app, staleness, at: now, into: &found)
        }
        let addresses = found.finish()
        return (addresses, found.dropped)
    }

    /// What a person said for all devices.
    public func userRecord(app: String, userID: String) -> UserRecord? {
        state.withLock { $0.record(of: userID, app: app) }
    }

    fileprivate var trippedFuses: [FuseName: String] {
        let tripped = state.withLock { $0.fuses.tripped }
        return Dictionary(tripped.map { ($0.name, $0.id) }, uniquingKeysWith: { first, _ in first })
    }

    fileprivate func note(_ name: String, app: String, userID: String) -> String? {
        let now = time.wall
        return notes.withLock { $0.text(name, app: app, userID: userID, at: now) }
    }

    fileprivate func write(
        note name: String, _ text: String, app: String, userID: String, keptFor span: TimeSpan
    ) {
        let now = time.wall
        notes.withLock {
            $0.write(name, text, app: app, userID: userID, until: now + span, at: now)
        }
    }

    fileprivate func count(answers: Int, for name: FuseName) {
        let now = time.wall
        state.withLock { $0.count(answers: answers, for: name, at: now) }
    }

    /// Weighs fuses whose verdicts are old enough by now.
    fileprivate func weigh(_ reading: inout IndexState.Reading) {
        let now = time.wall
        for (name, reason) in reading.young.due(at: now) {
            state.withLock { $0.weigh(name, reason: reason, now: now, &reading) }
        }
    }

    /// Looks at the next installs when it is their turn.
    fileprivate func look(_ sweep: inout InMemorySweep) -> [IndexNotice] {
        let now = time.monotonic
        guard sweep.isDue(at: now) else { return [] }
        let installs = state.withLock { $0.installs }
        return sweep.look(at: installs, now, time.wall, staleness)
    }

    /// Lends the whole state.
    internal func withState<Value: Sendable>(_ body: (inout IndexState) -> Value) -> Value {
        state.withLock { body(&$0) }
    }
}

// MARK: - Operations

extension InMemoryTokenIndex: IndexOperations {
    /// Everything that is known of a user's addresses.
    public func reports(app: String, userID: String) -> [AddressReport] {
        state.withLock { state in
            let list = state.users[IndexState.UserKey(app: app, userID: userID)] ?? [:]
            return list.keys.sorted().compactMap { state.installs[$0.install]?.report($0) }
        }
    }

    /// Counts over the whole index.
    public func statistics(progress: (Int) -> Void = { _ in }) -> IndexStatistics {
        state.withLock { state in
            var statistics = IndexStatistics()
            for install in state.installs.values {
                statistics.add(install: install.addresses.keys.compactMap { install.report($0) })
            }
            return statistics
        }
    }

    /// The fuses that wait for somebody to settle them.
    public func fuses() -> [TrippedFuse] { state.withLock { $0.fuses.tripped } }

    /// The records for `push.invalidations` that settle a fuse.
    public func records(
        settling fuseID: String, _ settlement: FuseSettlement
    ) throws(IndexOperationError) -> [InvalidationRecord] {
        let records = state.withLock { state -> [InvalidationRecord]? in
            guard let fuse = state.fuses.tripped.first(where: { $0.id == fuseID }) else {
                return nil
            }
            return state.fuses.held(by: fuse.name).map { id in
                let report = state.installs[id.install]?.report(id)
                return AddressReport.settling(report, id, fuse, settlement)
            }.flatMap { $0 }
        }
        guard let records else { throw .noSuchFuse(fuseID) }
        return records
    }

    /// What forgetting a user takes.
    public func forgetting(app: String, userID: String, at now: UnixMillis) -> ForgottenUser {
        ForgottenUser(
            app: app, userID: userID, addresses: reports(app: app, userID: userID), asOf: now)
    }

    /// Removes a user from the store.
    public func erase(_ user: ForgottenUser) {
        let now = time.wall
        state.withLock { $0.erase(user, now: now) }
        notes.withLock { $0.erase(app: user.app, userID: user.userID) }
    }
}

private final class InMemoryWriter: IndexWriter {
    var delegate: (any IndexWriterDelegate)?
    private let store: InMemoryTokenIndex
    private var partitions: [IndexTopicPartition] = []
    private var sweep: InMemorySweep
    private var reading = IndexState.Reading()

    init(store: InMemoryTokenIndex) {
        self.store = store
        sweep = InMemorySweep(store.sweepPolicy)
    }

    func apply(_ change: IndexChange, at position: TopicPosition, tag: UInt64) {
        let result = store.apply(change, at: position, &reading)
        tell()
        delegate?.changeFinished(tag: tag, result)
    }

    private func tell() {
        let notices = reading.notices
        reading.notices = []
        for notice in notices { delegate?.noticed(notice) }
    }

    func assign(_ partitions: [IndexTopicPartition], of total: Int) {
        self.partitions = partitions
        reading.late.begin()
        delegate?.applyFrom(
            partitions.map {
                IndexTopicPosition(topic: $0.topic, partition: $0.partition, nextOffset: 0)
            })
    }

    func mark(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        for (record, position) in reading.late.end() {
            _ = store.apply(.invalidation(record), at: position, &reading)
        }
        tell()
        store.renew(asOf: asOf)
        store.mark(complete: true)
        delegate?.markersWritten()
    }

    func renew(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        store.renew(asOf: asOf)
        store.weigh(&reading)
        tell()
        guard store.isComplete else { return }
        for notice in store.look(&sweep) { delegate?.noticed(notice) }
    }

    func rebuild() {
        store.mark(complete: false)
        store.withState { $0.removeAll() }
        assign(partitions, of: partitions.count)
    }

    func stop() { delegate = nil }
}

private final class InMemoryReader: TokenIndex, TurnEndHandler {
    private struct LookUp {
        var app: String
        var userID: String
        var tag: UInt64
    }

    var delegate: (any TokenIndexDelegate)?
    private let store: InMemoryTokenIndex
    private let loop: EventLoop
    private let addressesPerUser: Int
    private var lookUps: [LookUp] = []
    private var refused: [UInt64] = []
    private var noteReads: [() -> Void] = []
    private var wasReady: Bool
    private var isAwaitingTurnEnd = false
    private lazy var retryTimer = LoopTimer { [unowned self] in serve() }

    init(store: InMemoryTokenIndex, loop: EventLoop, addressesPerUser: Int) {
        self.store = store
        self.loop = loop
        self.addressesPerUser = addressesPerUser
        wasReady = store.hindrance == nil
        if !wasReady { loop.schedule(retryTimer, at: loop.now + IndexLimits.readinessInterval) }
    }

    var readiness: IndexReadiness {
        store.hindrance.map { .incomplete($0) } ?? .ready
    }

    var trippedFuses: [FuseName: String] { store.trippedFuses }

    func count(answers: Int, for name: FuseName) { store.count(answers: answers, for: name) }

    func lookUp(app: String, userID: String, tag: UInt64) {
        if lookUps.count < IndexLimits.lookUpsOpen {
            lookUps.append(LookUp(app: app, userID: userID, tag: tag))
        } else {
            refused.append(tag)
        }
        serveAtEndOfTurn()
    }

    func readNote(
        _ name: String, app: String, userID: String,
        _ done: @escaping (Result<String?, IndexFault>) -> Void
    ) {
        noteReads.append { [store] in
            done(.success(store.note(name, app: app, userID: userID)))
        }
        serveAtEndOfTurn()
    }

    func writeNote(
        _ name: String, _ text: String, app: String, userID: String, keptFor span: TimeSpan
    ) {
        store.write(note: name, text, app: app, userID: userID, keptFor: span)
    }

    private func serveAtEndOfTurn() {
        guard !isAwaitingTurnEnd else { return }
        isAwaitingTurnEnd = true
        loop.atEndOfTurn(self)
    }

    func turnEnded() {
        isAwaitingTurnEnd = false
        serve()
    }

    func stop() {
        loop.cancel(retryTimer)
        lookUps = []
        refused = []
        noteReads = []
        delegate = nil
    }

    private func serve() {
        let isReady = store.hindrance == nil
        if isReady != wasReady {
            wasReady = isReady
            delegate?.indexReadinessChanged()
        }
        for tag in refused {
            let fault = IndexFault.tooManyWaiting(limit: IndexLimits.lookUpsOpen)
            delegate?.lookUpFinished(tag: tag, .unavailable(fault))
        }
        refused = []
        let reads = noteReads
        noteReads = []
        for read in reads { read() }
        guard isReady else {
            loop.schedule(retryTimer, at: loop.now + IndexLimits.readinessInterval)
            return
        }
        let batch = lookUps
        lookUps = []
        for lookUp in batch {
            let (addresses, dropped) = store.addresses(
                app: lookUp.app, userID: lookUp.userID, limit: addressesPerUser)
            delegate?.lookUpFinished(
                tag: lookUp.tag,
                .addresses(
                    addresses, dropped: dropped, at: loop.now,
                    user: store.userRecord(app: lookUp.app, userID: lookUp.userID)))
        }
    }
}
