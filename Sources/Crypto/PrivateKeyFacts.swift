// What a private key is, told without the key: for people who hold a file and do not know.

internal import COpenSSL

/// Facts about a private key.
public struct PrivateKeyFacts: Sendable {
    /// The key's kind as OpenSSL names it: `EC`, `RSA`, `ED25519`.
    public let type: String
    /// The curve's name in standards, such as `P-256`; nil where there is none.
    public let curve: String?
    /// Its size in bits.
    public let bits: Int
    /// The first 16 hex digits of the SHA-256 of the public half (SubjectPublicKeyInfo): two files
    /// with the same hold the same key.
    public let fingerprint: String
    /// Whether it is written as PKCS#8, as Apple and Google do.
    public let isPKCS8: Bool

    /// Reads a PEM text; `setting` names it in errors.
    public init(pem text: String, setting: String) throws(KeyError) {
        let pem = try PEM(text, setting: setting)
        guard pem.label.hasSuffix("PRIVATE KEY") else {
            throw KeyError(
                setting: setting,
                problem: "a private key is needed, but the PEM says '\(pem.label)'")
        }
        ERR_clear_error()
        defer { ERR_clear_error() }
        let key = pem.der.withUnsafeBufferPointer { bytes -> OpaquePointer? in
            var position = bytes.baseAddress
            return d2i_AutoPrivateKey(nil, &position, bytes.count)
        }
        guard let key else {
            throw KeyError(
                setting: setting,
                problem: "the private key is damaged or cut short; fetch the file anew and give "
                    + "it whole")
        }
        defer { EVP_PKEY_free(key) }
        type = EVP_PKEY_get0_type_name(key).map { String(cString: $0) } ?? "unknown"
        curve = EllipticCurve.name(of: key)
        bits = Int(EVP_PKEY_get_bits(key))
        isPKCS8 = pem.label == "PRIVATE KEY"
        var der: UnsafeMutablePointer<UInt8>?
        let count = i2d_PUBKEY(key, &der)
        guard count > 0, let der else {
            throw KeyError(setting: setting, problem: "the private key has no public half")
        }
        defer { CRYPTO_free(der, nil, 0) }
        let digest = SHA256Digest(of: UnsafeRawBufferPointer(start: der, count: Int(count)))
        fingerprint = String(digest.hex.prefix(16))
    }
}

extension EllipticCurve {
    /// The name of a key's curve as standards call it; nil for keys without one.
    fileprivate static func name(of key: OpaquePointer) -> String? {
        guard EVP_PKEY_is_a(key, "EC") == 1 else { return nil }
        let name = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { name -> String in
            var count = 0
            guard EVP_PKEY_get_group_name(key, name.baseAddress, name.count, &count) == 1,
                let start = name.baseAddress
            else { return "unknown" }
            return String(cString: start)
        }
        return ["prime256v1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"][name] ?? name
    }
}
