internal import Crypto

/// What FCM knows about a registration token.
public enum FCMTokenState: Sendable, Hashable {
    /// It takes messages.
    case live
    /// 404 `UNREGISTERED`.
    case unregistered
    /// An iOS registration whose device token is gone: 400 with an ApnsError 410.
    case deviceTokenDisabled
    /// An iOS or web registration of a project whose own credential is bad: 401
    /// `THIRD_PARTY_AUTH_ERROR`.
    case thirdPartyCredentialBad
}

/// A service account as the token endpoint knows it.
struct FCMServiceAccount: Sendable {
    let key: VerifyingKey
    let projects: Set<String>
    var isDisabled = false
}

/// A registration token as FCM knows it.
struct FCMToken: Sendable {
    var projectID: String
    var state: FCMTokenState
}

/// A Firebase project.
struct FCMProject: Sendable {
    var messagesPerMinute: Int?
    /// The messages left in the bucket, and when that was true, in milliseconds.
    var left = 0.0
    var leftAt: Int64 = .min
}

/// Everything FCM and the token endpoint know.
struct FCMFacts: Sendable {
    var projects: [String: FCMProject] = [:]
    var accounts: [String: FCMServiceAccount] = [:]
    var tokens: [String: FCMToken] = [:]
}
