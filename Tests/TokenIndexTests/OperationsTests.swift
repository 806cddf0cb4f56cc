// What an operator asks of an index, the same of every store; and comparing Redis with a model.

import Base
import EventLoop
import RedisServer
import Testing

@testable import TokenIndex

@Suite struct `An operator` {
    @Test func `is told of every address of a user why it would get a push or not`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            let now = rig.loop.wall
            try rig.apply(upload("a", "u1", token: "A", at: now.value))
            try rig.apply(upload("b", "u1", token: "B", at: 1))
            try rig.apply(upload("c", "u1", token: "C", at: 1))
            try rig.apply(upload("d", "u1", token: "D", at: 1))
            try rig.apply(upload("e", "u2", token: "D", at: 2))
            try rig.apply(verdict(.invalidate, "b", token: "B", asOf: 5), at: place(1))
            try rig.apply(verdict(.suspend, "c", token: nil, asOf: 7), at: place(2))
            let reports = try store.operations().reports(app: "app", userID: "u1")
            #expect(reports.map(\.id.installID) == ["a", "b", "c", "d"], "\(store.name)")
            #expect(reports.map(\.standing) == [.active, .invalidated, .suspended, .displaced])
            let obstacles = reports.map { $0.obstacle(at: now, .standard) }
            #expect(obstacles[0] == nil)
            #expect(obstacles[1] == "invalidated: Unregistered as of 5")
            #expect(obstacles[2] == "suspended: Unregistered as of 7")
            #expect(obstacles[3] == "app/e registered the same token later")
            #expect(reports.map { $0.address?.token } == ["A", "B", "C", "D"])
            #expect(try store.operations().reports(app: "app", userID: "nobody").isEmpty)
            let later = now + .hours(91 * 24)
            #expect(reports[0].obstacle(at: later, .standard) == "not seen for 91 days")
        }
    }

    @Test func `is given counts`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.apply(upload("a", "u1", token: "A", at: 1))
            try rig.apply(upload("a", "u1", token: "V", at: 1, kind: "voip"))
            try rig.apply(upload("b", "u1", token: "B", at: 1, environment: .sandbox))
            try rig.apply(second("b", "u1", token: "F", at: 1))
            try rig.apply(upload("c", nil, token: "C", at: 1))
            try rig.apply(upload("d", "u2", token: "D", at: 1))
            try rig.apply(gone("d"))
            try rig.apply(verdict(.invalidate, "a", token: "A", asOf: 5), at: place(1))
            let counts = try store.operations().statistics { _ in }
            #expect(counts.installs == 4 && counts.installsWithSeveralGateways == 1)
            #expect(counts.loggedOut == 1 && counts.gone == 1, "\(store.name)")
            #expect(counts.count(.active) == 3 && counts.count(.invalidated) == 1)
            let sandbox = IndexStatistics.Kind(
                gateway: .apns, environment: .sandbox, standing: .active)
            #expect(counts.addresses[sandbox] == 1)
        }
    }

    @Test func `forgets a user without a trace, for good`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.apply(upload("a", "anna", token: "A", at: 1), at: place(1))
            try rig.apply(upload("a", "anna", token: "V", at: 1, kind: "voip"), at: place(2))
            try rig.apply(upload("b", "bert", token: "B", at: 1), at: place(3))
            // Left behind by an earlier login.
            try rig.apply(upload("b", "anna", token: "B", at: 2, version: 2), at: place(4))
            try rig.apply(upload("b", "bert", token: "B", at: 3, version: 3), at: place(5))
            let operations = try store.operations()
            let plan = try operations.forgetting(
                app: "app", userID: "anna", at: UnixMillis(1_000))
            #expect(plan.deviceKeys == ["app/a", "app/a/voip"])
            #expect(plan.invalidations.allSatisfy { $0.verdict == .forget && $0.userID == nil })
            #expect(plan.invalidations.allSatisfy { $0.token == nil && $0.tokenHash == nil })
            #expect(try rig.ids("anna") == ["app/a", "app/a/voip"])
            for user in ["anna", "ann"] {
                rig.reader.writeNote("n", "x", app: "app", userID: user, keptFor: .minutes(5))
            }
            if let redis = store as? RedisStore {
                let usage = redis.index.usage(on: rig.loop)
                defer { usage.stop() }
                var isTaken = false
                usage.takePlace(
                    of: UUIDBytes(high: 1, low: 2), in: [UsageCap("user", Cap(3, in: .hours(1)))],
                    app: "app", userID: "anna", at: rig.loop.wall
                ) { _ in isTaken = true }
                try rig.turn { isTaken }
            }
            #expect(try note(rig, of: "anna") == "x" && note(rig, of: "ann") == "x")
            try operations.erase(plan)
            #expect(try note(rig, of: "anna") == nil && note(rig, of: "ann") == "x")
            #expect(try rig.ids("anna") == [], "\(store.name)")
            #expect(try operations.reports(app: "app", userID: "anna").isEmpty)
            #expect(try rig.ids("bert") == ["app/b"])
            if let redis = store as? RedisStore, redis.name == "in Redis" {
                #expect(try redis.everything().contains("bert"))
                #expect(try !redis.everything().contains("anna"), "\(store.name)")
                #expect(try redis.everything().contains("app:ann/n"), "\(store.name)")
            }
            // The records come round, and older ones come again.
            try rig.apply(gone("a"), at: place(10))
            try rig.apply(gone("a", kind: "voip"), at: place(11))
            for (offset, record) in plan.invalidations.enumerated() {
                try rig.apply(.invalidation(record), at: place(Int64(offset)))
            }
            try rig.apply(upload("a", "anna", token: "A", at: 1), at: place(1))
            try rig.apply(upload("a", "anna", token: "A", at: 999), at: place(12))
            #expect(try rig.ids("anna") == [])
            try rig.apply(upload("a", "anna", token: "A", at: 1_001, version: 2), at: place(13))
            #expect(try rig.ids("anna") == ["app/a"], "\(store.name): back, by a new login")
        }
    }
}

