// What every store has to do; each case runs against all of them.

import Base
import EventLoop
import Testing
import TokenIndex

enum Stores {
    static let makers: [@Sendable () throws -> any IndexStore] = [
        { InMemoryStore() }, { try RedisStore() }, { try RedisStore(cluster: nil) },
    ]

    static func all() throws -> [any IndexStore] { try makers.map { try $0() } }
}

/// Runs a case against a fresh rig of every store.
func withEveryStore(
    addressesPerUser: Int = IndexLimits.addressesPerUser, _ body: (IndexRig) throws -> Void
) throws {
    for store in try Stores.all() {
        try withKnownContext(store.name) {
            try body(try IndexRig(store, addressesPerUser: addressesPerUser))
        }
    }
}

/// Names the store in what a failing expectation throws.
private func withKnownContext(_ name: String, _ body: () throws -> Void) throws {
    do { try body() } catch {
        Issue.record("\(name): \(error)")
        throw error
    }
}

@Suite struct `Every index` {
    @Test func `finds what was registered, with all its fields`() throws {
        try withEveryStore { rig throws in
            #expect(try rig.apply(upload("i1", "u1", token: "t1", at: 100)) == .applied)
            let addresses = try rig.addresses("u1")
            let address = try #require(addresses.first)
            #expect(addresses.count == 1)
            #expect(address.addressID == "app/i1")
            #expect(address.app == "app" && address.installID == "i1" && address.kind == "alert")
            #expect(address.userID == "u1" && address.token == "t1")
            #expect(address.gateway == .apns && address.environment == .production)
            #expect(address.apnsTopic == "com.example.app")
            #expect(address.registeredAt == UnixMillis(100) && address.version == 1)
        }
    }

    @Test func `answers for nobody with an empty list`() throws {
        try withEveryStore { rig throws in #expect(try rig.ids("nobody") == []) }
    }

    @Test func `keeps apps apart`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "t", at: 100, app: "one"))
            try rig.apply(upload("i1", "u1", token: "t", at: 200, app: "two"))
            #expect(try rig.ids("u1", app: "one") == ["one/i1"])
            #expect(try rig.ids("u1", app: "two") == ["two/i1"])
        }
    }

    @Test func `hands over an install when another user logs in`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "t1", at: 100))
            try rig.apply(upload("i1", "u2", token: "t1", at: 200))
            #expect(try rig.ids("u1") == [])
            #expect(try rig.ids("u2") == ["app/i1"])
        }
    }

    @Test func `ID-03: unlinks all addresses of an install at logout`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "t1", at: 100))
            try rig.apply(upload("i1", "u1", token: "v1", at: 100, kind: "voip"))
            #expect(try rig.ids("u1") == ["app/i1", "app/i1/voip"])
            try rig.apply(upload("i1", nil, token: "t1", at: 100, version: 2))
            #expect(try rig.ids("u1") == [])
            try rig.apply(upload("i1", "u2", token: "v1", at: 100, version: 3, kind: "voip"))
            #expect(try rig.ids("u2") == ["app/i1", "app/i1/voip"])
            #expect(try rig.addresses("u2").allSatisfy { $0.userID == "u2" })
        }
    }

    @Test func `believes the newest record of an install whatever order they arrive in`() throws {
        try withEveryStore { rig throws in
            try rig.apply(
                upload("i1", "u2", token: "v1", at: 1, kind: "voip"),
                at: place(7, partition: 1, time: 200))
            try rig.apply(upload("i1", "u1", token: "t1", at: 1), at: place(9, time: 100))
            #expect(try rig.ids("u1") == [])
            #expect(try rig.ids("u2") == ["app/i1", "app/i1/voip"])
        }
    }

    @Test func `ID-01: gives a token to the install that registered it last`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            try rig.apply(upload("i2", "u2", token: "T", at: 200))
            #expect(try rig.ids("u1") == [])
            #expect(try rig.ids("u2") == ["app/i2"])
        }
        try withEveryStore { rig throws in
            try rig.apply(upload("i2", "u2", token: "T", at: 200))
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            #expect(try rig.ids("u1") == [])
            #expect(try rig.ids("u2") == ["app/i2"])
        }
    }

    @Test func `settles equal registration times by the address id`() throws {
        for order in [["i1", "i2"], ["i2", "i1"]] {
            try withEveryStore { rig throws in
                for install in order { try rig.apply(upload(install, install, token: "T", at: 5)) }
                #expect(try rig.ids("i1") == [])
                #expect(try rig.ids("i2") == ["app/i2"])
            }
        }
    }

    @Test func `lets a reinstall with version 1 take the token from version 57`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("old", "u1", token: "T", at: 100, version: 57))
            try rig.apply(upload("new", "u1", token: "T", at: 200, version: 1))
            #expect(try rig.ids("u1") == ["app/new"])
        }
    }

    @Test func `does not give a token back when its new holder goes away`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            try rig.apply(upload("i2", "u2", token: "T", at: 200))
            try rig.apply(gone("i2"))
            #expect(try rig.ids("u1") == [] && rig.ids("u2") == [])
            try rig.apply(upload("i1", "u1", token: "T", at: 150, version: 2))
            #expect(try rig.ids("u1") == [])
            try rig.apply(upload("i1", "u1", token: "T", at: 300, version: 3))
            #expect(try rig.ids("u1") == ["app/i1"])
        }
    }

    @Test func `keeps environments apart`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 100, environment: .sandbox))
            try rig.apply(upload("i2", "u2", token: "T", at: 200))
            #expect(try rig.ids("u1") == ["app/i1"])
            #expect(try rig.ids("u2") == ["app/i2"])
        }
    }

    @Test func `replaces a rotated token`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "old", at: 100))
            try rig.apply(upload("i1", "u1", token: "new", at: 200, version: 2))
            #expect(try rig.addresses("u1").map(\.token) == ["new"])
        }
    }
}

