// The key derivation of JSON Web Encryption with agreed keys (RFC 7518, section 4.6.2): the
// Concat KDF of NIST SP 800-56A with SHA-256, for keys of one block of the hash.

internal import Base
internal import COpenSSLShims

internal enum ConcatKDF {
    /// The longest key, in bytes: one block of the hash.
    static let keyBytesMax = 32

    /// Derives a key for the content encryption `algorithm` until `key` is full.
    ///
    /// `scratch` is overwritten and holds the secret afterwards: it is the caller's to clear.
    static func derive(
        from secret: UnsafeRawBufferPointer, for algorithm: StaticString,
        producer: UnsafeRawBufferPointer, recipient: UnsafeRawBufferPointer,
        scratch: ByteWriter, into key: UnsafeMutableRawBufferPointer
    ) {
        precondition(key.count <= keyBytesMax)
        scratch.removeAll()
        // Growing later would leave a copy of the secret behind.
        scratch.reserve(secret.count + producer.count + recipient.count + 64)
        append(1, to: scratch)
        scratch.append(secret)
        append(UInt32(algorithm.utf8CodeUnitCount), to: scratch)
        scratch.append(algorithm)
        append(UInt32(producer.count), to: scratch)
        scratch.append(producer)
        append(UInt32(recipient.count), to: scratch)
        scratch.append(recipient)
        append(UInt32(key.count * 8), to: scratch)
        withUnsafeTemporaryAllocation(byteCount: keyBytesMax, alignment: 8) { digest in
            bugle_sha256(
                scratch.bytes.baseAddress, scratch.count, nil, 0,
                digest.assumingMemoryBound(to: UInt8.self).baseAddress)
            key.copyMemory(from: UnsafeRawBufferPointer(rebasing: digest[..<key.count]))
            bugle_cleanse(digest.baseAddress, digest.count)
        }
    }

    private static func append(_ number: UInt32, to writer: ByteWriter) {
        withUnsafeBytes(of: number.bigEndian) { writer.append($0) }
    }
}
