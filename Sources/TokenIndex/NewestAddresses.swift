// Collects a user's addresses without ever holding many more than may be handed out.

internal import Glibc

/// Keeps the newest addresses by registration, at most twice the limit at any moment.
internal struct NewestAddresses {
    private let limit: Int
    private var addresses: [DeviceAddress] = []
    private(set) var dropped = 0
    var isEmpty: Bool { addresses.isEmpty }

    init(limit: Int) {
        precondition(limit > 0)
        self.limit = limit
    }

    /// Makes room for so many, as far as they will be kept.
    mutating func reserve(_ count: Int) { addresses.reserveCapacity(min(count, 2 * limit)) }

    mutating func insert(_ address: DeviceAddress) {
        addresses.append(address)
        if addresses.count >= 2 * limit { prune() }
    }

    /// The addresses in the order of their ids.
    mutating func finish() -> [DeviceAddress] {
        if addresses.count > limit { prune() }
        if addresses.count > 1 {
            addresses.sort { Self.precedes($0, $1) }
            removeRepeated()
        }
        return addresses
    }

    /// Pages may bring an address twice.
    private mutating func removeRepeated() {
        var kept = 1
        for index in 1..<addresses.count {
            guard Self.precedes(addresses[kept - 1], addresses[index]) else { continue }
            addresses[kept] = addresses[index]
            kept += 1
        }
        addresses.removeLast(addresses.count - kept)
    }

    private mutating func prune() {
        addresses.sort {
            $0.registeredAt == $1.registeredAt
                ? Self.precedes($1, $0) : $0.registeredAt > $1.registeredAt
        }
        dropped += addresses.count - limit
        addresses.removeLast(addresses.count - limit)
    }

    private static func precedes(_ left: DeviceAddress, _ right: DeviceAddress) -> Bool {
        left.withAddressID { left in
            right.withAddressID { right in
                let shared = min(left.count, right.count)
                guard let start = left.baseAddress, let other = right.baseAddress else {
                    return false
                }
                let order = memcmp(start, other, shared)
                return order == 0 ? left.count < right.count : order < 0
            }
        }
    }
}
