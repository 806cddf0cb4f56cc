internal import Base
internal import EventLoop
internal import Kafka
internal import Synchronization
internal import Telemetry
internal import TokenIndex

/// The feed on its thread: reads the topics from where the builder says, and hands it records.
internal final class IndexFeedLoop {
    private let settings: IndexFeedSettings
    private let makeWriter: @Sendable (EventLoop) -> any IndexWriter
    private let state: IndexFeedState
    private let log: Log
    private let faults: RateLimitedLog
    private let notices: IndexNoticeBoard

    private var builder: IndexBuilder?
    private let orders = IndexOrders()
    private var reader: TopicReader?
    private var epoch: UInt64 = 0
    /// What the builder did not take yet.
    private var batch: [IndexInput] = []
    private var unapplied = UnappliedRecords()
    private var progress = ReadProgress()
    /// The partition that goes on before where it was read to.
    private var recreated: TopicPartition?
    /// Whether the builder knows that the topics were read to their end.
    private var hasCaughtUp = false
    private var caughtUpAt = MonotonicTime(nanos: .min / 2)
    private var recordCount = 0
    /// The timestamp of the record that was read last.
    private var newest: Int64?
    /// Whether the index was whole, as far as this writer has told.
    private var isComplete = false
    private var startedAt = MonotonicTime(nanos: 0)
    private var retryAt = MonotonicTime(nanos: .min / 2)
    /// How many partitions of each topic are read.
    private var counts: [IndexTopic: Int32] = [:]
    /// When it was last looked whether there are more by now.
    private var countedAt = MonotonicTime(nanos: 0)
    private var readsUsers: Bool { counts[.users] ?? 0 > 0 }

    /// How long a topic that cannot be read is left alone.
    private static let retryInterval = TimeSpan.seconds(1)
    /// How often it is looked for a topic that need not exist, and for further partitions.
    private let seekInterval: TimeSpan
    /// How often the builder hears that there is nothing more.
    private static let caughtUpInterval = TimeSpan.milliseconds(200)
    /// How long one turn waits for records.
    private static let wait = TimeSpan.milliseconds(20)
    /// Records handed over at a time.
    private static let batchRecords = 512

    init(
        _ settings: IndexFeedSettings,
        makeWriter: @escaping @Sendable (EventLoop) -> any IndexWriter, state: IndexFeedState,
        log: Log
    ) {
        self.settings = settings
        seekInterval = settings.seekInterval
        self.makeWriter = makeWriter
        self.state = state
        self.log = log
        faults = RateLimitedLog(log)
        notices = IndexNoticeBoard(settings, registry: state.registry, log: log)
    }

    /// Runs until the feed is stopped.
    func run() {
        while !state.isStopping.load(ordering: .acquiring) {
            state.beat()
            guard state.isWriter.load(ordering: .acquiring) else {
                stopWriting()
                orders.wait(upTo: Self.wait)
                continue
            }
            if builder == nil { startWriting() } else { seekPartitions() }
            turn()
        }
        stopWriting()
    }

    private func turn() {
        for event in orders.take() { follow(event) }
        observeLag()
        notices.publish()
        guard let reader else {
            orders.wait(upTo: Self.wait)
            return
        }
        guard batch.isEmpty || hand() else {
            orders.wait(upTo: Self.wait)
            return
        }
        reader.read(max: Self.batchRecords, timeout: Self.wait) { take($0) }
        if let recreated { return buildAnew("\(recreated) goes back to before what was read") }
        progress.look(at: SystemTime.shared.wall) { reader.end(of: $0) }
        guard batch.isEmpty || hand() else { return }
        guard reader.hasReachedEveryEnd else { return }
        let now = SystemTime.shared.monotonic
        guard !hasCaughtUp || now - caughtUpAt >= Self.caughtUpInterval else { return }
        hasCaughtUp = true
        caughtUpAt = now
        builder?.caughtUp(epoch: epoch, asOf: progress.asOf(SystemTime.shared.wall))
    }

    /// Hands the batch to the builder; false when it has no room for it.
    private func hand() -> Bool {
        guard let builder, builder.feed(batch, epoch: epoch) else { return false }
        unapplied.handed(batch.count, from: batch.first?.position.timestamp ?? 0)
        batch.removeAll(keepingCapacity: true)
        return true
    }

