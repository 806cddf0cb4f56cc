// Content for the eyes of one device: a JSON Web Encryption (RFC 7516) in its compact form, with a
// key agreed by ECDH-ES on P-256 (RFC 7518, section 4.6) and AES-256-GCM (section 5.3). Every
// message has a key pair of its own, so that its content key is never used twice.

public import Base
internal import COpenSSL
internal import COpenSSLShims

/// A device's public key that content is encrypted for: a point of P-256 that was checked.
public final class DeviceKey: Sendable {
    /// The longest key id, in bytes: it stands in every message.
    public static let idBytesMax = 64

    /// How the device names its key.
    public let id: String
    internal let point: P256Point

    /// A key by the coordinates of its point, 32 bytes each; nil when that is not on the curve, or
    /// when the id is empty or too long.
    public init?(id: String, x: [UInt8], y: [UInt8]) {
        guard (1...Self.idBytesMax).contains(id.utf8.count),
            x.count == P256Agreement.coordinateBytes, y.count == P256Agreement.coordinateBytes,
            let point = P256Point([4] + x + y)
        else { return nil }
        self.id = id
        self.point = point
    }
}

/// Encrypts content for devices. Confined to one thread: it keeps scratch memory, never a key.
public final class ContentSealer {
    private static let nonceBytes = 12
    private static let tagBytes = 16
    private static let keyBytes = 32
    internal static let algorithm: StaticString = "A256GCM"

    private let agreement: P256Agreement
    private let cipher: OpaquePointer
    private let header = ByteWriter(capacity: 512)
    private let sealed = ByteWriter(capacity: 4096)
    private let derivation = ByteWriter(capacity: 256)

