// Addresses that were not seen for long: who is still sent to, and the sweep that says who is not.

import Base
import EventLoop
import RedisServer
import Testing

@testable import TokenIndex

private let day = TimeSpan.hours(24)

extension UnixMillis {
    fileprivate func before(days: Int64) -> UnixMillis {
        UnixMillis(value - days * day.millis)
    }
}

/// A registration as old as given, and perhaps a sign of life since.
private func address(
    _ install: String, _ gateway: Gateway = .apns, registeredAt: UnixMillis,
    seenAt: UnixMillis? = nil, endsAt: UnixMillis? = nil, version: Int64 = 1
) -> DeviceAddress {
    guard let id = AddressID(app: "app", installID: install) else {
        preconditionFailure("a test spells its ids right")
    }
    var fields = DeviceFields(
        id: id, userID: "u-\(install)", platform: gateway == .apns ? "ios" : "android",
        gateway: gateway, environment: gateway == .apns ? .production : .none,
        token: "t-\(install)", registeredAt: registeredAt)
    fields.lastSeenAt = seenAt
    fields.expiresAt = endsAt
    fields.version = version
    return DeviceAddress(fields)
}

@Suite struct `An address that was not seen` {
    private static let now = UnixMillis(1_900_000_000_000)

    @Test(arguments: [(29, true), (31, true), (61, true), (90, true), (91, false), (271, false)])
    func `is sent to for 90 days`(days: Int64, isSentTo: Bool) {
        for gateway in Gateway.allCases {
            let found = address("i", gateway, registeredAt: Self.now.before(days: days))
            #expect(StalenessPolicy.standard.isStale(found, at: Self.now) != isSentTo)
        }
    }

    /// Google deletes registrations after 270 days, whatever an operator has configured.
    @Test func `for 270 days is dead at FCM, and only there, whatever the window is`() {
        let generous = StalenessPolicy(after: day * 3_650, fcmAfter: day * 270)
        for gateway in Gateway.allCases {
            let at270 = address("i", gateway, registeredAt: Self.now.before(days: 270))
            let at271 = address("i", gateway, registeredAt: Self.now.before(days: 271))
            #expect(!generous.isStale(at270, at: Self.now))
            #expect(generous.isStale(at271, at: Self.now) == (gateway == .fcm))
        }
        let short = StalenessPolicy(after: day * 30, fcmAfter: day * 270)
        let at31 = address("i", .fcm, registeredAt: Self.now.before(days: 31))
        #expect(short.isStale(at31, at: Self.now))
    }

    @Test func `lives on by a sign of life, and not past the end of its subscription`() {
        let seen = address(
            "i", registeredAt: Self.now.before(days: 400), seenAt: Self.now.before(days: 2))
        #expect(!StalenessPolicy.standard.isStale(seen, at: Self.now))
        let ended = address("i", .webpush, registeredAt: Self.now.before(days: 1), endsAt: Self.now)
        #expect(StalenessPolicy.standard.isStale(ended, at: Self.now))
        #expect(StalenessPolicy.never.isStale(ended, at: Self.now))
        let ending = address(
            "i", .webpush, registeredAt: Self.now.before(days: 1),
            endsAt: UnixMillis(Self.now.value + 1))
        #expect(!StalenessPolicy.standard.isStale(ending, at: Self.now))
    }

    @Test func `is left out of look-ups until it registers again`() throws {
        let policy = StalenessPolicy(after: day * 3_650, fcmAfter: day * 270)
        for store in [InMemoryStore(staleness: policy), try RedisStore(staleness: policy)]
            as [any IndexStore]
        {
            let rig = try IndexRig(store)
            let now = rig.loop.wall
            func register(_ install: String, _ gateway: Gateway, _ days: Int64) throws {
                let found = address(install, gateway, registeredAt: now.before(days: days))
                try rig.apply(.registration(.registered(found)))
            }
            try register("a", .apns, 271)
            try register("f", .fcm, 271)
            try register("g", .fcm, 269)
            #expect(try rig.ids("u-a") == ["app/a"], "\(store.name)")
            #expect(try rig.ids("u-f") == [], "\(store.name)")
            #expect(try rig.ids("u-g") == ["app/g"], "\(store.name)")
            try register("f", .fcm, 0)
            #expect(try rig.ids("u-f") == ["app/f"], "\(store.name)")
        }
    }
}

