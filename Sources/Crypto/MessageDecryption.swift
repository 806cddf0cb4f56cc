// The browser's side of web push encryption (RFC 8291): for a simulated browser, which shows what a
// sender really sent.

internal import Base
internal import COpenSSL

/// The keys of a browser's subscription, private half included, and what they decrypt.
public struct SubscriberKeys: Sendable {
    /// The public key, base64url: `p256dh` of a subscription.
    public let p256dh: String
    /// The secret, base64url: `auth` of a subscription.
    public let auth: String

    private let scalar: [UInt8]
    private let publicKey: [UInt8]
    private let secret: [UInt8]

    /// Keys out of a private scalar of 32 bytes and a secret of 16; nil when they are no such.
    public init?(scalar: [UInt8], auth: [UInt8]) {
        guard P256Agreement.isScalar(scalar), auth.count == SubscriptionKeys.authBytes,
            let key = try? SigningKey(p256Scalar: scalar, setting: "a subscription"),
            let publicKey = key.verifyingKey.p256Point
        else { return nil }
        self.scalar = scalar
        self.publicKey = publicKey
        secret = auth
        p256dh = Base64URL.encode(publicKey)
        self.auth = Base64URL.encode(auth)
    }

    /// The plaintext of a message of one record; nil when it is not for these keys, or not as
    /// RFC 8188 and RFC 8291 have it.
    public func decrypt(_ body: [UInt8]) -> [UInt8]? {
        let headerBytes = 16 + 4 + 1 + P256Agreement.pointBytes
        guard body.count >= headerBytes + 1 + 16, body[20] == UInt8(P256Agreement.pointBytes)
        else { return nil }
        let recordSize = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
        let record = Array(body[headerBytes...])
        guard record.count <= recordSize else { return nil }
        let sender = Array(body[21..<headerBytes])
        guard let point = P256Point(sender), let agreement = try? P256Agreement() else {
            return nil
        }
        var shared = [UInt8](repeating: 0, count: 32)
        do {
            try agreement.use(scalar: scalar)
            try shared.withUnsafeMutableBytes { bytes in
                try agreement.writeSharedSecret(with: point, into: bytes)
            }
        } catch { return nil }
        let salt = Array(body[..<16])
        let material = Self.derive(
            shared, secret, Array("WebPush: info\0".utf8) + publicKey + sender, count: 32)
        let key = Self.derive(
            material, salt, Array("Content-Encoding: aes128gcm\0".utf8), count: 16)
        let nonce = Self.derive(material, salt, Array("Content-Encoding: nonce\0".utf8), count: 12)
        return Self.open(record, key, nonce)
    }

    private static func derive(
        _ material: [UInt8], _ salt: [UInt8], _ info: [UInt8], count: Int
    ) -> [UInt8] {
        var output = [UInt8](repeating: 0, count: count)
        material.withUnsafeBytes { material in
            salt.withUnsafeBytes { salt in
                info.withUnsafeBytes { info in
                    output.withUnsafeMutableBytes { output in
                        HKDFSHA256.derive(from: material, salt: salt, info: info, into: output)
                    }
                }
            }
        }
        return output
    }

    /// Opens the last record: ciphertext, then the tag; padding goes.
    private static func open(_ record: [UInt8], _ key: [UInt8], _ nonce: [UInt8]) -> [UInt8]? {
        guard let cipher = EVP_CIPHER_CTX_new() else { return nil }
        defer {
            EVP_CIPHER_CTX_free(cipher)
            ERR_clear_error()
        }
        let text = Array(record.dropLast(16))
        var tag = Array(record.suffix(16))
        var plain = [UInt8](repeating: 0, count: text.count)
        var written: Int32 = 0
        var rest: Int32 = 0
        var end = [UInt8](repeating: 0, count: 16)
        guard EVP_DecryptInit_ex(cipher, EVP_aes_128_gcm(), nil, key, nonce) == 1,
            EVP_DecryptUpdate(cipher, &plain, &written, text, Int32(text.count)) == 1,
            EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, 16, &tag) == 1,
            EVP_DecryptFinal_ex(cipher, &end, &rest) == 1
        else { return nil }
        while plain.last == 0 { plain.removeLast() }
        guard plain.popLast() == 2 else { return nil }
        return plain
    }
}
