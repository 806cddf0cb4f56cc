// Any order of arrival that keeps the order inside a partition, with replays, ends in the index
// that the model computes from the history.

import Base
import EventLoop
import Testing

@testable import TokenIndex

@Suite struct `However records arrive` {
    @Test(arguments: 0..<400 as Range<UInt64>, HistoryMaker.Order.allCases)
    func `the index in memory shows what the model says`(
        seed: UInt64, order: HistoryMaker.Order
    ) throws {
        var random = SeededRandom(seed: seed)
        let history = HistoryMaker.make(40, &random)
        let model = IndexModel(history)
        let index = InMemoryTokenIndex()
        for record in HistoryMaker.arrivals(history, keeping: order, &random) {
            index.apply(record.change, at: record.position)
        }
        for user in HistoryMaker.users {
            let found = index.addresses(app: "app", userID: user).addresses.filter {
                !$0.isQuarantined
            }
            #expect(found.map(\.addressID) == model.ids(user), "seed \(seed), \(user)")
            #expect(found.allSatisfy { $0.userID == user }, "seed \(seed)")
        }
    }

    /// Two writers, each with its own partitions and connection, many changes at once.
    @Test(arguments: 0..<40 as Range<UInt64>)
    func `the index in Redis shows what the model says`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let history = HistoryMaker.make(40, &random)
        let model = IndexModel(history)
        let store = try RedisStore()
        let rig = try IndexRig(store)
        let other = store.index.writer(on: rig.loop)
        defer { other.stop() }
        let counter = ResultCounter()
        other.delegate = counter
        var tags: [UInt64] = []
        var others = 0
        let order = HistoryMaker.Order.allCases[Int(seed % 2)]
        for record in HistoryMaker.arrivals(history, keeping: order, &random) {
            if HistoryMaker.partition(of: record).partition == 1 {
                others += 1
                other.apply(record.change, at: record.position, tag: UInt64(others))
            } else {
                tags.append(rig.start(record.change, at: record.position))
            }
            if Int.random(in: 0..<4, using: &random) == 0 {
                rig.loop.turn(waitingUpTo: .milliseconds(1))
            }
        }
        try rig.turn { counter.count == others && tags.allSatisfy { rig.result(of: $0) != nil } }
        for user in HistoryMaker.users {
            let found = try rig.ids(user)
            #expect(found == model.ids(user), "seed \(seed), \(user)")
        }
    }
}

@Suite struct `Every interleaving of` {
    /// A history whose keys are all in one partition of their topic.
    struct Story: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var changes: [IndexChange]
        /// Who has what at the end, said by hand; the model has to agree.
        var expected: [String: [String]]
        /// How many interleavings there are.
        var count: Int

