// Provider tokens: when one is made, how long it serves, and when not to make another. Age is
// counted on the monotonic clock from the moment of minting, so that no step of the wall clock
// pins an old token or sets off a storm of new ones.

public import Base
public import Crypto

/// A provider token, ready as the value of a header field.
public struct ProviderToken: Sendable {
    /// `bearer` and the JWT.
    public let header: [UInt8]
    /// Names this token where its text must not appear; no other token of the process has it.
    public let generation: UInt64
    /// When it was minted.
    public let mintedAt: MonotonicTime

    /// A token; its source makes these.
    public init(header: [UInt8], generation: UInt64, mintedAt: MonotonicTime) {
        self.header = header
        self.generation = generation
        self.mintedAt = mintedAt
    }
}

/// Makes the provider tokens of one team and key. A pure state machine: time is handed in.
public struct APNsTokenSource: Sendable {
    /// How many tokens were minted.
    public private(set) var mintCount: UInt64 = 0

    private let teamID: String
    private let keyID: String
    private let key: SigningKey
    /// The current token; nil before the first.
    public private(set) var current: ProviderToken?
    private var refreshAge = APNsLimits.tokenAgeRefresh
    private var random: SeededRandom
    private let firstGeneration: UInt64
    private var generations: UInt64 = 0
    /// Until then somebody else looks after a new token, as long as the current one can serve.
    private var heldUntil = MonotonicTime(nanos: .min)

    /// A source that has minted nothing yet.
    public init(
        teamID: String, keyID: String, key: SigningKey, random: SeededRandom,
        firstGeneration: UInt64 = 1
    ) {
        self.firstGeneration = firstGeneration
        self.teamID = teamID
        self.keyID = keyID
        self.key = key
        self.random = random
    }

    /// The token to send with: the current one until its age of 45 minutes, give or take 5.
    ///
    /// While signing fails, the current token goes on serving for as long as APNs takes it.
    public mutating func token(
        at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        guard let current else { return try mint(at: now, wall: wall) }
        let age = now - current.mintedAt
        guard age > refreshAge else { return current }
        if now < heldUntil, age < APNsLimits.tokenAgeHeld { return current }
        do throws(OpenSSLError) {
            return try mint(at: now, wall: wall)
        } catch {
            if age < APNsLimits.tokenAgeMax { return current }
            throw error
        }
    }

    /// The token to send with after APNs refused one as expired.
    ///
    /// All pushes that carried the refused token get the same new one. A token that is younger
    /// than 20 minutes stays: APNs takes no newer one so soon, and it cannot have expired.
    public mutating func token(
        insteadOf generation: UInt64, at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        if let current, current.generation == generation,
            now - current.mintedAt >= APNsLimits.tokenAgeMin
        {
            return try mint(at: now, wall: wall)
        }
        return try token(at: now, wall: wall)
    }

    /// Makes no token before that time while there is one that can serve: the fleet agrees on the
    /// next.
    public mutating func hold(until time: MonotonicTime) { heldUntil = time }

    /// Takes over a token that another process has made so long ago, unless the current one is
    /// newer. Returns whether it was taken.
    public mutating func adopt(_ header: [UInt8], age: TimeSpan, at now: MonotonicTime) -> Bool {
        guard age < APNsLimits.tokenAgeHeld, (current.map { now - $0.mintedAt > age } ?? true)
        else { return false }
        if current?.header == header { return false }
        keep(header, mintedAt: now - age)
        return true
    }

    /// Makes a token in any case that there is none, or the current one is old.
    public mutating func renew(
        olderThan span: TimeSpan, at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        if let current, now - current.mintedAt < span { return current }
        return try mint(at: now, wall: wall)
    }

    /// How old the current token is; nil before the first.
    public func age(at now: MonotonicTime) -> TimeSpan? { current.map { now - $0.mintedAt } }

    private mutating func mint(
        at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        let jwt = try JWT.signed(
            header: "{\"alg\":\"ES256\",\"kid\":\"\(keyID)\"}",
            claims: "{\"iss\":\"\(teamID)\",\"iat\":\(wall.seconds)}", with: key)
        mintCount += 1
        return keep(Array("bearer \(jwt)".utf8), mintedAt: now)
    }

    @discardableResult
    private mutating func keep(_ header: [UInt8], mintedAt time: MonotonicTime) -> ProviderToken {
        let token = ProviderToken(
            header: header, generation: firstGeneration + generations, mintedAt: time)
        generations += 1
        current = token
        refreshAge =
            APNsLimits.tokenAgeRefresh - APNsLimits.tokenAgeJitter
            + random.span(upTo: APNsLimits.tokenAgeJitter * 2)
        return token
    }
}
