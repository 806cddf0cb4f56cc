/// A UUID as its 16 bytes (RFC 9562), written in canonical lower-case form.
public struct UUIDBytes: Hashable, Sendable {
    /// The first eight bytes, most significant first.
    public var high: UInt64
    /// The last eight bytes, most significant first.
    public var low: UInt64

    /// A UUID from its two halves.
    @inlinable
    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// A version 5 UUID from the first 16 bytes of a SHA-1 digest (RFC 9562, section 5.5).
    public init(versionFive digest: UnsafeRawBufferPointer) {
        precondition(digest.count >= 16)
        let high = digest.loadUnaligned(as: UInt64.self).bigEndian
        let low = digest.loadUnaligned(fromByteOffset: 8, as: UInt64.self).bigEndian
        self.init(
            high: high & ~0xF000 | 0x5000,
            low: low & ~(0b11 << 62) | (0b10 << 62))
    }

    /// Parses the canonical form, in either case; nil for anything else.
    public init?(_ text: String) {
        var digits: [UInt8] = []
        for (index, byte) in text.utf8.enumerated() {
            if index == 8 || index == 13 || index == 18 || index == 23 {
                guard byte == 0x2D else { return nil }
            } else {
                guard let digit = Hex.value(byte) else { return nil }
                digits.append(digit)
            }
        }
        guard digits.count == 32, text.utf8.count == 36 else { return nil }
        func half(_ digits: ArraySlice<UInt8>) -> UInt64 {
            digits.reduce(0) { $0 << 4 | UInt64($1) }
        }
        self.init(high: half(digits[..<16]), low: half(digits[16...]))
    }

    /// The 16 bytes in network order.
    public var bytes: [UInt8] {
        withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Array($0) }
    }

    /// The canonical text: 36 characters, lower case.
    public var text: String {
        let writer = ByteWriter(capacity: 36)
        writer.append(uuid: self)
        return writer.text
    }
}

extension ByteWriter {
    /// Appends the canonical 36 characters of a UUID.
    public func append(uuid: UUIDBytes) {
        appendUninitialized(36) { target in
            var position = 0
            for nibble in 0..<32 {
                if nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20 {
                    target[position] = 0x2D
                    position += 1
                }
                let half = nibble < 16 ? uuid.high : uuid.low
                let shift = UInt64(60 - 4 * (nibble % 16))
                target[position] = Hex.digit(UInt8(truncatingIfNeeded: half >> shift & 15))
                position += 1
            }
            return position
        }
    }
}
