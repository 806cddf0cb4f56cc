// The section `apps`.

internal import Base

extension Configuration.App {
    internal static func readAll(_ top: inout ConfigurationSection) -> [Self] {
        let section = top.section("apps")
        if section.members.isEmpty {
            top.report("apps", "missing; name at least one app with its gateways")
        }
        return section.members.compactMap { entry in
            let path = section.path(of: entry.key)
            if !isName(entry.key) {
                section.reader.report(
                    entry.line, path,
                    "an app is named by 1 to 64 letters, digits, dots, underscores and hyphens")
            }
            guard
                let app = ConfigurationSection(entry.value, path: path, reader: section.reader)
            else { return nil }
            return Self(name: entry.key, app)
        }
    }

    private init(name: String, _ section: ConfigurationSection) {
        var section = section
        self.name = name
        let (apns, fcm) = (section.section("apns"), section.section("fcm"))
        self.apns = section.has("apns") ? Configuration.APNs(apns) : nil
        self.fcm = section.has("fcm") ? Configuration.FCM(fcm) : nil
        let webPush = section.section("webpush")
        self.webPush = section.has("webpush") ? Configuration.WebPush(webPush) : nil
        // `expo` alone is a whole section: a project may need no setting.
        let expo = section.section("expo")
        let hasExpo = section.members.contains { $0.key == "expo" }
        self.expo = hasExpo ? Configuration.Expo(expo) : nil
        abilities = Abilities(&section)
        if self.apns == nil && self.fcm == nil && self.webPush == nil && self.expo == nil {
            section.reader.report(
                section.line, section.path, "no gateway; add apns, fcm, webpush or expo")
        }
        section.finish()
    }

    private static func isName(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: true
                default: false
                }
            }
    }
}

extension Configuration.APNs {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        certificateFile = section.file("cert_file")
        if certificateFile == nil {
            teamID = section.identifier("team_id")
            keyID = section.identifier("key_id")
            key = section.requiredSecret("key", file: "key_file")
        } else {
            (teamID, keyID) = ("", "")
            key = section.certificateKey()
        }
        topic = section.requiredText("topic")
        if section.has("topic"), !topic.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) {
            section.report("topic", "expected the app's bundle identifier")
        }
        var endpoints = section.section("endpoints")
        production = endpoints.endpoint("production", default: "api.push.apple.com")
        sandbox = endpoints.endpoint("sandbox", default: "api.sandbox.push.apple.com")
        channels = endpoints.endpoint(
            "channels", default: "api-manage-broadcast.push.apple.com", port: 2196)
        channelsSandbox = endpoints.endpoint(
            "channels_sandbox", default: "api-manage-broadcast.sandbox.push.apple.com",
            port: 2195)
        endpoints.finish()
        caFile = section.file("ca_file")
        section.finish()
    }
}

extension Configuration.FCM {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        serviceAccount = section.requiredSecret("service_account", file: "service_account_file")
        projectID = section.text("project_id")
        endpoint = section.endpoint("endpoint", default: "fcm.googleapis.com")
        tokenEndpoint = section.value(
            "token_endpoint", default: nil,
            "an address that starts with https://, \(Endpoint.hostRule)"
        ) { text in Endpoint(text).map { .some($0) } }
        ramp = section.span("ramp", default: .seconds(60), in: .zero ... .hours(1))
        caFile = section.file("ca_file")
        section.finish()
    }
}

extension Configuration.Expo {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        accessToken = section.secret("access_token", file: "access_token_file")
        endpoint = section.endpoint("endpoint", default: "exp.host")
        caFile = section.file("ca_file")
        section.finish()
    }
}

extension Configuration.WebPush {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        subject = section.requiredText("subject")
        let entries = section.section("vapid_keys")
        keys = entries.members.compactMap { entry in
            let path = entries.path(of: entry.key)
            guard let key = ConfigurationSection(entry.value, path: path, reader: entries.reader)
            else { return nil }
            return Key(id: entry.key, key)
        }
        if keys.isEmpty {
            section.report(
                "vapid_keys", "missing; name at least one key, such as k1: {key_file: F}")
        }
        let first = section.text("default_key")
        if let first, let index = keys.firstIndex(where: { $0.id == first }) {
            keys.swapAt(0, index)
        } else if first != nil {
            section.report("default_key", "no such key in vapid_keys")
        } else if keys.count > 1 {
            section.report(
                "default_key", "missing; say which key is tried first for registrations without one"
            )
        }
        allowedHosts = section.hosts("allowed_hosts")
        allowLoopback = section.bool("allow_loopback", default: false)
        ttlMin = section.integer("ttl_min", default: 0, in: 0...3_600)
        caFile = section.file("ca_file")
        section.finish()
    }
}

extension Configuration.WebPush.Key {
    /// As long as a label of a metric may be: pushes are counted by key.
    private static let idBytesMax = 128

    fileprivate init(id: String, _ section: ConfigurationSection) {
        var section = section
        self.id = id
        key = section.requiredSecret("key", file: "key_file")
        publicKey = section.text("public_key")
        if !(1...Self.idBytesMax).contains(id.utf8.count) {
            section.reader.report(
                section.line, section.path, "a key is named by 1 to \(Self.idBytesMax) bytes")
        }
        section.finish()
    }
}

extension ConfigurationSection {
    /// Hosts, in a list; nil when none is given.
    fileprivate mutating func hosts(_ key: String) -> [String]? {
        guard let node = node(key) else { return nil }
        guard case .sequence(let elements) = node.content, !elements.isEmpty else {
            report(key, "expected a list of hosts such as [push.example.net]")
            return nil
        }
        return elements.compactMap { element in
            guard let text = reader.text(element, path(of: key)) else { return nil }
            let isHost =
                !text.isEmpty && !text.contains("/")
                && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
            if !isHost {
                reader.report(
                    element.line, path(of: key), "a host is meant, without https:// and path")
            }
            return isHost ? text : nil
        }
    }

    /// The key of a client certificate; what belongs to provider tokens does not go with one.
    fileprivate mutating func certificateKey() -> SecretSource {
        for name in ["team_id", "key_id", "key"] where node(name) != nil {
            report(name, "does not go with cert_file: a certificate needs no provider token")
        }
        guard let path = file("key_file") else {
            report("key_file", "missing; the certificate's key, a PEM file")
            return .value(Secret(""))
        }
        return .file(path)
    }

    /// Apple's identifiers of teams and keys.
    fileprivate mutating func identifier(_ key: String) -> String {
        if !has(key) { reportMissing(key) }
        return value(key, default: "", "10 capital letters and digits") { text in
            let isIdentifier = text.utf8.allSatisfy {
                (0x30...0x39).contains($0) || (0x41...0x5A).contains($0)
            }
            return isIdentifier && text.utf8.count == 10 ? text : nil
        }
    }

    /// An https address without a path.
    fileprivate mutating func endpoint(
        _ key: String, default host: String, port: UInt16 = 443
    ) -> Endpoint {
        let fallback = Endpoint(authority: HostPort(host: host, port: port))
        return value(
            key, default: fallback,
            "an address that starts with https:// and has no path, \(Endpoint.hostRule)"
        ) { text in Endpoint(text).flatMap { $0.path == "/" ? $0 : nil } }
    }

    fileprivate mutating func requiredSecret(_ key: String, file fileKey: String) -> SecretSource {
        if !has(key) && !has(fileKey) { reportMissing(fileKey) }
        return secret(key, file: fileKey) ?? .value(Secret(""))
    }
}
