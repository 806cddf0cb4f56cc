// The feed of the token index on a cluster: what it does about topics that are not those it knew,
// and with what the writer finds out.

import Base
import EventLoop
import Kafka
import Synchronization
import Telemetry
import Testing

@testable import Bugle
@testable import TokenIndex

private struct FeedWorld {
    let cluster: MockCluster
    let registry = MetricsRegistry()
    let sink = CollectingSink()
    let settings: IndexFeedSettings

    init(partitions: Int32 = 1) throws {
        cluster = try MockCluster()
        for topic in ["push.devices", "push.invalidations"] {
            try cluster.createTopic(topic, partitions: partitions)
        }
        settings = IndexFeedSettings(
            kafka: KafkaConfiguration(
                bootstrapServers: cluster.bootstrapServers,
                properties: ["fetch.wait.max.ms": "10"]),
            devices: "push.devices", invalidations: "push.invalidations", users: "push.users")
    }

    var log: Log { Log(level: .debug, format: .json, sink: sink) }

    func metrics() -> String {
        let bytes = ByteWriter()
        registry.writeExposition(to: bytes)
        return String(decoding: bytes.array, as: UTF8.self)
    }

    func publish(_ count: Int) throws {
        let producer = try TopicProducer(settings.kafka)
        for number in 0..<count {
            let value = """
                {"v":1,"app":"shop","install_id":"i\(number)","user_id":"u","platform":"android",
                 "gateway":"fcm","environment":"none","token":"t\(number)","registered_at":5}
                """
            try producer.send(
                to: "push.devices", key: Array("shop/i\(number)".utf8), value: Array(value.utf8))
        }
        try producer.flush(timeout: .seconds(30))
    }

    func verdicts(_ count: Int, within span: TimeSpan = .seconds(30)) throws -> [String] {
        let reader = try TopicReader(
            settings.kafka, topics: ["push.invalidations"], from: .beginning)
        var values: [String] = []
        let deadline = SystemTime.shared.monotonic + span
        while values.count < count, SystemTime.shared.monotonic < deadline {
            reader.read(timeout: .milliseconds(100)) { record in
                values.append(
                    record.value.map { String(decoding: $0, as: UTF8.self) } ?? "null")
            }
        }
        return values
    }
}

/// A store that claims to have applied so much, and what it was asked to do.
private final class Claims: Sendable {
    struct State: Sendable {
        var rebuilds = 0
        var applied = 0
        var marks = 0
        /// As of when everything is applied, as the writer was last told.
        var asOf = UnixMillis(0)
    }

    let nextOffset: Int64
    /// While it is closed nothing is applied, as when the store is away.
    let gate = Mutex(true)
    let state = Mutex(State())
    let changed = Semaphore()

    init(_ nextOffset: Int64) { self.nextOffset = nextOffset }

    func change(_ body: (inout State) -> Void) {
        state.withLock { body(&$0) }
        changed.signal()
    }

    func wait(until condition: (State) -> Bool) -> Bool {
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        while !condition(state.withLock { $0 }) {
            guard SystemTime.shared.monotonic < deadline else { return false }
            _ = changed.wait(upTo: .milliseconds(50))
        }
        return true
    }
}

private final class ClaimingWriter: IndexWriter {
    var delegate: (any IndexWriterDelegate)?
    private let claims: Claims
    private var partitions: [IndexTopicPartition] = []

    init(_ claims: Claims) { self.claims = claims }

    func assign(_ partitions: [IndexTopicPartition], of total: Int) {
        self.partitions = partitions
        begin(at: claims.nextOffset)
    }

    func rebuild() {
        claims.change { $0.rebuilds += 1 }
        begin(at: 0)
    }

    private func begin(at offset: Int64) {
        delegate?.applyFrom(
            partitions.map {
                IndexTopicPosition(
                    topic: $0.topic, partition: $0.partition,
                    nextOffset: $0.topic == .devices ? offset : 0)
            })
    }

    func apply(_ change: IndexChange, at position: TopicPosition, tag: UInt64) {
        while !claims.gate.withLock({ $0 }) { _ = claims.changed.wait(upTo: .milliseconds(20)) }
        claims.change { $0.applied += 1 }
        delegate?.changeFinished(tag: tag, .applied)
    }

    func mark(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        claims.change { $0.marks += 1 }
        delegate?.markersWritten()
    }

    func renew(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        claims.change { $0.asOf = max($0.asOf, asOf ?? UnixMillis(0)) }
    }

    func stop() { delegate = nil }
}

