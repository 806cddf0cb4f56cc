// What is kept of verdicts, what a compacted topic keeps of them, and that both stores agree.

import Base
import RedisServer
import Testing

@testable import TokenIndex

/// A verdict that a fuse counts.
private func counted(
    _ install: String, token: String, asOf: Int64, credential: String = "TEAM.KEY"
) -> IndexChange {
    guard case .invalidation(var record) = verdict(.suspend, install, token: token, asOf: asOf)
    else { preconditionFailure("a verdict is one") }
    record.gateway = .apns
    record.environment = .production
    record.credential = credential
    record.reason = "BadDeviceToken"
    return .invalidation(record)
}

/// What an operator's `discard` writes.
private func discarded(_ install: String, token: String, asOf: Int64, _ fuse: String) -> IndexChange
{
    guard
        case .invalidation(var record) = held(
            .suspend, install, token: token, asOf: asOf, fuse)
    else { preconditionFailure("a verdict is one") }
    record.origin = .operator
    return .invalidation(record)
}

extension IndexRig {
    fileprivate func report(_ store: any IndexStore, _ userID: String) throws -> AddressReport {
        try #require(try store.operations().reports(app: "app", userID: userID).first)
    }
}

@Suite struct `What is kept of verdicts` {
    @Test(arguments: 0..<60 as Range<UInt64>)
    func `is the same in both stores`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let tokens = (0..<12).map { "T\($0)" }
        let changes = (0..<60).map { _ -> IndexChange in
            let token = tokens[Int.random(in: 0..<(seed % 2 == 0 ? 12 : 2), using: &random)]
            let any = Int.random(in: 0..<6, using: &random) == 0
            let asOf = Int64.random(in: 0..<40, using: &random)
            let fuse = "F\(Int.random(in: 0..<7, using: &random))"
            switch Int.random(in: 0..<8, using: &random) {
            case 0: return verdict(.invalidate, "i", token: any ? nil : token, asOf: asOf)
            case 1: return verdict(.stale, "i", token: any ? nil : token, asOf: asOf)
            case 2, 3:
                return counted(
                    "i", token: token, asOf: asOf,
                    credential: Bool.random(using: &random) ? "TEAM.KEY" : "TEAM.OTHER")
            case 4, 5:
                return held(.quarantine, "i", token: any ? nil : token, asOf: asOf, fuse)
            case 6: return discarded("i", token: token, asOf: asOf, fuse)
            default: return held(.release, "i", token: any ? nil : token, asOf: asOf, fuse)
            }
        }
        let memory = InMemoryStore()
        let redis = try RedisStore()
        let rigs = [try IndexRig(memory), try IndexRig(redis)]
        for (offset, change) in changes.enumerated() {
            for rig in rigs {
                if offset % 7 == 0 {
                    let token = tokens[offset / 7 % (seed % 2 == 0 ? 12 : 2)]
                    try rig.apply(
                        upload(
                            "i", "u", token: token, at: Int64(offset % 20),
                            version: Int64(offset + 1)))
                }
                try rig.apply(change, at: place(Int64(offset)))
            }
            let reports = [
                try rigs[0].report(memory, "u"), try rigs[1].report(redis, "u"),
            ]
            let context = "seed \(seed) at \(offset)"
            #expect(reports[0].verdicts.tokens == reports[1].verdicts.tokens, "\(context)")
            #expect(reports[0].verdicts.newest == reports[1].verdicts.newest, "\(context)")
            #expect(reports[0].standing == reports[1].standing, "\(context)")
            #expect(try rigs[0].ids("u") == rigs[1].ids("u"), "\(context)")
            #expect(reports[0].verdicts.tokens.count <= VerdictBook.tokensMax + 1)
            #expect(
                reports[0].verdicts.tokens.values.allSatisfy {
                    $0.holds.count <= VerdictBook.holdsMax
                })
        }
    }

    @Test func `is bounded, and what reaches furthest stays`() throws {
        for store in [InMemoryStore(), try RedisStore()] as [any IndexStore] {
            let rig = try IndexRig(store)
            try rig.apply(upload("i", "u", token: "present", at: 900))
            try rig.apply(verdict(.invalidate, "i", token: "present", asOf: 950), at: place(0))
            for number in 1..<40 {
                try rig.apply(
                    verdict(.invalidate, "i", token: "T\(number)", asOf: Int64(number)),
                    at: place(Int64(number)))
            }
            #expect(try rig.ids("u") == [], "\(store.name)")
            let kept = try rig.report(store, "u").verdicts.tokens
            #expect(kept.count == VerdictBook.tokensMax, "\(store.name)")
        }
    }

    @Test func `is understood in the form that it had when an address had one verdict`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        try rig.apply(upload("i", "u", token: "T", at: 100))
        try rig.apply(held(.quarantine, "i", token: "T", asOf: 200, "F1"), at: place(3))
        try Operator(server).run(
            "EVAL",
            """
            local key = redis.call('KEYS', ARGV[1] .. '*:i:*')[1]
            local S = cmsgpack.unpack(redis.call('HGET', key, 's'))
            local a = S.a['app/i']
            local e = a.vl
            a.vk, a.va, a.vr, a.vo, a.vi = e.k, e.a, e.r, e.o, e.i
            a.V, a.vl = nil, nil
            redis.call('HSET', key, 's', cmsgpack.pack(S))
            return 'done'
            """, "0", store.prefix)
        try rig.apply(upload("i", "u", token: "T", at: 150, version: 2))
        #expect(try rig.ids("u") == [])
        #expect(try rig.report(store, "u").standing == .quarantined)
        #expect(
            try rig.apply(held(.release, "i", token: "T", asOf: 200, "F1"), at: place(2))
                == .outdated)
        try rig.apply(held(.release, "i", token: "T", asOf: 200, "F1"), at: place(4))
        #expect(try rig.ids("u") == ["app/i"])
    }

    @Test func `of a user who is forgotten names no token`() throws {
        for store in [InMemoryStore(), try RedisStore()] as [any IndexStore] {
            let rig = try IndexRig(store)
            try rig.apply(upload("i", "u", token: "T", at: 100))
            try rig.apply(verdict(.invalidate, "i", token: "T", asOf: 50), at: place(1))
            try rig.apply(verdict(.stale, "i", token: nil, asOf: 50), at: place(2))
            let operations = try store.operations()
            try operations.erase(
                try operations.forgetting(app: "app", userID: "u", at: UnixMillis(500)))
            try rig.apply(upload("i", "u", token: "T", at: 600, version: 2))
            #expect(try Array(rig.report(store, "u").verdicts.tokens.keys) == [""], "\(store.name)")
        }
    }
}

