// The index role, fed as a consumer feeds it.

import Base
import EventLoop
import RedisServer
import Synchronization
import Testing

@testable import TokenIndex

/// Two topics and a reader of them that does what the builder's events ask.
private final class Topics: Sendable {
    private struct State: Sendable {
        var records: [IndexTopicPartition: [IndexInput]] = [:]
        var cursors: [IndexTopicPartition: Int64] = [:]
        var epoch: UInt64 = 0
        var isAtEnd = true
        var events: [IndexBuilderEvent] = []
        var completions = 0
        var restarts = 0
        var rooms = 0
        var starts: [[IndexTopicPosition]] = []
        /// Records of each partition that can be read for now.
        var readable = Int.max
    }

    private let state = Mutex(State())
    private let changed = Semaphore()

    func append(_ topic: IndexTopic, _ key: String, _ value: String?, partition: Int32 = 0) {
        state.withLock { state in
            let place = IndexTopicPartition(topic, partition)
            let offset = Int64(state.records[place, default: []].count)
            state.records[place, default: []].append(
                IndexInput(
                    topic: topic,
                    position: TopicPosition(
                        partition: partition, offset: offset, timestamp: offset),
                    key: Array(key.utf8), value: value.map { Array($0.utf8) }))
            state.isAtEnd = false
        }
    }

    func heard(_ event: IndexBuilderEvent) {
        state.withLock { state in
            switch event {
            case .readFrom(let positions, let epoch):
                state.epoch = epoch
                state.isAtEnd = false
                state.restarts += 1
                state.starts.append(positions)
                state.cursors = [:]
                for position in positions {
                    let place = IndexTopicPartition(position.topic, position.partition)
                    state.cursors[place] = position.nextOffset
                }
            case .complete: state.completions += 1
            case .roomAvailable: state.rooms += 1
            case .unreadable, .refused: state.events.append(event)
            case .noticed: break
            }
        }
        changed.signal()
    }

    /// Feeds what there is, in small batches.
    func pump(_ builder: IndexBuilder, batch size: Int = 50) {
        while true {
            let (batch, epoch, isAtEnd) = state.withLock { state in
                var open: ArraySlice<IndexInput> = []
                for (place, cursor) in state.cursors where open.isEmpty {
                    let records = state.records[place, default: []]
                    open = records.prefix(state.readable).dropFirst(Int(cursor))
                }
                return (
                    Array(open.prefix(size)), state.epoch,
                    state.isAtEnd || state.readable < Int.max
                )
            }
            if batch.isEmpty {
                if !isAtEnd && epoch > 0 {
                    state.withLock { $0.isAtEnd = true }
                    builder.caughtUp(epoch: epoch, asOf: SystemTime.shared.wall)
                }
                return
            }
            guard builder.feed(batch, epoch: epoch) else {
                return
            }
            state.withLock { state in
                guard state.epoch == epoch else { return }
                for input in batch {
                    let place = IndexTopicPartition(input.topic, input.position.partition)
                    state.cursors[place] = input.position.offset + 1
                }
            }
        }
    }

    /// Pumps at every event until something is so.
    func run(_ builder: IndexBuilder, until condition: (Topics) -> Bool) throws {
        let deadline = SystemTime.shared.monotonic + .seconds(60)
        while !condition(self) {
            pump(builder)
            _ = changed.wait(upTo: .milliseconds(20))
            try #require(SystemTime.shared.monotonic < deadline, "nothing happened in time")
        }
    }

    /// Waits for an event.
    func wait() { _ = changed.wait(upTo: .milliseconds(20)) }

    var completions: Int { state.withLock { $0.completions } }
    var restarts: Int { state.withLock { $0.restarts } }
    var rooms: Int { state.withLock { $0.rooms } }
    var starts: [[IndexTopicPosition]] { state.withLock { $0.starts } }
    func stall(after count: Int) { state.withLock { $0.readable = count } }
    var complaints: [IndexBuilderEvent] { state.withLock { $0.events } }
    func inputs(_ place: IndexTopicPartition) -> [IndexInput] {
        state.withLock { $0.records[place, default: []] }
    }
}

