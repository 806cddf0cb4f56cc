// Tokens that a gateway wants left alone for a while: APNs' `TooManyRequests` and FCM's quota of a
// device. All events of a user come through one lane, and so the lane alone keeps them.

internal import Base
internal import TokenIndex

/// When which token may be sent to again. Loop-confined.
///
/// Empty nearly always; then asking costs one comparison.
internal struct TokenThrottles {
    private var until: [UInt64: MonotonicTime] = [:]
    private var fullUntil = MonotonicTime(nanos: .min / 2)

    /// Tokens that are remembered at most, about 400 KB; beyond that the pushes that were refused
    /// still wait, each by itself.
    static let tokensMax = 10_000

    var isEmpty: Bool { until.isEmpty }

    /// Nothing for this address before that time.
    mutating func hold(_ address: DeviceAddress, until time: MonotonicTime, at now: MonotonicTime) {
        if until.count >= Self.tokensMax {
            // Looking through all of them is worth it once in a while.
            guard now >= fullUntil else { return }
            fullUntil = now + .seconds(1)
            until = until.filter { $0.value > now }
            guard until.count < Self.tokensMax else { return }
        }
        let name = Self.name(address)
        until[name] = max(until[name] ?? time, time)
    }

    /// How long an address has to wait; nil when it need not.
    mutating func wait(_ address: DeviceAddress, at now: MonotonicTime) -> TimeSpan? {
        let name = Self.name(address)
        guard let time = until[name] else { return nil }
        guard time > now else {
            until[name] = nil
            return nil
        }
        return time - now
    }

    /// The first eight bytes of the token's hash.
    private static func name(_ address: DeviceAddress) -> UInt64 {
        address.withTokenHash { $0.loadUnaligned(as: UInt64.self) }
    }
}
