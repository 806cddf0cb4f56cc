// Provider tokens: when one is made, how long it serves, and when not to make another. Age is
// counted on the monotonic clock from the moment of minting, so that no step of the wall clock
// pins an old token or sets off a storm of new ones.

public import Base
public import Crypto

/// A provider token, ready as the value of a header field.
public struct ProviderToken: Sendable {
    /// `bearer` and the JWT.
    public let header: [UInt8]
    /// Counts the tokens of one source; names this token where its text must not appear.
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
    private var current: ProviderToken?
    private var refreshAge = APNsLimits.tokenAgeRefresh
    private var random: SeededRandom

    /// A source that has minted nothing yet.
    public init(teamID: String, keyID: String, key: SigningKey, random: SeededRandom) {
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

    /// How old the current token is; nil before the first.
    public func age(at now: MonotonicTime) -> TimeSpan? { current.map { now - $0.mintedAt } }

    private mutating func mint(
        at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        let jwt = try JWT.signed(
            header: "{\"alg\":\"ES256\",\"kid\":\"\(keyID)\"}",
            claims: "{\"iss\":\"\(teamID)\",\"iat\":\(wall.seconds)}", with: key)
        mintCount += 1
        let token = ProviderToken(
            header: Array("bearer \(jwt)".utf8), generation: mintCount, mintedAt: now)
        current = token
        refreshAge =
            APNsLimits.tokenAgeRefresh - APNsLimits.tokenAgeJitter
            + random.span(upTo: APNsLimits.tokenAgeJitter * 2)
        return token
    }
}
