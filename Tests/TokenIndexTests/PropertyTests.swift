// Any order of arrival that keeps the order inside a partition, with replays, ends in the index
// that the model computes from the history.

import Base
import EventLoop
import Testing

@testable import TokenIndex

@Suite struct `However records arrive` {
    @Test(arguments: 0..<400 as Range<UInt64>)
    func `the index in memory shows what the model says`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let history = HistoryMaker.make(40, &random)
        let model = IndexModel(history)
        let index = InMemoryTokenIndex()
        for record in HistoryMaker.arrivals(history, &random) {
            index.apply(record.change, at: record.position)
        }
        for user in HistoryMaker.users {
            let found = index.addresses(app: "app", userID: user).addresses
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
        for record in HistoryMaker.arrivals(history, &random) {
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
            let found = try rig.addresses(user)
            #expect(found.map(\.addressID) == model.ids(user), "seed \(seed), \(user)")
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
