// Access tokens: fetched by whoever needs the first, replaced ahead of their end by one caller
// while the others go on with the old one. A pure state machine: time and answers are handed in,
// and what it wants done it returns.

public import Base
internal import Crypto
internal import JSON

/// An access token, ready as the value of a header field.
public struct AccessToken: Sendable {
    /// `Bearer` and the token.
    public let header: [UInt8]
    /// Names this token where its text must not appear; no other token of the process has it.
    public let generation: UInt64
    /// When it was received.
    public let fetchedAt: MonotonicTime

    /// A token; its source makes these.
    public init(header: [UInt8], generation: UInt64, fetchedAt: MonotonicTime) {
        self.header = header
        self.generation = generation
        self.fetchedAt = fetchedAt
    }
}

/// A call of the token endpoint that the caller has to make.
public struct TokenFetch: Sendable {
    /// Names the call; to be handed back with what came of it.
    public let number: UInt64
    /// The form to post, of type `application/x-www-form-urlencoded`.
    public let body: [UInt8]
}

/// Why no access token can be had.
public struct CredentialFault: Equatable, Sendable {
    /// Whom the token endpoint blames.
    public let fault: Fault
    /// Its code.
    public let reason: Reason
    /// What happened and what to do, in one line.
    public let explanation: String
}

/// Fetches the access tokens of one service account.
public struct OAuthTokenSource: Sendable {
    /// What a caller who needs a token does.
    public enum Action: Sendable {
        /// Send with this token.
        case use(AccessToken)
        /// Make this call and hand back what came of it; meanwhile send with the old token, if
        /// there is one. Nobody else is told to make the call.
        case fetch(TokenFetch, meanwhile: AccessToken?)
        /// There is no token; ask again at that time, or when an answer was handed in.
        case wait(until: MonotonicTime)
    }

    /// Why the last call gave no token; nil after one that did.
    public private(set) var fault: CredentialFault?
    /// How many calls were asked for.
    public private(set) var fetchCount: UInt64 = 0

    private let account: ServiceAccount
    private var random: SeededRandom
    private let firstGeneration: UInt64
    private var generations: UInt64 = 0
    private var life = TimeSpan.zero
    /// Until then somebody else looks after a new token.
    private var heldUntil = MonotonicTime(nanos: .min)
    private var current: AccessToken?
    private var expiresAt = MonotonicTime(nanos: 0)
    private var refreshAt = MonotonicTime(nanos: 0)
    /// No call before this time.
    private var nextFetchAt = MonotonicTime(nanos: .min)
    private var failures = 0
    private var inFlight: (number: UInt64, deadline: MonotonicTime)?
    private var lastForcedAt: MonotonicTime?
    /// The last token that FCM refused.
    internal private(set) var refusedHeader: [UInt8]?

    /// A source that has fetched nothing yet.
    public init(_ account: ServiceAccount, random: SeededRandom, firstGeneration: UInt64 = 1) {
        self.firstGeneration = firstGeneration
        self.account = account
        self.random = random
    }

    /// What to do for a token now.
    ///
    /// `isForced` asks for a call although the current token can serve, and whoever holds it back.
    public mutating func next(
        at now: MonotonicTime, wall: UnixMillis, isForced: Bool = false
    ) -> Action {
        if let current, now < refreshAt, !isForced { return .use(current) }
        if current != nil, now >= expiresAt { self.current = nil }
        if let flight = inFlight, now >= flight.deadline {
            inFlight = nil
            failed(.answerTimeout, "the token endpoint did not answer", at: now)
        }
        if now < heldUntil, !isForced {
            if let current { return .use(current) }
            return .wait(until: heldUntil)
        }
        if inFlight == nil, now >= nextFetchAt {
            do throws(OpenSSLError) {
                let body = try account.tokenForm(at: wall)
                fetchCount += 1
                inFlight = (fetchCount, now + FCMLimits.fetchTime)
                return .fetch(TokenFetch(number: fetchCount, body: body), meanwhile: current)
            } catch {
                refused(.credential, .credentialUnavailable, error.description, at: now)
            }
        }
        if let current { return .use(current) }
        return .wait(until: inFlight?.deadline ?? nextFetchAt)
    }

