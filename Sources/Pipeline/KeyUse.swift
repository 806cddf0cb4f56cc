// Which subscriptions of browsers are still on which VAPID key: the number that says when an old key
// may go.

internal import Base
internal import Telemetry

/// Distinct subscriptions that were sent to with one key within the last half day to day.
/// Loop-confined; the gauge is read by anybody.
internal struct KeyUse {
    private var current: Set<UInt64> = []
    private var former: Set<UInt64> = []
    private var count = 0
    private var began: MonotonicTime
    private let gauge: Gauge

    /// How long a set is filled before the one before it is forgotten.
    static let period = TimeSpan.hours(12)
    /// Subscriptions of one key that a lane tells apart, in some 2 MB; beyond that the gauge stands
    /// still.
    static let subscriptionsMax = 100_000

    init(_ gauge: Gauge, at now: MonotonicTime) {
        self.gauge = gauge
        began = now
    }

    /// Nothing is counted here any more.
    func end() { gauge.set(0) }

    /// A subscription that was sent to is not on this key after all.
    mutating func mistaken(_ name: UInt64) {
        guard current.remove(name) != nil, !former.contains(name) else { return }
        count -= 1
        gauge.set(count)
    }

    /// A subscription was sent to; `name` is the beginning of its endpoint's hash.
    mutating func used(_ name: UInt64, at now: MonotonicTime) {
        if now - began >= Self.period {
            former = now - began < Self.period * 2 ? current : []
            current = []
            count = former.count
            gauge.set(count)
            began = now
        }
        guard count < Self.subscriptionsMax, current.insert(name).inserted,
            !former.contains(name)
        else { return }
        count += 1
        gauge.set(count)
    }
}
