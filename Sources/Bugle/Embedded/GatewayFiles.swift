// The simulated gateways as a dispatcher's configuration sees them: key files, the authority's
// certificate and the section `apps`.

internal import Base
internal import Glibc
internal import JSON
internal import Simulator

/// The files of one set of simulated gateways.
internal struct GatewayFiles {
    /// Where they are.
    let folder: String
    /// The value of `apps` in a configuration, as JSON, which is YAML too.
    let section: String
    /// The certificate that clients have to trust.
    var authority: String { Self.authority(folder) }
    /// A file with that and nothing else.
    var apps: String { "\(folder)/bugle.apps.json" }

    /// The public half of the VAPID key: what browsers subscribe with.
    let vapidPublicKey: String

    /// The one app that the simulated gateways know.
    static let app = "shop"
    /// Its bundle id.
    static let topic = "com.example.shop"
    /// What the simulated Expo asks for; it guards nothing.
    private static let expoAccessToken = "simulated-access-token"
    /// Its Firebase project.
    static let project = "shop-demo"

    private static func authority(_ folder: String) -> String { "\(folder)/ca.pem" }
    private static func key(_ folder: String) -> String { "\(folder)/AuthKey.p8" }
    private static func vapidKey(_ folder: String) -> String { "\(folder)/vapid.pem" }
    private static func expoToken(_ folder: String) -> String { "\(folder)/expo-token" }
    private static func account(_ folder: String) -> String { "\(folder)/service-account.json" }
    /// A second key and account, which a rotation may lead to.
    private static func nextKey(_ folder: String) -> String { "\(folder)/AuthKey-2.p8" }
    private static func nextAccount(_ folder: String) -> String {
        "\(folder)/service-account-2.json"
    }

    /// Makes credentials that the simulator knows and writes everything into a folder.
    init(_ simulator: Simulator, folder: String) throws(Failure) {
        self.folder = folder
        do {
            let signingKey = try simulator.makeAPNsKey()
            let serviceAccount = try simulator.makeServiceAccount(projectID: Self.project)
            let vapidKey = try simulator.makeVAPIDKey()
            vapidPublicKey = vapidKey.publicKey
            section = Self.section(simulator, signingKey, vapidKey, folder)
            try simulator.writeAuthority(to: "\(folder)/ca.pem")
            try TextFile.write(signingKey.privateKeyPEM, to: Self.key(folder), isSecret: true)
            simulator.facts.expoAccessToken = Self.expoAccessToken
            try TextFile.write(
                Self.expoAccessToken, to: Self.expoToken(folder), isSecret: true)
            try TextFile.write(
                vapidKey.privateKeyPEM, to: Self.vapidKey(folder), isSecret: true)
            try TextFile.write(serviceAccount.json, to: Self.account(folder), isSecret: true)
            let nextKey = try simulator.makeAPNsKey(keyID: "KEY0000002")
            try TextFile.write(nextKey.privateKeyPEM, to: Self.nextKey(folder), isSecret: true)
            let nextAccount = try simulator.makeServiceAccount(
                projectID: Self.project, name: "push-2")
            try TextFile.write(nextAccount.json, to: Self.nextAccount(folder), isSecret: true)
            try TextFile.write("{\"apps\":\(section)}\n", to: "\(folder)/bugle.apps.json")
        } catch let failure as Failure {
            throw failure
        } catch {
            throw .failed("the simulated gateways have no credentials: \(error)")
        }
    }

