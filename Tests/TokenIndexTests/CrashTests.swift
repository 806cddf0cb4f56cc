// A writer that dies after any of its commands, in the middle of a whole history: its successor
// reads on from what was stored and ends where an undisturbed one does.

import Base
import EventLoop
import Testing

@testable import TokenIndex

private final class Counter: IndexWriterDelegate {
    var results: [UInt64: ChangeResult] = [:]
    func changeFinished(tag: UInt64, _ result: ChangeResult) { results[tag] = result }
    func applyFrom(_ positions: [IndexTopicPosition]) {}
    func markersWritten() {}
}

@Suite struct `A writer that dies after any command` {
    private static let history: [IndexChange] = [
        upload("i1", "u1", token: "T", at: 1),
        upload("i1", "u1", token: "V", at: 1, kind: "voip"),
        // The phone is sold: a reinstall takes the token.
        upload("i2", "u2", token: "T", at: 2),
        // Another one logs in where the first user was.
        upload("i1", "u3", token: "V", at: 3, version: 2, kind: "voip"),
        upload("i2", nil, token: "T", at: 2, version: 2),
        verdict(.suspend, "i1", token: "V", asOf: 3, kind: "voip"),
        upload("i1", "u1", token: "T", at: 4, version: 3),
        upload("i1", "u1", token: "V", at: 5, version: 3, kind: "voip"),
        gone("i2"),
        upload("i3", "u2", token: "T", at: 6),
    ]
    private static let users = ["u1", "u2", "u3"]

    private static func position(_ number: Int) -> TopicPosition {
        place(Int64(number), partition: history[number].isVerdict ? 1 : 0)
    }

    @Test func `is succeeded by one that ends in the same index`() throws {
        let undisturbed = InMemoryTokenIndex()
        for (number, change) in Self.history.enumerated() {
            undisturbed.apply(change, at: Self.position(number))
        }
        var steps = 0
        var isThrough = false
        while !isThrough {
            let store = try RedisStore()
            let rig = try IndexRig(store)
            let stored = try applyAndDie(store, rig, after: steps)
            isThrough = stored == Self.history.count
            try checkHolders(rig, "after \(steps) commands")
            for number in stored..<Self.history.count {
                _ = try rig.apply(Self.history[number], at: Self.position(number))
                try checkHolders(rig, "after \(steps) commands and a restart")
            }
            let found = try RedisIndexOperator(store.index).verify(against: undisturbed)
            #expect(found.isEqual, "after \(steps) commands: \(found.differences)")
            steps += 1
        }
        #expect(steps > 40)
    }

    /// Applies the history in order; returns how many records were done when it died.
    private func applyAndDie(_ store: RedisStore, _ rig: IndexRig, after steps: Int) throws -> Int {
        let writer = store.index.testableWriter(on: rig.loop)
        defer { writer.stop() }
        let counter = Counter()
        writer.delegate = counter
        writer.stepBudget = steps
        for (number, change) in Self.history.enumerated() {
            writer.apply(change, at: Self.position(number), tag: UInt64(number))
            try rig.turn { counter.results[UInt64(number)] != nil || writer.isExhausted }
            if counter.results[UInt64(number)] == nil { return number }
        }
        return Self.history.count
    }

    /// No token is with two users, at no moment.
    private func checkHolders(_ rig: IndexRig, _ moment: String) throws {
        var holders: [String: String] = [:]
        for user in Self.users {
            for address in try rig.addresses(user) {
                let other = holders.updateValue(user, forKey: address.token)
                #expect(other == nil || other == user, "\(address.token) \(moment)")
            }
        }
    }
}

extension IndexChange {
    fileprivate var isVerdict: Bool {
        if case .invalidation = self { return true }
        return false
    }
}
