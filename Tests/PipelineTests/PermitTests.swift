// What a project may send in a second, shared out among lanes and replicas.

import Base
import EventLoop
import Simulator
import Synchronization
import Testing
import TokenIndex

@testable import Pipeline

@Suite struct `Permits in hand` {
    private let start = MonotonicTime(nanos: 0)

    @Test func `are leased ahead, and more where more are used`() {
        var stock = PermitStock(perSecond: 10_000)
        var now = start
        var (isTaken, wanted) = (stock.take(1, at: now), stock.wanted(1, at: now))
        #expect(!isTaken && wanted == 32)
        wanted = stock.wanted(1, at: now)
        #expect(wanted == nil, "one question at a time")
        stock.granted(32, at: now)
        for _ in 0..<17 {
            isTaken = stock.take(1, at: now)
            #expect(isTaken)
        }
        wanted = stock.wanted(1, at: now)
        #expect(wanted == 32, "half of them are gone")
        var rest = 0
        while stock.take(1, at: now) { rest += 1 }
        #expect(rest == 15)
        stock.granted(32, at: now)
        var chunks: [Int] = []
        for _ in 0..<12 {
            now = now + .milliseconds(10)
            while stock.take(1, at: now) {}
            let wanted = stock.wanted(1, at: now) ?? 0
            chunks.append(wanted)
            stock.granted(wanted, at: now)
        }
        #expect(chunks == chunks.sorted() && chunks.last == 2_500, "\(chunks)")
        // A quiet hour later fewer will do.
        now = now + .hours(1)
        wanted = stock.wanted(1, at: now)
        isTaken = stock.take(1, at: now)
        #expect(wanted == 1_250)
        #expect(!isTaken, "what was not used is lost")
    }

    @Test func `are a share of the rate while nobody leases`() {
        var stock = PermitStock(perSecond: 100)
        _ = stock.wanted(1, at: start)
        stock.share = 10
        stock.refused(at: start)
        var sent = 0
        var now = start
        for _ in 0..<1_000 {
            now = now + .milliseconds(10)
            if stock.take(1, at: now) { sent += 1 }
        }
        #expect((98...110).contains(sent), "\(sent) in ten seconds at ten a second")
        let early = stock.wanted(1, at: start + .milliseconds(999))
        let later = stock.wanted(1, at: now)
        #expect(early == nil && later != nil, "the store is asked again after a second")
        stock.granted(32, at: now)
        let isTaken = stock.take(20, at: now)
        #expect(isTaken)
    }
}

/// Counts of several processes in one place, which refuses to lease for a while.
private final class SharedUsage: UsageCounters {
    private let counters: any UsageCounters
    private let refuses: Atomic<Bool>

    init(_ usage: InMemoryUsage, refuses: Bool = false) {
        counters = usage.counters()
        self.refuses = Atomic(refuses)
    }

    var isShared: Bool { true }

    func lease(
        _ wanted: Int, of rate: SharedRate, at now: UnixMillis,
        _ done: @escaping (Result<Int, UsageFault>) -> Void
    ) {
        if refuses.load(ordering: .relaxed) { return done(.failure(.refused("OOM"))) }
        counters.lease(wanted, of: rate, at: now, done)
    }

    func takePlace(
        of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String, at now: UnixMillis,
        _ done: @escaping (Result<UsageCap?, UsageFault>) -> Void
    ) { counters.takePlace(of: id, in: caps, app: app, userID: userID, at: now, done) }

    func returnPlace(of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String) {
        counters.returnPlace(of: id, in: caps, app: app, userID: userID)
    }

    func takeSlot(
        _ request: SlotRequest, of addressID: String, _ cap: Cap, at now: UnixMillis,
        _ done: @escaping (Result<SlotAnswer, UsageFault>) -> Void
    ) { counters.takeSlot(request, of: addressID, cap, at: now, done) }

    func returnSlot(of id: UUIDBytes, of addressID: String) {
        counters.returnSlot(of: id, of: addressID)
    }

    func count(
        for source: String, in quotas: [UsageQuota], at now: UnixMillis,
        _ done: @escaping (Result<UsageQuota?, UsageFault>) -> Void
    ) { counters.count(for: source, in: quotas, at: now, done) }

    func stop() {}
}

@Suite(.serialized) struct `A project's rate` {
    @Test(arguments: [false, true])
    func `is kept by all lanes together, with a store that leases and without`(
        refuses: Bool
    ) throws {
        let world = try World(try Simulator(SimulatorOptions()), lanes: 2)
        let usage = InMemoryUsage()
        world.makeUsage = { _ in SharedUsage(usage, refuses: refuses) }
        world.settings.fcmPermitsPerSecond = 60
        for user in 0..<8 { try world.register("phone-\(user)", user: "u\(user)", gateway: .fcm) }
        try world.start()
        for number in 0..<180 {
            try world.publish(id: "e\(number)", user: "u\(number % 8)")
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 180, within: .seconds(60))
        #expect(world.stop())
        #expect(results.count == 180)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        let sent = results.compactMap { Int64($0.text("first_sent_at") ?? "") }.sorted()
        for (index, time) in sent.enumerated() {
            // What was saved up for a second, what came since, and what was leased ahead.
            let before = sent[...index].count { time - $0 < 1_000 }
            #expect(before <= 60 * 3 + 10, "\(before) in the second before \(time)")
        }
        let span = try #require(sent.last) - (try #require(sent.first))
        #expect(span >= 1_400, "180 at 60 a second, 60 of them at once: \(span) ms")
    }
}
