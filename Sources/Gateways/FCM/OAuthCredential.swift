public import Base
internal import Synchronization

/// The access tokens of one service account, for every lane and connection of the process.
///
/// Any thread may ask. Whoever is told to fetch makes the call on its own loop and hands back what
/// came of it; until then the others wait or go on with the old token.
public final class OAuthCredential: Sendable {
    /// The account.
    public let account: ServiceAccount

    private let source: Mutex<OAuthTokenSource>

    /// A credential that has fetched nothing yet.
    public init(_ account: ServiceAccount, random: SeededRandom = .fromSystem()) {
        self.account = account
        source = Mutex(
            OAuthTokenSource(
                account, random: random, firstGeneration: TokenGenerations.next()))
    }

    /// What to do for a token now.
    public func next(
        at now: MonotonicTime, wall: UnixMillis, isForced: Bool = false
    ) -> OAuthTokenSource.Action {
        source.withLock { $0.next(at: now, wall: wall, isForced: isForced) }
    }

    /// Asks for no call before that time.
    public func hold(until time: MonotonicTime) { source.withLock { $0.hold(until: time) } }

    /// The last token that FCM refused.
    internal var refusedHeader: [UInt8]? { source.withLock { $0.refusedHeader } }

    /// Takes over a token that another process has fetched; see `OAuthTokenSource.adopt`.
    internal func adopt(
        _ header: [UInt8], age: TimeSpan, life: TimeSpan, at now: MonotonicTime
    ) -> Bool {
        source.withLock { $0.adopt(header, age: age, life: life, at: now) }
    }

    /// The current token with its age and its life; nil when there is none that serves.
    internal func current(
        at now: MonotonicTime
    ) -> (token: AccessToken, age: TimeSpan, life: TimeSpan)? {
        source.withLock { $0.current(at: now) }
    }

    /// Takes note that FCM refused a token with 401.
    public func refuse(_ generation: UInt64, at now: MonotonicTime) {
        source.withLock { $0.refuse(generation, at: now) }
    }

    /// Takes the token endpoint's answer.
    public func received(_ answer: GatewayAnswer, for number: UInt64, at now: MonotonicTime) {
        source.withLock { $0.received(answer, for: number, at: now) }
    }

    /// Takes note that a call of the token endpoint got no answer.
    public func failed(_ number: UInt64, detail: String, at now: MonotonicTime) {
        source.withLock { $0.failed(number, detail: detail, at: now) }
    }

    /// Why the last call gave no token; nil after one that did.
    public var fault: CredentialFault? { source.withLock { $0.fault } }

    /// How old the current token is; nil when there is none.
    public func age(at now: MonotonicTime) -> TimeSpan? { source.withLock { $0.age(at: now) } }

    /// How many calls of the token endpoint were asked for.
    public var fetchCount: UInt64 { source.withLock { $0.fetchCount } }
}
