// Key derivation from HMAC with SHA-256, on the stack: a web push message takes a dozen HMACs.

internal import COpenSSLShims

/// HKDF with SHA-256 (RFC 5869), for outputs of one block.
internal enum HKDFSHA256 {
    /// The longest output: one block of the hash, in bytes.
    static let outputBytesMax = 32
    /// The longest `info`, in bytes.
    static let infoBytesMax = 256

    /// Extracts with `salt` and expands with `info` until `output` is full.
    static func derive(
        from material: UnsafeRawBufferPointer, salt: UnsafeRawBufferPointer,
        info: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
    ) {
        precondition(output.count <= outputBytesMax && info.count <= infoBytesMax)
        withUnsafeTemporaryAllocation(byteCount: 64 + infoBytesMax + 1, alignment: 8) { scratch in
            let key = UnsafeMutableRawBufferPointer(rebasing: scratch[..<32])
            let block = UnsafeMutableRawBufferPointer(rebasing: scratch[32..<64])
            let message = UnsafeMutableRawBufferPointer(
                rebasing: scratch[64..<64 + info.count + 1])
            hmac(of: material, key: salt, into: key)
            message.copyMemory(from: info)
            message[info.count] = 1
            hmac(
                of: UnsafeRawBufferPointer(message), key: UnsafeRawBufferPointer(key), into: block)
            output.copyMemory(from: UnsafeRawBufferPointer(rebasing: block[..<output.count]))
            bugle_cleanse(scratch.baseAddress, scratch.count)
        }
    }

    /// RFC 2104 with a key of at most one block of the hash, 64 bytes.
    private static func hmac(
        of message: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer,
        into code: UnsafeMutableRawBufferPointer
    ) {
        precondition(key.count <= 64 && code.count == 32)
        withUnsafeTemporaryAllocation(byteCount: 96, alignment: 8) { scratch in
            let pad = UnsafeMutableRawBufferPointer(rebasing: scratch[..<64])
            let inner = UnsafeMutableRawBufferPointer(rebasing: scratch[64...])
            for index in 0..<64 { pad[index] = (index < key.count ? key[index] : 0) ^ 0x36 }
            hash(UnsafeRawBufferPointer(pad), message, into: inner)
            for index in 0..<64 { pad[index] ^= 0x36 ^ 0x5C }
            hash(UnsafeRawBufferPointer(pad), UnsafeRawBufferPointer(inner), into: code)
            bugle_cleanse(scratch.baseAddress, scratch.count)
        }
    }

    private static func hash(
        _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer,
        into digest: UnsafeMutableRawBufferPointer
    ) {
        bugle_sha256(
            first.baseAddress, first.count, second.baseAddress, second.count,
            digest.assumingMemoryBound(to: UInt8.self).baseAddress)
    }
}
