// JSON Web Tokens in the compact form (RFC 7515, section 7.1), as bytes: what the JSON inside
// means is the business of whoever writes or reads it.

internal import Base

/// A compact JWT.
public struct JWT: Sendable {
    /// The decoded JSON of the header.
    public let header: [UInt8]
    /// The decoded JSON of the claims.
    public let claims: [UInt8]
    /// The decoded signature.
    public let signature: [UInt8]

    /// What the signature covers: the first two parts with the dot between them.
    private let signed: [UInt8]

    /// Signs a header and claims, both JSON texts, and gives the three parts joined by dots.
    public static func signed(
        header: String, claims: String, with key: SigningKey
    ) throws(OpenSSLError) -> String {
        let input = Base64URL.encode(header.utf8) + "." + Base64URL.encode(claims.utf8)
        let signature = try key.signature(of: Array(input.utf8))
        return input + "." + Base64URL.encode(signature)
    }

    /// Takes a compact token apart; nil unless it has three parts in base64url without padding.
    public init?(_ text: String) {
        let bytes = Array(text.utf8)
        guard !bytes.contains(UInt8(ascii: "=")) else { return nil }
        let parts = bytes.split(
            separator: UInt8(ascii: "."), maxSplits: 3, omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Base64URL.decode(parts[0]),
            let claims = Base64URL.decode(parts[1]), let signature = Base64URL.decode(parts[2])
        else { return nil }
        self.header = header
        self.claims = claims
        self.signature = signature
        self.signed = Array(bytes[..<(parts[1].endIndex)])
    }

    /// Whether the signature fits a public key.
    public func isSigned(by key: VerifyingKey) -> Bool { key.isValid(signature, of: signed) }
}
