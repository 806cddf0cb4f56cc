// The fuse: verdicts that a misconfiguration can cause are held back when there are too many.

import Base
import EventLoop
import Testing

@testable import TokenIndex

/// A verdict that names the credential it was met with, and so counts.
private func counted(
    _ install: String, _ kind: TokenVerdict = .suspend, asOf: Int64 = 500,
    credential: String = "TEAM.KEY", reason: String = "BadDeviceToken"
) -> InvalidationRecord {
    guard case .invalidation(var record) = verdict(kind, install, token: "t-\(install)", asOf: asOf)
    else { preconditionFailure("a verdict is one") }
    record.gateway = .apns
    record.environment = .production
    record.credential = credential
    record.reason = reason
    return record
}

extension IndexRig {
    fileprivate func register(_ count: Int, prefix: String = "i") throws {
        let tags = (0..<count).map {
            start(upload("\(prefix)\($0)", "u\($0)", token: "t-\(prefix)\($0)", at: 100))
        }
        try turn { tags.allSatisfy { self.result(of: $0) != nil } }
    }

    /// Applies verdicts one after another, as if they had just become old enough to weigh.
    fileprivate func judge(
        _ records: [InvalidationRecord], age: TimeSpan = .seconds(2), partition: Int32 = 0
    ) throws {
        for record in records {
            offset += 1
            try apply(
                .invalidation(record),
                at: place(offset, partition: partition, time: loop.wall.value - age.millis))
        }
    }

    fileprivate func standings(_ store: any IndexStore, _ users: Range<Int>) throws
        -> [AddressStanding: Int]
    {
        let operations = try store.operations()
        var counts: [AddressStanding: Int] = [:]
        for user in users {
            for report in try operations.reports(app: "app", userID: "u\(user)") {
                counts[report.standing, default: 0] += 1
            }
        }
        return counts
    }
}

@Suite struct `The fuse` {
    private let name = FuseName(
        app: "app", gateway: .apns, environment: .production, credential: "TEAM.KEY")

