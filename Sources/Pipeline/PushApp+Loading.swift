// From the configuration to apps that can send: every key file is read and parsed here, so that
// what is wrong with one is said at start and by `check`, not at the first push.

public import Base
public import Config
internal import Crypto
internal import Gateways

/// What is wrong with a credential of an app.
public struct PushAppError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The setting that names the credential, such as `apps.shop.apns.key_file`.
    public let setting: String
    /// The file that it was read from; nil when it came from the environment.
    public let file: String?
    /// What is wrong and what to do.
    public let problem: String

    /// Setting, file and problem in one line.
    public var description: String {
        let file = file.flatMap { problem.contains($0) ? nil : "\($0): " } ?? ""
        return "\(setting): \(file)\(problem)"
    }
}

extension PushApp {
    /// The apps of a configuration. Apps with the same APNs team and key share one credential,
    /// apps with the same service account one access token.
    public static func load(_ configuration: Configuration) throws(PushAppError) -> [PushApp] {
        try PushAppLoader().load(configuration)
    }

    /// One app of a configuration, with credentials of its own: to find out what is wrong with it.
    public static func load(_ app: Configuration.App) throws(PushAppError) -> PushApp {
        try PushAppLoader().load(app)
    }
}

/// Loads apps, and keeps what several of them share. What is read again and has not changed is the
/// same credential with the same tokens as before. Used by one thread.
public final class PushAppLoader {
    private let providerTokens = ProviderTokenCache()
    /// Loaded accounts by the address that tokens are fetched from and the account's file.
    private var accounts: [SHA256Digest: AccessTokenService] = [:]
    private var webPushCredentials: [SHA256Digest: WebPushCredential] = [:]

    /// A PEM file with authorities that the connections of all gateways trust besides the system's
    /// and their own; read whenever a gateway is loaded. nil for none.
    public var sharedCAFile: String?

    /// A loader that has loaded nothing yet.
    public init() {}

    /// The apps of a configuration, and what it says of all gateways.
    public func load(_ configuration: Configuration) throws(PushAppError) -> [PushApp] {
        sharedCAFile = configuration.egress.caFile
        var apps: [PushApp] = []
        for app in configuration.apps { apps.append(try load(app)) }
        return apps
    }

    /// An app with all its gateways.
    public func load(_ app: Configuration.App) throws(PushAppError) -> PushApp {
        var loaded = PushApp(name: app.name)
        for gateway in Gateway.allCases { try load(gateway, of: app, into: &loaded) }
        return loaded
    }

    /// One gateway of an app; nothing when the app does not have it.
    public func load(
        _ gateway: Gateway, of app: Configuration.App, into loaded: inout PushApp
    ) throws(PushAppError) {
        let path = "apps.\(app.name).\(gateway.rawValue)"
        switch gateway {
        case .apns:
            guard let apns = app.apns else { return }
            loaded.certificateAPNs = try PushApp.CertificateAPNs(
                apns, trusting: try authorities(apns.caFile, path), path)
            if loaded.certificateAPNs == nil { loaded.apns = try load(apns, path) }
        case .fcm: if let fcm = app.fcm { loaded.fcm = try load(fcm, path) }
        case .webpush: if let webPush = app.webPush { loaded.webPush = try load(webPush, path) }
        case .expo: if let expo = app.expo { loaded.expo = try load(expo, path) }
        }
    }

    private func load(
        _ expo: Configuration.Expo, _ path: String
    ) throws(PushAppError) -> PushApp.Expo {
        var token: Secret<String>?
        if let source = expo.accessToken {
            token = Secret(try Self.read(source, Self.setting("access_token", of: source, path)))
        }
        guard let credential = ExpoCredential(accessToken: token) else {
            throw PushAppError(
                setting: "\(path).access_token", file: expo.accessToken?.path,
                problem: "not an access token: it is empty, or has blanks or control characters")
        }
        return PushApp.Expo(
            credential: credential,
            endpoint: GatewayEndpoint(expo.endpoint, trusting: try authorities(expo.caFile, path)))
    }

    /// What a gateway's own file and the one of all gateways hold.
    private func authorities(
        _ file: String?, _ path: String
    ) throws(PushAppError) -> TLSAuthorities {
        var authorities = TLSAuthorities.none
        for (file, setting) in [(file, "\(path).ca_file"), (sharedCAFile, "egress.ca_file")] {
            guard let file else { continue }
            do throws(TLSError) {
                try authorities.add(file)
            } catch {
                throw PushAppError(setting: setting, file: file, problem: error.text)
            }
        }
        return authorities
    }

