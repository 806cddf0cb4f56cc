public import Base
internal import Crypto

/// What APNs knows about a device token.
public enum APNsTokenState: Sendable, Hashable {
    /// It takes notifications.
    case live
    /// The app was removed: 410 `Unregistered` with this timestamp.
    case unregistered(at: UnixMillis)
    /// The token expired: 410 `ExpiredToken` with this timestamp.
    case expired(at: UnixMillis)
}

/// How a token that nobody registered is answered.
public enum UnknownTokenPolicy: Sendable, Hashable {
    /// As a live one: for load and demonstrations.
    case accepted
    /// As malformed: APNs `BadDeviceToken`, FCM `INVALID_ARGUMENT`.
    case malformed
    /// As one that is gone: 410 `Unregistered` of now, FCM `UNREGISTERED`.
    case unregistered
}

/// How credentials that nobody registered are judged.
public enum UnknownCredentialPolicy: Sendable, Hashable {
    /// They are refused as the real services refuse them.
    case refused
    /// They are taken if they are well formed and fresh; what cannot be verified is not.
    case accepted
}

/// A team's signing key as APNs knows it.
struct APNsKey: Sendable {
    let teamID: String
    let key: VerifyingKey
    let environments: Set<GatewayEnvironment>
}

/// A device token as APNs knows it.
struct APNsToken: Sendable {
    var environment: GatewayEnvironment
    /// Bundle ids; empty means any.
    var topics: Set<String>
    var state: APNsTokenState
}

/// A broadcast channel as APNs knows it.
struct APNsChannel: Sendable {
    var bundleID: String
    var environment: GatewayEnvironment
    /// 0: nothing is stored; 1: the newest message is.
    var storagePolicy: Int
}

/// Everything APNs knows.
struct APNsFacts: Sendable {
    /// Channels by their id.
    var channels: [String: APNsChannel] = [:]
    /// Channels made so far; ids are made of it.
    var channelsMade: UInt64 = 0
    /// Bundle ids whose broadcast capability is off.
    var withoutBroadcasts: Set<String> = []

    var keys: [String: APNsKey] = [:]
    /// Bundle ids by team; a team without an entry may use any.
    var bundleIDs: [String: Set<String>] = [:]
    var tokens: [String: APNsToken] = [:]
}