    /// How far the index is behind: the age of the oldest record that is not applied. While the store
    /// is away it grows, however little there is to apply.
    private func observeLag() {
        let oldest =
            unapplied.oldest(waiting: builder?.waiting ?? 0) ?? batch.first?.position.timestamp
            ?? (reader?.isAtEnd ?? true ? nil : newest)
        let now = SystemTime.shared.wall.value
        state.lagMillis.store(oldest.map { max(now - $0, 0) } ?? 0, ordering: .relaxed)
    }

    private func take(_ record: borrowing KafkaRecord) {
        let timestamp = record.timestampMillis ?? 0
        let place = TopicPartition(record.topic, record.partition)
        guard progress.read(place, offset: record.offset), recreated == nil else {
            recreated = recreated ?? place
            return
        }
        recordCount += 1
        newest = timestamp
        batch.append(
            IndexInput(
                topic: settings.topic(named: record.topic),
                position: TopicPosition(
                    partition: record.partition, offset: record.offset, timestamp: timestamp),
                key: record.key.map { Array($0) }, value: record.value.map { Array($0) }))
    }

    // MARK: - Starting and stopping

    private func startWriting() {
        let now = SystemTime.shared.monotonic
        guard now >= retryAt else { return }
        retryAt = now + Self.retryInterval
        do throws(SystemError) {
            let orders = orders
            let builder = try IndexBuilder(
                tables: settings.tables, makeWriter: makeWriter
            ) { orders.add($0) }
            guard let partitions = partitions() else { return builder.stop() }
            builder.assign(partitions, of: partitions.count)
            self.builder = builder
        } catch {
            report("the index has no thread: \(error)")
        }
    }

    /// All partitions of both topics; nil, and said why, when they cannot be had.
    private func partitions() -> [IndexTopicPartition]? {
        do throws(KafkaError) {
            counts = try countPartitions(within: .seconds(5))
            countedAt = SystemTime.shared.monotonic
            guard counts.allSatisfy({ $0.value > 0 || $0.key == .users }) else {
                report("\(settings.devices) or \(settings.invalidations) does not exist")
                return nil
            }
            state.hindrance.withLock { $0 = nil }
            return IndexTopic.allCases.flatMap { topic in
                (0..<(counts[topic] ?? 0)).map { IndexTopicPartition(topic, $0) }
            }
        } catch {
            report("the topics of the index cannot be read: \(error)")
            return nil
        }
    }

    private func countPartitions(
        within timeout: TimeSpan
    ) throws(KafkaError) -> [IndexTopic: Int32] {
        let cluster = try Admin(settings.kafka).describeCluster(timeout: timeout)
        var counts: [IndexTopic: Int32] = [:]
        for topic in IndexTopic.allCases {
            counts[topic] = cluster.topic(settings.name(of: topic))?.partitions ?? 0
        }
        return counts
    }

    /// A topic that appears later, and partitions that are added, are read from then on.
    private func seekPartitions() {
        let now = SystemTime.shared.monotonic
        guard now - countedAt >= seekInterval else { return }
        countedAt = now
        // Shorter than a hand-over, which must not find this thread waiting.
        guard let found = try? countPartitions(within: .seconds(1)) else { return }
        let grown = IndexTopic.allCases.filter { found[$0] ?? 0 > counts[$0] ?? 0 }
        guard !grown.isEmpty else { return }
        for topic in grown {
            log.info(
                "from now on all partitions of this topic are read",
                [
                    "topic": LogValue(settings.name(of: topic)),
                    "partitions": LogValue(found[topic] ?? 0),
                ])
        }
        stopWriting()
    }

    private func stopWriting() {
        builder?.stop()
        builder = nil
        reader = nil
        batch = []
        recreated = nil
        unapplied = UnappliedRecords()
        newest = nil
        state.lagMillis.store(0, ordering: .relaxed)
        // What the writer found out is not found out again.
        for case .noticed(let notice) in orders.take() { notices.take(notice) }
        notices.stopWriting()
        state.hindrance.withLock { $0 = nil }
        for ticket in state.tickets.withLock({ tickets in
            defer { tickets = [] }
            return tickets
        }) { ticket.finish() }
        notices.publish()
    }

    private func report(_ text: String) {
        state.hindrance.withLock { $0 = text }
        faults.warning(text)
    }

    // MARK: - What the builder says

