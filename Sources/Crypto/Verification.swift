// The other side of signing: public keys that check JWTs, and fresh key pairs for a simulated
// gateway, the demo and tests.

internal import COpenSSL

/// A public key that checks signatures.
///
/// `@unchecked Sendable`: the `EVP_PKEY` is never changed after `init`, and OpenSSL allows any
/// number of threads to verify with one key when each has its own digest context, as here.
public final class VerifyingKey: @unchecked Sendable {
    /// What the key checks.
    public let algorithm: SignatureAlgorithm

    /// Owned; freed by `deinit`.
    private let key: OpaquePointer

    /// Takes over one reference to a key.
    internal init(taking key: OpaquePointer, _ algorithm: SignatureAlgorithm) {
        self.key = key
        self.algorithm = algorithm
    }

    /// Loads a public key from PEM text; `setting` names the text in errors.
    public init(
        pem text: String, for algorithm: SignatureAlgorithm, setting: String
    ) throws(KeyError) {
        let pem = try PEM(text, setting: setting)
        ERR_clear_error()
        let key = pem.der.withUnsafeBufferPointer { bytes -> OpaquePointer? in
            var position = bytes.baseAddress
            return d2i_PUBKEY(nil, &position, bytes.count)
        }
        ERR_clear_error()
        guard pem.label == "PUBLIC KEY", let key else {
            throw KeyError(setting: setting, problem: "not a public key")
        }
        self.key = key
        self.algorithm = algorithm
        let fits =
            algorithm == .es256 ? EllipticCurve.isP256(key) : EVP_PKEY_is_a(key, "RSA") == 1
        guard fits else {
            throw KeyError(setting: setting, problem: "not a key for \(algorithm.rawValue)")
        }
    }

    /// Loads a public key from the 65 bytes of an uncompressed point of P-256; nil when they are no
    /// such.
    public init?(p256Point bytes: [UInt8]) {
        guard P256Point(bytes) != nil else { return nil }
        // SubjectPublicKeyInfo (RFC 5480) of an EC key on P-256, up to the point itself.
        let der: [UInt8] =
            [
                0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06,
                0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
            ] + bytes
        let key = der.withUnsafeBufferPointer { bytes -> OpaquePointer? in
            var position = bytes.baseAddress
            return d2i_PUBKEY(nil, &position, bytes.count)
        }
        ERR_clear_error()
        guard let key else { return nil }
        self.key = key
        algorithm = .es256
    }

    deinit { EVP_PKEY_free(key) }

    /// The key as an uncompressed point of P-256, 65 bytes; nil for an RSA key.
    public var p256Point: [UInt8]? {
        guard algorithm == .es256 else { return nil }
        var bytes = [UInt8](repeating: 0, count: P256Agreement.pointBytes)
        bytes[0] = 4
        for (name, offset) in [(OSSL_PKEY_PARAM_EC_PUB_X, 1), (OSSL_PKEY_PARAM_EC_PUB_Y, 33)] {
            var number: OpaquePointer?
            defer { BN_free(number) }
            guard EVP_PKEY_get_bn_param(key, name, &number) == 1 else { return nil }
            let isWritten = bytes.withUnsafeMutableBufferPointer { bytes in
                BN_bn2binpad(number, bytes.baseAddress?.advanced(by: offset), 32) == 32
            }
            guard isWritten else { return nil }
        }
        return bytes
    }

    /// Whether a signature, in the JOSE form, fits a message.
    public func isValid(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        var encoded = signature
        if algorithm == .es256 {
            guard let der = ECDSASignature.der(fromRaw: signature) else { return false }
            encoded = der
        }
        guard let context = EVP_MD_CTX_new() else { return false }
        defer {
            EVP_MD_CTX_free(context)
            ERR_clear_error()
        }
        return EVP_DigestVerifyInit(context, nil, EVP_sha256(), nil, key) == 1
            && EVP_DigestVerify(context, encoded, encoded.count, message, message.count) == 1
    }
}

/// A fresh private key and its public half, both as PEM.
public struct KeyPair: Sendable {
    /// PKCS#8, as Apple's `.p8` files and Google's key files hold it.
    public let privateKeyPEM: String
    /// SubjectPublicKeyInfo.
    public let publicKeyPEM: String

    /// Makes a P-256 pair for ES256, or an RSA pair of 2048 bits for RS256.
    public static func generate(
        for algorithm: SignatureAlgorithm
    ) throws(OpenSSLError) -> KeyPair {
        ERR_clear_error()
        let name = algorithm == .es256 ? "EC" : "RSA"
        guard let context = EVP_PKEY_CTX_new_from_name(nil, name, nil) else {
            throw OpenSSLError("preparing a key")
        }
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1,
            algorithm == .es256
                ? EVP_PKEY_CTX_set_group_name(context, "P-256") == 1
                : EVP_PKEY_CTX_set_rsa_keygen_bits(context, 2048) == 1,
            EVP_PKEY_generate(context, &key) == 1, let key
        else { throw OpenSSLError("generating a key") }
        defer { EVP_PKEY_free(key) }
        return KeyPair(
            privateKeyPEM: try written("writing a private key") {
                PEM_write_bio_PKCS8PrivateKey($0, key, nil, nil, 0, nil, nil)
            },
            publicKeyPEM: try written("writing a public key") { PEM_write_bio_PUBKEY($0, key) })
    }

    private static func written(
        _ operation: StaticString, _ write: (OpaquePointer) -> Int32
    ) throws(OpenSSLError) -> String {
        guard let memory = BIO_new(BIO_s_mem()) else { throw OpenSSLError(operation) }
        defer { BIO_free(memory) }
        guard write(memory) == 1 else { throw OpenSSLError(operation) }
        var bytes = [UInt8](repeating: 0, count: 8192)
        let count = BIO_read(memory, &bytes, Int32(bytes.count))
        guard count > 0 else { throw OpenSSLError(operation) }
        return String(decoding: bytes[..<Int(count)], as: UTF8.self)
    }
}
