// Private keys that sign JWTs: ES256 for APNs provider tokens, RS256 for OAuth assertions.

internal import COpenSSL

/// How a JWT is signed (RFC 7518, section 3.1).
public enum SignatureAlgorithm: String, Sendable, CaseIterable {
    /// ECDSA on P-256 with SHA-256; the signature is r and s, 32 bytes each.
    case es256 = "ES256"
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    case rs256 = "RS256"
}

/// A private key, loaded and tried out once.
///
/// `@unchecked Sendable`: the `EVP_PKEY` is never changed after `init`, and OpenSSL allows any
/// number of threads to sign with one key when each has its own digest context, as here.
public final class SigningKey: @unchecked Sendable {
    /// What the key signs.
    public let algorithm: SignatureAlgorithm

    /// The public half.
    public let verifyingKey: VerifyingKey

    /// Owned; freed by `deinit`.
    private let key: OpaquePointer

    /// Loads a private key from PEM text; `setting` names the text in errors.
    ///
    /// Besides parsing, it makes and checks one signature, so that a damaged key is found at
    /// start-up and not at the first push.
    public convenience init(
        pem text: String, for algorithm: SignatureAlgorithm, setting: String
    ) throws(KeyError) {
        let pem = try PEM(text, setting: setting)
        guard pem.label.hasSuffix("PRIVATE KEY") else {
            throw KeyError(
                setting: setting,
                problem: "a private key is needed, but the PEM says '\(pem.label)'")
        }
        try self.init(der: pem.der, for: algorithm, setting: setting)
    }

    /// Takes the 32 bytes of a private scalar of P-256, as VAPID keys are often written;
    /// `setting` names them in errors.
    public convenience init(p256Scalar scalar: [UInt8], setting: String) throws(KeyError) {
        guard scalar.count == 32 else {
            throw KeyError(
                setting: setting,
                problem: "a private scalar has 32 bytes, but there are \(scalar.count)")
        }
        guard P256Agreement.isScalar(scalar) else {
            throw KeyError(
                setting: setting, problem: "the private scalar is out of the curve's range")
        }
        // ECPrivateKey (RFC 5915) with the curve named and the public half left to be computed.
        let der: [UInt8] =
            [0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20] + scalar + [
                0xA0, 0x0A, 0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07,
            ]
        try self.init(der: der, for: .es256, setting: setting)
    }

    private init(
        der: [UInt8], for algorithm: SignatureAlgorithm, setting: String
    ) throws(KeyError) {
        func refuse(_ problem: String) -> KeyError { KeyError(setting: setting, problem: problem) }
        guard let key = Self.parse(der) else {
            throw refuse(
                "the private key is damaged or cut short; fetch the file anew and give it whole")
        }
        if let problem = Self.unfitness(of: key, for: algorithm) {
            EVP_PKEY_free(key)
            throw refuse(problem)
        }
        EVP_PKEY_up_ref(key)
        self.key = key
        self.algorithm = algorithm
        self.verifyingKey = VerifyingKey(taking: key, algorithm)
        let probe = Array("probe".utf8)
        guard let signature = try? signature(of: probe),
            verifyingKey.isValid(signature, of: probe)
        else {
            throw refuse("the private key does not verify its own signature; it is damaged")
        }
    }

    deinit { EVP_PKEY_free(key) }

    /// Signs a message: 64 bytes for ES256, the size of the modulus for RS256.
    public func signature(of message: [UInt8]) throws(OpenSSLError) -> [UInt8] {
        let signed = try digestSigned(message)
        guard algorithm == .es256 else { return signed }
        guard let raw = ECDSASignature.raw(fromDER: signed) else {
            throw OpenSSLError("reading an ECDSA signature")
        }
        return raw
    }

    /// What makes the key private, as bytes: the scalar of an EC key, the private exponent of an RSA
    /// key. The same for every spelling of the key.
    internal func secretNumber() throws(OpenSSLError) -> [UInt8] {
        ERR_clear_error()
        let name =
            switch algorithm {
            case .es256: OSSL_PKEY_PARAM_PRIV_KEY
            case .rs256: OSSL_PKEY_PARAM_RSA_D
            }
        var number: OpaquePointer?
        guard EVP_PKEY_get_bn_param(key, name, &number) == 1, let number else {
            throw OpenSSLError("reading a private key")
        }
        defer { BN_clear_free(number) }
        let count = Int32((BN_num_bits(number) + 7) / 8)
        var bytes = [UInt8](repeating: 0, count: Int(count))
        guard BN_bn2binpad(number, &bytes, count) == count else {
            throw OpenSSLError("reading a private key")
        }
        return bytes
    }