    private func follow(_ event: IndexBuilderEvent) {
        switch event {
        case .readFrom(let positions, let epoch): read(from: positions, epoch: epoch)
        case .roomAvailable: break
        case .complete:
            isComplete = true
            let span = SystemTime.shared.monotonic - startedAt
            log.info(
                "the token index is complete",
                ["records": LogValue(recordCount), "ms": LogValue(span.millis)])
        case .unreadable(let topic, let position, let error):
            skipped(topic, position, error.description)
        case .refused(let topic, let position, let reason): skipped(topic, position, reason)
        case .noticed(let notice): notices.take(notice)
        }
    }

    private func read(from positions: [IndexTopicPosition], epoch: UInt64) {
        self.epoch = epoch
        if let change = foreignTopic(positions) { return buildAnew(change) }
        if isComplete {
            isComplete = false
            log.warning("the token index is incomplete: it is filled again from the topics")
        }
        batch = []
        recreated = nil
        hasCaughtUp = false
        recordCount = 0
        startedAt = SystemTime.shared.monotonic
        var offsets: [TopicPartition: Int64] = [:]
        for position in positions where position.nextOffset > 0 {
            offsets[TopicPartition(settings.name(of: position.topic), position.partition)] =
                position.nextOffset
        }
        do throws(KafkaError) {
            // The old one's client goes first: both would read the same partitions for a while.
            reader = nil
            let reader = try TopicReader(
                settings.kafka,
                topics: [settings.devices, settings.invalidations]
                    + (readsUsers ? [settings.users] : []),
                from: .offsets(offsets))
            reader.onFault = { [faults] place, error in
                faults.warning(
                    "a topic of the index cannot be read",
                    [
                        "partition": LogValue(place.description),
                        "error": LogValue(error.description),
                    ])
            }
            reader.onEnd = { [unowned self] place, offset in
                let isSame = progress.ended(place, offset: offset, at: SystemTime.shared.wall)
                if !isSame { recreated = recreated ?? place }
            }
            progress = ReadProgress(reader.partitions, from: offsets)
            self.reader = reader
        } catch {
            report("the topics of the index cannot be read: \(error)")
            // A new builder asks again where to read from.
            stopWriting()
        }
    }

    private func buildAnew(_ reason: String) {
        log.warning(
            "a topic of the index is not the one that was read before; the index is built anew",
            ["reason": LogValue(reason)])
        reader = nil
        batch = []
        recreated = nil
        builder?.rebuild(epoch: epoch)
    }

    /// Why the stored positions cannot be those of the present topics: one was created anew, or
    /// has lost records that were not read; nil when they can.
    private func foreignTopic(_ positions: [IndexTopicPosition]) -> String? {
        let known = positions.filter { $0.nextOffset > 0 }
        guard !known.isEmpty else { return nil }
        do throws(KafkaError) {
            let admin = try Admin(settings.kafka)
            for position in known {
                let place = TopicPartition(
                    settings.name(of: position.topic), position.partition)
                let held = try admin.watermarks(place, timeout: .seconds(5))
                guard held.lowerBound <= position.nextOffset,
                    position.nextOffset <= held.upperBound
                else {
                    return "\(place) holds \(held), read was up to \(position.nextOffset)"
                }
            }
        } catch {
            // Who reads the topics will say what is wrong with them.
            faults.warning("the topics' ends are not known", ["error": LogValue("\(error)")])
        }
        return nil
    }

    private func skipped(_ topic: IndexTopic, _ position: TopicPosition, _ reason: String) {
        state.skipped.add()
        faults.warning(
            "a record of the index's topics is skipped",
            [
                "topic": LogValue(settings.name(of: topic)),
                "partition": LogValue(position.partition),
                "offset": LogValue(position.offset), "reason": LogValue(reason),
            ])
    }
}

extension IndexFeedSettings {
    fileprivate func name(of topic: IndexTopic) -> String {
        switch topic {
        case .devices: devices
        case .invalidations: invalidations
        case .users: users
        }
    }

    fileprivate func topic(named name: String) -> IndexTopic {
        name == devices ? .devices : name == users ? .users : .invalidations
    }
}

/// What the builder said and the feed's thread has not looked at yet.
private final class IndexOrders: Sendable {
    private let events = Mutex<[IndexBuilderEvent]>([])
    private let arrival = Semaphore()

    /// Called on the builder's thread.
    func add(_ event: IndexBuilderEvent) {
        events.withLock { $0.append(event) }
        arrival.signal()
    }

    func take() -> [IndexBuilderEvent] {
        events.withLock { events in
            defer { events = [] }
            return events
        }
    }

    func wait(upTo span: TimeSpan) { _ = arrival.wait(upTo: span) }
}
