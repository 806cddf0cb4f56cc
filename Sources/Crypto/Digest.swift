// Digests of small inputs, one call each: message identifiers, token hashes, collapse keys. They
// are values of fixed size, so that hashing on the data path allocates nothing.

internal import Base
internal import COpenSSL
internal import COpenSSLShims

/// A SHA-256 digest (FIPS 180-4): 32 bytes by value.
public struct SHA256Digest: Hashable, Sendable {
    private var words: WordsOfFour

    /// The digest of some bytes.
    public init(of bytes: UnsafeRawBufferPointer) {
        words = WordsOfFour()
        withUnsafeMutableBytes(of: &words) { digest in
            bugle_sha256(
                bytes.baseAddress, bytes.count, nil, 0,
                digest.bindMemory(to: UInt8.self).baseAddress)
        }
    }

    /// The digest of an array.
    public init(of bytes: [UInt8]) { self = bytes.withUnsafeBytes { SHA256Digest(of: $0) } }

    /// The digest of the UTF-8 of a text.
    public init(of text: String) {
        var text = text
        self = text.withUTF8 { SHA256Digest(of: UnsafeRawBufferPointer($0)) }
    }

    fileprivate init(words: WordsOfFour) { self.words = words }

    /// Lends the 32 bytes.
    public func withUnsafeBytes<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        Swift.withUnsafeBytes(of: words, body)
    }

    /// A copy of the 32 bytes.
    public var bytes: [UInt8] { withUnsafeBytes { Array($0) } }

    /// The digest as 64 lower-case hex digits.
    public var hex: String { withUnsafeBytes { Hex.encode($0) } }

    /// The first eight hex digits: how a token is named where its text must not appear.
    public var shortHex: String { withUnsafeBytes { Hex.encode($0[..<4]) } }
}

/// A SHA-1 digest (FIPS 180-4), for name-based identifiers only: 20 bytes.
public enum SHA1 {
    /// The digest of two byte ranges in a row.
    public static func digest(
        of first: UnsafeRawBufferPointer, followedBy second: UnsafeRawBufferPointer,
        into body: (UnsafeRawBufferPointer) -> Void
    ) {
        withUnsafeTemporaryAllocation(byteCount: 20, alignment: 8) { digest in
            bugle_sha1(
                first.baseAddress, first.count, second.baseAddress, second.count,
                digest.bindMemory(to: UInt8.self).baseAddress)
            body(UnsafeRawBufferPointer(digest))
        }
    }

    /// The digest of an array.
    public static func digest(of bytes: [UInt8]) -> [UInt8] {
        var result: [UInt8] = []
        bytes.withUnsafeBytes { bytes in
            digest(of: bytes, followedBy: UnsafeRawBufferPointer(start: nil, count: 0)) {
                result = Array($0)
            }
        }
        return result
    }
}

/// HMAC with SHA-256 (RFC 2104).
public enum HMACSHA256 {
    /// The authentication code of a message under a key.
    public static func code(for message: [UInt8], key: [UInt8]) -> SHA256Digest {
        var words = WordsOfFour()
        withUnsafeMutableBytes(of: &words) { code in
            _ = HMAC(
                EVP_sha256(), key, Int32(key.count), message, message.count,
                code.bindMemory(to: UInt8.self).baseAddress, nil)
        }
        return SHA256Digest(words: words)
    }
}

/// 32 bytes of storage in digest order; only compared and lent, never read as numbers.
private struct WordsOfFour: Hashable, Sendable {
    var first: UInt64 = 0
    var second: UInt64 = 0
    var third: UInt64 = 0
    var fourth: UInt64 = 0
}
