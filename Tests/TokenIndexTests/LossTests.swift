// Redis lost some of what was written: a node was emptied, a replica that lagged took over, a
// backup came back. Each is noticed before an answer is believed, and healed by applying again.

import Base
import EventLoop
import RedisServer
import Testing

@testable import TokenIndex

/// A topic with a history, read by whoever is told where to start.
private struct Topic {
    var records: [HistoryRecord] = []

    /// How far a partition goes.
    func end(_ place: IndexTopicPartition) -> Int64 {
        (records.filter { HistoryMaker.partition(of: $0) == place }.last?.position.offset ?? -1) + 1
    }

    var ends: [IndexTopicPosition] {
        HistoryMaker.partitions.map {
            IndexTopicPosition(topic: $0.topic, partition: $0.partition, nextOffset: end($0))
        }
    }

    func from(_ positions: [IndexTopicPosition]) -> [HistoryRecord] {
        records.filter { record in
            let place = HistoryMaker.partition(of: record)
            let start = positions.first {
                $0.topic == place.topic && $0.partition == place.partition
            }
            return record.position.offset >= start?.nextOffset ?? 0
        }
    }
}

extension IndexRig {
    /// Applies records one after another.
    fileprivate func follow(_ records: [HistoryRecord]) throws {
        let tags = records.map { start($0.change, at: $0.position) }
        try turn { tags.allSatisfy { self.result(of: $0) != nil } }
    }

    /// Does what the writer asks for, until it has marked the index.
    fileprivate func heal(_ topic: Topic, after assignments: Int) throws {
        try turn { self.assignments.count > assignments }
        let count = marks
        try follow(topic.from(self.assignments[self.assignments.count - 1]))
        writer.mark(topic.ends)
        try turn { self.marks > count }
    }

    fileprivate func begin(_ topic: Topic) throws {
        writer.assign(HistoryMaker.partitions, of: HistoryMaker.partitions.count)
        try heal(topic, after: 0)
    }
}

@Suite struct `A store that lost writes` {
    /// A history of which the last part is lost in some buckets.
    private struct Loss {
        let server: RedisServer
        let store: RedisStore
        let rig: IndexRig
        let topic: Topic
        let model: InMemoryTokenIndex
        let administrator: Operator

        init(seed: UInt64) throws {
            var random = SeededRandom(seed: seed)
            let history = HistoryMaker.make(60, &random)
            server = try RedisServer()
            store = try RedisStore(server: server)
            rig = try IndexRig(store, isComplete: false)
            model = InMemoryTokenIndex()
            for record in history { model.apply(record.change, at: record.position) }
            topic = Topic(records: history)
            administrator = try Operator(server)
            // Keep what there is after two thirds: what an older replica would have.
            try rig.begin(Topic(records: Array(history.prefix(40))))
            try administrator.run("EVAL", Self.copy, "0", store.prefix, "old:")
            try rig.follow(Array(history.dropFirst(40)))
            rig.writer.renew(topic.ends, asOf: nil)
            try rig.turn {
                (try? RedisIndexOperator(self.store.index).markers().positions)
                    == self.topic.ends
                    .sorted {
                        ($0.topic.rawValue, $0.partition) < ($1.topic.rawValue, $1.partition)
                    }
            }
        }

        /// Copies all keys under another prefix.
        static let copy = """
            for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
              redis.call('COPY', key, ARGV[2] .. key, 'REPLACE')
            end
            return 'done'
            """

        /// Puts those buckets back to the older state, or empties them.
        static let lose = """
            local lost = {}
            for n = 4, #ARGV do lost[ARGV[n]] = true end
            for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
              if lost[key:match('{b(%d+)}')] then redis.call('DEL', key) end
            end
            if ARGV[3] == '1' then
              for _, key in ipairs(redis.call('KEYS', ARGV[2] .. '*')) do
                if lost[key:match('{b(%d+)}')] then
                  redis.call('COPY', key, key:sub(#ARGV[2] + 1), 'REPLACE')
                end
              end
            end
            return 'done'
            """

        /// The same third of the buckets that one node of three would have.
        func lose(keepingOld: Bool, third: Int) throws {
            let buckets = (0..<IndexLimits.buckets).filter { $0 % 3 == third }.map { String($0) }
            try administrator.run(
                words: ["EVAL", Self.lose, "0", store.prefix, "old:", keepingOld ? "1" : "0"]
                    + buckets)
        }

        /// Both as the topics say, and no entry too much.
        func check(_ seed: UInt64) throws {
            let found = try RedisIndexOperator(store.index).verify(against: model)
            #expect(found.isEqual, "seed \(seed): \(found.differences.prefix(3))")
            for user in HistoryMaker.users {
                let expected = model.addresses(app: "app", userID: user).addresses
                #expect(try rig.ids(user) == expected.map(\.addressID), "seed \(seed), \(user)")
            }
        }
    }

    @Test(arguments: 0..<6 as Range<UInt64>)
    func `because a fail-over lost the last ones is healed from the older markers`(
        seed: UInt64
    ) throws {
        let loss = try Loss(seed: seed)
        let rounds = loss.rig.assignments.count
        try loss.lose(keepingOld: true, third: Int(seed % 3))
        try loss.rig.turn { loss.rig.assignments.count > rounds }
        #expect(loss.rig.assignments.last?.contains { $0.nextOffset > 0 } ?? false)
        // No bucket is trusted until it is healed.
        let tag = loss.rig.startLookUp("u1")
        for _ in 0..<5 { loss.rig.loop.turn(waitingUpTo: .milliseconds(5)) }
        #expect(loss.rig.answer(of: tag) == nil && !loss.rig.reader.isReady)
        try loss.rig.heal(loss.topic, after: rounds)
        try loss.check(seed)
        try loss.rig.turn { loss.rig.answer(of: tag) != nil }
    }

