internal import Base
internal import EventLoop
internal import JSON
internal import Kafka
internal import Pipeline
internal import Synchronization
internal import Telemetry

/// The fleet's thread: reads both topics, hands levers on, reports.
internal final class FleetLoop {
    private let settings: FleetSettings
    private let shared: FleetState
    private let log: Log
    private let faults: RateLimitedLog
    private let parser = JSONParser()
    private var producer: TopicProducer?
    /// What was read and is not in force yet.
    private var book = ControlBook()
    private var offset: Int64 = -1
    private var isApplied = false
    private var applied = Levers.none
    private var reportAt = SystemTime.shared.monotonic
    private var isAttached = false

    /// How long one turn waits for a record: a lever's way to the lanes is no longer.
    private static let turn = TimeSpan.milliseconds(100)
    /// Reports on their way; with more the brokers are away, and the next one says it all.
    private static let reportsUnderWay = 2

    init(_ settings: FleetSettings, _ shared: FleetState, log: Log) {
        self.settings = settings
        self.shared = shared
        self.log = log
        faults = RateLimitedLog(log, limit: 1, interval: .minutes(1))
    }

    func run() {
        let reader: TopicReader
        do throws(KafkaError) {
            reader = try TopicReader(
                settings.kafka, topics: [settings.control, settings.status], from: .beginning)
        } catch {
            return shared.fail("\(error)")
        }
        reader.onFault = { [faults] place, error in
            faults.warning(
                "what operators say cannot be read; what they said last holds",
                ["partition": LogValue("\(place)"), "reason": LogValue(describing: error)])
        }
        while !reader.hasReachedEveryEnd {
            if isStopping { return }
            reader.read(max: 1_000, timeout: Self.turn) { take($0) }
        }
        let now = SystemTime.shared.wall
        applied = book.levers(at: now)
        show(applied)
        tellStart()
        shared.loaded.signal()
        while !isStopping {
            reader.read(max: 1_000, timeout: Self.turn) { take($0) }
            apply(at: SystemTime.shared.wall)
            report(at: SystemTime.shared.monotonic)
        }
        leave()
    }

    private var isStopping: Bool { shared.isStopping.load(ordering: .acquiring) }

    private func take(_ record: borrowing KafkaRecord) {
        let now = SystemTime.shared.wall
        if record.topic == settings.control {
            let unreadable = book.unreadable
            book.apply(key: record.key, value: record.value, at: now, parser: parser)
            if book.unreadable > unreadable {
                faults.warning(
                    "a record of the control topic is not understood and changes nothing",
                    ["offset": LogValue(record.offset)])
            }
            offset = record.offset
            isApplied = false
            return
        }
        let key = record.key.map { String(decoding: $0, as: UTF8.self) } ?? ""
        guard key.hasPrefix(settings.group + "/") else { return }
        let instance = String(key.dropFirst(settings.group.count + 1))
        let at = UnixMillis(record.timestampMillis ?? now.value)
        let report = record.value.flatMap { ReplicaReport($0, at: at, parser: parser) }
        let isItself = instance == settings.instance && report != nil
        shared.view.withLock { view in
            view.replicas[instance] = report
            if isItself { view.heardItselfAt = SystemTime.shared.monotonic }
        }
    }

    // MARK: Levers

    /// Hands on what changed: by a word, or because a pause has ended by itself.
    private func apply(at now: UnixMillis) {
        let links = shared.links.withLock { $0 }
        let levers = book.levers(at: now)
        if !isAttached, links.report != nil {
            isAttached = true
            isApplied = false
        }
        let isChanged = levers != applied
        guard isChanged || !isApplied else { return }
        let isTaken = links.apply?(levers) ?? true
        if isChanged {
            tell(from: applied, to: levers, at: now)
            applied = levers
        }
        // A lane that is stuck gets it with the next turn; meanwhile nobody is told it is in force.
        isApplied = isTaken
        guard isTaken else { return }
        show(levers)
        reportAt = SystemTime.shared.monotonic
    }

    private func show(_ levers: Levers) {
        shared.view.withLock { view in
            view.book = book
            view.levers = levers
            view.controlOffset = offset
        }
    }

    private func tellStart() {
        for record in book.pauses(at: SystemTime.shared.wall) {
            guard case .pause(let lever) = record.action else { continue }
            log.warning("paused since before the start", fields(of: lever, record))
        }
    }

    private func tell(from old: Levers, to new: Levers, at now: UnixMillis) {
        let records = book.pauses(at: now)
        for lever in new.paused.subtracting(old.paused) {
            let record = records.first { $0.action == .pause(lever) }
            log.warning("paused by an operator", fields(of: lever, record))
        }
        for lever in old.paused.subtracting(new.paused) {
            log.info("goes on after a pause", fields(of: lever, nil))
        }
        for order in new.skips where !old.skips.contains(order) {
            log.warning(
                "old events are skipped by an operator",
                [
                    "which": LogValue(order.lever?.description ?? "all"),
                    "before": LogValue(RFC3339.text(order.before)),
                ])
        }
    }

    private func fields(of lever: Lever, _ record: ControlRecord?) -> Log.Fields {
        [
            "lever": LogValue(lever.kind.rawValue), "value": LogValue(lever.value),
            "reason": LogValue(record?.reason ?? ""), "by": LogValue(record?.by ?? ""),
        ]
    }

    // MARK: Reports

    private func report(at now: MonotonicTime) {
        guard now >= reportAt, let write = shared.links.withLock({ $0.report }) else { return }
        reportAt = now + FleetSettings.interval
        let bytes = ByteWriter()
        write(bytes)
        send(settings.instance, bytes.array)
        forgetTheDead()
    }

    private func send(_ instance: String, _ value: [UInt8]?) {
        do throws(KafkaError) {
            let producer: TopicProducer
            if let known = self.producer {
                producer = known
            } else {
                producer = try TopicProducer(settings.kafka)
                self.producer = producer
            }
            guard producer.undelivered < Self.reportsUnderWay || value == nil else { return }
            try producer.send(
                to: settings.status, key: Array(settings.key(of: instance).utf8), value: value)
        } catch {
            if error.isFatal { producer = nil }
            faults.warning(
                "the report of this replica was not written",
                ["reason": LogValue(describing: error)])
        }
    }

    private func forgetTheDead() {
        let now = SystemTime.shared.wall
        let dead = shared.view.withLock { view in
            view.replicas.filter { now - $0.value.at > FleetSettings.forgottenAfter }.map(\.key)
        }
        for instance in dead { send(instance, nil) }
    }

    /// A planned end leaves no record behind.
    private func leave() {
        guard isAttached else { return }
        send(settings.instance, nil)
        do throws(KafkaError) {
            try producer?.flush(timeout: .seconds(2))
        } catch {
            faults.warning(
                "the report of this replica stays behind", ["reason": LogValue(describing: error)])
        }
    }
}