private func device(_ install: String, _ user: String, _ token: String, _ time: Int) -> String {
    """
    {"v":1,"app":"app","install_id":"\(install)","user_id":"\(user)","platform":"android",
     "gateway":"fcm","environment":"none","token":"\(token)","registered_at":\(time)}
    """
}

@Suite struct `The index builder` {
    private static let partitions = [
        IndexTopicPartition(.devices, 0), IndexTopicPartition(.invalidations, 0),
    ]

    @Test func `applies both topics, skips what it cannot read and marks the end`() throws {
        let index = InMemoryTokenIndex()
        let topics = Topics()
        topics.append(.devices, "app/i1", device("i1", "u1", "t1", 10))
        topics.append(.devices, "app/i2", "{ not json")
        topics.append(.devices, "app/i3", device("i4", "u1", "t3", 10))
        topics.append(.devices, "app/i5", device("i5", "u1", "t5", 10))
        topics.append(
            .invalidations, "app/i5",
            #"{"app":"app","install_id":"i5","verdict":"invalidate","reason":"x","as_of":20}"#)
        topics.append(.invalidations, "app/i1", nil)
        let builder = try IndexBuilder(
            makeWriter: { _ in index.writer() }, report: { topics.heard($0) })
        defer { builder.stop() }
        builder.assign(Self.partitions, of: 2)
        try topics.run(builder) { $0.completions == 1 }
        let found = index.addresses(app: "app", userID: "u1").addresses
        #expect(found.map(\.addressID) == ["app/i1"])
        #expect(index.isComplete)
        #expect(topics.complaints.count == 2)
        try topics.run(builder) { _ in builder.progress.positions.count == 2 }
        let positions = builder.progress.positions.sorted { $0.topic.rawValue < $1.topic.rawValue }
        #expect(positions.map(\.nextOffset) == [4, 2])
        #expect(builder.progress.applied == 3 && builder.progress.skipped == 2)
        topics.append(.devices, "app/i1", nil)
        try topics.run(builder) { _ in index.addressCount == 0 }
    }

    @Test func `applies a row that became another address as two changes of one record`() throws {
        let index = InMemoryTokenIndex()
        let topics = Topics()
        func row(_ install: String, _ time: Int) -> String {
            device(install, "u", "t", time)
        }
        topics.append(.devices, #"{"id":1}"#, #"{"op":"c","before":null,"after":\#(row("i1", 1))}"#)
        topics.append(.devices, #"{"id":1}"#, #"{"op":"t"}"#)
        topics.append(
            .devices, #"{"id":1}"#,
            #"{"op":"u","before":\#(row("i1", 1)),"after":\#(row("i2", 2))}"#)
        topics.append(.devices, #"{"id":1}"#, nil)
        let builder = try IndexBuilder(
            makeWriter: { _ in index.writer() }, report: { topics.heard($0) })
        defer { builder.stop() }
        builder.assign(Self.partitions, of: 2)
        try topics.run(builder) { $0.completions == 1 }
        let found = index.addresses(app: "app", userID: "u").addresses
        #expect(found.map(\.addressID) == ["app/i2"])
        try topics.run(builder) { _ in builder.progress.applied == 3 }
        #expect(builder.progress.positions.map(\.nextOffset).max() == 4)
        #expect(builder.progress.skipped == 1)
    }

    @Test func `refuses batches while enough is waiting and says when there is room`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let topics = Topics()
        for install in 0..<(IndexLimits.recordsQueued + 2_000) {
            topics.append(.devices, "app/i\(install)", device("i\(install)", "u", "t\(install)", 1))
        }
        let index = store.index
        let builder = try IndexBuilder(
            makeWriter: { index.writer(on: $0) }, report: { topics.heard($0) })
        defer { builder.stop() }
        builder.assign(Self.partitions, of: 2)
        try topics.run(builder) { $0.restarts == 1 }
        server.freeze()
        let batches = topics.inputs(IndexTopicPartition(.devices, 0))
        var taken = 0
        while builder.feed(Array(batches[taken..<taken + 64]), epoch: 1) { taken += 64 }
        #expect(taken >= IndexLimits.recordsQueued && taken < batches.count)
        #expect(topics.rooms == 0)
        server.thaw()
        while topics.rooms == 0 { topics.wait() }
        #expect(builder.feed([batches[taken]], epoch: 1))
    }

    /// What waits has a bound in bytes too: records are as large as they please.
    @Test func `refuses batches of large records after a few of them`() throws {
        let server = try RedisServer()
        let index = try RedisStore(server: server).index
        let topics = Topics()
        let builder = try IndexBuilder(
            makeWriter: { index.writer(on: $0) }, report: { topics.heard($0) })
        defer { builder.stop() }
        builder.assign(Self.partitions, of: 2)
        try topics.run(builder) { $0.restarts == 1 }
        server.freeze()
        defer { server.thaw() }
        let large = [UInt8](repeating: 0x20, count: 60_000)
        var taken = 0
        func batch() -> [IndexInput] {
            [
                IndexInput(
                    topic: .devices,
                    position: TopicPosition(
                        partition: 0, offset: Int64(taken), timestamp: Int64(taken)),
                    key: Array("app/i".utf8), value: Array(device("i", "u", "t", 1).utf8) + large)
            ]
        }
        while taken < 10_000, builder.feed(batch(), epoch: 1) { taken += 1 }
        // As many as are in work at once are let go of before their change is stored.
        let most = IndexLimits.bytesQueued / large.count + IndexLimits.changesInFlight + 1
        #expect(taken >= IndexLimits.bytesQueued / (large.count + 1_000) && taken <= most)
    }

    @Test func `goes on where its predecessor was when it died in the middle`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let topics = Topics()
        for install in 0..<3_000 {
            topics.append(
                .devices, "app/i\(install)",
                device("i\(install)", "u\(install % 500)", "t\(install)", 1))
        }
        topics.stall(after: 1_500)
        let index = store.index
        func makeBuilder() throws -> IndexBuilder {
            let builder = try IndexBuilder(
                makeWriter: { index.writer(on: $0) }, report: { topics.heard($0) })
            builder.assign(Self.partitions, of: 2)
            return builder
        }
        let first = try makeBuilder()
        let operations = try RedisIndexOperator(index)
        // Half of it is applied, and the markers say so; nobody may trust them yet.
        try topics.run(first) { _ in
            (try? operations.markers().positions.first { $0.topic == .devices })?.nextOffset
                == 1_500
        }
        #expect(try !operations.markers().isComplete)
        first.stop()
        #expect(topics.starts.count == 1 && topics.completions == 0)

        topics.stall(after: .max)
        let second = try makeBuilder()
        defer { second.stop() }
        try topics.run(second) { $0.completions == 1 }
        let start = topics.starts.last?.first { $0.topic == .devices }
        #expect(start?.nextOffset == 1_500)
        #expect(second.progress.applied <= 1_500)
        let rig = try IndexRig(store, isComplete: false)
        for user in 0..<500 { #expect(try rig.ids("u\(user)").count == 6, "u\(user)") }
    }

    @Test func `fills a Redis that is killed and comes back empty in the middle`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let topics = Topics()
        var expected: [String: Int] = [:]
        for round in 0..<3 {
            for install in 0..<400 {
                let user = "u\((install * 7 + round * 13) % 90)"
                topics.append(
                    .devices, "app/i\(install)",
                    device("i\(install)", user, "t\(install)", round + 1))
                if round == 2 { expected[user, default: 0] += 1 }
            }
        }
        let index = store.index
        let builder = try IndexBuilder(
            makeWriter: { index.writer(on: $0) }, report: { topics.heard($0) })
        defer { builder.stop() }
        builder.assign(Self.partitions, of: 2)
        try topics.run(builder) { _ in builder.progress.applied > 100 }
        server.kill()
        try server.start()
        try topics.run(builder) { $0.restarts == 2 }
        let completions = topics.completions
        try topics.run(builder) { $0.completions > completions }
        let rig = try IndexRig(store, isComplete: false)
        for user in 0..<90 {
            let count = try rig.ids("u\(user)").count
            #expect(count == expected["u\(user)", default: 0], "u\(user)")
        }
    }
}

/// A store that finishes so many changes as it is allowed to, when it is told how far all is.
private final class SlowStore: Sendable {
    struct State: Sendable {
        var waiting: [UInt64] = []
        var allowed = 0
        var asOf: [UnixMillis] = []
        var marked: UnixMillis?
    }

    let state = Mutex(State())
    let changed = Semaphore()

    func wait(until condition: (State) -> Bool) -> Bool {
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        while !condition(state.withLock { $0 }) {
            guard SystemTime.shared.monotonic < deadline else { return false }
            _ = changed.wait(upTo: .milliseconds(50))
        }
        return true
    }
}

private final class SlowWriter: IndexWriter {
    var delegate: (any IndexWriterDelegate)?
    private let store: SlowStore

    init(_ store: SlowStore) { self.store = store }

    func assign(_ partitions: [IndexTopicPartition], of total: Int) {
        delegate?.applyFrom(
            partitions.map {
                IndexTopicPosition(topic: $0.topic, partition: $0.partition, nextOffset: 0)
            })
    }

    func apply(_ change: IndexChange, at position: TopicPosition, tag: UInt64) {
        store.state.withLock { $0.waiting.append(tag) }
    }

    func mark(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        store.state.withLock { $0.marked = asOf }
    }

    func renew(_ positions: [IndexTopicPosition], asOf: UnixMillis?) {
        let done = store.state.withLock { state in
            state.asOf.append(asOf ?? UnixMillis(0))
            let count = min(state.allowed, state.waiting.count)
            defer { state.waiting.removeFirst(count) }
            state.allowed -= count
            return Array(state.waiting.prefix(count))
        }
        for tag in done { delegate?.changeFinished(tag: tag, .applied) }
        store.changed.signal()
    }

    func rebuild() {}
    func stop() { delegate = nil }
}

@Suite struct `What an index builder shows` {
    @Test func `is the moment before which everything is applied, whatever is under way behind it`()
        throws
    {
        let store = SlowStore()
        let builder = try IndexBuilder(makeWriter: { _ in SlowWriter(store) }, report: { _ in })
        defer { builder.stop() }
        builder.assign([IndexTopicPartition(.devices, 0)], of: 1)
        func feed(_ offset: Int64) -> Bool {
            builder.feed(
                [
                    IndexInput(
                        topic: .devices, position: place(offset), key: Array("app/i1".utf8),
                        value: Array(device("i1", "u", "t", 1).utf8))
                ], epoch: 1)
        }
        builder.caughtUp(epoch: 1, asOf: UnixMillis(100))
        #expect(store.wait { $0.marked == UnixMillis(100) })
        #expect(feed(0))
        builder.caughtUp(epoch: 1, asOf: UnixMillis(200))
        #expect(feed(1))
        #expect(store.wait { $0.waiting.count == 2 })
        let count = store.state.withLock { $0.asOf.count }
        #expect(store.wait { $0.asOf.count >= count + 2 })
        #expect(store.state.withLock { $0.asOf.last } == UnixMillis(100))
        store.state.withLock { $0.allowed = 1 }
        #expect(store.wait { $0.asOf.last == UnixMillis(200) })
        #expect(store.state.withLock { $0.waiting.count } == 1)
        builder.caughtUp(epoch: 1, asOf: UnixMillis(300))
        store.state.withLock { $0.allowed = 1 }
        #expect(store.wait { $0.asOf.last == UnixMillis(300) })
    }
}

@Suite struct `Applied offsets` {
    @Test(arguments: 0..<50 as Range<UInt64>)
    func `are the lowest that is open`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var offsets = AppliedOffsets(next: 5)
        var open: [Int64] = []
        var last: Int64 = 4
        for _ in 0..<300 {
            if Bool.random(using: &random) || open.isEmpty {
                last += Int64.random(in: 1...3, using: &random)
                offsets.started(last)
                open.append(last)
            } else {
                let place = Int.random(in: 0..<open.count, using: &random)
                offsets.finished(open.remove(at: place))
            }
            if open.isEmpty { #expect(offsets.next == last + 1, "seed \(seed)") }
            if let lowest = open.min() { #expect(offsets.next <= lowest, "seed \(seed)") }
        }
    }
}