    @Test func `APNS-04: trips at the fiftieth token, holds all before it, and lets go`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(60)
            try rig.judge((0..<49).map { counted("i\($0)") })
            #expect(rig.tripped.isEmpty && rig.takePublished().isEmpty, "\(store.name)")
            try rig.judge([counted("i49")])
            let fuse = try #require(rig.tripped.first, "\(store.name)")
            #expect(rig.tripped.count == 1 && fuse.held == 50 && fuse.name == name)
            #expect(fuse.reason == "BadDeviceToken" && fuse.likelyCause.contains("environment"))
            try rig.turn { rig.notices.count == 51 }
            // What it holds goes on the topic, so that a rebuild holds it as well.
            let published = rig.takePublished()
            #expect(Set(published.map(\.addressID.installID)).count == 50)
            #expect(
                published.allSatisfy {
                    $0.verdict == .quarantine && $0.held == .suspend && $0.fuseID == fuse.id
                })
            try rig.judge(published)
            // From now on at once.
            try rig.judge([counted("i50", .invalidate, reason: "INVALID_ARGUMENT")])
            #expect(try rig.standings(store, 0..<60) == [.quarantined: 51, .active: 9])
            let shown = try rig.addresses("u50")
            #expect(shown.count == 1 && shown.allSatisfy(\.isQuarantined))
            try rig.judge(rig.takePublished())

            let operations = try store.operations()
            let waiting = try operations.fuses()
            #expect(waiting.map(\.id) == [fuse.id] && waiting.map(\.held) == [51])
            try rig.turn { rig.reader.trippedFuses == [self.name: fuse.id] }
            #expect(throws: IndexOperationError.noSuchFuse("x")) {
                try operations.records(settling: "x", .release)
            }
            let releases = try operations.records(settling: fuse.id, .release)
            #expect(releases.count == 51 && releases.allSatisfy { $0.verdict == .release })
            try rig.judge(releases)
            #expect(try rig.standings(store, 0..<60) == [.active: 60], "\(store.name)")
            #expect(try operations.fuses().isEmpty)
            #expect(try rig.ids("u50") == ["app/i50"])
            try rig.turn { rig.reader.trippedFuses.isEmpty }
        }
    }

    @Test func `lets the verdicts take effect when they are discarded`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(52)
            try rig.judge((0..<50).map { counted("i\($0)") })
            try rig.judge([counted("i50", .invalidate, reason: "INVALID_ARGUMENT")])
            try rig.turn { rig.notices.count == 52 }
            try rig.judge(rig.takePublished())
            let operations = try store.operations()
            let fuse = try #require(try operations.fuses().first)
            let records = try operations.records(settling: fuse.id, .discard)
            try rig.judge(records)
            #expect(
                try rig.standings(store, 0..<52) == [.suspended: 50, .invalidated: 1, .active: 1],
                "\(store.name)")
            #expect(try operations.fuses().isEmpty && rig.takePublished().isEmpty)
            // Discarding trips nothing, and a new registration revives.
            #expect(rig.tripped.count == 1)
            try rig.apply(upload("i7", "u7", token: "t-i7", at: 501, version: 2))
            #expect(try rig.ids("u7") == ["app/i7"])
        }
    }

    /// A writer that dies, or is replaced, takes what it had to say with it.
    @Test func `lets go of what it held when the records that say so were lost`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(51)
            try rig.judge((0..<50).map { counted("i\($0)") })
            let fuse = try #require(rig.tripped.first, "\(store.name)")
            try rig.turn { rig.notices.count == 51 }
            _ = rig.takePublished()
            let releases = try store.operations().records(settling: fuse.id, .release)
            #expect(releases.count == 50, "\(store.name)")
            try rig.judge(releases)
            #expect(try rig.standings(store, 0..<51) == [.active: 51], "\(store.name)")
            #expect(try store.operations().fuses().isEmpty, "\(store.name)")
            // What is judged after it counts again.
            try rig.judge([counted("i3", asOf: 501)])
            #expect(try rig.ids("u3") == [], "\(store.name)")
        }
    }

    /// Lanes hear of a settlement up to a second late.
    @Test(arguments: FuseSettlement.allCases)
    func `stays whole when a verdict comes that was held before it was settled`(
        settlement: FuseSettlement
    ) throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(52)
            try rig.judge((0..<50).map { counted("i\($0)") })
            let fuse = try #require(rig.tripped.first, "\(store.name)")
            try rig.turn { rig.notices.count == 51 }
            try rig.judge(rig.takePublished())
            let operations = try store.operations()
            try rig.judge(try operations.records(settling: fuse.id, settlement))
            try rig.judge([counted("i50").held(by: fuse.id)])
            #expect(try operations.fuses().isEmpty, "\(store.name)")
            let published = rig.takePublished()
            #expect(published.map(\.addressID.installID) == ["i50"], "\(store.name)")
            try rig.judge(published)
            let isReleased = settlement == .release
            #expect(try rig.ids("u50") == (isReleased ? ["app/i50"] : []), "\(store.name)")
            // And nothing holds what comes later.
            try rig.judge([counted("i51", asOf: 501)])
            #expect(
                try rig.standings(store, 50..<52)
                    == (isReleased ? [.active: 1, .suspended: 1] : [.suspended: 2]),
                "\(store.name)")
            #expect(try operations.fuses().isEmpty && rig.takePublished().isEmpty)
            #expect(rig.tripped.count == 1, "\(store.name)")
        }
    }

    @Test func `lets go of whom an operator forgets`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(60)
            try rig.judge((0..<40).map { counted("i\($0)") })
            func forget(_ install: String, asOf: Int64 = 1_000) -> InvalidationRecord {
                var record = counted(install, asOf: asOf)
                (record.verdict, record.reason, record.origin) = (.forget, "forgotten", .operator)
                (record.gateway, record.environment, record.credential) = (nil, nil, nil)
                record.tokenHash = nil
                return record
            }
            // It counts no more, so that one more is needed.
            try rig.judge([forget("i0")])
            try rig.judge((40..<50).map { counted("i\($0)") })
            #expect(rig.tripped.isEmpty, "\(store.name)")
            try rig.judge([counted("i50")])
            let fuse = try #require(rig.tripped.first, "\(store.name)")
            #expect(fuse.held == 50, "\(store.name)")
            try rig.turn { rig.notices.count == 51 }
            try rig.judge(rig.takePublished())
            // One that is held, and one for which a lane's word comes late.
            try rig.judge([forget("i1"), forget("i51"), counted("i51").held(by: fuse.id)])
            let operations = try store.operations()
            #expect(try operations.fuses().map(\.held) == [50], "\(store.name)")
            let kept = try operations.reports(app: "app", userID: "u1").flatMap {
                $0.verdicts.held(by: name)
            }
            #expect(kept.isEmpty, "\(store.name)")
            let records = try operations.records(settling: fuse.id, .release)
            let late = records.filter { $0.addressID.installID == "i51" }
            #expect(late.map(\.verdict) == [.forget] && late.map(\.asOf) == [UnixMillis(1_000)])
            #expect(late.allSatisfy { $0.userID == nil && $0.tokenHash == nil }, "\(store.name)")
            #expect(!records.contains { ["i0", "i1"].contains($0.addressID.installID) })
            try rig.judge(records)
            #expect(try operations.fuses().isEmpty, "\(store.name)")
            for user in ["u0", "u1", "u51"] { #expect(try rig.ids(user) == [], "\(store.name)") }
            #expect(try rig.ids("u2") == ["app/i2"], "\(store.name)")
        }
    }

    @Test func `weighs tokens against the answers of all processes`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            let other = try IndexRig(store, isComplete: false)
            try rig.register(80)
            rig.reader.count(answers: 700, for: name)
            other.reader.count(answers: 700, for: name)
            let minutes = { (store as? RedisStore)?.counted(self.name) ?? 1_400 }
            try rig.turn {
                other.loop.turn(waitingUpTo: .milliseconds(1))
                return minutes() == 1_400
            }
            // 5 % of 1,400 are 70.
            try rig.judge((0..<69).map { counted("i\($0)") })
            #expect(rig.tripped.isEmpty, "\(store.name)")
            try rig.judge([counted("i69")])
            #expect(rig.tripped.count == 1, "\(store.name)")
        }
    }

    /// Lanes pass answers on in sums, a second and more after a verdict that is among them was read.
    @Test(arguments: [true, false])
    func `weighs verdicts once the answers beside them are known`(isAnswered: Bool) throws {
        let time = ManualTime()
        for store in [InMemoryStore(time: time), try RedisStore()] as [any IndexStore] {
            let rig = try IndexRig(store, time: time)
            try rig.register(60)
            func pass(_ span: TimeSpan) {
                time.advance(by: span)
                for _ in 0..<5 { rig.loop.turn(waitingUpTo: .milliseconds(5)) }
                rig.writer.renew(rig.positions(100), asOf: nil)
                for _ in 0..<5 { rig.loop.turn(waitingUpTo: .milliseconds(5)) }
            }
            try rig.judge((0..<50).map { counted("i\($0)") }, age: .zero)
            pass(.milliseconds(900))
            if isAnswered {
                rig.reader.count(answers: 10_000, for: name)
                time.advance(by: .milliseconds(900))
                try rig.turn { (store as? RedisStore)?.counted(self.name) ?? 10_000 == 10_000 }
            } else {
                pass(.milliseconds(900))
            }
            #expect(rig.tripped.isEmpty, "\(store.name)")
            pass(.milliseconds(500))
            pass(.seconds(2))
            guard !isAnswered else {
                #expect(rig.tripped.isEmpty, "\(store.name)")
                continue
            }
            // No further verdict had to come.
            let fuse = try #require(rig.tripped.first, "\(store.name)")
            #expect(rig.tripped.count == 1 && fuse.held == 50, "\(store.name)")
            #expect(fuse.name == name && fuse.reason == "BadDeviceToken", "\(store.name)")
            try rig.turn { rig.notices.count == 51 }
            try rig.judge(rig.takePublished())
            #expect(
                try rig.standings(store, 0..<60) == [.quarantined: 50, .active: 10],
                "\(store.name)")
        }
    }

    @Test func `counts the verdicts of all writers together, and trips once`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            let other = try IndexRig(store, isComplete: false)
            try rig.register(60)
            // Each writer reads a partition of its own, and each has half of what it takes.
            try rig.judge((0..<25).map { counted("i\($0)") })
            try other.judge((25..<49).map { counted("i\($0)") }, partition: 1)
            #expect(rig.tripped.isEmpty && other.tripped.isEmpty, "\(store.name)")
            #expect(try rig.standings(store, 0..<60) == [.suspended: 49, .active: 11])
            try other.judge([counted("i49")], partition: 1)
            let fuse = try #require(other.tripped.first, "\(store.name)")
            #expect(fuse.held == 50 && fuse.name == name, "\(store.name)")
            try other.turn { other.notices.count == 51 }
            let published = other.takePublished()
            #expect(Set(published.map(\.addressID.installID)).count == 50, "\(store.name)")
            #expect(published.allSatisfy { $0.fuseID == fuse.id })
            try other.judge(published, partition: 1)
            // The writer that did not see it trip holds what comes behind as well.
            try rig.judge([counted("i50")])
            #expect(
                try rig.standings(store, 0..<60) == [.quarantined: 51, .active: 9], "\(store.name)")
            #expect(rig.takePublished().allSatisfy { $0.fuseID == fuse.id })
            #expect(rig.tripped.isEmpty && other.tripped.count == 1, "\(store.name)")
            #expect(try store.operations().fuses().map(\.id) == [fuse.id])
        }
    }

    @Test func `counts a token once, and neither old verdicts nor those that do not hold`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(160)
            try rig.judge((0..<40).map { counted("i\($0)") })
            try rig.judge((0..<40).map { counted("i\($0)") })
            // Read again from long ago.
            try rig.judge((40..<80).map { counted("i\($0)") }, age: .minutes(6))
            // Registered since.
            try rig.judge((80..<120).map { counted("i\($0)", asOf: 99) })
            // Another credential has a fuse of its own.
            try rig.judge((120..<160).map { counted("i\($0)", credential: "TEAM.OTHER") })
            #expect(rig.tripped.isEmpty, "\(store.name)")
            let expected: [AddressStanding: Int] = [.suspended: 120, .active: 40]
            #expect(try rig.standings(store, 0..<160) == expected, "\(store.name)")
        }
    }

    @Test func `WP-22: never counts a token's ordinary death`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(120)
            try rig.judge(
                (0..<120).map {
                    var record = counted("i\($0)", .invalidate, reason: "Unregistered")
                    record.credential = nil
                    return record
                })
            #expect(rig.tripped.isEmpty)
            #expect(try rig.standings(store, 0..<120) == [.invalidated: 120], "\(store.name)")
        }
    }

    @Test func `is known to a rebuilt index from the topic alone`() throws {
        for make in Stores.makers {
            let first = try make()
            let rig = try IndexRig(first)
            try rig.register(50)
            try rig.judge((0..<50).map { counted("i\($0)") })
            try rig.turn { rig.notices.count == 51 }
            let topic = rig.takePublished()

            let second = try make()
            let rebuilt = try IndexRig(second)
            try rebuilt.register(50)
            try rebuilt.judge(topic, age: .hours(30))
            #expect(rebuilt.tripped.isEmpty)
            #expect(try rebuilt.standings(second, 0..<50) == [.quarantined: 50], "\(first.name)")
            let fuses = try second.operations().fuses()
            #expect(fuses.map(\.id) == rig.tripped.map(\.id) && fuses.map(\.held) == [50])
        }
    }

    /// A topic of two partitions, and who wrote what when.
    private struct Topic {
        var records: [(record: InvalidationRecord, position: TopicPosition)] = []

        mutating func write(_ new: [InvalidationRecord], at time: UnixMillis) {
            for record in new {
                let partition = Int32(record.addressID.installID.utf8.last ?? 0) % 2
                let offset = records.count { $0.position.partition == partition }
                let position = TopicPosition(
                    partition: partition, offset: Int64(offset), timestamp: time.value)
                records.append((record, position))
            }
        }
    }

    /// Reads a topic into a fresh store, one partition after the other, and says what came of it.
    private func rebuild(
        _ topic: Topic, _ store: any IndexStore, first: Int32, isDeviceFirst: Bool
    ) throws -> IndexRig {
        let rig = try IndexRig(store, isComplete: false)
        try rig.takeCharge()
        if isDeviceFirst { try rig.register(60) }
        for partition in [first, 1 - first] {
            for (record, position) in topic.records where position.partition == partition {
                try rig.apply(.invalidation(record), at: position)
            }
        }
        if !isDeviceFirst { try rig.register(60) }
        #expect(rig.notices.isEmpty, "\(store.name): before all is read")
        try rig.mark()
        // Behind what the mark began.
        for number in 0..<60 {
            try rig.apply(upload("i\(number)", "u", token: "", at: 0, version: 0))
        }
        return rig
    }

    @Test func `holds nothing again that was released, in whatever order a rebuild reads`() throws {
        for make in Stores.makers {
            let rig = try IndexRig(try make())
            let now = rig.loop.wall - .seconds(2)
            var topic = Topic()
            let surge = (0..<50).map { counted("i\($0)") }
            topic.write(surge, at: now)
            topic.write(surge.map { $0.held(by: "F1") }, at: now)
            topic.write(
                surge.map {
                    var record = $0.held(by: "F1")
                    record.verdict = .release
                    record.held = nil
                    return record
                }, at: now)
            // Some that came when all was well again.
            topic.write((50..<53).map { counted("i\($0)") }, at: now)
            for first in [0, 1] as [Int32] {
                for isDeviceFirst in [true, false] {
                    let store = try make()
                    let rebuilt = try rebuild(
                        topic, store, first: first, isDeviceFirst: isDeviceFirst)
                    let context = "\(store.name), \(first), \(isDeviceFirst)"
                    #expect(rebuilt.notices.isEmpty, "\(context)")
                    #expect(try store.operations().fuses().isEmpty, "\(context)")
                    #expect(
                        try rebuilt.standings(store, 0..<60) == [.suspended: 3, .active: 57],
                        "\(context)")
                }
            }
        }
    }

    @Test func `holds after a rebuild what nobody was there to hold`() throws {
        for make in Stores.makers {
            let rig = try IndexRig(try make())
            var topic = Topic()
            topic.write((0..<50).map { counted("i\($0)") }, at: rig.loop.wall - .seconds(2))
            for (first, isDeviceFirst) in [(0, true), (1, true), (0, false)] as [(Int32, Bool)] {
                let store = try make()
                let rebuilt = try rebuild(
                    topic, store, first: first, isDeviceFirst: isDeviceFirst)
                try rebuilt.turn { rebuilt.notices.count == 51 }
                #expect(rebuilt.tripped.map(\.held) == [50], "\(store.name), \(first)")
                for record in rebuilt.takePublished() {
                    try rebuilt.apply(
                        .invalidation(record), at: place(1_000, time: rebuilt.loop.wall.value))
                }
                #expect(
                    try rebuilt.standings(store, 0..<60) == [.quarantined: 50, .active: 10],
                    "\(store.name), \(first)")
            }
        }
    }

    @Test func `is said to hold since its first record, whichever is read first`() throws {
        for make in Stores.makers {
            var seen: [[TrippedFuse]] = []
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
                let store = try make()
                let rig = try IndexRig(store)
                let records = ["app.9", "app.10", "app.10"].enumerated().map { number, fuse in
                    var record = counted("i\(number)").held(by: fuse)
                    record.reason = "R\(number)"
                    return record
                }
                for number in order {
                    try rig.apply(
                        .invalidation(records[number]),
                        at: place(0, partition: Int32(number), time: Int64(5_000 + number)))
                }
                seen.append(try store.operations().fuses())
            }
            #expect(seen[0].map(\.id) == ["app.10"] && seen[0].map(\.held) == [3])
            #expect(seen[0].map(\.reason) == ["R1"])
            #expect(seen.allSatisfy { $0 == seen[0] })
        }
    }

    @Test func `is settled by its own release, not by that of the one before`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(2)
            try rig.judge([counted("i0").held(by: "F1")])
            let former = try store.operations().records(settling: "F1", .release)
            try rig.judge([counted("i0").held(by: "F2"), counted("i1").held(by: "F2")])
            try rig.judge(former)
            #expect(try rig.standings(store, 0..<2) == [.quarantined: 2], "\(store.name)")
            #expect(try store.operations().fuses().map(\.held) == [2], "\(store.name)")
            let records = try store.operations().records(settling: "F2", .release)
            #expect(records.map(\.fuseID) == ["F2", "F2"])
            try rig.judge(records)
            #expect(try rig.standings(store, 0..<2) == [.active: 2], "\(store.name)")
            #expect(try store.operations().fuses().isEmpty, "\(store.name)")
        }
    }

    @Test func `makes no quarantine of a token's ordinary death`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.register(60)
            try rig.judge((0..<40).map { counted("i\($0)") })
            var death = counted("i7", .invalidate, reason: "Unregistered")
            death.credential = nil
            try rig.judge([death])
            try rig.judge((40..<50).map { counted("i\($0)") })
            try rig.turn { rig.notices.count == 51 }
            try rig.judge(rig.takePublished())
            let fuse = try #require(rig.tripped.first)
            #expect(
                try rig.standings(store, 0..<60)
                    == [.quarantined: 49, .invalidated: 1, .active: 10], "\(store.name)")
            try rig.judge(try store.operations().records(settling: fuse.id, .release))
            #expect(
                try rig.standings(store, 0..<60) == [.invalidated: 1, .active: 59], "\(store.name)")
            #expect(try store.operations().fuses().isEmpty, "\(store.name)")
        }
    }

    @Test func `says a word when three times as many tokens die as in the last days`() throws {
        let time = ManualTime()
        for store in [InMemoryStore(time: time), try RedisStore()] as [any IndexStore] {
            let rig = try IndexRig(store, time: time)
            try rig.register(160)
            func die(_ installs: Range<Int>) throws {
                try rig.judge(
                    installs.map {
                        var record = counted("i\($0)", .invalidate, reason: "Unregistered")
                        record.credential = nil
                        return record
                    })
            }
            func answer(_ count: Int) throws {
                rig.reader.count(answers: count, for: name)
                time.advance(by: .seconds(2))
                for _ in 0..<5 { rig.loop.turn(waitingUpTo: .milliseconds(5)) }
            }
            // Two days with one dead token in a thousand answers.
            for hour in 0..<48 {
                try answer(1_000)
                try die(hour..<hour + 1)
                time.advance(by: .hours(1))
            }
            let alarms = {
                rig.notices.compactMap { notice -> ChurnAlarm? in
                    if case .churn(let alarm) = notice { return alarm }
                    return nil
                }
            }
            try answer(20_000)
            try die(48..<98)
            #expect(alarms().isEmpty, "\(store.name): 50 of 20,000 are 2.5 times as many")
            try die(98..<118)
            for _ in 0..<5 { rig.loop.turn(waitingUpTo: .milliseconds(5)) }
            #expect(alarms().map(\.dead) == [70], "\(store.name)")
            try die(118..<158)
            for _ in 0..<5 { rig.loop.turn(waitingUpTo: .milliseconds(5)) }
            #expect(alarms().count == 1, "\(store.name): once an hour")
        }
    }
}

extension RedisStore {
    /// The answers of this and the last minute.
    fileprivate func counted(_ name: FuseName) -> Int {
        let text = try? Operator(server).run(
            "EVAL",
            "local n = 0 for _, v in ipairs(redis.call('HVALS', KEYS[1])) do n = n + v end return n",
            "1", index.layout.answers(name))
        return text.flatMap { Int($0) } ?? 0
    }
}
