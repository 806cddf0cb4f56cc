// Tokens that the replicas of a fleet share. Every replica holds the same private key, so what lies
// in the store between them is sealed with a key that is derived from it: whoever reads the store
// without the private key learns nothing, and whoever has the private key needs no token of others.

public import Base
public import Crypto

/// A token on its way to the other replicas.
public struct SealedToken: Sendable, Equatable {
    /// The token, sealed.
    public var bytes: [UInt8]
    /// How old it is.
    public var age: TimeSpan
    /// How old it may become.
    public var life: TimeSpan
    /// Tells it from other tokens without opening it; see `SharedCredential.refusedTokenID`.
    public var id: String

    /// A sealed token.
    public init(bytes: [UInt8], age: TimeSpan, life: TimeSpan, id: String = "") {
        self.bytes = bytes
        self.age = age
        self.life = life
        self.id = id
    }

    /// A digest of a token, which is too random to be found by it.
    fileprivate static func id(_ header: [UInt8], of name: String) -> String {
        SHA256Digest(of: name + " " + String(decoding: header, as: UTF8.self)).hex
    }
}

/// A credential whose tokens a fleet can share. Safe on any thread.
public protocol SharedCredential: AnyObject, Sendable {
    /// Names the token in the store; the same in every replica, and of no use to anybody else.
    var sharedName: String { get }
    /// The part of a token's life, in percent, after which the fleet agrees on the next.
    var sharedPercent: Int64 { get }
    /// Whether the fleet has to agree on a token now.
    func isTokenDue(at now: MonotonicTime) -> Bool
    /// The id of the last token that the gateway refused: the fleet is to have another one. nil
    /// when none was.
    var refusedTokenID: String? { get }
    /// Whether there is a token that can serve.
    func hasToken(at now: MonotonicTime) -> Bool
    /// The current token for the others; nil when there is none that serves.
    func sealedToken(at now: MonotonicTime) -> SealedToken?
    /// How long a token that is due, and can still serve, waits for the fleet's word.
    func sharedPatience(at now: MonotonicTime) -> TimeSpan
    /// Takes over a token of another replica. Returns whether it could be opened and is newer.
    func adopt(_ token: SealedToken, at now: MonotonicTime) -> Bool
    /// Makes no token before that time, as far as that is possible.
    func hold(until time: MonotonicTime)
}

extension APNsCredential: SharedCredential {
    /// Names the token in the store.
    public var sharedName: String {
        SHA256Digest(of: "apns \(teamID).\(keyID).\(fingerprint)").hex
    }

    /// The part of its life after which the fleet agrees on the next.
    public var sharedPercent: Int64 {
        APNsLimits.tokenAgeShared.nanos * 100 / APNsLimits.tokenAgeMax.nanos
    }

    /// Whether the fleet has to agree on a token.
    public func isTokenDue(at now: MonotonicTime) -> Bool {
        age(at: now).map { $0 >= APNsLimits.tokenAgeShared } ?? true
    }

    /// None: who has the key makes provider tokens, and a refused one is replaced at once.
    public var refusedTokenID: String? { nil }

    /// How long a due token waits for the fleet's word.
    public func sharedPatience(at now: MonotonicTime) -> TimeSpan { APNsLimits.tokenAgeMax / 10 }

    /// Whether there is a token that can serve.
    public func hasToken(at now: MonotonicTime) -> Bool {
        age(at: now).map { $0 < APNsLimits.tokenAgeHeld } ?? false
    }

    /// The current token for the others.
    public func sealedToken(at now: MonotonicTime) -> SealedToken? {
        guard let token = current(at: now),
            let bytes = try? box.seal(token.header, context: sharedName)
        else { return nil }
        return SealedToken(
            bytes: bytes, age: now - token.mintedAt, life: APNsLimits.tokenAgeMax,
            id: SealedToken.id(token.header, of: sharedName))
    }

    /// Takes over a token of another replica.
    public func adopt(_ token: SealedToken, at now: MonotonicTime) -> Bool {
        guard let header = box.open(token.bytes, context: sharedName), header.isHeaderValue,
            header.starts(with: "bearer ".utf8)
        else { return false }
        return adopt(header, age: token.age, at: now)
    }

    /// Makes a token if the current one is due.
    public func renewIfDue(at now: MonotonicTime, wall: UnixMillis) throws(OpenSSLError) {
        _ = try renew(olderThan: APNsLimits.tokenAgeShared, at: now, wall: wall)
    }
}

extension OAuthCredential: SharedCredential {
    /// Names the token in the store.
    public var sharedName: String {
        let parts = [account.clientEmail, account.tokenEndpoint.uri, account.box.fingerprint]
        return SHA256Digest(of: "oauth " + parts.joined(separator: " ")).hex
    }

    /// The part of its life after which the fleet agrees on the next.
    public var sharedPercent: Int64 { FCMLimits.sharedPercent }

    /// Whether the fleet has to agree on a token.
    public func isTokenDue(at now: MonotonicTime) -> Bool {
        current(at: now).map { $0.age >= $0.life / 100 * FCMLimits.sharedPercent } ?? true
    }

    /// The id of the last token that FCM refused.
    public var refusedTokenID: String? {
        refusedHeader.map { SealedToken.id($0, of: sharedName) }
    }

    /// How long a due token waits for the fleet's word.
    public func sharedPatience(at now: MonotonicTime) -> TimeSpan {
        (current(at: now)?.life ?? .zero) / 10
    }

    /// Whether there is a token that can serve.
    public func hasToken(at now: MonotonicTime) -> Bool { current(at: now) != nil }

    /// The current token for the others.
    public func sealedToken(at now: MonotonicTime) -> SealedToken? {
        guard let current = current(at: now),
            let bytes = try? account.box.seal(current.token.header, context: sharedName)
        else { return nil }
        return SealedToken(
            bytes: bytes, age: current.age, life: current.life,
            id: SealedToken.id(current.token.header, of: sharedName))
    }

    /// Takes over a token of another replica.
    public func adopt(_ token: SealedToken, at now: MonotonicTime) -> Bool {
        guard let header = account.box.open(token.bytes, context: sharedName),
            header.isHeaderValue, header.starts(with: "Bearer ".utf8)
        else { return false }
        return adopt(
            header, age: token.age, life: min(token.life, FCMLimits.tokenLifeMax), at: now)
    }
}

extension [UInt8] {
    fileprivate var isHeaderValue: Bool {
        count <= FCMLimits.accessTokenBytes + 16 && allSatisfy { (0x20...0x7E).contains($0) }
    }
}
