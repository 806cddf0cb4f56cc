// Bytes that only the holders of one private key can read: for what replicas share by way of a store
// that others may look into.

internal import COpenSSL
internal import COpenSSLShims

/// Seals and opens with AES-256-GCM under a key that was derived from a private key.
///
/// The nonce is random, 96 bits: good for far more than the few boxes that a key ever seals.
public struct SealedBox: Sendable {
    private static let nonceBytes = 12
    private static let tagBytes = 16

    private let key: [UInt8]
    /// Tells the private key from others, in hex, and nothing about it.
    public let fingerprint: String

    /// The box of a private key. Every holder of that key has the same, for one purpose: HKDF with
    /// SHA-256 (RFC 5869) over the secret number of the key, `purpose` being the info.
    public init(_ key: SigningKey, purpose: String) throws(OpenSSLError) {
        var secret = try key.secretNumber()
        defer { secret.withUnsafeMutableBytes { bugle_cleanse($0.baseAddress, $0.count) } }
        var derived = [UInt8](repeating: 0, count: 32)
        let salt = Array("bugle sealed box".utf8)
        let info = Array(purpose.utf8)
        secret.withUnsafeBytes { secret in
            salt.withUnsafeBytes { salt in
                info.withUnsafeBytes { info in
                    derived.withUnsafeMutableBytes {
                        HKDFSHA256.derive(from: secret, salt: salt, info: info, into: $0)
                    }
                }
            }
        }
        self.key = derived
        fingerprint = SHA256Digest(of: derived + Array("fingerprint".utf8)).shortHex
    }

    /// Nonce, ciphertext and tag; `context` is not in them and must be the same when opening.
    public func seal(_ text: [UInt8], context: String) throws(OpenSSLError) -> [UInt8] {
        ERR_clear_error()
        guard let cipher = EVP_CIPHER_CTX_new() else { throw OpenSSLError("allocating a cipher") }
        defer { EVP_CIPHER_CTX_free(cipher) }
        var nonce = [UInt8](repeating: 0, count: Self.nonceBytes)
        var sealed = [UInt8](repeating: 0, count: text.count)
        var tag = [UInt8](repeating: 0, count: Self.tagBytes)
        var count: Int32 = 0
        let context = Array(context.utf8)
        guard RAND_bytes(&nonce, Int32(nonce.count)) == 1,
            EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), nil, key, nonce) == 1,
            EVP_EncryptUpdate(cipher, nil, &count, context, Int32(context.count)) == 1,
            EVP_EncryptUpdate(cipher, &sealed, &count, text, Int32(text.count)) == 1,
            EVP_EncryptFinal_ex(cipher, nil, &count) == 1,
            EVP_CIPHER_CTX_ctrl(
                cipher, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagBytes), &tag) == 1
        else { throw OpenSSLError("sealing") }
        return nonce + sealed + tag
    }

    /// What was sealed; nil when it was sealed under another key or context, or changed since.
    public func open(_ box: [UInt8], context: String) -> [UInt8]? {
        guard box.count >= Self.nonceBytes + Self.tagBytes,
            let cipher = EVP_CIPHER_CTX_new()
        else { return nil }
        defer {
            EVP_CIPHER_CTX_free(cipher)
            ERR_clear_error()
        }
        let nonce = Array(box.prefix(Self.nonceBytes))
        var tag = Array(box.suffix(Self.tagBytes))
        let sealed = Array(box.dropFirst(Self.nonceBytes).dropLast(Self.tagBytes))
        var text = [UInt8](repeating: 0, count: sealed.count)
        var count: Int32 = 0
        let context = Array(context.utf8)
        guard EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), nil, key, nonce) == 1,
            EVP_DecryptUpdate(cipher, nil, &count, context, Int32(context.count)) == 1,
            EVP_DecryptUpdate(cipher, &text, &count, sealed, Int32(sealed.count)) == 1,
            EVP_CIPHER_CTX_ctrl(
                cipher, EVP_CTRL_AEAD_SET_TAG, Int32(Self.tagBytes), &tag) == 1,
            EVP_DecryptFinal_ex(cipher, nil, &count) == 1
        else { return nil }
        return text
    }
}
