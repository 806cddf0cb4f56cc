// Misrouted records by the publisher that sent them: a label that comes out of data, so there is a
// bound on how many there can be, for the process as a whole.

internal import Base
internal import Synchronization
internal import Telemetry

/// Counters of misrouted records. Safe on any thread; lanes keep what they got.
internal final class MisroutedCounters: Sendable {
    private let registry: MetricsRegistry
    private let others: Counter
    private let counters = Mutex<[String: Counter]>([:])

    /// Sources with a series of their own; all others share one.
    static let sourcesMax = 16

    init(_ registry: MetricsRegistry) {
        self.registry = registry
        // The series is there before anything is wrong.
        others = Self.make("other", registry)
    }

    /// The counter of a source.
    func counter(of source: String) -> Counter {
        guard Self.isPlain(source), source != "other" else { return others }
        return counters.withLock { counters in
            if let counter = counters[source] { return counter }
            guard counters.count < Self.sourcesMax else { return others }
            let counter = Self.make(source, registry)
            counters[source] = counter
            return counter
        }
    }

    /// Names of services are short and plain; anything else may be anything.
    private static func isPlain(_ source: String) -> Bool {
        (1...64).contains(source.utf8.count)
            && source.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D...0x2F, 0x3A, 0x5F: true
                default: false
                }
            }
    }

    private static func make(_ source: String, _ registry: MetricsRegistry) -> Counter {
        registry.counter(
            "bugle_events_misrouted_total",
            help: "Records whose partition is not murmur2 of their user, extrapolated from 1 in "
                + "16, by source; the first 16 sources have a series of their own.",
            labels: [("source", source)])
    }
}