        /// The records with offsets of their topic.
        func history(app: String) -> [HistoryRecord] {
            var offsets: [IndexTopic: Int64] = [:]
            return changes.enumerated().map { index, change in
                let topic: IndexTopic =
                    if case .invalidation = change { .invalidations } else { .devices }
                let offset = offsets[topic, default: 0]
                offsets[topic] = offset + 1
                return HistoryRecord(
                    change: change.moved(to: app),
                    position: TopicPosition(
                        partition: 0, offset: offset, timestamp: 1_000 + Int64(index)))
            }
        }
    }

    private static let stories = [
        Story(
            testDescription: "reinstall with version 1 takes the token from version 57",
            changes: [
                upload("old", "u1", token: "T", at: 50, version: 56),
                upload("old", "u1", token: "T", at: 100, version: 57),
                upload("new", "u2", token: "T", at: 200, version: 1),
                verdict(.invalidate, "old", token: "T", asOf: 150),
                upload("new", "u2", token: "T", at: 210, version: 2),
                upload("old", "u1", token: "T", at: 90, version: 58),
            ], expected: ["u1": [], "u2": ["new"]], count: 60),
        Story(
            testDescription: "R1(v5), null, R2(v3)",
            changes: [
                upload("i", "u1", token: "T5", at: 100, version: 5),
                upload("other", "u2", token: "T5", at: 90, version: 9),
                gone("i"),
                upload("i", "u1", token: "T3", at: 200, version: 3),
                verdict(.suspend, "i", token: "T5", asOf: 300),
                gone("other"),
            ], expected: ["u1": ["i"], "u2": []], count: 60),
        Story(
            testDescription: "a phone that is sold, with verdicts on both sides",
            changes: [
                upload("i", "u1", token: "T", at: 100, version: 1),
                verdict(.invalidate, "i", token: "T", asOf: 120),
                upload("i", nil, token: "T", at: 100, version: 2),
                upload("i", "u2", token: "T", at: 130, version: 3),
                verdict(.suspend, "i", token: "U", asOf: 500),
                upload("j", "u1", token: "U", at: 140, version: 1),
                upload("i", "u2", token: "V", at: 150, version: 4),
            ], expected: ["u1": ["j"], "u2": ["i"]], count: 105),
        Story(
            testDescription: "a dead token, and then a late word on the one before it",
            changes: [
                upload("i", "u1", token: "A", at: 100, version: 1),
                upload("i", "u1", token: "B", at: 200, version: 2),
                upload("j", "u2", token: "C", at: 200, version: 2),
                verdict(.invalidate, "i", token: "B", asOf: 250),
                verdict(.invalidate, "i", token: "A", asOf: 190),
            ], expected: ["u1": [], "u2": ["j"]], count: 30),
        Story(
            testDescription: "words on both tokens in the order of the tokens, and a new one",
            changes: [
                upload("i", "u1", token: "A", at: 100, version: 1),
                verdict(.suspend, "i", token: "A", asOf: 400),
                upload("i", "u1", token: "B", at: 200, version: 2),
                verdict(.invalidate, "i", token: "B", asOf: 250),
                verdict(.invalidate, "i", token: "A", asOf: 190),
                upload("j", "u2", token: "A", at: 300, version: 1),
            ], expected: ["u1": [], "u2": ["j"]], count: 60),
        Story(
            testDescription: "a release between two deaths",
            changes: [
                upload("i", "u1", token: "A", at: 100, version: 1),
                upload("i", "u1", token: "B", at: 200, version: 2),
                verdict(.invalidate, "i", token: "B", asOf: 220),
                held(.quarantine, "i", token: "B", asOf: 230, "F1"),
                held(.release, "i", token: "B", asOf: 230, "F1"),
                verdict(.invalidate, "i", token: "A", asOf: 190),
                upload("j", "u2", token: "C", at: 200, version: 2),
            ], expected: ["u1": [], "u2": ["j"]], count: 105),
        Story(
            testDescription: "a release before what it releases",
            changes: [
                upload("i", "u1", token: "A", at: 100, version: 1),
                held(.release, "i", token: "B", asOf: 230, "F1"),
                held(.quarantine, "i", token: "B", asOf: 230, "F1"),
                upload("i", "u1", token: "B", at: 200, version: 2),
                held(.quarantine, "j", token: "C", asOf: 230, "F1"),
                held(.release, "j", token: "C", asOf: 230, "F2"),
                upload("j", "u2", token: "C", at: 200, version: 2),
            ], expected: ["u1": ["i"], "u2": []], count: 630),
    ]

    private static let users = ["u1", "u2"]

    private func check(
        _ story: Story, _ app: String, _ context: String, _ ids: (String) throws -> [String]
    ) rethrows {
        for user in Self.users {
            let expected = (story.expected[user] ?? []).map { "\(app)/\($0)" }
            #expect(try ids(user) == expected, "\(context), \(user)")
        }
    }

    @Test(arguments: Self.stories)
    func `a story ends the same, with replays from every offset at every moment`(
        story: Story
    ) throws {
        let history = story.history(app: "app")
        let model = IndexModel(history)
        check(story, "app", "the model") { model.ids($0) }
        let arrivals = HistoryMaker.allArrivals(history)
        #expect(arrivals.count == story.count)
        for (number, arrival) in arrivals.enumerated() {
            // A replay reads one topic again from an offset to its end; what had not come yet comes
            // with it, and the rest behind it.
            for moment in 0...arrival.count {
                for first in history {
                    let replay = history.filter {
                        HistoryMaker.partition(of: $0) == HistoryMaker.partition(of: first)
                            && $0.position.offset >= first.position.offset
                    }
                    // Nothing is skipped: what is older than the replay was read before it.
                    let seen = arrival[..<moment]
                    let isGapless = history.allSatisfy { record in
                        HistoryMaker.partition(of: record) != HistoryMaker.partition(of: first)
                            || record.position.offset >= first.position.offset
                            || seen.contains { $0.position == record.position && $0.isLike(record) }
                    }
                    guard isGapless else { continue }
                    let index = InMemoryTokenIndex()
                    for record in seen + replay + arrival[moment...] {
                        index.apply(record.change, at: record.position)
                    }
                    check(story, "app", "arrival \(number), \(first.position.offset) at \(moment)")
                    {
                        index.addresses(app: "app", userID: $0).addresses
                            .filter { !$0.isQuarantined }.map(\.addressID)
                    }
                }
            }
        }
    }

    /// Each in an app of its own, in one store; every one has a replay somewhere.
    @Test(arguments: Self.stories)
    func `a story ends the same in Redis`(story: Story) throws {
        let rig = try IndexRig(try RedisStore())
        var random = SeededRandom(seed: 3)
        let count = HistoryMaker.allArrivals(story.history(app: "app")).count
        for number in 0..<count {
            let app = "app\(number)"
            let arrival = HistoryMaker.allArrivals(story.history(app: app))[number]
            let moment = Int.random(in: 0..<arrival.count, using: &random)
            let start = Int.random(in: 0...moment, using: &random)
            let order = arrival[...moment] + arrival[start...]
            let tags = order.map { rig.start($0.change, at: $0.position) }
            try rig.turn { tags.allSatisfy { rig.result(of: $0) != nil } }
            try check(story, app, "arrival \(number), seed 3") { try rig.ids($0, app: app) }
        }
    }
}

