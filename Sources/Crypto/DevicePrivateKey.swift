// The device's side of encrypted content: for whoever writes the app, and for tests.

public import Base
internal import COpenSSL

/// A device's private key on P-256, and what it opens.
public struct DevicePrivateKey: Sendable {
    /// The coordinates of the public half, 32 bytes each.
    public let x: [UInt8]
    /// The second coordinate.
    public let y: [UInt8]
    /// The private scalar, 32 bytes.
    public let scalar: Secret<[UInt8]>

    /// A key out of its scalar; nil when that is none of 32 bytes within the curve's range.
    public init?(scalar: [UInt8]) {
        guard P256Agreement.isScalar(scalar), let agreement = try? P256Agreement() else {
            return nil
        }
        var point = [UInt8](repeating: 0, count: P256Agreement.pointBytes)
        do {
            try agreement.use(scalar: scalar)
            try point.withUnsafeMutableBytes { try agreement.writePublicKey(into: $0) }
        } catch { return nil }
        x = Array(point[1..<33])
        y = Array(point[33...])
        self.scalar = Secret(scalar)
    }

    /// A fresh key.
    public static func generate() throws(OpenSSLError) -> DevicePrivateKey {
        while true {
            var scalar = [UInt8](repeating: 0, count: 32)
            ERR_clear_error()
            guard RAND_priv_bytes(&scalar, 32) == 1 else {
                throw OpenSSLError("drawing a private key")
            }
            if let key = DevicePrivateKey(scalar: scalar) { return key }
        }
    }

    /// The parts of an encrypted message, decoded, save for the header in base64url.
    public struct Parts: Sendable {
        /// The first part as it stands in the message.
        public var header: [UInt8]
        /// The sender's public key, `epk`: its coordinates.
        public var x: [UInt8]
        /// The second coordinate.
        public var y: [UInt8]
        /// `apu`, decoded.
        public var producer: [UInt8]
        /// `apv`, decoded.
        public var recipient: [UInt8]
        /// The initialization vector, 12 bytes.
        public var nonce: [UInt8]
        /// The ciphertext.
        public var text: [UInt8]
        /// The authentication tag, 16 bytes.
        public var tag: [UInt8]

        /// The parts of a message.
        public init(
            header: [UInt8], x: [UInt8], y: [UInt8], producer: [UInt8], recipient: [UInt8],
            nonce: [UInt8], text: [UInt8], tag: [UInt8]
        ) {
            self.header = header
            self.x = x
            self.y = y
            self.producer = producer
            self.recipient = recipient
            self.nonce = nonce
            self.text = text
            self.tag = tag
        }
    }

    /// The plaintext of a message of ECDH-ES and A256GCM; nil when it is not for this key or was
    /// changed.
    public func open(_ parts: Parts) -> [UInt8]? {
        guard parts.x.count == 32, parts.y.count == 32, parts.nonce.count == 12,
            parts.tag.count == 16, let point = P256Point([4] + parts.x + parts.y),
            let agreement = try? P256Agreement()
        else { return nil }
        var secret = [UInt8](repeating: 0, count: 32)
        var key = [UInt8](repeating: 0, count: 32)
        do {
            try agreement.use(scalar: scalar.exposed)
            try secret.withUnsafeMutableBytes {
                try agreement.writeSharedSecret(with: point, into: $0)
            }
        } catch { return nil }
        secret.withUnsafeBytes { secret in
            parts.producer.withUnsafeBytes { producer in
                parts.recipient.withUnsafeBytes { recipient in
                    key.withUnsafeMutableBytes { key in
                        ConcatKDF.derive(
                            from: secret, for: ContentSealer.algorithm, producer: producer,
                            recipient: recipient, scratch: ByteWriter(), into: key)
                    }
                }
            }
        }
        return Self.decrypt(parts, key)
    }

    private static func decrypt(_ parts: Parts, _ key: [UInt8]) -> [UInt8]? {
        guard let cipher = EVP_CIPHER_CTX_new() else { return nil }
        defer {
            EVP_CIPHER_CTX_free(cipher)
            ERR_clear_error()
        }
        var tag = parts.tag
        var plain = [UInt8](repeating: 0, count: parts.text.count + 16)
        var written: Int32 = 0
        var rest: Int32 = 0
        guard EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), nil, key, parts.nonce) == 1,
            EVP_DecryptUpdate(cipher, nil, &rest, parts.header, Int32(parts.header.count)) == 1,
            EVP_DecryptUpdate(cipher, &plain, &written, parts.text, Int32(parts.text.count)) == 1,
            EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, 16, &tag) == 1
        else { return nil }
        var end = [UInt8](repeating: 0, count: 16)
        guard EVP_DecryptFinal_ex(cipher, &end, &rest) == 1 else { return nil }
        return Array(plain[..<Int(written)])
    }
}