@Suite struct `A sweep` {
    private let time = ManualTime()

    /// Stores whose clocks a test turns; commands may take as long as the clock pleases.
    private func stores(_ sweep: SweepPolicy) throws -> [any IndexStore] {
        let server = try RedisServer()
        return [
            InMemoryStore(time: time, staleness: .standard, sweep: sweep),
            try RedisStore(
                server: server, staleness: .standard, sweep: sweep, commandTimeout: .hours(10_000)),
        ]
    }

    /// Lets time pass until a sweep has ended; returns what it and those before it saw.
    private func sweeps(_ rig: IndexRig, until count: Int) throws -> [SweepReport] {
        func ended() -> [SweepReport] {
            rig.notices.compactMap { if case .swept(let report) = $0 { report } else { nil } }
        }
        try rig.turn {
            time.advance(by: .milliseconds(50))
            rig.writer.renew(rig.positions(100), asOf: nil)
            return ended().count >= count
        }
        return ended()
    }

    private func standings(_ store: any IndexStore, _ installs: [String]) throws
        -> [AddressStanding]
    {
        let operations = try store.operations()
        return try installs.map { install in
            try operations.reports(app: "app", userID: "u-\(install)").first?.standing ?? .displaced
        }
    }

    @Test func `says so once of each stale address, and a registration revives it`() throws {
        for store in try stores(SweepPolicy(interval: .hours(1), keysPerSecond: 100_000)) {
            let rig = try IndexRig(store, time: time)
            #expect(try sweeps(rig, until: 1) == [SweepReport()], "\(store.name): nothing yet")
            let now = time.wall
            for (install, days) in [("fresh", 89), ("old", 91), ("older", 300)] as [(_, Int64)] {
                try rig.apply(
                    .registration(
                        .registered(address(install, registeredAt: now.before(days: days)))))
            }
            try rig.apply(
                .registration(
                    .registered(
                        address(
                            "seen", registeredAt: now.before(days: 300),
                            seenAt: now.before(days: 95)))))
            // Not sent to for another reason: nothing is to be said of it.
            try rig.apply(
                .registration(.registered(address("dead", registeredAt: now.before(days: 200)))))
            try rig.apply(
                verdict(.invalidate, "dead", token: "t-dead", asOf: now.value), at: place(1))

            time.advance(by: .hours(1))
            let reports = try sweeps(rig, until: 2)
            #expect(reports[1].installs >= 5 && reports[1].stale == 3, "\(store.name)")
            let records = rig.takePublished().sorted { $0.addressID < $1.addressID }
            #expect(records.map(\.addressID.installID) == ["old", "older", "seen"])
            #expect(records.allSatisfy { $0.verdict == .stale && $0.origin == .sweeper })
            #expect(records.allSatisfy { $0.reason == "not_seen" && $0.credential == nil })
            // No later than the last sign of life: a device that comes back now is not meant.
            let meant = [91, 300, 95].map { now.before(days: $0) }
            #expect(records.map(\.asOf) == meant, "\(store.name)")
            #expect(records.map(\.userID) == ["u-old", "u-older", "u-seen"])

            // One of them registers before the record is read.
            try rig.apply(
                .registration(
                    .registered(address("older", registeredAt: time.wall, version: 2))))
            for (index, record) in records.enumerated() {
                try rig.apply(.invalidation(record), at: place(Int64(10 + index)))
            }
            #expect(
                try standings(store, ["fresh", "old", "older", "seen", "dead"])
                    == [.active, .stale, .active, .stale, .invalidated], "\(store.name)")

            // Nothing is said twice, also not when the records are read twice.
            for (index, record) in records.enumerated() {
                try rig.apply(.invalidation(record), at: place(Int64(10 + index)))
            }
            time.advance(by: .hours(1))
            #expect(try sweeps(rig, until: 3)[2].stale == 0, "\(store.name)")
            #expect(rig.takePublished().isEmpty)
            try rig.apply(
                .registration(.registered(address("old", registeredAt: time.wall, version: 2))))
            #expect(try standings(store, ["old"]) == [.active], "\(store.name)")
        }
    }

    @Test func `looks at no more than so many keys a second`() throws {
        for store in try stores(SweepPolicy(interval: .hours(1), keysPerSecond: 512)) {
            let rig = try IndexRig(store, time: time)
            _ = try sweeps(rig, until: 1)
            let now = time.wall
            let tags = (0..<2_000).map {
                rig.start(
                    .registration(
                        .registered(address("i\($0)", registeredAt: now.before(days: 100)))))
            }
            try rig.turn { tags.allSatisfy { rig.result(of: $0) != nil } }
            time.advance(by: .hours(1))
            let startedAt = time.monotonic
            let report = try sweeps(rig, until: 2)[1]
            // In memory installs are counted, in Redis users, slots and markers as well.
            #expect(report.installs >= 2_000 && report.stale >= 2_000, "\(store.name)")
            #expect(time.monotonic - startedAt > .milliseconds(2_500), "\(store.name)")
            #expect(Set(rig.takePublished().map(\.addressID)).count == 2_000)
        }
    }

    @Test func `waits until the index shows all that the topics hold`() throws {
        for store in try stores(SweepPolicy(interval: .hours(1), keysPerSecond: 100_000)) {
            let rig = try IndexRig(store, isComplete: false, time: time)
            try rig.takeCharge()
            try rig.apply(
                .registration(
                    .registered(address("i", registeredAt: time.wall.before(days: 100)))))
            for _ in 0..<20 {
                time.advance(by: .minutes(10))
                rig.writer.renew(rig.positions(1), asOf: nil)
                rig.loop.turn(waitingUpTo: .milliseconds(2))
            }
            #expect(rig.notices.isEmpty, "\(store.name)")
            // A later record of the topic: it was seen.
            try rig.apply(
                .registration(.registered(address("i", registeredAt: time.wall, version: 2))))
            try rig.mark()
            #expect(try sweeps(rig, until: 1)[0].stale == 0, "\(store.name)")
        }
    }
}

