public import Base
internal import Crypto
internal import JSON
internal import Synchronization

/// The VAPID keys of one app and the tokens they sign, for every lane and connection of the process.
///
/// Any thread may ask; one of them mints while the others wait some thirty microseconds.
public final class WebPushCredential: Sendable {
    /// The names of the keys; the first is tried first for registrations that name none.
    public let keyIDs: [String]
    /// The public halves, in the same order, as browsers take them.
    public let publicKeys: [String]

    private let source: Mutex<VAPIDTokenSource>

    /// A credential from a subject and keys; the subject was checked with `VAPIDSubject`.
    public init(subject: String, keys: [VAPIDKey]) {
        keyIDs = keys.map(\.id)
        publicKeys = keys.map(\.publicKey)
        source = Mutex(
            VAPIDTokenSource(
                subject: subject, keys: keys, firstGeneration: TokenGenerations.next()))
    }

    /// The token for a push service, signed by the key of a registration.
    public func token(
        for endpoint: WebPushEndpoint, keyID: String?, at now: MonotonicTime, wall: UnixMillis
    ) throws(VAPIDFault) -> VAPIDToken {
        let origin = endpoint.origin
        return try source.withLock { source throws(VAPIDFault) in
            try source.token(for: origin, keyID: keyID, at: now, wall: wall)
        }
    }

    /// Takes note that a service refused the token of that generation.
    public func refuse(_ generation: UInt64, at now: MonotonicTime) {
        source.withLock { $0.refuse(generation, at: now) }
    }

    /// How many tokens were minted.
    public var mintCount: UInt64 { source.withLock { $0.mintCount } }
}

/// The subject of VAPID tokens: whom a push service may turn to.
public enum VAPIDSubject {
    private static let reserved = [
        "localhost", ".localhost", ".local", ".internal", ".invalid", ".test", ".example",
    ]

    /// What is wrong with a subject, and what to write; nil when nothing is. Google and Mozilla
    /// take what Apple answers 403 to, so that a mistake shows on some devices only.
    public static func problem(with subject: String) -> String? {
        let host: Substring
        if subject.hasPrefix("mailto:") {
            let parts = subject.dropFirst(7).split(
                separator: "@", omittingEmptySubsequences: false)
            guard parts.count == 2, !parts[0].isEmpty else {
                return "mailto: must be followed by an address, as in mailto:ops@example.com"
            }
            host = parts[1]
        } else if subject.hasPrefix("https://") {
            host = subject.dropFirst(8).prefix { $0 != "/" && $0 != ":" && $0 != "?" }
        } else {
            return "must be mailto: with an address, or an https:// URL"
        }
        let name = host.lowercased()
        let isName =
            name.contains(".") && !name.hasPrefix(".") && !name.hasSuffix(".")
            && name.utf8.allSatisfy { byte in
                (0x61...0x7A).contains(byte) || (0x30...0x39).contains(byte) || byte == 0x2D
                    || byte == 0x2E
            }
        guard isName, !reserved.contains(where: { name == $0 || name.hasSuffix($0) }) else {
            return "must name a public host: Apple refuses '\(host)' with BadJwtToken"
        }
        return nil
    }
}

/// What a file with a VAPID key holds.
internal struct VAPIDKeyFile {
    enum Form: Equatable {
        case pem
        case scalar([UInt8])
        case unreadable
    }

    private(set) var form = Form.unreadable
    /// The public key that stands beside the private one.
    private(set) var publicKey: String?

    init(_ text: String) {
        if text.contains("-----BEGIN") {
            form = .pem
            return
        }
        var scalar = text.filter { !$0.isWhitespace }
        let parser = JSONParser(maximumBytes: 1 << 16)
        if let object = try? parser.parse(text), let key = object["privateKey"]?.string {
            scalar = key
            publicKey = object["publicKey"]?.string
        }
        if let bytes = Base64URL.decode(scalar.utf8), bytes.count == 32 { form = .scalar(bytes) }
    }
}
