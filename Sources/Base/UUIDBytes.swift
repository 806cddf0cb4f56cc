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
            Self.write(uuid, to: target)
            return 36
        }
    }

    /// Replaces the canonical 36 characters of a UUID by those of another.
    public func overwrite(at offset: Int, uuid: UUIDBytes) {
        overwrite(at: offset, count: 36) { Self.write(uuid, to: $0) }
    }

    private static func write(_ uuid: UUIDBytes, to target: UnsafeMutableRawBufferPointer) {
        let first = Self.digits(of: UInt32(truncatingIfNeeded: uuid.high >> 32))
        let second = Self.digits(of: UInt32(truncatingIfNeeded: uuid.high))
        let third = Self.digits(of: UInt32(truncatingIfNeeded: uuid.low >> 32))
        let fourth = Self.digits(of: UInt32(truncatingIfNeeded: uuid.low))
        func store(_ digits: UInt64, at offset: Int) {
            target.storeBytes(of: digits.bigEndian, toByteOffset: offset, as: UInt64.self)
        }
        // Eight digits at a time; each dash is written over the ninth byte of its group.
        store(first, at: 0)
        store(second, at: 9)
        store(second << 32, at: 14)
        store(third, at: 19)
        store(third << 32, at: 24)
        store(fourth, at: 28)
        target[8] = 0x2D
        target[13] = 0x2D
        target[18] = 0x2D
        target[23] = 0x2D
    }

    /// The eight lower-case hex digits of a number, the most significant in the highest byte:
    /// each nibble gets a byte of its own, and those over nine are moved up to the letters.
    internal static func digits(of value: UInt32) -> UInt64 {
        var spread = UInt64(value)
        spread = (spread | spread << 16) & 0x0000_FFFF_0000_FFFF
        spread = (spread | spread << 8) & 0x00FF_00FF_00FF_00FF
        spread = (spread | spread << 4) & 0x0F0F_0F0F_0F0F_0F0F
        let letters = (spread &+ 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101
        return spread &+ 0x3030_3030_3030_3030 &+ letters &* 0x27
    }
}