@Suite struct `A topic of the index` {
    /// Offsets of a topic that was deleted and created again say nothing about the new one.
    @Test(arguments: [(4, 1, 3), (3, 0, 0), (2, 0, 1), (0, 0, 3)] as [(Int64, Int, Int)])
    func `that ends before what was read is another one, and is read from its start`(
        claimed: Int64, rebuilds: Int, applied: Int
    ) throws {
        let world = try FeedWorld()
        try world.publish(3)
        let claims = Claims(claimed)
        let feed = try IndexFeed(
            world.settings, makeWriter: { _ in ClaimingWriter(claims) },
            registry: world.registry, log: world.log)
        #expect(claims.wait { $0.marks == 1 })
        let state = claims.state.withLock { $0 }
        #expect(state.rebuilds == rebuilds && state.applied == applied)
        let hasSaidSo = world.sink.lines.contains { $0.contains("the index is built anew") }
        #expect(hasSaidSo == (rebuilds > 0))
        #expect(feed.stop(deadline: SystemTime.shared.monotonic + .seconds(30)))
    }

    /// A log that does not reach to where it is read is read from its start again.
    @Test func `that is created anew while it is read is read from its start`() throws {
        let world = try FeedWorld()
        try world.publish(3)
        let claims = Claims(0)
        let feed = try IndexFeed(
            world.settings, makeWriter: { _ in ClaimingWriter(claims) },
            registry: world.registry, log: world.log)
        #expect(claims.wait { $0.marks == 1 && $0.applied == 3 })
        world.cluster.push([.offsetOutOfRange], to: .fetch)
        #expect(claims.wait { $0.rebuilds == 1 && $0.marks == 2 && $0.applied == 6 })
        #expect(world.sink.lines.contains { $0.contains("goes back to before what was read") })
        #expect(feed.stop(deadline: SystemTime.shared.monotonic + .seconds(30)))
    }
}

/// Writes to every partition without a pause until it is stopped.
private final class Stream: Sendable {
    private let isOver = Atomic<Bool>(false)
    private let count = Atomic<Int>(0)
    private let worker = Mutex<WorkerThread?>(nil)

    init(_ world: FeedWorld, partitions: Int32) throws {
        let settings = world.settings
        let thread = try WorkerThread(name: "stream") { [self] in
            guard let producer = try? TopicProducer(settings.kafka) else { return }
            let pause = Semaphore()
            while !isOver.load(ordering: .acquiring) {
                for partition in 0..<partitions {
                    let number = count.add(1, ordering: .relaxed).newValue
                    try? producer.send(
                        to: "push.devices", partition: partition,
                        key: Array("shop/s\(number)".utf8), value: nil)
                }
                _ = pause.wait(upTo: .milliseconds(2))
            }
        }
        worker.withLock { $0 = thread }
    }

    func stop() {
        isOver.store(true, ordering: .releasing)
        worker.withLock { $0 }?.join()
    }
}

@Suite struct `A topic of the index that never rests` {
    /// All partitions are never at their end at one moment.
    @Test func `is read up to date, and the index is known to be`() throws {
        let world = try FeedWorld(partitions: 6)
        // Each answer of the broker is older than the next record.
        world.cluster.setRoundTrip(.milliseconds(40), broker: 1)
        let stream = try Stream(world, partitions: 6)
        defer { stream.stop() }
        let claims = Claims(0)
        let feed = try IndexFeed(
            world.settings, makeWriter: { _ in ClaimingWriter(claims) },
            registry: world.registry, log: world.log)
        #expect(claims.wait { $0.marks == 1 })
        let later = SystemTime.shared.wall + .seconds(3)
        #expect(claims.wait { $0.asOf >= later })
        #expect(SystemTime.shared.wall - later < .seconds(5))
        #expect(feed.stop(deadline: SystemTime.shared.monotonic + .seconds(30)))
    }

    @Test func `is as of when what is read was all there was`() {
        let (one, other) = (TopicPartition("a", 0), TopicPartition("a", 1))
        var progress = ReadProgress([one, other], from: [other: 5])
        func asOf(_ now: Int64) -> Int64 { progress.asOf(UnixMillis(now)).value }
        func look(_ now: Int64, _ end: Int64?) {
            progress.look(at: UnixMillis(now)) { $0 == other ? end : 0 }
        }
        func read(_ place: TopicPartition, _ offset: Int64) -> Bool {
            progress.read(place, offset: offset)
        }
        func ended(_ place: TopicPartition, _ offset: Int64, at now: Int64) -> Bool {
            progress.ended(place, offset: offset, at: UnixMillis(now))
        }
        #expect(asOf(100) == 0)
        #expect(ended(one, 0, at: 101))
        #expect(read(other, 5))
        // Three more were there at 110, and are not read before 130, when there are more again.
        look(110, 9)
        #expect(read(other, 7))
        look(120, 12)
        #expect(asOf(120) == 0)
        #expect(read(other, 8))
        look(130, 14)
        #expect(asOf(135) == 110)
        // Offsets may be missing: what comes behind the goal shows that it is reached.
        #expect(read(other, 20))
        look(140, 30)
        #expect(asOf(145) == 130)
        #expect(ended(other, 30, at: 150))
        #expect(asOf(160) == 160)
        // What stands before what was read is of another topic.
        #expect(!read(other, 7))
        #expect(!ended(other, 29, at: 200))
    }
}

