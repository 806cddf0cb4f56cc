// The encryption of web push messages: RFC 8291 on top of the content coding aes128gcm of
// RFC 8188. Every message has a key pair and a salt of its own; neither is ever kept.

public import Base
internal import COpenSSL
internal import COpenSSLShims

/// Why the keys of a web push subscription cannot be used.
public struct SubscriptionKeyError: Error, Equatable, CustomStringConvertible {
    /// What is wrong, without the keys.
    public let description: String
}

/// The keys of a web push subscription, decoded: worth keeping, for the curve's point is checked
/// once and not with every message.
public final class SubscriptionKeys: Sendable {
    /// Bytes of the secret `auth` (RFC 8291, section 3.2).
    public static let authBytes = 16

    internal let publicKey: [UInt8]
    internal let point: P256Point
    internal let auth: [UInt8]

    /// Reads `p256dh` and `auth` in base64url; padding and the other alphabet are forgiven.
    public init(p256dh: String, auth: String) throws(SubscriptionKeyError) {
        guard let publicKey = Base64URL.decode(p256dh.utf8), let auth = Base64URL.decode(auth.utf8)
        else { throw SubscriptionKeyError(description: "the keys are not base64url") }
        guard auth.count == Self.authBytes else {
            throw SubscriptionKeyError(
                description: "auth has \(auth.count) bytes, \(Self.authBytes) are needed")
        }
        guard publicKey.count == P256Agreement.pointBytes, publicKey[0] == 4 else {
            throw SubscriptionKeyError(
                description: "p256dh is no uncompressed point of 65 bytes but has "
                    + "\(publicKey.count)")
        }
        guard let point = P256Point(publicKey) else {
            throw SubscriptionKeyError(description: "p256dh is not a point of the curve P-256")
        }
        self.publicKey = publicKey
        self.auth = auth
        self.point = point
    }
}

/// Encrypts web push messages. Confined to one thread: it keeps scratch memory, never a key.
public final class MessageEncryptor {
    /// Bytes that encryption adds: header 86, delimiter 1, tag 16.
    public static let overheadBytes = 103
    /// The most bytes of a message that push services have to take, encrypted (RFC 8030, 7.2).
    public static let bodyBytesMax = 4096
    /// The most bytes of a message before encryption.
    public static let plaintextBytesMax = bodyBytesMax - overheadBytes

    private static let saltBytes = 16
    private static let tagBytes = 16
    private static let headerBytes = 86
    private static let keyInfo = Array("WebPush: info\0".utf8)
    private static let contentKeyInfo = Array("Content-Encoding: aes128gcm\0".utf8)
    private static let nonceInfo = Array("Content-Encoding: nonce\0".utf8)

    private let agreement: P256Agreement
    private let cipher: OpaquePointer

