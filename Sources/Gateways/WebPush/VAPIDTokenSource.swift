// VAPID tokens (RFC 8292): one for each push service and key, made when it is first needed and used
// for hours. Age is counted on the monotonic clock. A pure state machine: time is handed in.

public import Base
public import Crypto

/// A key that signs VAPID tokens: what subscriptions are made with as `applicationServerKey`.
public struct VAPIDKey: Sendable {
    /// The name that registrations call it by.
    public let id: String
    /// The public half, base64url without padding, as browsers take it.
    public let publicKey: String

    internal let signer: SigningKey

    /// Reads a key: PEM, a private scalar in base64url, or JSON with `privateKey` and perhaps
    /// `publicKey`, as the usual tools print them. `publicKey`, when given, must be the key's own.
    /// `setting` names the text in errors.
    public init(
        id: String, text: String, publicKey expected: String? = nil, setting: String
    ) throws(KeyError) {
        let file = VAPIDKeyFile(text)
        switch file.form {
        case .pem: signer = try SigningKey(pem: text, for: .es256, setting: setting)
        case .scalar(let scalar): signer = try SigningKey(p256Scalar: scalar, setting: setting)
        case .unreadable:
            throw KeyError(
                setting: setting,
                problem: "neither PEM nor a private key of 32 bytes in base64url; make one with "
                    + "openssl ecparam -name prime256v1 -genkey -noout")
        }
        self.id = id
        publicKey = Base64URL.encode(signer.verifyingKey.p256Point ?? [])
        for other in [expected, file.publicKey].compactMap(\.self)
        where Base64URL.decode(other.utf8) != signer.verifyingKey.p256Point {
            throw KeyError(
                setting: setting,
                problem: "private and public key do not belong together: the public key of this "
                    + "private key is \(publicKey)")
        }
    }
}

/// A VAPID token, ready as the value of a header field.
public struct VAPIDToken: Sendable {
    /// `vapid t=<JWT>, k=<public key>`.
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

/// Why there is no VAPID token.
public enum VAPIDFault: Error, Sendable {
    /// The registration names a key that is not configured.
    case unknownKey(String)
    /// Signing failed.
    case signing(OpenSSLError)
}

/// Makes the VAPID tokens of one app.
public struct VAPIDTokenSource: Sendable {
    private struct Name: Hashable {
        let origin: String
        let key: Int
    }

    private struct Entry {
        let token: VAPIDToken
        var usedAt: MonotonicTime
    }

    /// How many tokens were minted.
    public private(set) var mintCount: UInt64 = 0

    private let subject: String
    private let keys: [VAPIDKey]
    private let firstGeneration: UInt64
    private var entries: [Name: Entry] = [:]

    /// A source that has minted nothing yet. The first key signs for registrations that name none.
    public init(subject: String, keys: [VAPIDKey], firstGeneration: UInt64 = 1) {
        self.firstGeneration = firstGeneration
        precondition(!keys.isEmpty, "VAPID needs a key")
        self.subject = subject
        self.keys = keys
    }

    /// The token for a push service, signed by the key of a registration.
    public mutating func token(
        for origin: String, keyID: String?, at now: MonotonicTime, wall: UnixMillis
    ) throws(VAPIDFault) -> VAPIDToken {
        let name = Name(origin: origin, key: try index(of: keyID))
        guard let entry = entries[name] else { return try mint(name, at: now, wall: wall) }
        let age = now - entry.token.mintedAt
        if age <= WebPushLimits.tokenAgeRefresh {
            entries[name]?.usedAt = now
            return entry.token
        }
        do throws(VAPIDFault) {
            return try mint(name, at: now, wall: wall)
        } catch {
            // While signing fails, the current token serves for as long as it is valid.
            if age < WebPushLimits.tokenLife { return entry.token }
            throw error
        }
    }

    /// Drops the token of that generation, which a service refused, if it is old enough for another
    /// one to make a difference. All pushes that carried it get the same new one.
    public mutating func refuse(_ generation: UInt64, at now: MonotonicTime) {
        let refused = entries.first { $0.value.token.generation == generation }
        guard let refused, now - refused.value.token.mintedAt >= WebPushLimits.tokenAgeMin else {
            return
        }
        entries[refused.key] = nil
    }

    private func index(of keyID: String?) throws(VAPIDFault) -> Int {
        guard let keyID else { return 0 }
        guard let index = keys.firstIndex(where: { $0.id == keyID }) else {
            throw .unknownKey(keyID)
        }
        return index
    }

    private mutating func mint(
        _ name: Name, at now: MonotonicTime, wall: UnixMillis
    ) throws(VAPIDFault) -> VAPIDToken {
        let key = keys[name.key]
        let claims = ByteWriter(capacity: 256)
        claims.append("{\"aud\":")
        claims.append(jsonString: name.origin)
        claims.append(",\"exp\":")
        claims.append(decimal: (wall + WebPushLimits.tokenLife).seconds)
        claims.append(",\"sub\":")
        claims.append(jsonString: subject)
        claims.append("}")
        let jwt: String
        do throws(OpenSSLError) {
            jwt = try JWT.signed(
                header: "{\"typ\":\"JWT\",\"alg\":\"ES256\"}", claims: claims.text,
                with: key.signer)
        } catch { throw .signing(error) }
        mintCount += 1
        let token = VAPIDToken(
            header: Array("vapid t=\(jwt), k=\(key.publicKey)".utf8),
            generation: firstGeneration + mintCount - 1, mintedAt: now)
        if entries.count >= WebPushLimits.tokensMax, entries[name] == nil {
            if let idle = entries.min(by: { $0.value.usedAt < $1.value.usedAt }) {
                entries[idle.key] = nil
            }
        }
        entries[name] = Entry(token: token, usedAt: now)
        return token
    }
}