extension HistoryRecord {
    /// Whether both are of one topic.
    fileprivate func isLike(_ other: HistoryRecord) -> Bool {
        HistoryMaker.partition(of: self) == HistoryMaker.partition(of: other)
    }
}

extension IndexChange {
    /// The same in another app.
    fileprivate func moved(to app: String) -> IndexChange {
        switch self {
        case .registration(.gone(let id)):
            return TokenIndexTests.gone(id.installID, app: app)
        case .registration(.registered(let address)):
            return upload(
                address.installID, address.userID, token: address.token,
                at: address.registeredAt.value, version: address.version, app: app)
        case .invalidation(var record):
            if let moved = AddressID(app: app, installID: record.addressID.installID) {
                record.addressID = moved
            }
            return .invalidation(record)
        case .user(let change):
            return .user(UserChange(app: app, userID: change.userID, record: change.record))
        }
    }
}

private final class ResultCounter: IndexWriterDelegate {
    var count = 0
    func changeFinished(tag: UInt64, _ result: ChangeResult) { count += 1 }
    func applyFrom(_ positions: [IndexTopicPosition]) {}
    func markersWritten() {}
}

@Suite struct `A writer that dies` {
    struct Scenario: CustomTestStringConvertible {
        var testDescription: String
        var before: [IndexChange]
        var change: IndexChange
        var token: String
        var after: [String: [String]]
    }

    private static let scenarios = [
        Scenario(
            testDescription: "while a token moves to another install",
            before: [upload("i1", "u1", token: "T", at: 1)],
            change: upload("i2", "u2", token: "T", at: 2), token: "T",
            after: ["u1": [], "u2": ["app/i2"]]),
        Scenario(
            testDescription: "while a token moves back",
            before: [
                upload("i1", "u1", token: "T", at: 1), upload("i2", "u2", token: "T", at: 2),
            ],
            change: upload("i1", "u1", token: "T", at: 3, version: 2), token: "T",
            after: ["u1": ["app/i1"], "u2": []]),
        Scenario(
            testDescription: "while an install changes hands",
            before: [
                upload("i1", "u1", token: "T", at: 1),
                upload("i1", "u1", token: "V", at: 1, kind: "voip"),
            ],
            change: upload("i1", "u2", token: "T", at: 2, version: 2), token: "V",
            after: ["u1": [], "u2": ["app/i1", "app/i1/voip"]]),
        Scenario(
            testDescription: "during a logout",
            before: [
                upload("i1", "u1", token: "T", at: 1),
                upload("i1", "u1", token: "V", at: 1, kind: "voip"),
            ],
            change: upload("i1", nil, token: "T", at: 1, version: 2), token: "T",
            after: ["u1": [], "u2": []]),
        Scenario(
            testDescription: "while a claimed token is rotated in",
            before: [
                upload("i1", "u1", token: "T", at: 1), upload("i2", "u2", token: "old", at: 1),
            ],
            change: upload("i2", "u2", token: "T", at: 2, version: 2), token: "T",
            after: ["u1": [], "u2": ["app/i2"]]),
        Scenario(
            testDescription: "while a verdict is applied",
            before: [upload("i1", "u1", token: "T", at: 1)],
            change: verdict(.invalidate, "i1", token: "T", asOf: 5), token: "T",
            after: ["u1": [], "u2": []]),
        Scenario(
            testDescription: "while an address goes away",
            before: [upload("i1", "u1", token: "T", at: 1)], change: gone("i1"), token: "T",
            after: ["u1": [], "u2": []]),
    ]

    @Test(arguments: Self.scenarios)
    func `at any step leaves nobody with another's token, and its successor completes`(
        scenario: Scenario
    ) throws {
        var steps = 0
        var isThrough = false
        while !isThrough {
            let store = try RedisStore()
            let rig = try IndexRig(store)
            for change in scenario.before { try rig.apply(change) }
            let position = place(1_000)
            isThrough = try applyAndDie(
                scenario.change, at: position, after: steps, store: store, rig: rig)
            let holders = try ["u1", "u2"].filter { user in
                try rig.addresses(user).contains { $0.token == scenario.token }
            }
            #expect(holders.count <= 1, "after \(steps) steps")
            #expect(try rig.apply(scenario.change, at: position) == .applied)
            for (user, ids) in scenario.after {
                #expect(try rig.ids(user) == ids, "\(user) after \(steps) steps")
            }
            steps += 1
        }
        #expect(steps > 3)
    }

    /// Returns whether the steps were enough.
    private func applyAndDie(
        _ change: IndexChange, at position: TopicPosition, after steps: Int, store: RedisStore,
        rig: IndexRig
    ) throws -> Bool {
        let writer = store.index.testableWriter(on: rig.loop)
        defer { writer.stop() }
        let counter = ResultCounter()
        writer.delegate = counter
        writer.stepBudget = steps
        writer.apply(change, at: position, tag: 1)
        try rig.turn { counter.count == 1 || writer.isExhausted }
        return counter.count == 1
    }
}
