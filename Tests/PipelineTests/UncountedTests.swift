// What becomes of events that have to be counted when nobody counts.

import Base
import EventLoop
import Routes
import Synchronization
import Testing
import TokenIndex

@testable import Pipeline

/// What the stores of all lanes have in common: so many questions fail.
private final class Failures: Sendable {
    let fault: UsageFault
    private let left: Mutex<Int>
    private let count = Mutex(0)

    init(_ fault: UsageFault, _ number: Int) {
        self.fault = fault
        left = Mutex(number)
    }

    var questions: Int { count.withLock { $0 } }

    func answer<Value>(_ value: Value) -> Result<Value, UsageFault> {
        count.withLock { $0 += 1 }
        let fails = left.withLock { left in
            left -= 1
            return left >= 0
        }
        return fails ? .failure(fault) : .success(value)
    }
}

/// A store that takes everything, once it answers.
private final class FailingUsage: UsageCounters {
    private let failures: Failures
    let isShared = false

    init(_ failures: Failures) { self.failures = failures }

    func takePlace(
        of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String, at now: UnixMillis,
        _ done: @escaping (Result<UsageCap?, UsageFault>) -> Void
    ) { done(failures.answer(nil)) }

    func takeSlot(
        _ request: SlotRequest, of addressID: String, _ cap: Cap, at now: UnixMillis,
        _ done: @escaping (Result<SlotAnswer, UsageFault>) -> Void
    ) { done(failures.answer(.taken)) }

    func count(
        for source: String, in quotas: [UsageQuota], at now: UnixMillis,
        _ done: @escaping (Result<UsageQuota?, UsageFault>) -> Void
    ) { done(failures.answer(nil)) }

    func lease(
        _ wanted: Int, of rate: SharedRate, at now: UnixMillis,
        _ done: @escaping (Result<Int, UsageFault>) -> Void
    ) { done(.success(wanted)) }

    func returnPlace(of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String) {}
    func returnSlot(of id: UUIDBytes, of addressID: String) {}
    func stop() {}
}

@Suite(.serialized) struct `Events that have to be counted` {
    private func results(_ failures: Failures) throws -> (outcomes: [String: String], World) {
        let world = try World(try ScriptedGateway())
        world.settings.routes = try routes(
            """
              offer: {title: x, ttl: 1h, preference: offers}
              silent: {kind: silent}
              code: {title: x, ttl: 5m}
            caps: {preferences: {offers: 2/1d}, sources: {billing: {day: 5}}}

            """)
        world.makeUsage = { _ in FailingUsage(failures) }
        try world.register("phone", user: "u1")
        try world.start()
        for (id, source) in [("offer", "s"), ("silent", "s"), ("code", "billing")] {
            try world.publish(
                #"{"id":"\#(id)","type":"\#(id)","user_id":"u1","source":"\#(source)"}"#, key: "u1")
        }
        try world.flush()
        return (outcomes(try world.records(of: "push.results", atLeast: 3)), world)
    }

    @Test func `wait while the store is away, and are counted then`() throws {
        let failures = Failures(.away("closed"), 6)
        let (outcomes, world) = try results(failures)
        #expect(world.stop())
        #expect(outcomes == ["offer": "accepted", "silent": "accepted", "code": "accepted"])
        #expect(failures.questions == 9, "each was asked for until it was counted")
        #expect(world.metrics().contains("bugle_caps_uncounted_total 0\n"))
    }

    @Test func `are sent uncounted when it refuses to count, and that is told`() throws {
        let (outcomes, world) = try results(Failures(.refused("OOM"), .max))
        #expect(world.stop())
        #expect(outcomes == ["offer": "accepted", "silent": "accepted", "code": "accepted"])
        #expect(world.metrics().contains("bugle_caps_uncounted_total 3\n"))
    }
}
