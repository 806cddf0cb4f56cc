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

    /// Nothing is left on the key; it may come back.
    mutating func end() {
        current = []
        former = []
        count = 0
        gauge.set(0)
    }

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

/// What a lane counts for the VAPID keys of an app. One that stays when keys are replaced goes on
/// counting, and one that comes back counts where it did: a registry keeps for ever what it has
/// handed out. Loop-confined.
internal final class VAPIDKeyCounts {
    /// The counts of one key.
    final class Entry {
        /// Pushes that it signed for.
        let pushes: Counter
        /// Distinct subscriptions.
        fileprivate(set) var use: KeyUse

        fileprivate init(_ id: String, app: String, _ registry: MetricsRegistry) {
            let labels = [("app", app), ("vapid_key", id)]
            pushes = registry.counter(
                "bugle_webpush_built_total", help: "Web pushes built, by VAPID key.",
                labels: labels)
            let gauge = registry.gauge(
                "bugle_webpush_subscriptions",
                help: "Subscriptions sent to within the last half day to day, by VAPID key.",
                labels: labels)
            use = KeyUse(gauge, at: SystemTime.shared.monotonic)
        }

        /// Counts a push to a subscription, by the beginning of its endpoint's hash.
        func count(_ name: UInt64, at now: MonotonicTime) {
            pushes.add(1)
            use.used(name, at: now)
        }

        /// Takes a subscription back that turned out to be another key's.
        func mistaken(_ name: UInt64) { use.mistaken(name) }
    }

    private let app: String
    private let registry: MetricsRegistry
    private var entries: [String: Entry] = [:]

    init(app: String, _ registry: MetricsRegistry) {
        self.app = app
        self.registry = registry
    }

    deinit {
        for entry in entries.values { entry.use.end() }
    }

    /// The counts of the keys in use from now on, in the given order.
    func take(_ ids: [String]) -> [Entry] {
        for (id, entry) in entries where !ids.contains(id) { entry.use.end() }
        return ids.map { id in
            if let entry = entries[id] { return entry }
            let entry = Entry(id, app: app, registry)
            entries[id] = entry
            return entry
        }
    }
}