@Suite struct `The order inside a key` {
    @Test func `ignores lower offsets and repeats equal ones`() throws {
        try withEveryStore { rig throws in
            let first = upload("i1", "u1", token: "t1", at: 100)
            let second = upload("i1", "u2", token: "t2", at: 200, version: 2)
            #expect(try rig.apply(first, at: place(5)) == .applied)
            #expect(try rig.apply(second, at: place(6)) == .applied)
            #expect(try rig.apply(first, at: place(5)) == .outdated)
            #expect(try rig.apply(second, at: place(6)) == .applied)
            #expect(try rig.ids("u1") == [])
            #expect(try rig.addresses("u2").map(\.token) == ["t2"])
        }
    }

    @Test func `ignores lower versions until a tombstone`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "t5", at: 100, version: 5))
            #expect(
                try rig.apply(upload("i1", "u1", token: "t3", at: 200, version: 3)) == .outdated)
            #expect(try rig.addresses("u1").map(\.token) == ["t5"])
            try rig.apply(gone("i1"))
            #expect(try rig.ids("u1") == [])
            try rig.apply(upload("i1", "u1", token: "t3", at: 200, version: 3))
            #expect(try rig.addresses("u1").map(\.token) == ["t3"])
        }
    }

    @Test func `remembers a tombstone against older records`() throws {
        try withEveryStore { rig throws in
            let old = upload("i1", "u1", token: "t1", at: 100)
            try rig.apply(old, at: place(1))
            try rig.apply(gone("i1"), at: place(2))
            #expect(try rig.apply(old, at: place(1)) == .outdated)
            #expect(try rig.ids("u1") == [])
        }
    }

    @Test func `goes by time when a key moved to another partition`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "t1", at: 100), at: place(900, time: 1))
            try rig.apply(
                upload("i1", "u1", token: "t2", at: 200, version: 2),
                at: place(3, partition: 7, time: 2))
            #expect(try rig.addresses("u1").map(\.token) == ["t2"])
        }
    }
}

