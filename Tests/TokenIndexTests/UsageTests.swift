// What was served lately, counted by every store in the same way.

import Base
import EventLoop
import RedisServer
import Testing

@testable import TokenIndex

/// Counters of a store, asked one question after another.
private final class UsageRig {
    let name: String
    let loop: EventLoop
    let counters: [any UsageCounters]
    var now = UnixMillis(1_800_000_000_000)

    init(_ name: String, on loop: EventLoop, _ counters: [any UsageCounters]) {
        self.name = name
        self.loop = loop
        self.counters = counters
    }

    deinit { for counter in counters { counter.stop() } }

    private func wait<Value>(
        _ ask: (@escaping (Result<Value, UsageFault>) -> Void) -> Void
    ) throws -> Value {
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while true {
            var answer: Result<Value, UsageFault>?
            ask { answer = $0 }
            while answer == nil {
                loop.turn(waitingUpTo: .milliseconds(20))
                try #require(SystemTime.shared.monotonic < deadline, "no answer in time")
            }
            // The connection is opened with the first question.
            if case .failure(.away) = answer {
                loop.turn(waitingUpTo: .milliseconds(20))
                try #require(SystemTime.shared.monotonic < deadline, "no connection in time")
                continue
            }
            return try #require(answer).get()
        }
    }

    func place(_ id: Int, _ caps: [UsageCap], user: String = "u", by replica: Int = 0) throws
        -> UsageCap?
    {
        try wait {
            counters[replica].takePlace(
                of: Self.id(id), in: caps, app: "app", userID: user, at: now, $0)
        }
    }

    func give(back id: Int, _ caps: [UsageCap], user: String = "u") {
        counters[0].returnPlace(of: Self.id(id), in: caps, app: "app", userID: user)
    }

    func slot(
        _ id: Int, at time: Int64, offset: Int64 = 0, waited: Bool = false, of cap: Cap,
        patience: UnixMillis? = nil, device: String = "app/i", by replica: Int = 0
    ) throws -> SlotAnswer {
        let request = SlotRequest(
            id: Self.id(id), time: UnixMillis(time), offset: offset, hasWaited: waited,
            patience: patience ?? now + .hours(24))
        return try wait { counters[replica].takeSlot(request, of: device, cap, at: now, $0) }
    }

    func count(_ source: String, _ quotas: [UsageQuota], by replica: Int = 0) throws
        -> UsageQuota?
    {
        try wait { counters[replica].count(for: source, in: quotas, at: now, $0) }
    }

    func lease(_ wanted: Int, _ rate: SharedRate, by replica: Int = 0) throws -> Int {
        try wait { counters[replica].lease(wanted, of: rate, at: now, $0) }
    }

    static func id(_ number: Int) -> UUIDBytes { UUIDBytes(high: 7, low: UInt64(number)) }
}

/// Runs a case against two views each of the counts in memory, in Redis and in a cluster.
private func withEveryCounter(_ body: (UsageRig) throws -> Void) throws {
    let loop = try EventLoop(name: "usage")
    let memory = InMemoryUsage()
    try body(UsageRig("in memory", on: loop, [memory.counters(), memory.counters()]))
    for store in [try RedisStore(), try RedisStore(cluster: nil)] {
        let views = (0..<2).map { _ in store.index.usage(on: loop) }
        try body(UsageRig(store.name, on: loop, views))
    }
}

@Suite struct `What was served lately` {
    private let three = [UsageCap("user", Cap(3, in: .hours(1)))]

    @Test func `leaves places until the cap is full, and again when the span is over`() throws {
        try withEveryCounter { rig throws in
            for id in 1...3 {
                #expect(try rig.place(id, three, by: id % 2) == nil, "\(rig.name)")
                rig.now = rig.now + .minutes(10)
            }
            #expect(try rig.place(4, three, by: 1) == three[0])
            #expect(try rig.place(4, three, user: "other") == nil, "a cap of each person")
            // The first place was taken at 0 minutes.
            rig.now = rig.now + .minutes(30) - .milliseconds(1)
            #expect(try rig.place(4, three) == three[0])
            rig.now = rig.now + .milliseconds(1)
            #expect(try rig.place(4, three) == nil)
            #expect(try rig.place(5, three) == three[0])
        }
    }

