// Hex and base64url (RFC 4648, sections 8 and 5): the two spellings of bytes in tokens, keys
// and JWTs.

/// Hexadecimal text.
public enum Hex {
    /// The lower-case digit of a value from 0 to 15.
    @inlinable
    public static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? 0x30 + value : 0x57 + value
    }

    /// The value of a digit of either case, or nil.
    @inlinable
    public static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case 0x30...0x39: digit - 0x30
        case 0x61...0x66: digit - 0x57
        case 0x41...0x46: digit - 0x37
        default: nil
        }
    }

    /// Lower-case hex of some bytes.
    public static func encode(_ bytes: some Collection<UInt8>) -> String {
        String(unsafeUninitializedCapacity: bytes.count * 2) { text in
            var count = 0
            for byte in bytes {
                text[count] = digit(byte >> 4)
                text[count + 1] = digit(byte & 15)
                count += 2
            }
            return count
        }
    }
}

/// Base64 with the URL-safe alphabet and without padding.
public enum Base64URL {
    fileprivate static let alphabet: StaticString =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

    /// How many characters some bytes become.
    public static func length(of bytes: Int) -> Int { (bytes * 4 + 2) / 3 }

    /// Encodes bytes; the output has no padding.
    public static func encode(_ bytes: some Sequence<UInt8>) -> String {
        let alphabet = alphabet.utf8Start
        var text: [UInt8] = []
        var accumulator: UInt32 = 0
        var bits = 0
        for byte in bytes {
            accumulator = accumulator << 8 | UInt32(byte)
            bits += 8
            while bits >= 6 {
                bits -= 6
                text.append(alphabet[Int(accumulator >> UInt32(bits) & 63)])
            }
        }
        if bits > 0 { text.append(alphabet[Int(accumulator << UInt32(6 - bits) & 63)]) }
        return String(decoding: text, as: UTF8.self)
    }

    /// Decodes either alphabet, with or without padding; nil when a character or the length is
    /// not base64.
    public static func decode(_ text: some Sequence<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        var accumulator: UInt32 = 0
        var bits = 0
        var symbols = 0
        var padding = 0
        for character in text {
            let value: UInt32
            switch character {
            case 0x41...0x5A: value = UInt32(character - 0x41)
            case 0x61...0x7A: value = UInt32(character - 0x61) + 26
            case 0x30...0x39: value = UInt32(character - 0x30) + 52
            case 0x2D, 0x2B: value = 62
            case 0x5F, 0x2F: value = 63
            case 0x3D:
                padding += 1
                continue
            default: return nil
            }
            if padding > 0 { return nil }
            symbols += 1
            accumulator = accumulator << 6 | value
            bits += 6
            if bits >= 8 {
                bits -= 8
                bytes.append(UInt8(truncatingIfNeeded: accumulator >> UInt32(bits)))
            }
        }
        let paddingFits = padding == 0 || (symbols + padding) % 4 == 0 && padding <= 2
        return symbols % 4 == 1 || !paddingFits ? nil : bytes
    }
}

extension ByteWriter {
    /// Appends base64url without padding.
    public func append(base64URL source: UnsafeRawBufferPointer) {
        let alphabet = Base64URL.alphabet.utf8Start
        appendUninitialized(Base64URL.length(of: source.count)) { target in
            var (read, written) = (0, 0)
            while read + 3 <= source.count {
                let word =
                    UInt32(source[read]) << 16 | UInt32(source[read + 1]) << 8
                    | UInt32(source[read + 2])
                target[written] = alphabet[Int(word >> 18)]
                target[written + 1] = alphabet[Int(word >> 12 & 63)]
                target[written + 2] = alphabet[Int(word >> 6 & 63)]
                target[written + 3] = alphabet[Int(word & 63)]
                read += 3
                written += 4
            }
            let rest = source.count - read
            guard rest > 0 else { return written }
            let word =
                UInt32(source[read]) << 16 | (rest == 2 ? UInt32(source[read + 1]) << 8 : 0)
            target[written] = alphabet[Int(word >> 18)]
            target[written + 1] = alphabet[Int(word >> 12 & 63)]
            if rest == 2 { target[written + 2] = alphabet[Int(word >> 6 & 63)] }
            return written + rest + 1
        }
    }
}