    /// An encryptor for the calling thread.
    public init() throws(OpenSSLError) {
        agreement = try P256Agreement()
        ERR_clear_error()
        guard let cipher = EVP_CIPHER_CTX_new() else { throw OpenSSLError("allocating a cipher") }
        self.cipher = cipher
        guard EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nil, nil, nil) == 1 else {
            throw OpenSSLError("preparing AES-128-GCM")
        }
    }

    deinit { EVP_CIPHER_CTX_free(cipher) }

    /// Appends the body of a message: one record, without padding.
    ///
    /// The plaintext has at most `plaintextBytesMax` bytes.
    public func encrypt(
        _ plaintext: UnsafeRawBufferPointer, for keys: SubscriptionKeys, into body: ByteWriter
    ) throws(OpenSSLError) {
        try agreement.renew()
        var salt: [16 of UInt8] = .init(repeating: 0)
        let isDrawn = withUnsafeMutableBytes(of: &salt) { salt in
            RAND_bytes(
                salt.assumingMemoryBound(to: UInt8.self).baseAddress, Int32(salt.count)) == 1
        }
        guard isDrawn else { throw OpenSSLError("drawing a salt") }
        let failure = withUnsafeBytes(of: salt) { salt in
            attempt { () throws(OpenSSLError) in try seal(plaintext, keys, salt, into: body) }
        }
        if let failure { throw failure }
    }

    /// The same with a salt and a private key that are given: for the published values.
    internal func encrypt(
        _ plaintext: [UInt8], for keys: SubscriptionKeys, salt: [UInt8], scalar: [UInt8],
        padding: Int = 0, into body: ByteWriter
    ) throws(OpenSSLError) {
        precondition(salt.count == Self.saltBytes)
        try agreement.use(scalar: scalar)
        let failure = plaintext.withUnsafeBytes { plaintext in
            salt.withUnsafeBytes { salt in
                attempt { () throws(OpenSSLError) in
                    try seal(plaintext, keys, salt, padding: padding, into: body)
                }
            }
        }
        if let failure { throw failure }
    }

    private func seal(
        _ plaintext: UnsafeRawBufferPointer, _ keys: SubscriptionKeys,
        _ salt: UnsafeRawBufferPointer, padding: Int = 0, into body: ByteWriter
    ) throws(OpenSSLError) {
        precondition(plaintext.count + padding <= Self.plaintextBytesMax)
        let start = body.count
        body.append(salt)
        // The record size, 4096, and the length of the key that stands for its id.
        for byte: UInt8 in [0, 0, 0x10, 0, UInt8(P256Agreement.pointBytes)] { body.append(byte) }
        var failure: OpenSSLError?
        body.appendUninitialized(P256Agreement.pointBytes) { point in
            failure = attempt { () throws(OpenSSLError) in
                try agreement.writePublicKey(into: point)
            }
            return point.count
        }
        if let failure { throw failure }
        let sender = UnsafeRawBufferPointer(
            rebasing: body.bytes[start + Self.headerBytes - P256Agreement.pointBytes..<body.count])
        var key = try contentKey(keys, sender, salt)
        defer { key.forget() }
        try sealRecord(plaintext, padding, key, into: body)
    }

    /// Key and nonce of one message.
    private struct ContentKey {
        var key: [16 of UInt8] = .init(repeating: 0)
        var nonce: [12 of UInt8] = .init(repeating: 0)

        mutating func forget() {
            withUnsafeMutableBytes(of: &key) { bugle_cleanse($0.baseAddress, $0.count) }
            withUnsafeMutableBytes(of: &nonce) { bugle_cleanse($0.baseAddress, $0.count) }
        }
    }

    /// RFC 8291, section 3.4: the shared secret and `auth` give the keying material, which gives
    /// key and nonce as RFC 8188 has it.
    private func contentKey(
        _ keys: SubscriptionKeys, _ sender: UnsafeRawBufferPointer, _ salt: UnsafeRawBufferPointer
    ) throws(OpenSSLError) -> ContentKey {
        var result = ContentKey()
        var failure: OpenSSLError?
        withUnsafeTemporaryAllocation(byteCount: 64 + 14 + 130, alignment: 8) { scratch in
            let secret = UnsafeMutableRawBufferPointer(rebasing: scratch[..<32])
            let material = UnsafeMutableRawBufferPointer(rebasing: scratch[32..<64])
            let info = UnsafeMutableRawBufferPointer(rebasing: scratch[64...])
            failure = attempt { () throws(OpenSSLError) in
                try agreement.writeSharedSecret(with: keys.point, into: secret)
            }
            info[..<14].copyBytes(from: Self.keyInfo)
            info[14..<79].copyBytes(from: keys.publicKey)
            info[79...].copyBytes(from: sender)
            keys.auth.withUnsafeBytes { auth in
                HKDFSHA256.derive(
                    from: UnsafeRawBufferPointer(secret), salt: auth,
                    info: UnsafeRawBufferPointer(info), into: material)
            }
            Self.expand(material, salt, Self.contentKeyInfo, into: &result.key)
            Self.expand(material, salt, Self.nonceInfo, into: &result.nonce)
            bugle_cleanse(scratch.baseAddress, scratch.count)
        }
        if let failure { throw failure }
        return result
    }

    private static func expand<Output: BitwiseCopyable>(
        _ material: UnsafeMutableRawBufferPointer, _ salt: UnsafeRawBufferPointer,
        _ info: [UInt8], into output: inout Output
    ) {
        info.withUnsafeBytes { info in
            withUnsafeMutableBytes(of: &output) { output in
                HKDFSHA256.derive(
                    from: UnsafeRawBufferPointer(material), salt: salt, info: info, into: output)
            }
        }
    }

    /// Appends the only record: the plaintext, the delimiter of a last record, padding, and the
    /// tag.
    private func sealRecord(
        _ plaintext: UnsafeRawBufferPointer, _ padding: Int, _ key: ContentKey,
        into body: ByteWriter
    ) throws(OpenSSLError) {
        let count = plaintext.count + 1 + padding
        ERR_clear_error()
        let isReady = withUnsafeBytes(of: key.key) { contentKey in
            withUnsafeBytes(of: key.nonce) { nonce in
                EVP_EncryptInit_ex(
                    cipher, nil, nil, contentKey.assumingMemoryBound(to: UInt8.self).baseAddress,
                    nonce.assumingMemoryBound(to: UInt8.self).baseAddress) == 1
            }
        }
        guard isReady else { throw OpenSSLError("keying AES-128-GCM") }
        var isSealed = false
        body.appendUninitialized(count + Self.tagBytes) { room in
            // Encryption works in place.
            room.copyMemory(from: plaintext)
            room[plaintext.count] = 2
            for index in plaintext.count + 1..<count { room[index] = 0 }
            guard let bytes = room.assumingMemoryBound(to: UInt8.self).baseAddress else { return 0 }
            var written: Int32 = 0
            var rest: Int32 = 0
            isSealed =
                EVP_EncryptUpdate(cipher, bytes, &written, bytes, Int32(count)) == 1
                && EVP_EncryptFinal_ex(cipher, bytes + count, &rest) == 1
                && EVP_CIPHER_CTX_ctrl(
                    cipher, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagBytes), bytes + count) == 1
                && Int(written) == count
            return room.count
        }
        guard isSealed else { throw OpenSSLError("sealing a message") }
    }

    /// Carries a typed error out of closures that cannot throw one.
    private func attempt(_ body: () throws(OpenSSLError) -> Void) -> OpenSSLError? {
        do throws(OpenSSLError) {
            try body()
            return nil
        } catch { return error }
    }
}
