// Name-based identifiers (RFC 9562, section 5.5): the same event and address give the same
// message id on every attempt, in every process, for ever.

public import Base

/// Version 5 UUIDs.
public enum UUIDv5 {
    /// The identifier of a name within a namespace.
    public static func make(namespace: UUIDBytes, name: UnsafeRawBufferPointer) -> UUIDBytes {
        var result = UUIDBytes(high: 0, low: 0)
        withUnsafeBytes(of: (namespace.high.bigEndian, namespace.low.bigEndian)) { prefix in
            SHA1.digest(of: prefix, followedBy: name) { result = UUIDBytes(versionFive: $0) }
        }
        return result
    }

    /// The identifier of a text within a namespace.
    public static func make(namespace: UUIDBytes, name: String) -> UUIDBytes {
        var name = name
        return name.withUTF8 { make(namespace: namespace, name: UnsafeRawBufferPointer($0)) }
    }
}
