import Base
import Simulator
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

    @Test func `an access token that expired is fetched anew once, and everything is delivered`()
        throws
    {
        let simulator = try Simulator()
        let world = try World(simulator)
        for user in 0..<100 { try world.register("f\(user)", user: "f\(user)", gateway: .fcm) }
        try world.start()
        try world.publish(id: "first", user: "f0")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
        simulator.revokeAccessTokens()
        for user in 0..<100 { try world.publish(id: "e\(user)", user: "f\(user)") }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 101)
        #expect(results.count { $0.text("outcome") == "accepted" } == 101)
        #expect(simulator.journal.counters.tokenRequests == 2)
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
    }

    @Test func `a token endpoint that refuses us costs the project only`() throws {
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

    @Test func `a provider token that is refused as expired is minted again at most once`() throws {
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
    }

    @Test func `a bad third-party credential is told as such and refreshes nothing`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "third party", FaultMatch(.fcm),
                .answer(FaultAnswer(status: 401, reason: "THIRD_PARTY_AUTH_ERROR")))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator)
        #expect(try run(world, apns: 0, fcm: 20) == ["fcm credential_error": 20])
        #expect(simulator.journal.counters.tokenRequests == 1)
        #expect(simulator.journal.counters.pushes == 20)
    }
}
