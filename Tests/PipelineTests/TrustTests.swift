// Certificates that clients show and authorities that connections trust, replaced while pushes are
// under way.

import Base
import Crypto
import Gateways
import Glibc
import Simulator
import Testing

@testable import Pipeline

/// Writes texts into files that are gone with it.
private final class Files {
    private var paths: [String] = []
    deinit { for path in paths { unlink(path) } }

    func write(_ text: String) throws -> String {
        var name = Array("/tmp/bugle-trust-XXXXXX".utf8CString)
        let fd = mkstemp(&name)
        try #require(fd >= 0)
        let bytes = Array(text.utf8)
        Glibc.write(fd, bytes, bytes.count)
        close(fd)
        let path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        paths.append(path)
        return path
    }
}

@Suite(.serialized) struct `Certificates and authorities that are replaced` {
    private let files = Files()

    private func outcomes(_ world: World, _ count: Int) throws -> [String: Int] {
        try world.records(of: "push.results", atLeast: count, within: .seconds(60))
            .reduce(into: [:]) { counts, result in
                let name = "\(result.text("gateway") ?? "") \(result.text("outcome") ?? "")"
                counts[name, default: 0] += 1
            }
    }

    private func certificate(
        _ simulator: Simulator, isForSandboxOnly: Bool = false
    ) throws -> PushApp.CertificateAPNs {
        let issued = try simulator.makePushCertificate(
            bundleID: "com.example.shop", isForSandboxOnly: isForSandboxOnly)
        let authorities = try TLSAuthorities(file: files.write(simulator.authorityPEM))
        func endpoint(_ service: SimulatedService) -> GatewayEndpoint {
            GatewayEndpoint(
                host: "localhost", port: simulator.port(of: service), trusting: authorities)
        }
        return try PushApp.CertificateAPNs(
            topic: "com.example.shop",
            identity: TLSContext.Identity(
                certificateFile: files.write(issued.certificatePEM),
                keyFile: files.write(issued.keyPEM)),
            production: endpoint(.apnsProduction), sandbox: endpoint(.apnsSandbox))
    }

    private func app(_ apns: PushApp.CertificateAPNs) -> PushApp {
        PushApp(name: "shop", certificateAPNs: apns)
    }

