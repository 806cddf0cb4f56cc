import Base
import Testing

@testable import Pipeline
@testable import Telemetry

@Suite struct `Subscriptions on a VAPID key` {
    private let start = MonotonicTime(nanos: 0)

    @Test func `are counted once, and forgotten within a day`() {
        let gauge = MetricsRegistry().gauge("bugle_test", help: "A number.")
        var use = KeyUse(gauge, at: start)
        for name in [1, 2, 1, 3] as [UInt64] { use.used(name, at: start) }
        #expect(gauge.value == 3)
        // The next half day: those of the one before still count, once.
        let later = start + KeyUse.period
        use.used(1, at: later)
        use.used(4, at: later)
        #expect(gauge.value == 4)
        // The half day after that knows 1 and 4 alone.
        use.used(5, at: later + KeyUse.period)
        #expect(gauge.value == 3)
        // After a long silence nothing of before is left.
        use.used(6, at: later + KeyUse.period * 5)
        #expect(gauge.value == 1)
        use.end()
        #expect(gauge.value == 0)
        use.used(6, at: later + KeyUse.period * 5)
        #expect(gauge.value == 1)
    }

    @Test func `are not counted where they were tried in vain`() {
        let gauge = MetricsRegistry().gauge("bugle_test", help: "A number.")
        var use = KeyUse(gauge, at: start)
        for name in [1, 2, 3] as [UInt64] { use.used(name, at: start) }
        for name in [2, 2, 9] as [UInt64] { use.mistaken(name) }
        #expect(gauge.value == 2)
        use.used(2, at: start)
        #expect(gauge.value == 3)
    }

    @Test func `are bounded`() {
        let gauge = MetricsRegistry().gauge("bugle_test", help: "A number.")
        var use = KeyUse(gauge, at: start)
        for name in 0..<UInt64(KeyUse.subscriptionsMax + 50) { use.used(name, at: start) }
        #expect(gauge.value == Int64(KeyUse.subscriptionsMax))
    }

    @Test func `go on where they were when a key stays or comes back`() {
        let registry = MetricsRegistry()
        let counts = VAPIDKeyCounts(app: "shop", registry)
        func subscriptions() -> [String: Double] {
            Dictionary(
                uniqueKeysWithValues: registry.readings(of: "bugle_webpush_subscriptions").map {
                    ($0.label("vapid_key"), $0.value)
                })
        }
        let now = SystemTime.shared.monotonic
        for entry in counts.take(["v1", "v2"]) {
            for name in 1...2 as ClosedRange<UInt64> { entry.count(name, at: now) }
        }
        #expect(subscriptions() == ["v1": 2, "v2": 2])
        for entry in counts.take(["v3", "v1"]) { entry.count(2, at: now) }
        #expect(subscriptions() == ["v1": 2, "v2": 0, "v3": 1])
        for entry in counts.take(["v2"]) { entry.count(3, at: now) }
        #expect(subscriptions() == ["v1": 0, "v2": 1, "v3": 0])
        #expect(registry.sum(of: "bugle_webpush_built_total") == 7)
        #expect(registry.snapshot().allSatisfy { $0.series.allSatisfy { $0.shards.count == 1 } })
    }
}