    /// A sealer for the calling thread.
    public init() throws(OpenSSLError) {
        agreement = try P256Agreement()
        ERR_clear_error()
        guard let cipher = EVP_CIPHER_CTX_new() else { throw OpenSSLError("allocating a cipher") }
        self.cipher = cipher
        guard EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), nil, nil, nil) == 1 else {
            throw OpenSSLError("preparing AES-256-GCM")
        }
    }

    deinit { EVP_CIPHER_CTX_free(cipher) }

    /// Appends a message for a key: five parts in base64url with dots between them.
    ///
    /// `producer` and `recipient` become `apu` and `apv` of the header: both are bound to the
    /// content key and readable by everybody.
    public func seal(
        _ plaintext: UnsafeRawBufferPointer, for key: DeviceKey,
        producer: UnsafeRawBufferPointer, recipient: UnsafeRawBufferPointer,
        into message: ByteWriter
    ) throws(OpenSSLError) {
        try agreement.renew()
        let failure = withUnsafeTemporaryAllocation(
            byteCount: Self.keyBytes + P256Agreement.coordinateBytes + P256Agreement.pointBytes
                + Self.nonceBytes, alignment: 8
        ) { scratch -> OpenSSLError? in
            defer { bugle_cleanse(scratch.baseAddress, scratch.count) }
            do throws(OpenSSLError) {
                try seal(plaintext, key, producer, recipient, scratch, into: message)
                return nil
            } catch { return error }
        }
        bugle_cleanse(
            UnsafeMutableRawPointer(mutating: derivation.bytes.baseAddress), derivation.count)
        if let failure { throw failure }
    }

    private func seal(
        _ plaintext: UnsafeRawBufferPointer, _ key: DeviceKey,
        _ producer: UnsafeRawBufferPointer, _ recipient: UnsafeRawBufferPointer,
        _ scratch: UnsafeMutableRawBufferPointer, into message: ByteWriter
    ) throws(OpenSSLError) {
        let contentKey = UnsafeMutableRawBufferPointer(rebasing: scratch[..<32])
        let secret = UnsafeMutableRawBufferPointer(rebasing: scratch[32..<64])
        let point = UnsafeMutableRawBufferPointer(rebasing: scratch[64..<129])
        let nonce = UnsafeMutableRawBufferPointer(rebasing: scratch[129...])
        try agreement.writePublicKey(into: point)
        try agreement.writeSharedSecret(with: key.point, into: secret)
        ConcatKDF.derive(
            from: UnsafeRawBufferPointer(secret), for: Self.algorithm, producer: producer,
            recipient: recipient, scratch: derivation, into: contentKey)
        guard RAND_bytes(nonce.assumingMemoryBound(to: UInt8.self).baseAddress, 12) == 1 else {
            throw OpenSSLError("drawing a nonce")
        }
        writeHeader(key.id, UnsafeRawBufferPointer(point), producer, recipient)
        let start = message.count
        message.append(base64URL: header.bytes)
        let associated = start..<message.count
        try encrypt(plaintext, contentKey, nonce, message, associated)
        // The encrypted key is empty: the agreed key is the content's.
        message.append("..")
        message.append(base64URL: UnsafeRawBufferPointer(nonce))
        message.append(0x2E)
        let textBytes = sealed.count - Self.tagBytes
        message.append(base64URL: UnsafeRawBufferPointer(rebasing: sealed.bytes[..<textBytes]))
        message.append(0x2E)
        message.append(base64URL: UnsafeRawBufferPointer(rebasing: sealed.bytes[textBytes...]))
    }

    private func writeHeader(
        _ id: String, _ point: UnsafeRawBufferPointer, _ producer: UnsafeRawBufferPointer,
        _ recipient: UnsafeRawBufferPointer
    ) {
        header.removeAll()
        header.append("{\"alg\":\"ECDH-ES\",\"enc\":\"A256GCM\",\"kid\":")
        header.append(jsonString: id)
        header.append(",\"epk\":{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"")
        header.append(base64URL: UnsafeRawBufferPointer(rebasing: point[1..<33]))
        header.append("\",\"y\":\"")
        header.append(base64URL: UnsafeRawBufferPointer(rebasing: point[33...]))
        header.append("\"},\"apu\":\"")
        header.append(base64URL: producer)
        header.append("\",\"apv\":\"")
        header.append(base64URL: recipient)
        header.append("\"}")
    }

    /// Encrypts into `sealed`, the tag behind the ciphertext. The header in base64url, as it stands
    /// in the message, is authenticated with it (RFC 7516, section 5.1, steps 14 and 15).
    private func encrypt(
        _ plaintext: UnsafeRawBufferPointer, _ key: UnsafeMutableRawBufferPointer,
        _ nonce: UnsafeMutableRawBufferPointer, _ message: ByteWriter, _ associated: Range<Int>
    ) throws(OpenSSLError) {
        ERR_clear_error()
        guard
            EVP_EncryptInit_ex(
                cipher, nil, nil, key.assumingMemoryBound(to: UInt8.self).baseAddress,
                nonce.assumingMemoryBound(to: UInt8.self).baseAddress) == 1
        else { throw OpenSSLError("keying AES-256-GCM") }
        let header = UnsafeRawBufferPointer(rebasing: message.bytes[associated])
        var isSealed = false
        sealed.removeAll()
        sealed.appendUninitialized(plaintext.count + Self.tagBytes) { room in
            guard let bytes = room.assumingMemoryBound(to: UInt8.self).baseAddress else { return 0 }
            var written: Int32 = 0
            var rest: Int32 = 0
            isSealed =
                EVP_EncryptUpdate(
                    cipher, nil, &written, header.assumingMemoryBound(to: UInt8.self).baseAddress,
                    Int32(header.count)) == 1
                && EVP_EncryptUpdate(
                    cipher, bytes, &written,
                    plaintext.assumingMemoryBound(to: UInt8.self).baseAddress,
                    Int32(plaintext.count)) == 1
                && Int(written) == plaintext.count
                && EVP_EncryptFinal_ex(cipher, bytes + plaintext.count, &rest) == 1
                && EVP_CIPHER_CTX_ctrl(
                    cipher, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagBytes), bytes + plaintext.count)
                    == 1
            return room.count
        }
        guard isSealed else { throw OpenSSLError("sealing content") }
    }
}