@Suite struct `An index that lags` {
    @Test func `holds look-ups beyond the bound, and goes on when it has caught up`() throws {
        let time = ManualTime()
        let bound = TimeSpan.seconds(30)
        for store in [
            InMemoryStore(time: time, lagMax: bound),
            try RedisStore(lagMax: bound, commandTimeout: .hours(1)),
        ] as [any IndexStore] {
            let rig = try IndexRig(store, time: time)
            try rig.apply(upload("i1", "u1", token: "T", at: 1))
            let applied = time.wall
            /// Time passes while the topics are known up to a moment.
            func pass(_ span: TimeSpan, asOf moment: UnixMillis?, until isEnough: () -> Bool) throws
            {
                time.advance(by: span)
                try rig.turn {
                    rig.writer.renew(rig.positions(100), asOf: moment ?? time.wall)
                    time.advance(by: .milliseconds(100))
                    return isEnough()
                }
            }
            let early = rig.startLookUp("u1")
            try pass(.seconds(20), asOf: applied) { rig.answer(of: early) != nil }
            let tag = rig.startLookUp("u1")
            try pass(.seconds(40), asOf: applied) {
                "\(rig.reader.readiness)".contains("over 30 s ago")
            }
            let late = rig.startLookUp("u1")
            try pass(.zero, asOf: applied) { time.wall - applied > .seconds(62) }
            #expect(rig.answer(of: late) == nil, "\(store.name)")
            try pass(.zero, asOf: nil) {
                rig.answer(of: tag) != nil && rig.answer(of: late) != nil && rig.reader.isReady
            }
            guard case .addresses(let found, _, _, _)? = rig.answer(of: late) else {
                Issue.record("not answered with addresses")
                return
            }
            #expect(found.map(\.addressID) == ["app/i1"], "\(store.name)")
        }
    }
}
