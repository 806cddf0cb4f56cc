// Client certificates and trusted authorities whose files change under a running process: files are
// real, the gateways' word and the clock are the test's.

import Base
import Config
import Crypto
import Gateways
import Glibc
import Pipeline
import Telemetry
import Testing

@testable import Bugle

/// An app with a certificate, and two gateways that trust others than the system's authorities.
private final class Rig {
    typealias Trial = (app: PushApp, gateway: Gateway, done: @Sendable ([CredentialTrial]) -> Void)

    let folder: String
    let sink = CollectingSink()
    let registry = MetricsRegistry()
    let issuer: CertificateAuthority
    var trials: [Trial] = []
    var replaced: [(app: PushApp, gateway: Gateway)] = []
    var now = MonotonicTime(nanos: 1_000_000_000_000)
    private(set) var reload: CredentialReload!

    init() throws {
        var template = Array("/tmp/bugle-authorities-XXXXXX".utf8CString)
        folder = try #require(mkdtemp(&template).map { String(cString: $0) })
        issuer = try CertificateAuthority()
        try issue(topics: ["com.example.shop"])
        try write("ca.pem", try CertificateAuthority().certificatePEM)
        try write("corporate.pem", try CertificateAuthority().certificatePEM)
        try write(
            "bugle.yaml",
            """
            kafka: {brokers: "localhost:9"}
            egress: {ca_file: corporate.pem}
            apps:
              shop:
                apns: {cert_file: cert.pem, key_file: cert.key, topic: com.example.shop, ca_file: ca.pem}
                expo: {ca_file: ca.pem}
            """)
        let configuration = try Configuration.load(
            path: "\(folder)/bugle.yaml", environment: [:])
        let loader = PushAppLoader()
        reload = CredentialReload(
            path: "\(folder)/bugle.yaml", configuration, apps: try loader.load(configuration),
            loader: loader, registry: registry, log: Log(level: .debug, format: .json, sink: sink),
            prove: { [unowned self] in trials.append(($0, $1, $2)) },
            replace: { [unowned self] in
                replaced.append(($0, $1))
                return nil
            })
    }

    deinit {
        for name in ["cert.pem", "cert.key", "ca.pem", "corporate.pem", "bugle.yaml", "new"] {
            unlink("\(folder)/\(name)")
        }
        rmdir(folder)
    }

    /// A new certificate and its key, for these topics.
    func issue(topics: [String]) throws {
        let issued = try issuer.issuePushCertificate(
            bundleID: topics[0], topics: topics, isForSandboxOnly: false)
        try write("cert.pem", issued.certificatePEM)
        try write("cert.key", issued.keyPEM)
    }

    func write(_ name: String, _ text: String) throws {
        let file = try #require(fopen("\(folder)/new", "w"))
        fputs(text, file)
        fclose(file)
        try #require(rename("\(folder)/new", "\(folder)/\(name)") == 0)
    }

    /// The files have changed and rest.
    func settle() {
        for _ in 0..<2 {
            now = now + .milliseconds(500)
            reload.poll(at: now)
        }
    }

    /// The gateways' word on all that is being tried.
    func answer(_ verdict: CredentialVerdict) {
        let asked = trials
        trials = []
        for trial in asked {
            trial.done([CredentialTrial(environment: .none, verdict: verdict, clockAhead: nil)])
        }
        settle()
    }

    func lines(_ text: String) -> [String] { sink.lines.filter { $0.contains(text) } }
}

@Suite struct `Certificates and authorities that change` {
    @Test func `a new certificate serves when APNs took it, with one line`() throws {
        let rig = try Rig()
        rig.settle()
        #expect(rig.trials.isEmpty)
        try rig.issue(topics: ["com.example.shop", "com.example.shop.voip"])
        rig.settle()
        #expect(rig.trials.map(\.gateway) == [.apns])
        #expect(rig.replaced.isEmpty)
        let next = try #require(rig.trials.first?.app.certificateAPNs)
        rig.answer(.proven)
        #expect(rig.replaced.map(\.gateway) == [.apns])
        #expect(rig.replaced.first?.app.certificateAPNs?.fingerprint == next.fingerprint)
        #expect(rig.sink.lines.count == 1)
        let line = rig.lines("credential replaced")
        #expect(line.count == 1 && line.first?.contains("cert.pem") == true)
        #expect(line.first?.contains(next.fingerprint) == true)
        #expect(!rig.sink.lines.contains { $0.contains("PRIVATE KEY") })
    }

