import Base
import Gateways
import Simulator
import Synchronization
import Testing

@testable import Pipeline

/// Faults of credentials as the simulated gateways answer them: events end as they should, and no
/// token is ever touched.
@Suite(.serialized) struct `Credentials, end to end` {
    /// Results of events published for users `a0...` (APNs) and `f0...` (FCM).
    private func run(
        _ world: World, apns: Int, fcm: Int, then: () throws -> Void = {}
    ) throws -> [String: Int] {
        for user in 0..<apns { try world.register("a\(user)", user: "a\(user)") }
        for user in 0..<fcm { try world.register("f\(user)", user: "f\(user)", gateway: .fcm) }
        try world.start()
        for user in 0..<apns { try world.publish(id: "ea\(user)", user: "a\(user)") }
        for user in 0..<fcm { try world.publish(id: "ef\(user)", user: "f\(user)") }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: apns + fcm)
        #expect(results.count == apns + fcm)
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
        return results.reduce(into: [:]) { counts, result in
            counts["\(result.text("gateway") ?? "") \(result.text("outcome") ?? "")", default: 0] +=
                1
        }
    }

    @Test func `one provider token and one access token serve all lanes`() throws {
        let simulator = try Simulator()
        let world = try World(simulator)
        #expect(try run(world, apns: 60, fcm: 60) == ["apns accepted": 60, "fcm accepted": 60])
        #expect(simulator.journal.authorizations.count == 2)
        #expect(simulator.journal.counters.tokenRequests == 1)
        #expect(simulator.journal.counters.violations.isEmpty)
    }

    /// Also what may be sent only once: the gateway turned the sender away, not the push.
    @Test(arguments: ["", #","ttl":0"#])
    func `AUTH-14: an access token that expired is fetched anew once, and nothing is lost`(
        ttl: String
    ) throws {
        let simulator = try Simulator()
        let world = try World(simulator)
        for user in 0..<100 { try world.register("f\(user)", user: "f\(user)", gateway: .fcm) }
        try world.start()
        try world.publish(id: "first", user: "f0")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
        simulator.revokeAccessTokens()
        for user in 0..<100 { try world.publish(id: "e\(user)", user: "f\(user)", extra: ttl) }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 101)
        #expect(results.count { $0.text("outcome") == "accepted" } == 101)
        #expect(simulator.journal.counters.tokenRequests == 2)
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
    }

    @Test func `AUTH-15: a token endpoint that refuses us costs the project only`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "refused", FaultMatch(.oauth),
                .answer(
                    FaultAnswer(
                        status: 400,
                        body:
                            #"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#
                    )))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator)
        let counts = try run(world, apns: 300, fcm: 300)
        #expect(counts == ["apns accepted": 300, "fcm credential_error": 300])
        #expect(simulator.journal.counters.tokenRequests < 10)
    }

    @Test func `AUTH-05: a provider token that is refused as expired is minted again at most once`()
        throws
    {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "skewed", FaultMatch(.apnsProduction),
                .answer(FaultAnswer(status: 403, reason: "ExpiredProviderToken")))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator)
        #expect(try run(world, apns: 100, fcm: 0) == ["apns credential_error": 100])
        #expect(simulator.journal.authorizations.count <= 2)
        // Whoever is called reads what to look at.
        #expect(world.lines(with: "because of the clock: check NTP") > 0)
    }

    @Test func `AUTH-16: a bad third-party credential refreshes nothing and spares the others`()
        throws
    {
        // Every second device is one whose road ends at APNs, for which Firebase holds a bad key.
        let bad = stride(from: 1, to: 20, by: 2).map { World.token(of: "f\($0)", gateway: .fcm) }
        var options = SimulatorOptions()
        options.faults = FaultPlan(
            rules: bad.map { token in
                FaultRule(
                    "third party", FaultMatch(.fcm, tokenPrefix: token),
                    .answer(FaultAnswer(status: 401, reason: "THIRD_PARTY_AUTH_ERROR")))
            })
        let simulator = try Simulator(options)
        let world = try World(simulator)
        #expect(
            try run(world, apns: 0, fcm: 20) == ["fcm credential_error": 10, "fcm accepted": 10])
        #expect(simulator.journal.counters.tokenRequests == 1)
        #expect(simulator.journal.counters.pushes == 20)
        let results = try world.records(of: "push.results", atLeast: 20)
        let refused = results.filter { $0.text("outcome") == "credential_error" }
        #expect(refused.allSatisfy { $0.text("reason") == "THIRD_PARTY_AUTH_ERROR" })
        #expect(results.allSatisfy { $0.text("attempts") == "1" })
    }

    @Test func `AUTH-01: apps with one key send one token, whichever of them sends`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway, apps: ["shop", "admin"], lanes: 1)
        for app in ["shop", "admin"] { try world.register("i-\(app)", user: "ada", app: app) }
        try world.start()
        for number in 0..<20 {
            let app = number % 2 == 0 ? "shop" : "admin"
            try world.publish(id: "e\(number)", user: "ada", extra: #","app":"\#(app)""#)
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 20)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(Set(gateway.seen.map(\.topic)).count == 2)
        #expect(Set(gateway.seen.map(\.authorization)).count == 1)
    }

    @Test(arguments: ["", #","ttl":0"#])
    func `a connection that has seen another key is left for a new one`(ttl: String) throws {
        let gateway = try ScriptedGateway { _, attempt in
            attempt == 1
                ? .answer(403, #"{"reason":"UnrelatedKeyIdInToken"}"#) : .answer(200, "")
        }
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "e1", user: "ada", extra: ttl)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["accepted"])
        #expect(results.map { $0.text("attempts") } == ["2"])
        #expect(Set(gateway.seen.map(\.connection)).count == 2)
    }

    @Test func `AUTH-07: too many token updates cost a wait, no token, no event and no device`()
        throws
    {
        let isOver = Atomic(false)
        let gateway = try ScriptedGateway { _, _ in
            isOver.load(ordering: .acquiring)
                ? .answer(200, "") : .answer(429, #"{"reason":"TooManyProviderTokenUpdates"}"#)
        }
        let world = try World(gateway, lanes: 1)
        world.settings.tokenUpdatesWait = .seconds(3)
        let users = (0..<50).map { "u\($0)" }
        for user in users + ["late"] { try world.register("i-\(user)", user: user) }
        try world.start()
        for user in users { try world.publish(id: "e-\(user)", user: user) }
        try world.flush()
        #expect(world.eventually { gateway.seen.count == 50 })
        let waiting = try world.records(of: "push.events-retry-1m", atLeast: 1)
        #expect(!waiting.isEmpty)
        #expect(
            waiting.allSatisfy {
                $0.headers["bugle-error-code"] == "TooManyProviderTokenUpdates"
                    && $0.headers["bugle-attempts"] == "0"
            })
        // What is published in the pause stands behind it and is not tried.
        try world.publish(id: "e-late", user: "late")
        try world.flush()
        let parked = try world.records(
            of: ParkingLot(gateway: .apns, environment: .production).topic(
                of: "push.events-parked"), atLeast: 1)
        #expect(parked.contains { $0.headers["bugle-error-code"] == "throttled" })
        #expect(gateway.seen.allSatisfy { $0.token != World.token(of: "i-late") })
        // It goes on for longer than a push has attempts.
        #expect(world.eventually { gateway.seen.contains { $0.attempt == 5 } })
        let storm = gateway.seen
        isOver.store(true, ordering: .releasing)
        let results = try world.records(of: "push.results", atLeast: 51)
        #expect(results.count == 51)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(Set(results.map { $0.text("event_id") }).count == 51)
        #expect(results.allSatisfy { $0.text("attempts") == "1" })
        // Four pauses, and behind each of them a look at most of everybody.
        #expect(storm.count <= 51 * 6)
        // The same token throughout, and on other connections when it persisted.
        #expect(Set(gateway.seen.map(\.authorization)).count == 1)
        let first = Set(gateway.seen.filter { $0.attempt == 1 }.prefix(50).map(\.connection))
        let last = Set(gateway.seen.suffix(51).map(\.connection))
        #expect(first.isDisjoint(with: last))
        // No device is taken for a busy one: the next event goes at once.
        try world.publish(id: "next", user: "u0")
        try world.flush()
        let all = try world.records(of: "push.results", atLeast: 52)
        let next = try #require(all.first { $0.text("event_id") == "next" })
        #expect(next.text("outcome") == "accepted" && next.text("attempts") == "1")
        #expect(world.stop())
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
    }
}
