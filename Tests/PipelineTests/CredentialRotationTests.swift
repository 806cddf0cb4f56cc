import Base
import Crypto
import Gateways
import Simulator
import Telemetry
import Testing

@testable import Pipeline

/// Credentials that are replaced while pushes are under way, and the trial that comes before.
@Suite(.serialized) struct `Rotation of credentials` {
    private func outcomes(_ world: World, _ count: Int) throws -> [String: Int] {
        try world.records(of: "push.results", atLeast: count, within: .seconds(60))
            .reduce(into: [:]) { counts, result in
                let name = "\(result.text("gateway") ?? "") \(result.text("outcome") ?? "")"
                counts[name, default: 0] += 1
            }
    }

    private func apnsCredential(_ key: SimulatedAPNsKey) throws -> APNsCredential {
        try APNsCredential(
            teamID: key.teamID, keyID: key.keyID, pem: key.privateKeyPEM, setting: "test")
    }

    private func tokens(_ account: SimulatedServiceAccount) throws -> AccessTokenService {
        AccessTokenService(
            OAuthCredential(try ServiceAccount(json: Array(account.json.utf8), setting: "test")))
    }

    @Test func `a rotation under load, with the old key revoked at once, costs no push`() throws {
        let simulator = try Simulator()
        let world = try World(simulator)
        let count = 400
        for user in 0..<count {
            let gateway = user % 2 == 0 ? Gateway.apns : .fcm
            try world.register("d\(user)", user: "u\(user)", gateway: gateway)
        }
        try world.start()
        for user in 0..<count { try world.publish(id: "a\(user)", user: "u\(user)") }
        try world.flush()
        #expect(world.eventually { simulator.journal.counters.pushes > 20 })

        var app = world.apps[0]
        let prover = try CredentialProver()
        defer { prover.stop() }
        app.apns?.credential = try apnsCredential(simulator.makeAPNsKey(keyID: "KEY0000002"))
        app.fcm?.tokens = try tokens(simulator.makeServiceAccount(name: "next"))
        for gateway in [Gateway.apns, .fcm] {
            #expect(prover.prove(app, gateway).allSatisfy { $0.verdict == .proven })
            try world.replaceCredential(of: app, at: gateway)
        }
        simulator.facts.removeAPNsKey(keyID: "KEY0000001")
        simulator.facts.removeServiceAccount(email: "push@demo-project.iam.gserviceaccount.com")
        for user in 0..<count { try world.publish(id: "b\(user)", user: "u\(user)") }
        try world.flush()
        #expect(
            try outcomes(world, 2 * count) == ["apns accepted": count, "fcm accepted": count])
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
        #expect(simulator.journal.counters.violations.isEmpty)
    }

    @Test func `a push under way whose key was replaced and revoked goes out with the new one`()
        throws
    {
        let gateway = try ScriptedGateway { _, attempt in
            attempt == 1 ? .hold : .answer(200, "")
        }
        let world = try World(gateway)
        for user in 0..<8 { try world.register("d\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<8 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        #expect(world.eventually { gateway.seen.count == 8 })
        var app = world.apps[0]
        let next = try APNsCredential(
            teamID: "ABCDE12345", keyID: "KLMNO67890",
            pem: try KeyPair.generate(for: .es256).privateKeyPEM, setting: "test")
        app.apns?.credential = next
        try world.replaceCredential(of: app, at: .apns)
        gateway.release(403, #"{"reason":"InvalidProviderToken"}"#)
        #expect(try outcomes(world, 8) == ["apns accepted": 8])
        let second = gateway.seen.filter { $0.attempt == 2 }
        #expect(second.count == 8)
        #expect(
            Set(second.map(\.authorization)).isDisjoint(
                with: gateway.seen.prefix(8).map(\.authorization)))
        #expect(next.mintCount == 1)
    }

    @Test func `a credential that was refused is so no more once it is replaced, without a push`()
        throws
    {
        let gateway = try ScriptedGateway { _, _ in
            .answer(403, #"{"reason":"InvalidProviderToken"}"#)
        }
        let world = try World(gateway)
        for user in 0..<20 { try world.register("d\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<20 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        #expect(try outcomes(world, 20) == ["apns credential_error": 20])
        #expect(world.eventually { world.registry.sum(of: "bugle_bulkhead_refused") == 2 })
        var app = world.apps[0]
        app.apns?.credential = try APNsCredential(
            teamID: "ABCDE12345", keyID: "KLMNO67890",
            pem: try KeyPair.generate(for: .es256).privateKeyPEM, setting: "test")
        try world.replaceCredential(of: app, at: .apns)
        #expect(
            world.eventually(within: .seconds(10)) {
                world.registry.sum(of: "bugle_bulkhead_refused") == 0
            })
        #expect(gateway.seen.count == 20)
        #expect(
            world.lines(
                with: #""level":"info","msg":"credential or authorities are replaced since"#) == 1)
        #expect(world.stop())
    }

    @Test func `a credential that gateways refuse is told from one that nobody could try`() throws {
        let simulator = try Simulator()
        let world = try World(simulator)
        let prover = try CredentialProver()
        defer { prover.stop() }
        var app = world.apps[0]
        for gateway in Gateway.allCases {
            #expect(prover.prove(app, gateway).allSatisfy { $0.verdict == .proven }, "\(gateway)")
        }
        func verdicts(_ gateway: Gateway) -> [String] {
            prover.prove(app, gateway).map { trial in
                switch trial.verdict {
                case .proven: "proven"
                case .refused(let fault, _): "refused: \(fault)"
                case .unclear: "unclear"
                }
            }
        }
        // A key that nobody knows.
        app.apns?.credential = try APNsCredential(
            teamID: "TEAM000001", keyID: "KEY0000009",
            pem: try KeyPair.generate(for: .es256).privateKeyPEM, setting: "test")
        #expect(verdicts(.apns) == ["refused: credential", "refused: credential"])
        // A key of one environment.
        app.apns?.credential = try apnsCredential(
            simulator.makeAPNsKey(keyID: "KEY0000003", environments: [.sandbox]))
        #expect(verdicts(.apns) == ["refused: config", "proven"])
        // A topic of somebody else.
        app.apns?.credential = world.apps[0].apns!.credential
        simulator.facts.setBundleIDs(["com.example.other"], teamID: "TEAM000001")
        #expect(verdicts(.apns) == ["refused: config", "refused: config"])
        // An account that is gone, and one without a right in the project.
        let account = try simulator.makeServiceAccount(name: "gone")
        simulator.facts.removeServiceAccount(email: account.email)
        app.fcm?.tokens = try tokens(account)
        #expect(verdicts(.fcm) == ["refused: credential"])
        app.fcm?.tokens = try tokens(
            simulator.makeServiceAccount(projectID: "elsewhere", name: "stranger"))
        #expect(verdicts(.fcm) == ["refused: config"])
        simulator.facts.expoAccessToken = "right"
        app.expo?.credential = try #require(ExpoCredential(accessToken: Secret("wrong")))
        #expect(verdicts(.expo) == ["refused: credential"])
        // Nobody there.
        app.expo?.endpoint = GatewayEndpoint(host: "localhost", port: 1)
        #expect(verdicts(.expo) == ["unclear"])
        // FCM's rehearsal of the right account at the start: nothing else was taken.
        #expect(simulator.journal.counters.accepted == 1)
    }
}