    /// Takes note that FCM refused a token with 401.
    ///
    /// The first such answer for the current token drops it; the others find that done. Once a
    /// minute at most, so that a cause which no new token cures does not flood the endpoint.
    public mutating func refuse(_ generation: UInt64, at now: MonotonicTime) {
        guard let current, current.generation == generation else { return }
        if let lastForcedAt, now - lastForcedAt < FCMLimits.forcedRefreshMin { return }
        lastForcedAt = now
        refusedHeader = current.header
        self.current = nil
        refreshAt = now
    }

    /// Takes the token endpoint's answer.
    public mutating func received(
        _ answer: GatewayAnswer, for number: UInt64, at now: MonotonicTime
    ) {
        guard inFlight?.number == number else { return }
        inFlight = nil
        let reply = OAuthReply(answer)
        switch reply.meaning {
        case .token(let text, let life):
            keep(Array("Bearer \(text)".utf8), fetchedAt: now, life: life)
            nextFetchAt = now
        case .refused(let fault, let reason, let explanation):
            refused(fault, reason, explanation, at: now)
        case .failed(let explanation):
            failed(.other, explanation, at: now)
            if let asked = answer.retryAfterWait {
                nextFetchAt = max(nextFetchAt, now + min(asked, FCMLimits.fetchWaitMax))
            }
        }
    }

    private mutating func keep(
        _ header: [UInt8], fetchedAt time: MonotonicTime, life: TimeSpan
    ) {
        failures = 0
        fault = nil
        current = AccessToken(
            header: header, generation: firstGeneration + generations, fetchedAt: time)
        generations += 1
        self.life = life
        expiresAt = time + max(life - FCMLimits.expiryMargin, FCMLimits.expiryMargin)
        let percent = Int64.random(
            in: FCMLimits.refreshPercentMin...FCMLimits.refreshPercentMax, using: &random)
        refreshAt = min(time + life / 100 * percent, expiresAt)
    }

    /// Asks for no call before that time: the fleet agrees on the next token.
    public mutating func hold(until time: MonotonicTime) { heldUntil = time }

    /// Takes over a token that another process has fetched so long ago, unless the current one is
    /// newer. Returns whether it was taken.
    public mutating func adopt(
        _ header: [UInt8], age: TimeSpan, life: TimeSpan, at now: MonotonicTime
    ) -> Bool {
        guard age < life / 100 * FCMLimits.refreshPercentMax,
            (current.map { now - $0.fetchedAt > age } ?? true)
        else { return false }
        // The one that FCM has refused does not come back by this road. Its successor may be older
        // than this refusal: another replica was refused before this one.
        if header == refusedHeader || header == current?.header { return false }
        keep(header, fetchedAt: now - age, life: life)
        return true
    }

    /// The current token with its age and its life; nil when there is none that serves.
    public mutating func current(
        at now: MonotonicTime
    ) -> (token: AccessToken, age: TimeSpan, life: TimeSpan)? {
        guard let current, now < expiresAt else { return nil }
        return (current, now - current.fetchedAt, life)
    }

    /// Takes note that a call of the token endpoint got no answer.
    public mutating func failed(_ number: UInt64, detail: String, at now: MonotonicTime) {
        guard inFlight?.number == number else { return }
        inFlight = nil
        failed(.connectionFailed, "the token endpoint cannot be reached: \(detail)", at: now)
    }

    /// How old the current token is; nil when there is none.
    public func age(at now: MonotonicTime) -> TimeSpan? { current.map { now - $0.fetchedAt } }

    private mutating func failed(_ reason: Reason, _ explanation: String, at now: MonotonicTime) {
        fault = CredentialFault(fault: .none, reason: reason, explanation: explanation)
        backOff(from: FCMLimits.fetchWait, at: now)
    }

    private mutating func refused(
        _ fault: Fault, _ reason: Reason, _ explanation: String, at now: MonotonicTime
    ) {
        self.fault = CredentialFault(fault: fault, reason: reason, explanation: explanation)
        backOff(from: FCMLimits.refusedWait, at: now)
    }

    /// Waits at least half of a span that doubles, the other half by chance.
    private mutating func backOff(from first: TimeSpan, at now: MonotonicTime) {
        failures += 1
        let span = min(
            GatewayLimits.doubled(first, attempts: failures), FCMLimits.fetchWaitMax)
        nextFetchAt = now + span / 2 + random.span(upTo: span / 2)
    }
}