    @Test func `another certificate under load costs no push, and the former one shows no more`()
        throws
    {
        let simulator = try Simulator()
        let world = try World(apps: [app(try certificate(simulator))], lanes: 2) {
            simulator.stop()
        }
        let count = 200
        for user in 0..<count { try world.register("d\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<count { try world.publish(id: "a\(user)", user: "u\(user)") }
        try world.flush()
        #expect(world.eventually { simulator.journal.counters.pushes > 20 })
        try world.replaceCredential(of: app(try certificate(simulator)), at: .apns)
        for user in 0..<count { try world.publish(id: "b\(user)", user: "u\(user)") }
        try world.flush()
        #expect(try outcomes(world, 2 * count) == ["apns accepted": 2 * count])
        #expect(simulator.journal.counters.violations.isEmpty)

        // Only a certificate that is really shown can be told to be one of the sandbox.
        let sandboxOnly = app(try certificate(simulator, isForSandboxOnly: true))
        try world.replaceCredential(of: sandboxOnly, at: .apns)
        try world.publish(id: "c", user: "u0")
        try world.flush()
        let last = try world.records(of: "push.results", atLeast: 2 * count + 1)
            .filter { $0.text("event_id") == "c" }
        #expect(last.map { $0.text("reason") } == ["BadCertificateEnvironment"])
    }

    @Test func `a key follows a certificate`() throws {
        let simulator = try Simulator()
        let before = app(try certificate(simulator))
        let world = try World(apps: [before], lanes: 1) { simulator.stop() }
        try world.register("d1", user: "u1")
        try world.start()
        try world.publish(id: "a", user: "u1")
        try world.flush()
        #expect(try outcomes(world, 1) == ["apns accepted": 1])
        let key = try simulator.makeAPNsKey()
        let certificate = try #require(before.certificateAPNs)
        let next = PushApp(
            name: "shop",
            apns: PushApp.APNs(
                topic: "com.example.shop",
                credential: try APNsCredential(
                    teamID: key.teamID, keyID: key.keyID, pem: key.privateKeyPEM, setting: "test"),
                production: certificate.production, sandbox: certificate.sandbox))
        let changed = try #require(before.taking(.apns, from: next))
        #expect(changed.certificateAPNs == nil && changed.apns != nil)
        #expect(before.hindrance(toTake: .apns, from: next) == nil)
        try world.replaceCredential(of: changed, at: .apns)
        try world.publish(id: "b", user: "u1")
        try world.flush()
        #expect(try outcomes(world, 2) == ["apns accepted": 2])
        #expect(simulator.journal.entries.map { $0.authorization.isEmpty } == [true, false])
    }

    @Test func `a certificate is tried in both environments`() throws {
        let simulator = try Simulator()
        defer { simulator.stop() }
        let prover = try CredentialProver()
        defer { prover.stop() }
        func verdicts(_ app: PushApp) -> [String] {
            prover.prove(app, .apns).map { trial in
                switch trial.verdict {
                case .proven: "proven"
                case .refused(let fault, let text): "refused: \(fault), \(text)"
                case .unclear(let text): "unclear: \(text)"
                }
            }
        }
        #expect(verdicts(app(try certificate(simulator))) == ["proven", "proven"])
        let sandbox = verdicts(app(try certificate(simulator, isForSandboxOnly: true)))
        #expect(sandbox.last == "proven")
        #expect(sandbox.first?.contains("config, the certificate is one of the other") == true)
        // One of an authority that the gateway does not know gets no answer.
        let stranger = try CertificateAuthority().issuePushCertificate(
            bundleID: "com.example.shop", topics: ["com.example.shop"], isForSandboxOnly: false)
        var foreign = try certificate(simulator)
        foreign.identity = try TLSContext.Identity(
            certificateFile: files.write(stranger.certificatePEM),
            keyFile: files.write(stranger.keyPEM))
        #expect(verdicts(app(foreign)).allSatisfy { $0.hasPrefix("unclear") })
    }

    /// An app whose connections trust others.
    private func trusting(_ authorities: TLSAuthorities, _ app: PushApp) -> PushApp {
        var app = app
        app.apns?.production.authorities = authorities
        app.apns?.sandbox.authorities = authorities
        app.fcm?.endpoint.authorities = authorities
        app.webPush?.authorities = authorities
        app.expo?.endpoint.authorities = authorities
        return app
    }

    private func others() throws -> TLSAuthorities {
        try TLSAuthorities(file: files.write(try CertificateAuthority().certificatePEM))
    }

    private func subscribeAll(_ world: World, _ simulator: Simulator, _ user: String) throws {
        try world.register("a-\(user)", user: user)
        try world.register("f-\(user)", user: user, gateway: .fcm)
        try world.registerExpo(
            "e-\(user)", user: user, token: "ExponentPushToken[\(user)]")
        try world.subscribe(
            "w-\(user)", user: user, at: simulator.endpoint(of: user),
            with: try World.browser(user))
    }

    @Test func `no gateway is reached under the wrong ones, and each as soon as they are replaced`()
        throws
    {
        let simulator = try Simulator()
        let model = try World(simulator)
        defer { withExtendedLifetime(model) {} }
        let good = model.apps[0]
        let world = try World(
            apps: [trusting(try others(), good)], lanes: 1, stopGateways: {})
        try subscribeAll(world, simulator, "u1")
        try world.start()
        try world.publish(id: "a", user: "u1", extra: #","ttl":600"#)
        try world.flush()
        #expect(world.eventually { world.lines(with: "certificate was refused") > 0 })
        #expect(simulator.journal.counters.pushes == 0)
        for gateway in Gateway.allCases { try world.replaceCredential(of: good, at: gateway) }
        let expected = Dictionary(
            uniqueKeysWithValues: Gateway.allCases.map { ("\($0.rawValue) accepted", 1) })
        #expect(try outcomes(world, 4) == expected)
        #expect(world.stop())
    }

    @Test func `more of them under load cost no push at any gateway`() throws {
        let simulator = try Simulator()
        let world = try World(simulator)
        let count = 60
        for user in 0..<count { try subscribeAll(world, simulator, "u\(user)") }
        try world.start()
        for user in 0..<count { try world.publish(id: "a\(user)", user: "u\(user)") }
        try world.flush()
        #expect(world.eventually { simulator.journal.counters.pushes > 20 })
        var both = try TLSAuthorities(file: files.write(simulator.authorityPEM))
        try both.add(try files.write(try CertificateAuthority().certificatePEM))
        for gateway in Gateway.allCases {
            try world.replaceCredential(of: trusting(both, world.apps[0]), at: gateway)
        }
        for user in 0..<count { try world.publish(id: "b\(user)", user: "u\(user)") }
        try world.flush()
        let expected = Dictionary(
            uniqueKeysWithValues: Gateway.allCases.map { ("\($0.rawValue) accepted", 2 * count) })
        #expect(try outcomes(world, 8 * count) == expected)
        #expect(simulator.journal.counters.violations.isEmpty)
        // Nothing went out twice: one acceptance for each of the targets.
        #expect(simulator.journal.counters.accepted == 8 * count)
    }

    @Test func `authorities are tried at the gateway, and at the token endpoint too`() throws {
        let simulator = try Simulator()
        let world = try World(simulator)
        let prover = try CredentialProver()
        defer { prover.stop() }
        // A token is there from here on, which says nothing about the way to the next one.
        #expect(prover.prove(world.apps[0], .fcm).allSatisfy { $0.verdict == .proven })
        #expect(prover.prove(world.apps[0], .fcm).allSatisfy { $0.verdict == .proven })
        let wrong = trusting(try others(), world.apps[0])
        for gateway in [Gateway.apns, .fcm, .expo] {
            for trial in prover.prove(wrong, gateway) {
                guard case .unclear(let text) = trial.verdict else {
                    Issue.record("\(gateway): \(trial.verdict)")
                    continue
                }
                #expect(text.contains("certificate was refused"), "\(text)")
                #expect(text.contains("token endpoint") == (gateway == .fcm), "\(text)")
            }
        }
        // Tokens that are asked for later go to the same place.
        #expect(wrong.taking(.fcm, from: world.apps[0]) != nil)
        #expect(world.apps[0].taking(.fcm, from: world.apps[0]) == nil)
    }

    @Test func `a file that is not whole is no authority and no certificate`() throws {
        let authority = try CertificateAuthority().certificatePEM
        let other = try CertificateAuthority().certificatePEM
        let issued = try CertificateAuthority().issuePushCertificate(
            bundleID: "a.b", topics: ["a.b"], isForSandboxOnly: false)
        let halves = [String(authority.dropLast(80)), authority + other.prefix(200)]
        for bad in ["", "no certificate"] + halves {
            let path = try files.write(bad)
            let error = #expect(throws: TLSError.self) { _ = try TLSAuthorities(file: path) }
            #expect(error?.text.contains(path) == true)
        }
        #expect(throws: TLSError.self) { _ = try TLSAuthorities(file: "/nonexistent/ca.pem") }
        let both = try TLSAuthorities(file: files.write("# ours\n\(authority)\n\(other)"))
        #expect(both != TLSAuthorities.none)
        let pairs = [
            (issued.certificatePEM, try KeyPair.generate(for: .es256).privateKeyPEM),
            (issued.certificatePEM, "no key"), ("no certificate", issued.keyPEM),
        ]
        for (certificate, key) in pairs {
            let paths = (try files.write(certificate), try files.write(key))
            #expect(throws: TLSError.self) {
                _ = try TLSContext.Identity(certificateFile: paths.0, keyFile: paths.1)
            }
        }
    }
}
