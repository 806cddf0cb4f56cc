internal import Base

/// The path of a push to a device: `/3/device/` and the token in lower-case hex.
internal enum APNsDevicePath {
    /// Where among the fields the path stands: behind the other pseudo-header fields.
    static let field = 3

    /// Sets the path to a token's; false when that is no token.
    static func set(
        of request: OutboundRequest, to token: UnsafeRawBufferPointer
    ) -> Bool {
        let offset = request.fieldBytes.count
        guard write(token, to: request.fieldBytes) else { return false }
        request.replace(field, from: offset)
        return true
    }

    /// Writes the path with the token in lower case; false when it is not hex of an even length.
    private static func write(
        _ token: UnsafeRawBufferPointer, to writer: ByteWriter
    ) -> Bool {
        guard (2...APNsLimits.tokenDigitsMax).contains(token.count), token.count % 2 == 0 else {
            return false
        }
        writer.append("/3/device/")
        var isHex = true
        writer.appendUninitialized(token.count) { target in
            var index = 0
            while index + 8 <= token.count {
                let digits = token.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                isHex = isHex && areHex(digits)
                target.storeBytes(
                    of: digits | 0x2020_2020_2020_2020, toByteOffset: index, as: UInt64.self)
                index += 8
            }
            while index < token.count {
                isHex = isHex && Hex.value(token[index]) != nil
                target[index] = token[index] | 0x20
                index += 1
            }
            return token.count
        }
        return isHex
    }

    /// Whether eight bytes are hex digits of either case, all at once.
    ///
    /// Adding `0x80 - n` to a byte below 0x80 sets its highest bit if the byte is `n` or more. The
    /// bit of 0x20 makes capital letters small, and is set in the digits of a number anyway.
    private static func areHex(_ bytes: UInt64) -> Bool {
        func atLeast(_ bound: UInt64, _ bytes: UInt64) -> UInt64 {
            bytes &+ (0x80 &- bound) &* 0x0101_0101_0101_0101
        }
        let highest: UInt64 = 0x8080_8080_8080_8080
        guard bytes & highest == 0 else { return false }
        let lower = bytes | 0x2020_2020_2020_2020
        let isDigit = atLeast(0x30, bytes) & ~atLeast(0x3A, bytes)
        let isLetter = atLeast(0x61, lower) & ~atLeast(0x67, lower)
        return (isDigit | isLetter) & highest == highest
    }

    static func problem(with token: UnsafeRawBufferPointer) -> String {
        if token.isEmpty { return "the token is empty" }
        if token.count > APNsLimits.tokenDigitsMax {
            return "the token has \(token.count) characters, too many for a device token"
        }
        return token.count % 2 == 0 || token.contains { Hex.value($0) == nil }
            ? "the token has characters that are not hex digits"
            : "the token has an odd number of hex digits"
    }
}
