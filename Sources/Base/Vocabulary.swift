// The closed lists that every record, metric and configuration shares. Names are the spellings
// on the wire; a reader meets them in `topics/`.

/// A push gateway.
public enum Gateway: String, Sendable, CaseIterable {
    case apns, fcm, webpush, expo
}

/// The environment of an address: APNs keeps two apart, the others have `none`.
public enum GatewayEnvironment: String, Sendable, CaseIterable {
    case production, sandbox, none
}

/// How an event is treated when room is short.
public enum EventClass: String, Sendable, CaseIterable {
    case critical, transactional, marketing
}

/// How urgently an event wants to be delivered.
public enum EventPriority: String, Sendable, CaseIterable {
    case high, normal, low
}

/// How much of a person's attention a notification asks for, in words of no gateway.
public enum Importance: String, Sendable, CaseIterable {
    case passive, normal, high
    case timeSensitive = "time_sensitive"
    case critical
}

/// What kind of push an event becomes.
public enum PushKind: String, Sendable, CaseIterable {
    case alert, silent, hint, call, raw
}

/// What finally happened to one target. Terminal; exactly one per target.
public enum Outcome: String, Sendable, CaseIterable {
    case accepted, unknown
    case rejected
    case tokenInvalid = "token_invalid"
    case tokenSuspended = "token_suspended"
    case credentialError = "credential_error"
    case failed
    case deadLettered = "dead_lettered"
    case expired, coalesced, suppressed
    case noDevices = "no_devices"

    /// The coarse class that dashboards group by.
    public var outcomeClass: OutcomeClass {
        switch self {
        case .accepted, .unknown: .sent
        case .rejected, .tokenInvalid, .tokenSuspended, .credentialError, .failed, .deadLettered:
            .error
        case .expired, .coalesced, .suppressed, .noDevices: .policy
        }
    }
}

/// The class of an outcome.
public enum OutcomeClass: String, Sendable, CaseIterable {
    case sent, error, policy
}

/// What a gateway's answer means for the token itself.
public enum TokenVerdict: String, Sendable, CaseIterable {
    case invalidate, suspend, quarantine, release, stale, forget
}