@Suite struct `A compacted topic of verdicts` {
    struct Scenario: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var devices: [IndexChange]
        var verdicts: [IndexChange]
        var standing: AddressStanding
        /// How often the index has to say something again.
        var restated: Int
    }

    private static let rotated = [
        upload("i", "u", token: "A", at: 100), upload("i", "u", token: "B", at: 200, version: 2),
    ]
    private static let scenarios = [
        Scenario(
            testDescription: "a late verdict on a former token", devices: rotated,
            verdicts: [
                verdict(.invalidate, "i", token: "B", asOf: 250),
                verdict(.invalidate, "i", token: "A", asOf: 190),
            ], standing: .invalidated, restated: 1),
        Scenario(
            testDescription: "verdicts in the order of the tokens", devices: rotated,
            verdicts: [
                verdict(.invalidate, "i", token: "A", asOf: 190),
                verdict(.invalidate, "i", token: "B", asOf: 250),
            ], standing: .invalidated, restated: 0),
        Scenario(
            testDescription: "a receipt that reaches less far", devices: rotated,
            verdicts: [
                verdict(.invalidate, "i", token: "B", asOf: 250),
                verdict(.invalidate, "i", token: "B", asOf: 190),
            ], standing: .invalidated, restated: 1),
        Scenario(
            testDescription: "a release behind a death", devices: rotated,
            verdicts: [
                held(.quarantine, "i", token: "B", asOf: 250, "F1"),
                verdict(.invalidate, "i", token: "B", asOf: 240),
                held(.release, "i", token: "B", asOf: 250, "F1"),
            ], standing: .invalidated, restated: 1),
        Scenario(
            testDescription: "a quarantine behind its release", devices: rotated,
            verdicts: [
                held(.release, "i", token: "B", asOf: 250, "F1"),
                held(.quarantine, "i", token: "B", asOf: 250, "F1"),
            ], standing: .active, restated: 1),
        Scenario(
            testDescription: "a quarantine and a late verdict on a former token", devices: rotated,
            verdicts: [
                held(.quarantine, "i", token: "B", asOf: 250, "F1"),
                verdict(.invalidate, "i", token: "A", asOf: 190),
            ], standing: .quarantined, restated: 1),
        Scenario(
            testDescription: "what was discarded, and a release behind it", devices: rotated,
            verdicts: [
                held(.quarantine, "i", token: "B", asOf: 250, "F1"),
                discarded("i", token: "B", asOf: 250, "F1"),
                held(.release, "i", token: "B", asOf: 250, "F1"),
            ], standing: .suspended, restated: 1),
        Scenario(
            testDescription: "forgotten, and a late verdict", devices: rotated,
            verdicts: [
                verdict(.forget, "i", token: nil, asOf: 250),
                verdict(.invalidate, "i", token: "B", asOf: 190),
            ], standing: .forgotten, restated: 1),
        Scenario(
            testDescription: "one that a fuse counted, and a late one on a former token",
            devices: rotated,
            verdicts: [
                counted("i", token: "B", asOf: 250),
                verdict(.invalidate, "i", token: "A", asOf: 190),
            ], standing: .suspended, restated: 1),
    ]

    @Test(arguments: Self.scenarios)
    func `tells a rebuilt index what the live one shows`(scenario: Scenario) throws {
        for make in [{ InMemoryStore() }, { try RedisStore() }] as [() throws -> any IndexStore] {
            let store = try make()
            let rig = try IndexRig(store)
            for change in scenario.devices { try rig.apply(change) }
            var topic = scenario.verdicts
            var next = 0
            while next < topic.count {
                try rig.apply(topic[next], at: place(Int64(next)))
                next += 1
                // Behind it on the same connection: what was asked of Redis is answered.
                try rig.apply(gone("nobody"))
                topic += rig.takePublished().map { .invalidation($0) }
                try #require(topic.count < 10, "it says the same again and again")
            }
            #expect(try rig.report(store, "u").standing == scenario.standing, "\(store.name)")
            #expect(topic.count == scenario.verdicts.count + scenario.restated, "\(store.name)")
            let last = try #require(topic.last)
            for isVerdictFirst in [false, true] {
                let second = try make()
                let rebuilt = try IndexRig(second, isComplete: false)
                try rebuilt.takeCharge()
                let change = { try rebuilt.apply(last, at: place(Int64(topic.count - 1))) }
                if isVerdictFirst { _ = try change() }
                try rebuilt.apply(scenario.devices[scenario.devices.count - 1])
                if !isVerdictFirst { _ = try change() }
                try rebuilt.mark()
                #expect(
                    try rebuilt.report(second, "u").standing == scenario.standing,
                    "\(store.name), the verdict first: \(isVerdictFirst)")
                #expect(rebuilt.notices.isEmpty)
                #expect(
                    try second.operations().fuses().map(\.held)
                        == store.operations().fuses().map(\.held))
            }
        }
    }

    /// While the topics are read nothing is said, for what stands behind is not known; what is
    /// missing then is said by the next sweep.
    @Test func `is put right by a sweep when nobody was there to do it`() throws {
        let time = ManualTime()
        let sweep = SweepPolicy(interval: .hours(1), keysPerSecond: 100_000)
        let server = try RedisServer()
        for store in [
            InMemoryStore(time: time, sweep: sweep),
            try RedisStore(server: server, sweep: sweep, commandTimeout: .hours(10_000)),
        ] as [any IndexStore] {
            let rig = try IndexRig(store, isComplete: false, time: time)
            try rig.takeCharge()
            for change in Self.rotated { try rig.apply(change) }
            try rig.apply(verdict(.invalidate, "i", token: "B", asOf: 250), at: place(0))
            try rig.apply(verdict(.invalidate, "i", token: "A", asOf: 190), at: place(1))
            try rig.apply(gone("nobody"))
            #expect(rig.takePublished().isEmpty, "\(store.name)")
            func swept() -> Int {
                rig.notices.count { if case .swept = $0 { true } else { false } }
            }
            func pass(until count: Int) throws {
                try rig.turn {
                    time.advance(by: .milliseconds(50))
                    rig.writer.renew(rig.positions(100), asOf: nil)
                    return swept() >= count
                }
            }
            try rig.mark()
            try pass(until: 1)
            let said = rig.takePublished()
            #expect(said.map(\.asOf) == [UnixMillis(250)], "\(store.name)")
            #expect(said.map(\.origin) == [.sweeper], "\(store.name)")
            for record in said { try rig.apply(.invalidation(record), at: place(2)) }
            time.advance(by: .hours(1))
            try pass(until: 2)
            #expect(rig.takePublished().isEmpty, "\(store.name)")
        }
    }
}
