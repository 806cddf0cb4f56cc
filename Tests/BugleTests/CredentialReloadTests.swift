// What a running process does about files of credentials that change: files are real, the gateways'
// word and the clock are the test's.

import Base
import Config
import Crypto
import Gateways
import Glibc
import Pipeline
import Telemetry
import Testing

@testable import Bugle

/// A configuration with all four gateways in a folder of its own, and what watches it.
private final class Rig {
    typealias Trial = (app: PushApp, gateway: Gateway, done: @Sendable ([CredentialTrial]) -> Void)

    let folder: String
    let sink = CollectingSink()
    let registry = MetricsRegistry()
    var trials: [Trial] = []
    var replaced: [PushApp] = []
    var now = MonotonicTime(nanos: 1_000_000_000_000)
    private(set) var reload: CredentialReload!

    init() throws {
        var template = Array("/tmp/bugle-credentials-XXXXXX".utf8CString)
        folder = try #require(
            mkdtemp(&template).map { String(cString: $0) })
        try write("key.p8", Self.ellipticKey())
        try write("account.json", Self.account("first", project: "shop-1"))
        try write("vapid.pem", Self.ellipticKey())
        try write("token", "expo-token-1")
        try configure()
        let configuration = try Configuration.load(
            path: "\(folder)/bugle.yaml", environment: [:])
        let loader = PushAppLoader()
        reload = CredentialReload(
            path: "\(folder)/bugle.yaml", configuration, apps: try loader.load(configuration),
            loader: loader, registry: registry, log: Log(level: .debug, format: .json, sink: sink),
            prove: { [unowned self] in trials.append(($0, $1, $2)) },
            replace: { [unowned self] app, _ in
                replaced.append(app)
                return nil
            })
    }

    deinit {
        for name in ["key.p8", "account.json", "vapid.pem", "token", "bugle.yaml", "new"] {
            unlink("\(folder)/\(name)")
        }
        rmdir(folder)
    }

    func configure(team: String = "TEAM000001", key: String = "KEY0000001") throws {
        try write(
            "bugle.yaml",
            """
            kafka: {brokers: "localhost:9"}
            apps:
              shop:
                apns: {team_id: \(team), key_id: \(key), key_file: key.p8, topic: com.example.shop}
                fcm: {service_account_file: account.json}
                webpush:
                  subject: mailto:ops@shop.com
                  vapid_keys: {v1: {key_file: vapid.pem}}
                expo: {access_token_file: token}
            """)
    }

    static func ellipticKey() throws -> String { try KeyPair.generate(for: .es256).privateKeyPEM }

    static func account(_ name: String, project: String) throws -> String {
        let key = try KeyPair.generate(for: .rs256).privateKeyPEM
            .split(separator: "\n").joined(separator: "\\n")
        return """
            {"type":"service_account","project_id":"\(project)","private_key":"\(key)\\n",
             "client_email":"\(name)@\(project).example.com","token_uri":"https://localhost/token"}
            """
    }

    /// Replaces a file as careful tools do.
    func write(_ name: String, _ text: String) throws {
        let file = try #require(fopen("\(folder)/new", "w"))
        fputs(text, file)
        fclose(file)
        try #require(rename("\(folder)/new", "\(folder)/\(name)") == 0)
    }

    /// Half a second passes.
    func poll() {
        now = now + .milliseconds(500)
        reload.poll(at: now)
    }

    /// The files have changed and rest.
    func settle() {
        poll()
        poll()
    }

    func answer(_ verdicts: CredentialVerdict...) {
        let trial = trials.removeFirst()
        let environments: [GatewayEnvironment] =
            trial.gateway == .apns ? [.production, .sandbox] : [.none]
        trial.done(
            zip(environments, verdicts + verdicts).map {
                CredentialTrial(environment: $0, verdict: $1, clockAhead: nil)
            })
        poll()
    }

    func lines(_ text: String) -> [String] { sink.lines.filter { $0.contains(text) } }

    /// The gateways whose new credential does not serve, as the metric tells.
    var pending: [String] {
        registry.readings(of: "bugle_credentials_pending").filter { $0.value == 1 }
            .map { "\($0.label("gateway")) of \($0.label("app"))" }.sorted()
    }

    func count(_ result: String, _ gateway: Gateway) -> Double {
        registry.readings(of: "bugle_credential_reloads_total")
            .filter {
                $0.label("result") == result && $0.label("gateway") == gateway.rawValue
            }.reduce(0) { $0 + $1.value }
    }
}

@Suite struct `Credentials that change` {
    @Test func `a new one serves only after its gateway took it`() throws {
        let rig = try Rig()
        rig.settle()
        #expect(rig.trials.isEmpty)
        try rig.write("token", "expo-token-2")
        rig.poll()
        #expect(rig.trials.isEmpty, "a file that may still be written is left alone")
        rig.poll()
        #expect(rig.trials.map(\.gateway) == [.expo])
        #expect(rig.replaced.isEmpty)
        rig.answer(.proven)
        #expect(rig.replaced.count == 1)
        #expect(rig.lines("credential replaced").count == 1)
        #expect(rig.count("replaced", .expo) == 1)
        rig.settle()
        #expect(rig.trials.isEmpty)
        #expect(!rig.sink.lines.contains { $0.contains("expo-token") })
    }