    @Test func `counts a message once, however often it comes`() throws {
        try withEveryCounter { rig throws in
            for _ in 0..<5 { #expect(try rig.place(1, three, by: 1) == nil) }
            #expect(try rig.place(2, three) == nil)
            #expect(try rig.place(3, three) == nil)
            #expect(try rig.place(1, three) == nil, "\(rig.name): full, but it is in")
            #expect(try rig.place(4, three) == three[0])
        }
    }

    @Test func `takes a place in all caps or in none`() throws {
        let caps = [UsageCap("a", Cap(2, in: .hours(1))), UsageCap("b", Cap(1, in: .hours(2)))]
        try withEveryCounter { rig throws in
            #expect(try rig.place(1, [caps[1]]) == nil)
            #expect(try rig.place(2, caps) == caps[1], "\(rig.name)")
            #expect(try rig.place(3, [caps[0]]) == nil)
            #expect(try rig.place(4, [caps[0]]) == nil)
            #expect(try rig.place(5, [caps[0]]) == caps[0], "2 took none in a")
        }
    }

    @Test func `gives a place back that was not used`() throws {
        try withEveryCounter { rig throws in
            // The first call of a script is asked twice; the other questions do not wait for that.
            for id in 1...3 {
                _ = try rig.place(id, three)
                rig.give(back: 9, three)
            }
            rig.give(back: 2, three)
            #expect(try rig.place(4, three) == nil, "\(rig.name)")
            #expect(try rig.place(2, three) == three[0])
        }
    }

    @Test func `a device's slots: the newest waits for the next one, the older are done with`()
        throws
    {
        let two = Cap(2, in: .hours(1))
        try withEveryCounter { rig throws in
            let start = rig.now
            #expect(try rig.slot(1, at: 10, of: two) == .taken)
            rig.now = start + .minutes(5)
            #expect(try rig.slot(2, at: 20, of: two) == .taken)
            #expect(try rig.slot(2, at: 20, of: two) == .taken, "again, as after a crash")
            rig.now = start + .minutes(6)
            let free = SlotAnswer.waits(until: start + .hours(1))
            #expect(try rig.slot(3, at: 30, of: two) == free, "\(rig.name)")
            #expect(try rig.slot(4, at: 40, of: two, by: 1) == free)
            #expect(try rig.slot(5, at: 35, of: two) == .replaced, "late, and older than 4")
            #expect(try rig.slot(4, at: 40, waited: true, of: two) == free, "too early")
            rig.now = start + .hours(1)
            #expect(try rig.slot(3, at: 30, waited: true, of: two) == .replaced)
            #expect(try rig.slot(4, at: 40, waited: true, of: two) == .taken)
            #expect(
                try rig.slot(6, at: 50, of: two) == .waits(until: start + .hours(1) + .minutes(5)))
            #expect(try rig.slot(7, at: 5, of: two, device: "app/other") == .taken)
        }
    }