    @Test func `one without its key, for another topic, or refused, changes nothing`() throws {
        let rig = try Rig()
        try rig.write("cert.key", try KeyPair.generate(for: .es256).privateKeyPEM)
        rig.settle()
        #expect(rig.lines("does not belong to the certificate").count == 1)
        try rig.issue(topics: ["com.example.other"])
        rig.settle()
        #expect(rig.lines("not for topic com.example.shop").count == 1)
        #expect(rig.trials.isEmpty)
        try rig.issue(topics: ["com.example.shop"])
        rig.settle()
        rig.answer(.refused(.credential, "APNs refuses it (BadCertificate)"))
        #expect(rig.lines("BadCertificate").count == 1)
        #expect(rig.replaced.isEmpty)
        #expect(rig.registry.sum(of: "bugle_credentials_pending") == 1)
    }

    @Test func `authorities are tried at every gateway whose connections trust them`() throws {
        let rig = try Rig()
        try rig.write("ca.pem", try CertificateAuthority().certificatePEM)
        rig.settle()
        #expect(rig.trials.map(\.gateway) == [.apns, .expo])
        // A trial goes under the new ones.
        #expect(
            rig.trials.allSatisfy {
                $0.app.certificateAPNs?.production.authorities != nil
            })
        rig.answer(.proven)
        #expect(rig.replaced.map(\.gateway) == [.apns, .expo])
        #expect(rig.lines("trusted authorities replaced").count == 2)
        #expect(rig.sink.lines.count == 2)
        #expect(rig.registry.sum(of: "bugle_credentials_pending") == 0)
        rig.settle()
        #expect(rig.trials.isEmpty)
    }

    @Test func `those of the way out concern all gateways`() throws {
        let rig = try Rig()
        try rig.write("corporate.pem", try CertificateAuthority().certificatePEM)
        rig.settle()
        #expect(rig.trials.map(\.gateway) == [.apns, .expo])
        rig.answer(.unclear("TLS failed: certificate verify failed"))
        #expect(rig.replaced.isEmpty)
        #expect(rig.lines("the old credential stays").count == 2)
    }

    @Test func `half a file changes nothing, and is told with its name`() throws {
        let rig = try Rig()
        let good = try CertificateAuthority().certificatePEM
        try rig.write("ca.pem", String(good.dropLast(90)))
        rig.settle()
        #expect(rig.trials.isEmpty && rig.replaced.isEmpty)
        let told = rig.lines("the old credential stays")
        #expect(told.count == 2)
        #expect(told.allSatisfy { $0.contains("\(rig.folder)/ca.pem") })
        try rig.write("ca.pem", good)
        rig.settle()
        rig.answer(.proven)
        #expect(rig.replaced.count == 2)
    }

    @Test func `a key that follows a certificate is tried like any other`() throws {
        let rig = try Rig()
        try rig.write("cert.key", try KeyPair.generate(for: .es256).privateKeyPEM)
        try rig.write(
            "bugle.yaml",
            """
            kafka: {brokers: "localhost:9"}
            egress: {ca_file: corporate.pem}
            apps:
              shop:
                apns:
                  {team_id: TEAM000001, key_id: KEY0000001, key_file: cert.key, topic: com.example.shop,
                   ca_file: ca.pem}
                expo: {ca_file: ca.pem}
            """)
        rig.settle()
        #expect(rig.trials.map(\.gateway) == [.apns])
        #expect(rig.trials.first?.app.certificateAPNs == nil)
        rig.answer(.proven)
        #expect(rig.lines("KEY0000001").count == 1)
    }
}
