public import Base
public import Crypto
internal import Synchronization

/// The provider tokens of one team and key, for every lane and connection of the process.
///
/// Any thread may ask; one of them mints while the others wait some thirty microseconds.
public final class APNsCredential: Sendable {
    /// The team's id, the `iss` of the tokens.
    public let teamID: String
    /// The key's id, the `kid` of the tokens.
    public let keyID: String
    /// Tells the key from another under the same id: the start of its public half's hash, in hex.
    public let fingerprint: String

    /// Seals tokens for the other replicas, who hold the same key.
    internal let box: SealedBox
    private let source: Mutex<APNsTokenSource>

    /// A credential from a key in PEM; `setting` names the part of the configuration in errors.
    public init(
        teamID: String, keyID: String, pem: String, setting: String,
        random: SeededRandom = .fromSystem()
    ) throws(KeyError) {
        for (id, name) in [(teamID, "team_id"), (keyID, "key_id")] {
            guard id.utf8.count == 10, id.utf8.allSatisfy(Self.isAlphanumeric) else {
                throw KeyError(
                    setting: "\(setting).\(name)",
                    problem: "must be the 10 letters and digits that Apple shows for it")
            }
        }
        let key = try SigningKey(pem: pem, for: .es256, setting: "\(setting).key")
        do throws(OpenSSLError) {
            box = try SealedBox(key, purpose: "apns provider token")
        } catch {
            throw KeyError(setting: "\(setting).key", problem: error.description)
        }
        self.teamID = teamID
        self.keyID = keyID
        fingerprint = SHA256Digest(of: key.verifyingKey.p256Point ?? []).shortHex
        source = Mutex(
            APNsTokenSource(
                teamID: teamID, keyID: keyID, key: key, random: random,
                firstGeneration: TokenGenerations.next()))
    }

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte | 0x20)
    }

    /// The token to send with.
    public func token(
        at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        try source.withLock { source throws(OpenSSLError) in
            try source.token(at: now, wall: wall)
        }
    }

    /// The token to send with after APNs refused one as expired.
    public func token(
        insteadOf generation: UInt64, at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        try source.withLock { source throws(OpenSSLError) in
            try source.token(insteadOf: generation, at: now, wall: wall)
        }
    }

    /// The current token; nil before the first.
    internal func current(at now: MonotonicTime) -> ProviderToken? {
        source.withLock { $0.current }
    }

    /// Makes no token before that time while there is one that can serve.
    public func hold(until time: MonotonicTime) { source.withLock { $0.hold(until: time) } }

    /// Takes over a token that another process has made; see `APNsTokenSource.adopt`.
    internal func adopt(_ header: [UInt8], age: TimeSpan, at now: MonotonicTime) -> Bool {
        source.withLock { $0.adopt(header, age: age, at: now) }
    }

    /// The current token, or a new one if it is older than that.
    internal func renew(
        olderThan span: TimeSpan, at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        try source.withLock { source throws(OpenSSLError) in
            try source.renew(olderThan: span, at: now, wall: wall)
        }
    }

    /// How old the current token is; nil before the first.
    public func age(at now: MonotonicTime) -> TimeSpan? { source.withLock { $0.age(at: now) } }

    /// How many tokens were minted.
    public var mintCount: UInt64 { source.withLock { $0.mintCount } }
}

/// Every APNs credential of the process, one for each team and key: apps that share a key share
/// its token, or APNs answers `TooManyProviderTokenUpdates`. A key that comes back, because a
/// rotation is taken back, comes back with its token for the same reason.
public final class ProviderTokenCache: Sendable {
    /// How many are kept; the oldest go first.
    private static let entriesMax = 1_000

    private struct Entry: Sendable {
        let name: String
        let keyDigest: SHA256Digest
        let credential: APNsCredential
    }

    private let entries = Mutex<[Entry]>([])

    /// An empty cache.
    public init() {}

    /// The credential of a team and key: the one that is there, or a new one if there is none with
    /// this text of the key.
    public func credential(
        teamID: String, keyID: String, pem: String, setting: String
    ) throws(KeyError) -> APNsCredential {
        try entries.withLock { entries throws(KeyError) in
            let name = "\(teamID).\(keyID)"
            let digest = SHA256Digest(of: pem)
            let known = entries.first { $0.name == name && $0.keyDigest == digest }
            if let known { return known.credential }
            let credential = try APNsCredential(
                teamID: teamID, keyID: keyID, pem: pem, setting: setting)
            entries.append(Entry(name: name, keyDigest: digest, credential: credential))
            if entries.count > Self.entriesMax { entries.removeFirst() }
            return credential
        }
    }
}
