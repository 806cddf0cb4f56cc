public import Base

/// What an address is for: the last part of an address id.
public enum AddressKind: String, Sendable, CaseIterable {
    case alert, voip, complication, controls, fileprovider, liveactivity, location, mdm
    case pushtotalk, widgets
}

/// One address, as a gateway needs it: borrowed for the length of one call.
public struct PushTarget {
    /// The gateway that serves the address.
    public var gateway: Gateway
    /// The environment of the address.
    public var environment: GatewayEnvironment
    /// The token's text, as registered; borrowed.
    public var token: UnsafeRawBufferPointer
    /// The topic that the registration named; nil stands for the app's.
    public var apnsTopic: String?
    /// The platform that the registration named, such as `ios`.
    public var platform: String?
    /// When the token was last registered.
    public var registeredAt: UnixMillis
    /// What the address is for.
    public var kind: AddressKind
    /// Set when it is no device's: `token` is then the name of a topic, a condition or a channel.
    public var broadcast: BroadcastTarget.Kind?
    /// Whether `token` is a Firebase installation id and not a registration token.
    public var isInstallation = false

    /// An address.
    public init(
        gateway: Gateway, environment: GatewayEnvironment, token: UnsafeRawBufferPointer,
        apnsTopic: String? = nil, platform: String? = nil, registeredAt: UnixMillis,
        kind: AddressKind = .alert, broadcast: BroadcastTarget.Kind? = nil,
        isInstallation: Bool = false
    ) {
        self.broadcast = broadcast
        self.isInstallation = isInstallation
        self.gateway = gateway
        self.environment = environment
        self.token = token
        self.apnsTopic = apnsTopic
        self.platform = platform
        self.registeredAt = registeredAt
        self.kind = kind
    }
}

extension PushTarget {
    /// Whether an Android device may be behind the address.
    internal var isAndroidOrUnknown: Bool { platform == nil || platform == "android" }

    /// Whether a browser is behind the address, or may be behind a topic.
    internal var isWeb: Bool { platform == "web" || broadcast != nil }

    /// Whether an Apple device may be behind the address.
    internal var isAppleOrUnknown: Bool { platform != "android" && platform != "web" }
}
