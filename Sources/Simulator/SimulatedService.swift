public import Base

/// The services that a simulator plays, each on a port of its own.
public enum SimulatedService: String, Sendable, CaseIterable {
    /// `api.push.apple.com`.
    case apnsProduction = "apns-production"
    /// `api.sandbox.push.apple.com`.
    case apnsSandbox = "apns-sandbox"
    /// `fcm.googleapis.com`.
    case fcm
    /// `oauth2.googleapis.com`, where FCM's access tokens come from.
    case oauth
    /// The push services of all browsers, told apart by the host: `mozilla.localhost`.
    case webpush
    /// `exp.host`.
    case expo
    /// `api-manage-broadcast.push.apple.com`: channels of the production environment.
    case apnsChannels = "apns-channels"
    /// `api-manage-broadcast.sandbox.push.apple.com`: channels of the sandbox.
    case apnsChannelsSandbox = "apns-channels-sandbox"

    /// The gateway that the service belongs to.
    public var gateway: Gateway {
        switch self {
        case .apnsProduction, .apnsSandbox, .apnsChannels, .apnsChannelsSandbox: .apns
        case .fcm, .oauth: .fcm
        case .webpush: .webpush
        case .expo: .expo
        }
    }

    /// The environment of the addresses that the service knows.
    public var environment: GatewayEnvironment {
        switch self {
        case .apnsProduction, .apnsChannels: .production
        case .apnsSandbox, .apnsChannelsSandbox: .sandbox
        case .fcm, .oauth, .webpush, .expo: .none
        }
    }
}