@Suite struct `Verdicts` {
    @Test(arguments: [
        TokenVerdict.invalidate, .suspend, .quarantine, .stale, .forget,
    ]) func `block registrations up to their time`(kind: TokenVerdict) throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            try rig.apply(verdict(kind, "i1", token: "T", asOf: 100), at: place(1))
            #expect(try rig.ids("u1") == [])
            try rig.apply(upload("i1", "u1", token: "T", at: 100, version: 2))
            #expect(try rig.ids("u1") == [])
            try rig.apply(upload("i1", "u1", token: "T", at: 101, version: 3))
            #expect(try rig.ids("u1") == ["app/i1"])
        }
    }

    @Test func `spare a registration that is newer`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            try rig.apply(verdict(.invalidate, "i1", token: "T", asOf: 99), at: place(1))
            #expect(try rig.ids("u1") == ["app/i1"])
        }
    }

    @Test func `count whichever topic is read first`() throws {
        try withEveryStore { rig throws in
            try rig.apply(verdict(.invalidate, "i1", token: "T", asOf: 100), at: place(1))
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            #expect(try rig.ids("u1") == [])
        }
    }

    @Test func `mean the token they name`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "new", at: 100))
            try rig.apply(verdict(.invalidate, "i1", token: "old", asOf: 500), at: place(1))
            #expect(try rig.ids("u1") == ["app/i1"])
            try rig.apply(verdict(.forget, "i1", token: nil, asOf: 500), at: place(2))
            #expect(try rig.ids("u1") == [])
        }
    }

    @Test func `are lifted by a release, and not by an older one`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            try rig.apply(verdict(.quarantine, "i1", token: "T", asOf: 200), at: place(5))
            let old = try rig.apply(
                verdict(.release, "i1", token: "T", asOf: 300), at: place(4))
            #expect(old == .outdated)
            #expect(try rig.ids("u1") == [])
            try rig.apply(verdict(.release, "i1", token: "T", asOf: 300), at: place(6))
            #expect(try rig.ids("u1") == ["app/i1"])
        }
    }

    @Test func `about a former token leave the one about the present token as it is`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "A", at: 100))
            try rig.apply(upload("i1", "u1", token: "B", at: 200, version: 2))
            try rig.apply(verdict(.invalidate, "i1", token: "B", asOf: 210), at: place(1))
            try rig.apply(verdict(.invalidate, "i1", token: "A", asOf: 190), at: place(2))
            #expect(try rig.ids("u1") == [])
            // Neither a repetition nor an upload that tells nothing new revives it.
            try rig.apply(verdict(.invalidate, "i1", token: "B", asOf: 210), at: place(1))
            try rig.apply(upload("i1", "u1", token: "B", at: 200, version: 3))
            #expect(try rig.ids("u1") == [])
            // The one before comes back as it was.
            try rig.apply(upload("i1", "u1", token: "A", at: 180, version: 4))
            #expect(try rig.ids("u1") == [])
            try rig.apply(upload("i1", "u1", token: "B", at: 211, version: 5))
            #expect(try rig.ids("u1") == ["app/i1"])
        }
    }

    @Test(arguments: [TokenVerdict.invalidate, .suspend, .stale, .forget])
    func `that are certain survive every release, on whichever side of it they stand`(
        kind: TokenVerdict
    ) throws {
        let certain = verdict(kind, "i1", token: kind == .forget ? nil : "T", asOf: 200)
        let quarantine = held(.quarantine, "i1", token: "T", asOf: 200, "F1")
        let release = held(.release, "i1", token: "T", asOf: 200, "F1")
        let orders = [
            [certain, quarantine, release], [quarantine, certain, release],
            [quarantine, release, certain], [certain, release, quarantine],
            [release, certain, quarantine], [release, quarantine, certain],
        ]
        try withEveryStore { rig throws in
            for (number, order) in orders.enumerated() {
                let install = "i\(number)"
                try rig.apply(upload(install, "u\(number)", token: "T\(number)", at: 100))
                for (offset, change) in order.enumerated() {
                    guard case .invalidation(var record) = change,
                        let id = AddressID(app: "app", installID: install)
                    else { return }
                    record.addressID = id
                    if record.tokenHash != nil {
                        record.tokenHash = hash("T\(number)")
                    }
                    try rig.apply(.invalidation(record), at: place(Int64(offset)))
                }
                #expect(try rig.ids("u\(number)") == [], "order \(number)")
                try rig.apply(
                    upload(install, "u\(number)", token: "T\(number)", at: 201, version: 2))
                #expect(try rig.ids("u\(number)") == ["app/\(install)"], "order \(number)")
            }
        }
    }

    private func hash(_ token: String) -> String? {
        guard case .invalidation(let record) = verdict(.suspend, "i", token: token, asOf: 0) else {
            return nil
        }
        return record.tokenHash
    }

    @Test func `are lifted by the release of their fuse and no other's`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 100))
            try rig.apply(held(.quarantine, "i1", token: "T", asOf: 200, "F1"), at: place(1))
            try rig.apply(held(.release, "i1", token: "T", asOf: 200, "F2"), at: place(2))
            try rig.apply(held(.release, "i1", token: "other", asOf: 200, "F1"), at: place(3))
            #expect(try rig.ids("u1") == [])
            try rig.apply(held(.release, "i1", token: "T", asOf: 200, "F1"), at: place(4))
            #expect(try rig.ids("u1") == ["app/i1"])
            // Written before the release, and after it on the topic.
            try rig.apply(held(.quarantine, "i1", token: "T", asOf: 200, "F1"), at: place(5))
            #expect(try rig.ids("u1") == ["app/i1"])
            try rig.apply(held(.quarantine, "i1", token: "T", asOf: 200, "F3"), at: place(6))
            #expect(try rig.ids("u1") == [])
        }
    }

    @Test func `of a late receipt do not shorten an earlier one`() throws {
        try withEveryStore { rig throws in
            try rig.apply(upload("i1", "u1", token: "T", at: 450))
            try rig.apply(verdict(.invalidate, "i1", token: "T", asOf: 500), at: place(1))
            try rig.apply(verdict(.invalidate, "i1", token: "T", asOf: 400), at: place(2))
            #expect(try rig.ids("u1") == [])
        }
    }
}