    private func load(
        _ webPush: Configuration.WebPush, _ path: String
    ) throws(PushAppError) -> PushApp.WebPush {
        if let problem = VAPIDSubject.problem(with: webPush.subject) {
            throw PushAppError(setting: "\(path).subject", file: nil, problem: problem)
        }
        var keys: [VAPIDKey] = []
        for key in webPush.keys {
            let setting = Self.setting("key", of: key.key, "\(path).vapid_keys.\(key.id)")
            let text = try Self.read(key.key, setting)
            do throws(KeyError) {
                keys.append(
                    try VAPIDKey(
                        id: key.id, text: text, publicKey: key.publicKey, setting: setting))
            } catch {
                throw PushAppError(setting: setting, file: key.key.path, problem: error.problem)
            }
        }
        return PushApp.WebPush(
            credential: credential(webPush.subject, keys),
            hosts: webPush.hosts,
            settings: WebPushSettings(ttlMin: Int64(webPush.ttlMin)),
            trusting: try authorities(webPush.caFile, path))
    }

    private func credential(_ subject: String, _ keys: [VAPIDKey]) -> WebPushCredential {
        let name = SHA256Digest(
            of: ([subject] + keys.flatMap { [$0.id, $0.publicKey] }).joined(separator: "\n"))
        if let known = webPushCredentials[name] { return known }
        let credential = WebPushCredential(subject: subject, keys: keys)
        webPushCredentials[name] = credential
        return credential
    }

    private func load(
        _ apns: Configuration.APNs, _ path: String
    ) throws(PushAppError) -> PushApp.APNs {
        let setting = Self.setting("key", of: apns.key, path)
        let pem = try Self.read(apns.key, setting)
        let credential: APNsCredential
        do throws(KeyError) {
            credential = try providerTokens.credential(
                teamID: apns.teamID, keyID: apns.keyID, pem: pem, setting: path)
        } catch {
            throw PushAppError(setting: setting, file: apns.key.path, problem: error.problem)
        }
        let authorities = try authorities(apns.caFile, path)
        return PushApp.APNs(
            topic: apns.topic, credential: credential,
            production: GatewayEndpoint(apns.production, trusting: authorities),
            sandbox: GatewayEndpoint(apns.sandbox, trusting: authorities))
    }

    private func load(
        _ fcm: Configuration.FCM, _ path: String
    ) throws(PushAppError) -> PushApp.FCM {
        let setting = Self.setting("service_account", of: fcm.serviceAccount, path)
        let json = try Self.read(fcm.serviceAccount, setting)
        let account: ServiceAccount
        do throws(KeyError) {
            account = try ServiceAccount(
                json: Array(json.utf8), setting: path, tokenURI: fcm.tokenEndpoint?.description)
        } catch {
            throw PushAppError(
                setting: setting, file: fcm.serviceAccount.path, problem: error.problem)
        }
        let name = SHA256Digest(of: "\(account.tokenEndpoint.uri) \(json)")
        let tokens = accounts[name] ?? AccessTokenService(OAuthCredential(account))
        accounts[name] = tokens
        var loaded = PushApp.FCM(
            projectID: fcm.projectID ?? account.projectID, tokens: tokens,
            endpoint: GatewayEndpoint(fcm.endpoint, trusting: try authorities(fcm.caFile, path)))
        loaded.ramp = fcm.ramp
        return loaded
    }

    private static func read(
        _ source: SecretSource, _ setting: String
    ) throws(PushAppError) -> String {
        do throws(SecretSourceError) {
            return try source.read().exposed
        } catch {
            throw PushAppError(setting: setting, file: error.path, problem: error.message)
        }
    }

    private static func setting(_ key: String, of source: SecretSource, _ path: String) -> String {
        source.path == nil ? "\(path).\(key)" : "\(path).\(key)_file"
    }
}

extension SecretSource {
    internal var path: String? {
        if case .file(let path) = self { return path }
        return nil
    }
}

extension Configuration.WebPush {
    /// Where endpoints may lead.
    internal var hosts: WebPushHosts {
        WebPushHosts(allowedHosts ?? WebPushHosts.browsers, allowsLoopback: allowLoopback)
    }
}

extension GatewayEndpoint {
    internal init(_ endpoint: Endpoint, trusting authorities: TLSAuthorities) {
        self.init(host: endpoint.host, port: endpoint.port, trusting: authorities)
    }
}
