// The configured apps with their credentials loaded: everything that can be wrong with a key file
// is found before a lane starts, not at the first push.

public import Crypto
public import Gateways

/// Where a gateway is reached.
public struct GatewayEndpoint: Sendable, Hashable {
    /// Host name.
    public var host: String
    /// TCP port.
    public var port: UInt16
    /// Authorities to trust besides the system's.
    public var authorities: TLSAuthorities

    /// A host and port over TLS.
    public init(host: String, port: UInt16 = 443, trusting authorities: TLSAuthorities = .none) {
        self.host = host
        self.port = port
        self.authorities = authorities
    }
}

/// One app with its credentials.
public struct PushApp: Sendable {
    /// APNs for one app.
    public struct APNs: Sendable {
        /// The bundle id.
        public var topic: String
        /// Signs provider tokens; shared by all apps of one team and key.
        public var credential: APNsCredential
        /// Where production addresses are sent.
        public var production: GatewayEndpoint
        /// Where sandbox addresses are sent.
        public var sandbox: GatewayEndpoint

        /// APNs with a credential and both environments.
        public init(
            topic: String, credential: APNsCredential, production: GatewayEndpoint,
            sandbox: GatewayEndpoint
        ) {
            self.topic = topic
            self.credential = credential
            self.production = production
            self.sandbox = sandbox
        }
    }

    /// FCM for one app.
    public struct FCM: Sendable {
        /// The project that owns the registrations.
        public var projectID: String
        /// Where messages are sent.
        public var endpoint: GatewayEndpoint
        /// How long the way up to the project's whole rate takes, for replicas that share one.
        public var ramp = FCMLimits.ramp
        /// Fetches access tokens, once for all lanes.
        internal var tokens: AccessTokenService

        /// FCM with a credential. Use one value for all that share the service account.
        public init(projectID: String, credential: OAuthCredential, endpoint: GatewayEndpoint) {
            self.projectID = projectID
            self.endpoint = endpoint
            tokens = AccessTokenService(credential)
        }

        internal init(projectID: String, tokens: AccessTokenService, endpoint: GatewayEndpoint) {
            self.projectID = projectID
            self.endpoint = endpoint
            self.tokens = tokens
        }
    }

    /// The push services of browsers for one app.
    public struct WebPush: Sendable {
        /// Signs VAPID tokens; shared by all lanes.
        public var credential: WebPushCredential
        /// Where endpoints may lead.
        public var hosts: WebPushHosts
        /// What requests have in common.
        public var settings: WebPushSettings
        /// Authorities to trust besides the system's.
        public var authorities: TLSAuthorities

        /// Web push with a credential.
        public init(
            credential: WebPushCredential, hosts: WebPushHosts = WebPushHosts(),
            settings: WebPushSettings = WebPushSettings(),
            trusting authorities: TLSAuthorities = .none
        ) {
            self.credential = credential
            self.hosts = hosts
            self.settings = settings
            self.authorities = authorities
        }
    }

    /// Expo for one app: a project.
    public struct Expo: Sendable {
        /// The access token, if the project has one.
        public var credential: ExpoCredential
        /// Where messages are sent.
        public var endpoint: GatewayEndpoint

        /// Expo with a credential.
        public init(
            credential: ExpoCredential,
            endpoint: GatewayEndpoint = GatewayEndpoint(host: "exp.host")
        ) {
            self.credential = credential
            self.endpoint = endpoint
        }
    }

    /// The app's name in events, registrations and results.
    public var name: String
    /// nil when the app has no APNs.
    public var apns: APNs?
    /// APNs with a certificate; nil with provider tokens, or without APNs.
    public var certificateAPNs: CertificateAPNs?
    /// nil when the app has no FCM.
    public var fcm: FCM?
    /// nil when the app has no web push.
    public var webPush: WebPush?
    /// nil when the app has no Expo.
    public var expo: Expo?

    /// An app; at least one gateway makes it useful.
    public init(
        name: String, apns: APNs? = nil, fcm: FCM? = nil, webPush: WebPush? = nil,
        expo: Expo? = nil, certificateAPNs: CertificateAPNs? = nil
    ) {
        self.certificateAPNs = certificateAPNs
        self.expo = expo
        self.name = name
        self.apns = apns
        self.fcm = fcm
        self.webPush = webPush
    }
}