@Suite struct `Completeness and bounds` {
    @Test func `nothing is answered before the index is complete`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store, isComplete: false)
            try rig.takeCharge()
            try rig.apply(upload("i1", "u1", token: "T", at: 1))
            let known = rig.startLookUp("u1")
            let unknown = rig.startLookUp("u2")
            for _ in 0..<5 { rig.loop.turn(waitingUpTo: .milliseconds(5)) }
            #expect(rig.answer(of: known) == nil && rig.answer(of: unknown) == nil)
            #expect(!rig.reader.isReady)
            try rig.mark()
            try rig.turn { rig.answer(of: known) != nil && rig.answer(of: unknown) != nil }
            guard case .addresses(let some, _, _, _)? = rig.answer(of: known),
                case .addresses(let none, _, _, _)? = rig.answer(of: unknown)
            else {
                Issue.record("not answered with addresses")
                return
            }
            #expect(some.count == 1 && none.isEmpty)
            try rig.turn { rig.reader.isReady }
        }
    }

    @Test func `the newest addresses of a user with too many are kept`() throws {
        try withEveryStore(addressesPerUser: 10) { rig throws in
            for index in 0..<35 {
                try rig.apply(
                    upload("i\(index)", "u", token: "t\(index)", at: Int64(1_000 + index * 8 % 35)))
            }
            guard case .addresses(let found, let dropped, _, _) = try rig.lookUp("u") else {
                Issue.record("not answered with addresses")
                return
            }
            #expect(found.count == 10 && dropped == 25)
            #expect(found.allSatisfy { $0.registeredAt.value >= 1_025 })
            #expect(found.map(\.addressID) == found.map(\.addressID).sorted())
        }
    }

    @Test func `a look-up is never answered within the call`() throws {
        try withEveryStore { rig throws in
            let tag = rig.startLookUp("u1")
            #expect(rig.answer(of: tag) == nil)
            try rig.turn { rig.answer(of: tag) != nil }
        }
    }

    @Test func `an install takes a bounded number of addresses`() throws {
        try withEveryStore { rig throws in
            for index in 0..<IndexLimits.addressesPerInstall {
                rig.start(upload("i", "u", token: "t\(index)", at: 1, kind: "k\(index)"))
            }
            let result = try rig.apply(upload("i", "u", token: "one-more", at: 1, kind: "k-more"))
            guard case .refused = result else {
                Issue.record("took one more: \(result)")
                return
            }
        }
    }
}
