// The slot of a key: CRC-16 (XMODEM) of its hash tag modulo 16,384, as the Redis Cluster
// specification has it.

/// One of the slots that the keys of a cluster are spread over.
public struct RedisSlot: Hashable, Sendable {
    /// How many slots there are.
    public static let count = 16_384

    /// The number, below `count`.
    public let number: UInt16

    /// The slot of that number.
    internal init(number: UInt16) {
        precondition(number < Self.count, "a slot's number")
        self.number = number
    }

    /// The slot of a key: of what stands between its first `{` and the next `}`, if that is
    /// anything, else of the whole key.
    public init(of key: String) {
        var key = key
        self = key.withUTF8 { RedisSlot(of: UnsafeRawBufferPointer($0)) }
    }

    /// The slot of a key.
    public init(of key: UnsafeRawBufferPointer) {
        number = UInt16(Self.checksum(Self.tag(of: key)) % UInt16(Self.count))
    }

    private static func tag(of key: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        guard let open = key.firstIndex(of: 0x7B) else { return key }
        let rest = key[(open + 1)...]
        guard let close = rest.firstIndex(of: 0x7D), close > open + 1 else { return key }
        return UnsafeRawBufferPointer(rebasing: key[(open + 1)..<close])
    }

    private static func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt16 {
        var sum: UInt16 = 0
        for byte in bytes { sum = sum << 8 ^ table[Int(sum >> 8 ^ UInt16(byte))] }
        return sum
    }

    private static let table: [UInt16] = (0..<256).map { (index: UInt16) in
        (0..<8).reduce(index << 8) { sum, _ in sum & 0x8000 == 0 ? sum << 1 : sum << 1 ^ 0x1021 }
    }
}