@Suite struct `How far the index is behind` {
    private func eventually(_ condition: () -> Bool) -> Bool {
        let deadline = SystemTime.shared.monotonic + .seconds(60)
        let never = Semaphore()
        while !condition() {
            guard SystemTime.shared.monotonic < deadline else { return false }
            _ = never.wait(upTo: .milliseconds(20))
        }
        return true
    }

    @Test func `grows while a store that is away takes nothing, and is none when all is applied`()
        throws
    {
        let world = try FeedWorld()
        try world.publish(3)
        let claims = Claims(0)
        claims.gate.withLock { $0 = false }
        let feed = try IndexFeed(
            world.settings, makeWriter: { _ in ClaimingWriter(claims) },
            registry: world.registry, log: world.log)
        let lag = { world.registry.sum(of: "bugle_index_lag_seconds") }
        // Everything was read, nothing was applied.
        #expect(eventually { lag() > 1 })
        let before = lag()
        #expect(eventually { lag() > before + 0.5 })
        claims.gate.withLock { $0 = true }
        #expect(eventually { lag() == 0 })
        #expect(claims.state.withLock { $0.applied } == 3)
        #expect(feed.stop(deadline: SystemTime.shared.monotonic + .seconds(30)))
    }

    @Test func `is the age of the oldest record that waits`() {
        var records = UnappliedRecords()
        #expect(records.oldest(waiting: 0) == nil)
        records.handed(10, from: 100)
        records.handed(5, from: 200)
        #expect(records.oldest(waiting: 15) == 100)
        #expect(records.oldest(waiting: 6) == 100)
        #expect(records.oldest(waiting: 5) == 200)
        records.handed(1, from: 300)
        #expect(records.oldest(waiting: 1) == 300)
        #expect(records.oldest(waiting: 0) == nil)
        for number in 0..<10_000 { records.handed(1, from: Int64(number)) }
        #expect(records.oldest(waiting: 7) == 9_993)
    }
}

@Suite struct `What the writer of the index finds out` {
    private let name = FuseName(
        app: "shop", gateway: .fcm, environment: .none, credential: "project")

    private func record(_ install: String) throws -> InvalidationRecord {
        let id = try #require(AddressID(app: "shop", installID: install))
        return InvalidationRecord(
            addressID: id, verdict: .stale, reason: "not_seen", origin: .sweeper,
            asOf: UnixMillis(5))
    }

    @Test func `reaches the operator with its likely cause and its remedy`() throws {
        let world = try FeedWorld()
        let board = IndexNoticeBoard(world.settings, registry: world.registry, log: world.log)
        let fuse = TrippedFuse(
            id: "shop.fcm.none.7", name: name, since: UnixMillis(7), reason: "SENDER_ID_MISMATCH",
            held: 50)
        board.take(.fuseTripped(fuse))
        let alarm = try #require(world.sink.lines.last)
        #expect(alarm.contains(#""level":"error""#))
        #expect(alarm.contains("belongs to another Firebase project than the app"))
        #expect(alarm.contains("bugle index release shop.fcm.none.7, or discard"))
        board.take(
            .churn(ChurnAlarm(app: "shop", gateway: .fcm, environment: .none, dead: 70)))
        #expect(world.sink.lines.last?.contains(#""dead_this_hour":70"#) == true)
        let count = world.sink.lines.count
        board.take(.swept(SweepReport()))
        #expect(world.sink.lines.count == count, "nothing stale is no news")
        var report = SweepReport()
        report.installs = 9
        report.stale = 4
        board.take(.swept(report))
        #expect(world.sink.lines.last?.contains(#""stale":4"#) == true)
        let metrics = world.metrics()
        let labels = #"{app="shop",gateway="fcm",environment="none"}"#
        #expect(metrics.contains("bugle_fuse_trips_total\(labels) 1"))
        #expect(metrics.contains("bugle_churn_alarms_total\(labels) 1"))
        #expect(metrics.contains("bugle_index_stale_total 4"))
        board.take(.evicts(true))
        #expect(world.metrics().contains("bugle_redis_evicts 1"))
        board.stopWriting()
        #expect(world.metrics().contains("bugle_redis_evicts 0"))
    }

    @Test func `is written on the topic of verdicts, also when the cluster was away`() throws {
        let world = try FeedWorld()
        let board = IndexNoticeBoard(world.settings, registry: world.registry, log: world.log)
        board.take(.publish(try record("i1")))
        board.publish()
        let first = try world.verdicts(1)
        #expect(first.count == 1)
        world.cluster.push([.topicUnauthorized], to: .produce)
        board.take(.publish(try record("i2")))
        board.publish()
        #expect(world.sink.lines.contains { $0.contains("verdicts cannot be written") })
        world.cluster.clearFaults(of: .produce)
        // It is tried again a second later, whatever else comes.
        var values: [String] = []
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        while values.count < 2, SystemTime.shared.monotonic < deadline {
            board.publish()
            values = try world.verdicts(2, within: .milliseconds(500))
        }
        #expect(values.contains { $0.contains(#""install_id":"i2""#) })
        #expect(values.allSatisfy { $0.contains(#""origin":"sweeper""#) })
    }
}
