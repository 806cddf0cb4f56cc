// Where a dial may lead. Whoever takes an address from a client must not be led into the network
// that this process runs in: the check is made on the very address that is connected to, after the
// look-up, so that no second look-up can answer otherwise.

internal import Glibc

/// Which addresses may be connected to.
public enum AddressReach: Sendable, Equatable {
    /// Every address.
    case any
    /// Addresses of the public Internet: none of the special-purpose registries of IANA (RFC 6890),
    /// no multicast, also not wrapped into IPv6.
    case publicOnly
    /// Those, and this machine: for tests.
    case publicOrLoopback

    /// Whether an address may be connected to.
    internal func permits(_ address: SocketAddress) -> Bool {
        if self == .any { return true }
        let bytes = address.bytes
        if self == .publicOrLoopback, Self.isLoopback(bytes) { return true }
        return Self.isPublic(bytes)
    }

    private static func isLoopback(_ bytes: [UInt8]) -> Bool {
        if bytes.count == 4 { return bytes[0] == 127 }
        return bytes == [UInt8](repeating: 0, count: 15) + [1]
    }

    private static func isPublic(_ bytes: [UInt8]) -> Bool {
        if bytes.count == 4 { return isPublic(v4: bytes) }
        guard bytes.count == 16 else { return false }
        // IPv4 inside: mapped (RFC 4291), and behind a NAT64 (RFC 6052).
        let zeros = [UInt8](repeating: 0, count: 10)
        if Array(bytes[..<12]) == zeros + [0xFF, 0xFF]
            || Array(bytes[..<12]) == [0, 0x64, 0xFF, 0x9B] + zeros[..<8]
        {
            return isPublic(v4: Array(bytes[12...]))
        }
        // Global unicast without what is set apart in it: protocol assignments and Teredo,
        // documentation, 6to4.
        guard bytes[0] & 0xE0 == 0x20 else { return false }
        let isAssignment = bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] < 2
        let isExample =
            bytes.starts(with: [0x20, 0x01, 0x0D, 0xB8])
            || (bytes[0] == 0x3F && bytes[1] == 0xFF && bytes[2] < 0x10)
        return !isAssignment && !isExample && !bytes.starts(with: [0x20, 0x02])
    }

    private static func isPublic(v4 bytes: [UInt8]) -> Bool {
        let address = bytes.reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        return !special.contains { address & $0.mask == $0.prefix }
    }

    private static let special: [(prefix: UInt32, mask: UInt32)] = [
        block(0, 0, 0, 0, 8), block(10, 0, 0, 0, 8), block(100, 64, 0, 0, 10),
        block(127, 0, 0, 0, 8), block(169, 254, 0, 0, 16), block(172, 16, 0, 0, 12),
        block(192, 0, 0, 0, 24), block(192, 0, 2, 0, 24), block(192, 88, 99, 0, 24),
        block(192, 168, 0, 0, 16), block(198, 18, 0, 0, 15), block(198, 51, 100, 0, 24),
        block(203, 0, 113, 0, 24), block(224, 0, 0, 0, 4), block(240, 0, 0, 0, 4),
    ]

    private static func block(
        _ first: UInt32, _ second: UInt32, _ third: UInt32, _ fourth: UInt32, _ bits: UInt32
    ) -> (prefix: UInt32, mask: UInt32) {
        (first << 24 | second << 16 | third << 8 | fourth, ~0 << (32 - bits))
    }
}