    private func digestSigned(_ message: [UInt8]) throws(OpenSSLError) -> [UInt8] {
        ERR_clear_error()
        guard let context = EVP_MD_CTX_new() else { throw OpenSSLError("allocating a digest") }
        defer { EVP_MD_CTX_free(context) }
        var count = Int(EVP_PKEY_get_size(key))
        var signature = [UInt8](repeating: 0, count: count)
        guard EVP_DigestSignInit(context, nil, EVP_sha256(), nil, key) == 1,
            EVP_DigestSign(context, &signature, &count, message, message.count) == 1
        else { throw OpenSSLError("signing") }
        signature.removeLast(signature.count - count)
        return signature
    }

    private static func parse(_ der: [UInt8]) -> OpaquePointer? {
        ERR_clear_error()
        defer { ERR_clear_error() }
        return der.withUnsafeBufferPointer { bytes -> OpaquePointer? in
            var position = bytes.baseAddress
            guard let key = d2i_AutoPrivateKey(nil, &position, bytes.count) else { return nil }
            // Bytes after the key mean that the text holds something else than it says.
            if let start = bytes.baseAddress, position != start + bytes.count {
                EVP_PKEY_free(key)
                return nil
            }
            return key
        }
    }

    private static func unfitness(
        of key: OpaquePointer, for algorithm: SignatureAlgorithm
    ) -> String? {
        switch algorithm {
        case .es256:
            EllipticCurve.isP256(key)
                ? nil : "an EC key on the curve P-256 is needed (a .p8 file from Apple has one)"
        case .rs256:
            EVP_PKEY_is_a(key, "RSA") == 1 && EVP_PKEY_get_bits(key) >= 2048
                ? nil : "an RSA key of at least 2048 bits is needed (a service account has one)"
        }
    }
}

/// Questions about EC keys.
internal enum EllipticCurve {
    /// Whether a key lies on P-256.
    static func isP256(_ key: OpaquePointer) -> Bool {
        guard EVP_PKEY_is_a(key, "EC") == 1 else { return false }
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { name in
            var count = 0
            guard EVP_PKEY_get_group_name(key, name.baseAddress, name.count, &count) == 1,
                let start = name.baseAddress
            else { return false }
            return String(cString: start) == "prime256v1"
        }
    }
}

/// The two spellings of an ECDSA signature on P-256: DER (OpenSSL) and r, s of 32 bytes each
/// (RFC 7518, section 3.4).
internal enum ECDSASignature {
    static let rawCount = 64

    /// r and s, each left-padded to 32 bytes.
    static func raw(fromDER der: [UInt8]) -> [UInt8]? {
        let parsed = der.withUnsafeBufferPointer { bytes -> OpaquePointer? in
            var position = bytes.baseAddress
            return d2i_ECDSA_SIG(nil, &position, bytes.count)
        }
        guard let parsed else { return nil }
        defer { ECDSA_SIG_free(parsed) }
        var raw = [UInt8](repeating: 0, count: rawCount)
        let written = raw.withUnsafeMutableBufferPointer { raw -> Bool in
            guard let start = raw.baseAddress else { return false }
            return BN_bn2binpad(ECDSA_SIG_get0_r(parsed), start, 32) == 32
                && BN_bn2binpad(ECDSA_SIG_get0_s(parsed), start + 32, 32) == 32
        }
        return written ? raw : nil
    }

    /// The DER form of 64 raw bytes; nil for any other length.
    static func der(fromRaw raw: [UInt8]) -> [UInt8]? {
        guard raw.count == rawCount, let signature = ECDSA_SIG_new() else { return nil }
        defer { ECDSA_SIG_free(signature) }
        let stored = raw.withUnsafeBufferPointer { raw -> Bool in
            guard let start = raw.baseAddress else { return false }
            let r = BN_bin2bn(start, 32, nil)
            let s = BN_bin2bn(start + 32, 32, nil)
            // The signature owns both numbers once set0 succeeded.
            guard r != nil, s != nil, ECDSA_SIG_set0(signature, r, s) == 1 else {
                BN_free(r)
                BN_free(s)
                return false
            }
            return true
        }
        let count = i2d_ECDSA_SIG(signature, nil)
        guard stored, count > 0 else { return nil }
        return [UInt8](unsafeUninitializedCapacity: Int(count)) { bytes, written in
            var position = bytes.baseAddress
            written = Int(i2d_ECDSA_SIG(signature, &position))
        }
    }
}
