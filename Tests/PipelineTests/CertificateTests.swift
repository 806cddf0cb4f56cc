// APNs with client certificates, and several teams, keys and certificates in one process.

import Base
import Crypto
import Gateways
import Glibc
import Simulator
import Testing

@testable import Pipeline

@Suite(.serialized) struct `Several credentials at APNs` {
    private final class Files {
        private(set) var paths: [String] = []
        deinit { for path in paths { unlink(path) } }

        func write(_ text: String) throws -> String {
            var name = Array("/tmp/bugle-cert-XXXXXX".utf8CString)
            let fd = mkstemp(&name)
            try #require(fd >= 0)
            let bytes = Array(text.utf8)
            Glibc.write(fd, bytes, bytes.count)
            close(fd)
            let path = String(
                decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
            paths.append(path)
            return path
        }
    }

    private func certificateApp(
        _ name: String, topic: String, topics: [String]? = nil, isForSandboxOnly: Bool = false,
        issuer: CertificateAuthority? = nil, _ simulator: Simulator, _ files: Files
    ) throws -> PushApp {
        let authorities = try TLSAuthorities(file: files.write(simulator.authorityPEM))
        let issued =
            try issuer?.issuePushCertificate(bundleID: topic, topics: [topic])
            ?? simulator.makePushCertificate(
                bundleID: topic, topics: topics, isForSandboxOnly: isForSandboxOnly)
        func endpoint(_ service: SimulatedService) -> GatewayEndpoint {
            GatewayEndpoint(
                host: "localhost", port: simulator.port(of: service), trusting: authorities)
        }
        return PushApp(
            name: name,
            certificateAPNs: try PushApp.CertificateAPNs(
                topic: topic,
                identity: TLSContext.Identity(
                    certificateFile: try files.write(issued.certificatePEM),
                    keyFile: try files.write(issued.keyPEM)),
                production: endpoint(.apnsProduction), sandbox: endpoint(.apnsSandbox)))
    }

    private func tokenApp(
        _ name: String, topic: String, team: String, key: String, _ simulator: Simulator,
        _ files: Files
    ) throws -> PushApp {
        let authorities = try TLSAuthorities(file: files.write(simulator.authorityPEM))
        let made = try simulator.makeAPNsKey(teamID: team, keyID: key)
        func endpoint(_ service: SimulatedService) -> GatewayEndpoint {
            GatewayEndpoint(
                host: "localhost", port: simulator.port(of: service), trusting: authorities)
        }
        return PushApp(
            name: name,
            apns: PushApp.APNs(
                topic: topic,
                credential: try APNsCredential(
                    teamID: team, keyID: key, pem: made.privateKeyPEM, setting: "test"),
                production: endpoint(.apnsProduction), sandbox: endpoint(.apnsSandbox)))
    }

    @Test func `teams, keys and a certificate send side by side, never over one connection`()
        throws
    {
        let simulator = try Simulator()
        let files = Files()
        for (team, topics) in [
            ("TEAM000001", ["com.example.shop", "com.example.admin"]),
            ("TEAM000002", ["com.other.news"]),
        ] {
            simulator.facts.setBundleIDs(Set(topics), teamID: team)
        }
        let apps = [
            try tokenApp(
                "shop", topic: "com.example.shop", team: "TEAM000001", key: "KEY0000001", simulator,
                files),
            // The same team with another key, and another team.
            try tokenApp(
                "admin", topic: "com.example.admin", team: "TEAM000001", key: "KEY0000002",
                simulator, files),
            try tokenApp(
                "news", topic: "com.other.news", team: "TEAM000002", key: "KEY0000003", simulator,
                files),
            try certificateApp("old", topic: "com.old.app", simulator, files),
        ]
        let world = try World(apps: apps, lanes: 1) { simulator.stop() }
        for app in apps {
            for number in 0..<5 {
                try world.register("\(app.name)-\(number)", user: "u\(number)", app: app.name)
            }
        }
        try world.start()
        for app in apps {
            for number in 0..<5 {
                try world.publish(
                    id: "\(app.name)-\(number)", user: "u\(number)",
                    extra: #","app":"\#(app.name)""#)
            }
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 20)
        #expect(results.count == 20)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        // Each connection carried one credential, and each credential one topic.
        let entries = simulator.journal.entries
        var topics: [Int: Set<String>] = [:]
        for entry in entries { topics[entry.connection, default: []].insert(entry.topic ?? "") }
        #expect(topics.values.allSatisfy { $0.count == 1 })
        #expect(Set(topics.values.flatMap { $0 }).count == 4)
        // A certificate needs no field.
        let byCertificate = entries.filter { $0.topic == "com.old.app" }
        #expect(byCertificate.count == 5)
        #expect(byCertificate.allSatisfy { $0.authorization.isEmpty })
        #expect(simulator.journal.counters.violations.isEmpty)
        #expect(world.stop())
    }

    @Test func `a certificate of the sandbox is no certificate for production`() throws {
        let simulator = try Simulator()
        let files = Files()
        let app = try certificateApp(
            "shop", topic: "com.example.shop", isForSandboxOnly: true, simulator, files)
        let world = try World(apps: [app], lanes: 1) { simulator.stop() }
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["credential_error"])
        #expect(results.map { $0.text("reason") } == ["BadCertificateEnvironment"])
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
    }

    @Test func `a certificate for another topic is refused before it is used`() throws {
        let simulator = try Simulator()
        defer { simulator.stop() }
        let files = Files()
        let error = #expect(throws: TLSError.self) {
            _ = try certificateApp(
                "shop", topic: "com.example.shop", topics: ["com.example.other"], simulator, files)
        }
        #expect(error?.text.contains("com.example.other") == true)
        #expect(error?.text.contains("com.example.shop") == true)
    }

    @Test func `a topic that a certificate does not have is refused by the gateway`() throws {
        let simulator = try Simulator()
        let files = Files()
        let app = try certificateApp(
            "shop", topic: "com.example.shop", topics: ["com.example.shop"], simulator, files)
        let world = try World(apps: [app], lanes: 1) { simulator.stop() }
        // A call's topic has an ending of its own, which this certificate does not name.
        try world.register("i1", user: "u1", extra: #","apns_topic":"com.example.shop.voip""#)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["credential_error"])
        #expect(results.map { $0.text("reason") } == ["TopicDisallowed"])
    }

    @Test func `a certificate that the gateway's TLS refuses stops the dialling and is named`()
        throws
    {
        let simulator = try Simulator()
        let files = Files()
        let app = try certificateApp(
            "shop", topic: "com.example.shop", issuer: try CertificateAuthority(), simulator, files)
        let world = try World(apps: [app], lanes: 1) { simulator.stop() }
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(id: "e1", user: "u1", extra: #","ttl":4"#)
        try world.flush()
        #expect(try world.records(of: "push.results", atLeast: 1).count == 1)
        #expect(world.lines(with: "the gateway refuses the credential of this connection") == 1)
        #expect(world.lines(with: "check the endpoint's name and ca_file") == 0)
        #expect(simulator.journal.entries.isEmpty)
    }
}
