// What a gateway's answer means: for the target, for its token, for the connection and for the
// operator. Verdicts are computed by pure functions, one per gateway, from a table.

public import Base

/// The meaning of one answer.
public struct Verdict: Sendable {
    /// What becomes of the push.
    public enum Course: Equatable, Sendable {
        /// It is settled.
        case final(Outcome)
        /// It may be tried again.
        case retry(RetryAdvice)
    }

    /// What becomes of the push.
    public var course: Course
    /// What becomes of the token.
    public var tokenAction: TokenAction = .none
    /// The code; nil when the push was accepted.
    public var reason: Reason?
    /// The gateway's words, at most 200 bytes and without control characters.
    public var detail: String = ""
    /// Whom the answer blames, for alarms.
    public var fault: Fault = .none
    /// Whether the connection takes no further request.
    public var drainsConnection = false
    /// Whether a misconfiguration could cause this for every token, so that the fuse counts it.
    public var countsForFuse = false
    /// The gateway's own time of the event, when it told a credible one.
    public var gatewayTime: UnixMillis?
    /// Where the gateway's own id of the message stands in the answer's body.
    public var gatewayID: Range<Int>?

    /// A verdict with nothing but a course.
    public init(_ course: Course, reason: Reason? = nil) {
        self.course = course
        self.reason = reason
    }

    /// The push was accepted.
    public static var accepted: Verdict { Verdict(.final(.accepted)) }
}

extension Verdict {
    /// The same about a broadcast: there is no token that could die of it.
    public var aboutNoToken: Verdict {
        var verdict = self
        verdict.tokenAction = .none
        verdict.countsForFuse = false
        if case .final(.tokenInvalid) = course { verdict.course = .final(.rejected) }
        if case .final(.tokenSuspended) = course { verdict.course = .final(.rejected) }
        return verdict
    }
}

/// How a push may be tried again.
public struct RetryAdvice: Equatable, Sendable {
    /// What has to wait.
    public enum Scope: Sendable {
        /// This push only.
        case target
        /// Every push to this token.
        case token
        /// Every push on this connection.
        case connection
        /// Every push of this project or credential.
        case project
        /// This push, and every push of this project if its others meet the same answer: the
        /// gateway did not say whose rate was exceeded.
        case perhapsProject
    }

    /// The shortest wait that the gateway tolerates; jitter comes on top.
    public var minimumWait: TimeSpan
    /// What has to wait.
    public var scope: Scope = .target
    /// Whether the next attempt needs another credential than this one had.
    public var needsFreshCredential = false
    /// Whether the next attempt needs another connection.
    public var needsNewConnection = false
    /// Whether a new credential would make matters worse.
    public var keepsCredential = false
    /// The outcome if there is no room for another attempt.
    public var exhausted: Outcome = .failed
    /// Whether it may go out again at once, with another credential or on another connection: the
    /// gateway turned the sender away and never looked at the push. That delays nothing, so it is
    /// open to a push that may be sent only once, too.
    public var mendsAtOnce: Bool {
        minimumWait == .zero && (needsFreshCredential || needsNewConnection)
    }

    /// Advice to wait at least so long.
    public init(
        after minimumWait: TimeSpan, scope: Scope = .target, needsFreshCredential: Bool = false,
        needsNewConnection: Bool = false, keepsCredential: Bool = false,
        exhausted: Outcome = .failed
    ) {
        self.minimumWait = minimumWait
        self.scope = scope
        self.needsFreshCredential = needsFreshCredential
        self.needsNewConnection = needsNewConnection
        self.keepsCredential = keepsCredential
        self.exhausted = exhausted
    }
}

/// What becomes of a token.
public enum TokenAction: Equatable, Sendable {
    /// It stays as it is.
    case none
    /// It is dead unless it was registered after that time.
    case invalidate(asOf: UnixMillis)
    /// It is not used until it is registered again after that time.
    case suspend(asOf: UnixMillis)
}

/// Whom an answer blames.
public enum Fault: Sendable, CaseIterable {
    /// Nobody who could repair it.
    case none
    /// The signing key, certificate or service account.
    case credential
    /// The clock of this machine.
    case clock
    /// How the app, topic, project or gateway is set up.
    case config
    /// This program built a request that it should not have built.
    case ours
}
