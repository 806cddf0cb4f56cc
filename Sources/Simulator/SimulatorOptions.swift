public import Base

/// How a simulator is set up.
public struct SimulatorOptions: Sendable {
    /// The address to listen on.
    public var host = "127.0.0.1"
    /// Ports by service; a service without one takes a free one.
    public var ports: [SimulatedService: UInt16] = [:]
    /// Names and numeric addresses for which certificates are issued besides the usual ones.
    public var certificateHosts: [String] = []
    /// Threads that the services are spread over.
    public var threads = 1
    /// The clocks of the services.
    public var time: any TimeSource = SystemTime.shared
    /// What goes wrong.
    public var faults = FaultPlan()
    /// How much is recorded.
    public var journal = Journal.Mode.full(bodies: false)
    /// How tokens that nobody registered are answered.
    public var unknownTokens = UnknownTokenPolicy.accepted
    /// How credentials that nobody registered are judged.
    public var unknownCredentials = UnknownCredentialPolicy.refused
    /// The stream limit of APNs connections once a provider token was accepted.
    public var apnsStreamLimit: UInt32 = 1000
    /// Whether APNs connections allow one stream until a provider token was accepted.
    public var apnsGate = true
    /// Whether APNs lowers the limit to 1 with a rejection until the next success.
    public var apnsLowersLimitOnRejection = false
    /// Whether a key of the other environment is answered in the documented spelling
    /// `BadEnvironmentKeyIdInToken` and not in the observed one, `BadEnvironmentKeyInToken`.
    public var apnsDocumentedKeyReason = false
    /// The stream limit of FCM and token connections.
    public var fcmStreamLimit: UInt32 = 100
    /// The stream limit of connections to the push services of browsers.
    public var webPushStreamLimit: UInt32 = 100
    /// The stream limit of connections to Expo.
    public var expoStreamLimit: UInt32 = 100
    /// Whether FCM ends connections that are pinged more than once while idle.
    public var fcmRefusesIdlePings = true
    /// How long an FCM connection may be idle; nil for any time.
    public var fcmIdleTimeout: TimeSpan? = .seconds(240)
    /// How long access tokens are valid.
    public var accessTokenLifetime = TimeSpan.seconds(3599)

    /// Free loopback ports, one thread, no faults, everything recorded, any token accepted.
    public init() {}
}
