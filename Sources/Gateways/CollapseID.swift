public import Base
internal import Crypto

/// What a newer notification replaces an older one by, as header fields can carry it: at most 64
/// bytes of printable ASCII.
///
/// A key that is too long or has other characters is hashed, not cut: equal keys give equal ids,
/// and keys that differ only at the end give different ones.
public enum CollapseID {
    /// Appends the id of a push.
    public static func write(of content: borrowing PushContent, to writer: ByteWriter) {
        if let key = content.collapseKey {
            write(key: key, to: writer)
        } else {
            writer.append(uuid: content.eventIdentity)
        }
    }

    /// Appends the id that a key becomes.
    public static func write(key: String, to writer: ByteWriter) {
        var key = key
        key.withUTF8 { write(key: UnsafeRawBufferPointer($0), to: writer) }
    }

    /// Appends the topic of a web push (RFC 8030, section 5.4): at most 32 characters of base64url.
    /// A key is hashed, never cut, so that two keys that begin alike stay two. A push without a key
    /// replaces only a copy of itself.
    public static func writeTopic(key: String?, identity: UUIDBytes, to writer: ByteWriter) {
        if let key {
            writer.append(Base64URL.encode(SHA256Digest(of: key).bytes.prefix(24)))
        } else {
            writer.append(Base64URL.encode(identity.bytes))
        }
    }

    private static func write(key: UnsafeRawBufferPointer, to writer: ByteWriter) {
        let fits =
            (1...APNsLimits.collapseIDBytes).contains(key.count)
            && key.allSatisfy { (0x21...0x7E).contains($0) }
        if fits {
            writer.append(key)
        } else {
            SHA256Digest(of: key).withUnsafeBytes { writer.append(hex: $0) }
        }
    }
}