    @Test(arguments: 0..<3 as Range<UInt64>)
    func `because one node of three was emptied is built anew`(seed: UInt64) throws {
        let loss = try Loss(seed: seed)
        let rounds = loss.rig.assignments.count
        try loss.lose(keepingOld: false, third: Int(seed % 3))
        try loss.rig.turn { loss.rig.assignments.count > rounds }
        #expect(loss.rig.assignments.last?.allSatisfy { $0.nextOffset == 0 } ?? false)
        try loss.rig.heal(loss.topic, after: rounds)
        try loss.check(seed)
    }

    @Test(arguments: 0..<3 as Range<UInt64>)
    func `because half a backup came back is noticed by a new writer`(seed: UInt64) throws {
        let loss = try Loss(seed: seed)
        loss.rig.writer.stop()
        try loss.lose(keepingOld: true, third: 0)
        try loss.lose(keepingOld: false, third: 1)
        let next = try IndexRig(loss.store, isComplete: false)
        let tag = next.startLookUp("u1")
        for _ in 0..<10 { next.loop.turn(waitingUpTo: .milliseconds(5)) }
        #expect(next.answer(of: tag) == nil, "believed before a writer looked")
        try next.begin(loss.topic)
        let found = try RedisIndexOperator(loss.store.index).verify(against: loss.model)
        #expect(found.isEqual, "seed \(seed): \(found.differences.prefix(3))")
        try next.turn { next.answer(of: tag) != nil }
    }

    @Test func `answers an orphan of an interrupted healing only after the next one`() throws {
        let loss = try Loss(seed: 3)
        let rounds = loss.rig.assignments.count
        try loss.lose(keepingOld: true, third: 1)
        try loss.rig.turn { loss.rig.assignments.count > rounds }
        // The writer dies in the middle of it; its successor knows of no loss but by the markers.
        try loss.rig.follow(Array(loss.topic.from(loss.rig.assignments[rounds]).prefix(4)))
        loss.rig.writer.stop()
        let next = try IndexRig(loss.store, isComplete: false)
        try next.begin(loss.topic)
        let found = try RedisIndexOperator(loss.store.index).verify(against: loss.model)
        #expect(found.isEqual, "\(found.differences.prefix(3))")
    }
}

@Suite struct `What a reader trusts` {
    private func marker(_ stamp: Int64, asOf: Int64) -> MarkerTrust {
        MarkerTrust(stamp: stamp, asOf: UnixMillis(asOf))
    }

    private final class Reader {
        var rule = TrustRule(lagMax: .seconds(120))
        func trusts(_ marker: MarkerTrust?, at now: UnixMillis) -> Bool {
            rule.trusts(marker, at: now)
        }
    }

    @Test func `is nothing before a renewal that came after all it knew`() {
        let reader = Reader()
        let now = UnixMillis(100_000)
        #expect(!reader.trusts(marker(99_000, asOf: 99_000), at: now))
        reader.rule.surveyed([marker(99_000, asOf: 99_000), marker(99_500, asOf: 99_000), nil])
        #expect(!reader.trusts(marker(99_500, asOf: 99_000), at: now))
        #expect(reader.trusts(marker(99_501, asOf: 99_000), at: now))
        reader.rule.surveyed([marker(99_900, asOf: 99_000)])
        #expect(reader.trusts(marker(99_600, asOf: 99_000), at: now))
        // Another server with older data.
        reader.rule.connectionEnded()
        reader.rule.surveyed([marker(98_000, asOf: 98_000)])
        #expect(!reader.trusts(marker(98_500, asOf: 98_000), at: now))
        #expect(reader.trusts(marker(99_901, asOf: 99_901), at: now))
    }

    @Test func `is no bucket that stays behind the others`() {
        let reader = Reader()
        let now = UnixMillis(100_000)
        reader.rule.surveyed([marker(80_000, asOf: 90_000)])
        #expect(reader.trusts(marker(90_000, asOf: 90_000), at: now))
        #expect(reader.trusts(marker(99_000, asOf: 90_000), at: now))
        #expect(!reader.trusts(marker(93_999, asOf: 90_000), at: now))
        #expect(reader.trusts(marker(94_000, asOf: 90_000), at: now))
    }

    @Test func `is nothing that the topics are far ahead of`() {
        let reader = Reader()
        reader.rule.surveyed([marker(1, asOf: 1)])
        #expect(reader.trusts(marker(200_000, asOf: 80_000), at: UnixMillis(200_000)))
        #expect(!reader.trusts(marker(200_000, asOf: 79_999), at: UnixMillis(200_000)))
        #expect(reader.rule.lags(marker(200_000, asOf: 79_999), at: UnixMillis(200_000)))
        #expect(!reader.trusts(nil, at: UnixMillis(200_000)))
    }

    @Test(arguments: ["", "1", ":", "1:", ":1", "1:2:3", "a:1", "1:-2", " 1:2"])
    func `is no marker that cannot be read`(text: String) {
        #expect(MarkerTrust(text) == nil)
    }
}