    @Test func `what cannot wait for the next slot does not end the one that does`() throws {
        let one = Cap(1, in: .hours(1))
        try withEveryCounter { rig throws in
            let next = rig.now + .hours(1)
            for device in ["app/i", "app/j"] {
                #expect(try rig.slot(1, at: 10, of: one, device: device) == .taken)
                #expect(try rig.slot(2, at: 20, of: one, device: device) == .waits(until: next))
            }
            let soon = next - .milliseconds(1)
            #expect(try rig.slot(3, at: 30, of: one, patience: soon) == .waits(until: next))
            #expect(
                try rig.slot(3, at: 30, of: one, patience: next, device: "app/j")
                    == .waits(until: next))
            rig.now = next
            #expect(try rig.slot(2, at: 20, waited: true, of: one) == .taken, "\(rig.name)")
            #expect(
                try rig.slot(2, at: 20, waited: true, of: one, device: "app/j") == .replaced,
                "\(rig.name): by 3, which can wait until that very moment")
        }
    }

    @Test func `a newer message that finds a slot itself stands in for the one that waits`()
        throws
    {
        let one = Cap(1, in: .hours(1))
        try withEveryCounter { rig throws in
            let start = rig.now
            #expect(try rig.slot(1, at: 10, of: one) == .taken)
            #expect(try rig.slot(2, at: 20, of: one) == .waits(until: start + .hours(1)))
            rig.now = start + .hours(1)
            #expect(try rig.slot(3, at: 30, of: one) == .taken)
            rig.now = start + .hours(2)
            #expect(try rig.slot(2, at: 20, waited: true, of: one) == .replaced, "\(rig.name)")
            // An older one that has not waited, as from another source, has its own right.
            #expect(try rig.slot(4, at: 25, of: one) == .taken)
        }
    }

    @Test func `of one moment the later offset is newer`() throws {
        let one = Cap(1, in: .hours(1))
        try withEveryCounter { rig throws in
            #expect(try rig.slot(1, at: 10, offset: 1, of: one) == .taken)
            let free = SlotAnswer.waits(until: rig.now + .hours(1))
            #expect(try rig.slot(9, at: 10, offset: 3, of: one) == free)
            #expect(try rig.slot(8, at: 10, offset: 2, of: one) == .replaced, "\(rig.name)")
            #expect(try rig.slot(7, at: 10, offset: 4, of: one) == free)
        }
    }

    @Test func `a slot that was not used is free again`() throws {
        let one = Cap(1, in: .hours(1))
        try withEveryCounter { rig throws in
            // The first call of a script is asked twice; the other questions do not wait for that.
            for _ in 1...2 {
                #expect(try rig.slot(1, at: 10, of: one) == .taken)
                rig.counters[0].returnSlot(of: UsageRig.id(9), of: "app/i")
            }
            #expect(try rig.slot(1, at: 10, of: one) == .taken)
            rig.counters[0].returnSlot(of: UsageRig.id(1), of: "app/i")
            #expect(try rig.slot(2, at: 20, of: one) == .taken, "\(rig.name)")
        }
    }

    @Test func `a source's quotas count for all, in windows of their own`() throws {
        let quotas = [
            UsageQuota("rate", Cap(2, in: .seconds(10))), UsageQuota("day", Cap(3, in: .hours(24))),
        ]
        try withEveryCounter { rig throws in
            rig.now = UnixMillis(1_800_000_000_000 / 86_400_000 * 86_400_000)
            #expect(try rig.count("s", quotas) == nil)
            #expect(try rig.count("s", quotas, by: 1) == nil)
            #expect(try rig.count("s", quotas) == quotas[0], "\(rig.name)")
            #expect(try rig.count("other", quotas) == nil)
            rig.now = rig.now + .seconds(10)
            #expect(try rig.count("s", quotas) == nil)
            #expect(try rig.count("s", quotas) == quotas[1], "what was refused counted nowhere")
            rig.now = rig.now + .hours(24)
            #expect(try rig.count("s", quotas) == nil)
        }
    }

    @Test func `a rate is shared out, as fast as it comes and no faster`() throws {
        let rate = SharedRate("fcm/p", perSecond: 10, burst: 20)
        try withEveryCounter { rig throws in
            #expect(try rig.lease(15, rate) == 15)
            let rest = try rig.lease(15, rate, by: 1)
            #expect((5...10).contains(rest), "\(rig.name): \(rest) of what was left")
            #expect(try rig.lease(15, rate) <= 2)
            #expect(try rig.lease(15, SharedRate("fcm/q", perSecond: 10, burst: 20)) == 15)
        }
        let memory = try UsageRig(
            "in memory", on: EventLoop(name: "u"), [InMemoryUsage().counters()])
        #expect(try memory.lease(100, rate) == 20)
        #expect(try memory.lease(1, rate) == 0)
        memory.now = memory.now + .milliseconds(500)
        #expect(try memory.lease(100, rate) == 5)
        memory.now = memory.now + .hours(1)
        #expect(try memory.lease(100, rate) == 20)
    }

    /// FCM, "Throughput": from nothing to the whole rate in no less than a minute.
    @Test func `a rate with a ramp climbs in a minute and falls when nobody wants it`() throws {
        let rate = SharedRate("fcm/r", perSecond: 9_600, burst: 9_600, ramp: .seconds(60))
        let step = 9_600 / 60
        let rig = try UsageRig("in memory", on: EventLoop(name: "u"), [InMemoryUsage().counters()])
        /// What is granted in a second to somebody who always wants more.
        func greedySecond() throws -> Int {
            var granted = 0
            for _ in 0..<50 {
                granted += try rig.lease(2_400, rate)
                rig.now = rig.now + .milliseconds(20)
            }
            return granted
        }
        for second in 1...60 {
            let granted = try greedySecond()
            #expect(granted <= step * (second + 1), "in second \(second)")
            #expect(granted >= step * (second - 1) - 1, "in second \(second)")
        }
        #expect((9_500...9_700).contains(try greedySecond()))
        // A pause: what is known of the project's traffic is forgotten as slowly as it was gained.
        rig.now = rig.now + .seconds(31)
        #expect((step * 40...step * 50).contains(try greedySecond()))
        rig.now = rig.now + .hours(1)
        #expect(try greedySecond() <= step * 2)
        // Who wants little has it at once, and does not raise the rate for what may come.
        for _ in 0..<1_200 {
            #expect(try rig.lease(step / 40, rate) == step / 40)
            rig.now = rig.now + .milliseconds(50)
        }
        #expect(try greedySecond() <= step * 2)
    }

    @Test func `a rate with a ramp begins low for all replicas together`() throws {
        let rate = SharedRate("fcm/r", perSecond: 600, burst: 600, ramp: .seconds(60))
        try withEveryCounter { rig throws in
            #expect(try rig.lease(100, rate) == 5, "\(rig.name)")
            #expect(try rig.lease(100, rate, by: 1) <= 1, "\(rig.name)")
        }
    }

    @Test func `everything in Redis ends by itself`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let loop = try EventLoop(name: "usage")
        let rig = UsageRig("in Redis", on: loop, [store.index.usage(on: loop)])
        _ = try rig.place(1, three)
        _ = try rig.slot(1, at: 1, of: three[0].cap)
        _ = try rig.count("s", [UsageQuota("day", three[0].cap)])
        let ends = try Operator(server).run(
            "EVAL",
            """
            local out = {}
            for _, key in ipairs(redis.call('KEYS', '*')) do
              out[#out + 1] = redis.call('PTTL', key) > 0 and 'ends' or key
            end
            return table.concat(out, ' ')
            """, "0")
        #expect(ends.contains("ends ends ends ends"), "\(ends)")
    }

    @Test func `a store that is away is asked again, one that refuses is not`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let loop = try EventLoop(name: "usage")
        let rig = UsageRig("in Redis", on: loop, [store.index.usage(on: loop)])
        let quota = [UsageQuota("day", three[0].cap)]
        #expect(try rig.count("s", quota) == nil)
        _ = try Operator(server).run("CONFIG", "SET", "maxmemory", "1")
        #expect(throws: UsageFault.self) { _ = try rig.count("s", quota) }
        _ = try Operator(server).run("CONFIG", "SET", "maxmemory", "0")
        #expect(try rig.count("s", quota) == nil)
    }
}