    @Test func `all gateways' files are watched, and the configuration for a key's new id`() throws
    {
        let rig = try Rig()
        try rig.configure(key: "KEY0000002")
        try rig.write("key.p8", Rig.ellipticKey())
        try rig.write("account.json", Rig.account("second", project: "shop-1"))
        rig.settle()
        #expect(rig.trials.map(\.gateway) == [.apns, .fcm])
        #expect(rig.trials.first?.app.apns?.credential.keyID == "KEY0000002")
        rig.answer(.proven)
        rig.answer(.proven)
        #expect(rig.replaced.count == 2)
        // The second swap keeps what the first one brought.
        #expect(rig.replaced.last?.apns?.credential === rig.replaced.first?.apns?.credential)
        #expect(rig.lines("KEY0000002").count == 1)
    }

    @Test func `a bad file is named with its fault once, and changes nothing`() throws {
        let rig = try Rig()
        try rig.write("key.p8", "-----BEGIN PRIVATE KEY-----\nMIGH")
        rig.settle()
        rig.settle()
        #expect(rig.trials.isEmpty && rig.replaced.isEmpty)
        let told = rig.lines("the old credential stays")
        #expect(told.count == 1)
        #expect(told.first?.contains("\(rig.folder)/key.p8") == true)
        #expect(rig.count("failed", .apns) == 1)
        #expect(rig.pending == ["apns of shop"])
        unlink("\(rig.folder)/key.p8")
        rig.settle()
        #expect(rig.lines("No such file").count == 1)
    }

    @Test func `a mistake that is taken back is no matter`() throws {
        let rig = try Rig()
        try rig.write("token", "not a token")
        rig.settle()
        #expect(rig.pending == ["expo of shop"])
        try rig.write("token", "expo-token-1\n")
        rig.settle()
        #expect(rig.trials.isEmpty)
        rig.poll()
        #expect(rig.pending == [])
    }

    @Test func `one that is refused is tried again later and told once`() throws {
        let rig = try Rig()
        try rig.write("account.json", Rig.account("second", project: "shop-1"))
        rig.settle()
        rig.answer(.refused(.credential, "no such key"))
        #expect(rig.trials.isEmpty)
        rig.now = rig.now + .seconds(15)
        rig.poll()
        #expect(rig.trials.count == 1)
        rig.answer(.refused(.credential, "no such key"))
        #expect(rig.lines("no such key").count == 1)
        #expect(rig.replaced.isEmpty)
        rig.now = rig.now + .seconds(60)
        rig.poll()
        rig.answer(.proven)
        #expect(rig.replaced.count == 1)
    }

    @Test func `a newer file makes the answer about an older one worthless`() throws {
        let rig = try Rig()
        try rig.write("token", "expo-token-2")
        rig.settle()
        try rig.write("token", "expo-token-3")
        rig.settle()
        #expect(rig.trials.count == 2)
        rig.answer(.proven)
        #expect(rig.replaced.isEmpty)
        rig.answer(.unclear("no answer"))
        #expect(rig.lines("no answer").count == 1)
        #expect(rig.replaced.isEmpty)
    }

    @Test func `a key of one environment may follow its like, and nothing else`() throws {
        for former in [CredentialVerdict.proven, .refused(.config, "other environment")] {
            let rig = try Rig()
            try rig.configure(key: "KEY0000002")
            try rig.write("key.p8", Rig.ellipticKey())
            rig.settle()
            rig.answer(.proven, .refused(.config, "other environment"))
            #expect(rig.trials.first?.app.apns?.credential.keyID == "KEY0000001")
            rig.answer(.proven, former)
            #expect(rig.replaced.isEmpty == (former == .proven))
        }
    }

    @Test func `what tokens of devices depend on is not replaced`() throws {
        let rig = try Rig()
        try rig.configure(team: "TEAM000002")
        try rig.write("account.json", Rig.account("other", project: "shop-2"))
        try rig.write("vapid.pem", Rig.ellipticKey())
        rig.settle()
        #expect(rig.trials.isEmpty)
        let told = rig.lines("the old credential stays")
        #expect(told.count == 3)
        for word in ["change of team", "change of project", "under a new name"] {
            #expect(told.contains { $0.contains(word) }, "\(word)")
        }
    }

    @Test func `a link that moves to another folder is a change`() throws {
        let rig = try Rig()
        for version in ["..1", "..2"] { mkdir("\(rig.folder)/\(version)", 0o700) }
        defer {
            for version in ["..1", "..2"] {
                unlink("\(rig.folder)/\(version)/token")
                rmdir("\(rig.folder)/\(version)")
            }
            unlink("\(rig.folder)/..data")
        }
        try rig.write("..1/token", "expo-token-1")
        try rig.write("..2/token", "expo-token-2")
        try #require(symlink("..1", "\(rig.folder)/..data") == 0)
        unlink("\(rig.folder)/token")
        try #require(symlink("..data/token", "\(rig.folder)/token") == 0)
        rig.settle()
        #expect(rig.trials.isEmpty)
        try #require(symlink("..2", "\(rig.folder)/new") == 0)
        try #require(rename("\(rig.folder)/new", "\(rig.folder)/..data") == 0)
        rig.settle()
        #expect(rig.trials.map(\.gateway) == [.expo])
    }

    @Test func `SIGHUP reads at once`() throws {
        let rig = try Rig()
        try rig.write("token", "expo-token-2")
        rig.reload.reload(at: rig.now)
        #expect(rig.trials.map(\.gateway) == [.expo])
    }
}