/// What a note says.
private func note(_ rig: IndexRig, of user: String) throws -> String? {
    var found: Result<String?, IndexFault>?
    rig.reader.readNote("n", app: "app", userID: user) { found = $0 }
    try rig.turn { found != nil }
    return try found?.get()
}

@Suite struct `What came after an operator asked` {
    @Test func `is not erased with the user who had the device before`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            for (offset, install) in ["a", "b", "c"].enumerated() {
                try rig.apply(
                    upload(install, "anna", token: install, at: 1), at: place(Int64(offset)))
            }
            let operations = try store.operations()
            let plan = try operations.forgetting(app: "app", userID: "anna", at: UnixMillis(1_000))
            #expect(plan.addresses.count == 3)
            // Somebody else logs in on one device, with the same token; she herself on another.
            try rig.apply(upload("a", "bert", token: "a", at: 1, version: 2), at: place(10))
            try rig.apply(upload("b", "anna", token: "b", at: 2_000, version: 2), at: place(11))
            try operations.erase(plan)
            #expect(try rig.ids("bert") == ["app/a"], "\(store.name)")
            #expect(try rig.ids("anna") == ["app/b"], "\(store.name)")
            try rig.apply(upload("d", "bert", token: "a", at: 3), at: place(12))
            #expect(try rig.ids("bert") == ["app/d"], "\(store.name): the slot is known")
        }
    }
}

@Suite struct `Comparing Redis with the topics` {
    @Test func `finds nothing where both say the same`() throws {
        let (rig, model, store) = try pair(users: 30)
        let found = try RedisIndexOperator(store.index).verify(against: model)
        #expect(found.isEqual && found.users == 30)
        withExtendedLifetime(rig) {}
    }

    @Test func `names what is missing, too much or different`() throws {
        let (rig, model, store) = try pair(users: 5)
        try rig.apply(gone("i1"), at: place(100))
        try rig.apply(upload("stranger", "unknown", token: "S", at: 1), at: place(101))
        try rig.apply(upload("i2", "u2", token: "other", at: 9, version: 2), at: place(102))
        try rig.apply(verdict(.suspend, "i3", token: nil, asOf: 9), at: place(1))
        let found = try RedisIndexOperator(store.index).verify(against: model)
        let expected = [
            IndexDifference(app: "app", userID: "u1", addressID: "app/i1", kind: .missing),
            IndexDifference(app: "app", userID: "u2", addressID: "app/i2", kind: .different),
            IndexDifference(app: "app", userID: "u3", addressID: "app/i3", kind: .different),
            IndexDifference(
                app: "app", userID: "unknown", addressID: "app/stranger", kind: .extra),
        ]
        #expect(found.differences.sorted { $0.userID < $1.userID } == expected)
        let again = try RedisIndexOperator(store.index).verify(against: model, only: ["u2"])
        #expect(again.count == 1 && again.users == 1)
    }

    @Test func `a rebuild is a matter of missing markers`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        let operations = try RedisIndexOperator(store.index)
        let before = try operations.markers()
        #expect(before.isComplete && before.positions.map(\.nextOffset) == [100, 100])
        try operations.requestRebuild()
        #expect(try !operations.markers().isComplete)
        try rig.turn { rig.assignments.count == 2 }
        #expect(rig.assignments[1].allSatisfy { $0.nextOffset == 0 })
        rig.writer.mark(rig.positions(120))
        try rig.turn { (try? operations.markers().isComplete) == true }
    }

    /// The same history in Redis and in a model.
    private func pair(users: Int) throws -> (IndexRig, InMemoryTokenIndex, RedisStore) {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        let model = InMemoryTokenIndex()
        for user in 0..<users {
            let change = upload("i\(user)", "u\(user)", token: "t\(user)", at: 5)
            try rig.apply(change, at: place(Int64(user)))
            model.apply(change, at: place(Int64(user)))
        }
        return (rig, model, store)
    }
}

extension RedisStore {
    /// All keys and values of this store in one text.
    fileprivate func everything() throws -> String {
        try Operator(server).run(
            "EVAL",
            """
            local out = {}
            for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
              out[#out + 1] = key
              local type = redis.call('TYPE', key).ok
              local values = type == 'hash' and redis.call('HGETALL', key)
                or type == 'string' and {redis.call('GET', key)}
                or redis.call('ZRANGE', key, 0, -1)
              for _, value in ipairs(values) do out[#out + 1] = value end
            end
            return table.concat(out, ' ')
            """, "0", prefix)
    }
}

/// A second alert address of an install, at another gateway.
func second(
    _ install: String, _ userID: String?, token: String, at registeredAt: Int64
) -> IndexChange {
    guard let id = AddressID(app: "app", installID: install, kind: "alert", instance: "fcm") else {
        preconditionFailure("a test spells its ids right")
    }
    let fields = DeviceFields(
        id: id, userID: userID, platform: "ios", gateway: .fcm, environment: .none, token: token,
        registeredAt: UnixMillis(registeredAt))
    return .registration(.registered(DeviceAddress(fields)))
}