    private static func section(
        _ simulator: Simulator, _ signingKey: SimulatedAPNsKey, _ vapidKey: SimulatedVAPIDKey,
        _ folder: String
    ) -> String {
        let bytes = ByteWriter()
        var apps = JSONObjectWriter(bytes)
        apps.name("shop")
        var app = JSONObjectWriter(bytes)
        app.name("apns")
        var apns = JSONObjectWriter(bytes)
        apns.string("team_id", signingKey.teamID)
        apns.string("key_id", signingKey.keyID)
        apns.string("key_file", key(folder))
        apns.string("topic", Self.topic)
        apns.name("endpoints")
        var endpoints = JSONObjectWriter(bytes)
        endpoints.string("production", simulator.address(of: .apnsProduction))
        endpoints.string("sandbox", simulator.address(of: .apnsSandbox))
        endpoints.string("channels", simulator.address(of: .apnsChannels))
        endpoints.string("channels_sandbox", simulator.address(of: .apnsChannelsSandbox))
        endpoints.end()
        apns.string("ca_file", authority(folder))
        apns.end()
        app.name("fcm")
        var fcm = JSONObjectWriter(bytes)
        fcm.string("service_account_file", account(folder))
        fcm.string("endpoint", simulator.address(of: .fcm))
        // A server of one's own has no traffic of others to be careful of.
        fcm.string("ramp", "0s")
        fcm.string("ca_file", authority(folder))
        fcm.end()
        app.name("webpush")
        var webPush = JSONObjectWriter(bytes)
        webPush.string("subject", "mailto:ops@example.com")
        webPush.name("vapid_keys")
        var keys = JSONObjectWriter(bytes)
        keys.name("v1")
        var key = JSONObjectWriter(bytes)
        key.string("key_file", Self.vapidKey(folder))
        key.string("public_key", vapidKey.publicKey)
        key.end()
        keys.end()
        webPush.bool("allow_loopback", true)
        webPush.string("ca_file", authority(folder))
        webPush.end()
        app.name("expo")
        var expo = JSONObjectWriter(bytes)
        expo.string("access_token_file", expoToken(folder))
        expo.string("endpoint", simulator.address(of: .expo))
        expo.string("ca_file", authority(folder))
        expo.end()
        app.end()
        apps.end()
        return bytes.text
    }
}

extension Simulator {
    /// Where a service is reached, as a configuration names it.
    internal func address(of service: SimulatedService) -> String {
        "https://localhost:\(port(of: service))"
    }
}

/// Small files of a command's own.
internal enum TextFile {
    static func write(_ text: String, to path: String, isSecret: Bool = false) throws(Failure) {
        let fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, isSecret ? 0o600 : 0o644)
        guard fd >= 0 else { throw failure(path) }
        defer { close(fd) }
        let bytes = Array(text.utf8)
        var written = 0
        while written < bytes.count {
            let count = bytes.withUnsafeBytes { bytes in
                Glibc.write(fd, bytes.baseAddress?.advanced(by: written), bytes.count - written)
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw failure(path) }
            written += count
        }
    }

    private static func failure(_ path: String) -> Failure {
        .failed("\(path) cannot be written: \(String(cString: strerror(errno)))")
    }
}

/// The folder that embedded parts keep their files in.
internal struct StateFolder {
    /// Its path.
    let path: String
    private let isTemporary: Bool

    /// The folder of that name, made if need be; nil for one that `remove` takes away.
    init(_ named: String?, purpose: String) throws(Failure) {
        if let named {
            if mkdir(named, 0o700) != 0 && errno != EEXIST {
                throw .failed("\(named): \(String(cString: strerror(errno)))")
            }
            guard let absolute = realpath(named, nil) else {
                throw .failed("\(named): \(String(cString: strerror(errno)))")
            }
            defer { free(absolute) }
            path = String(cString: absolute)
            isTemporary = false
            return
        }
        let base = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        var template = Array("\(base)/bugle-\(purpose)-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else {
            throw .failed("no folder for temporary files in \(base): set TMPDIR to one")
        }
        path = template.withUnsafeBufferPointer { buffer in
            buffer.baseAddress.map { String(cString: $0) } ?? base
        }
        isTemporary = true
    }

    /// Removes the files of embedded parts and the folder, if it was made for this run only.
    func remove() {
        guard isTemporary else { return }
        for name in [
            "ca.pem", "AuthKey.p8", "service-account.json", "vapid.pem", "expo-token",
            "bugle.apps.json", "bugle.yaml", "AuthKey-2.p8", "service-account-2.json",
        ] {
            unlink("\(path)/\(name)")
        }
        rmdir(path)
    }
}
