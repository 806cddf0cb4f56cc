// What a process remembers of its own counters, so that it can tell what went wrong lately and what
// has lasted. Prometheus does the same for a whole fleet; this is for whoever has none at hand.

internal import Base
internal import Synchronization
internal import Telemetry

/// The totals of the last hour, one sample a minute, and since when conditions hold. Safe on any
/// thread.
internal final class StatusHistory: Sendable {
    /// What is counted.
    enum Kind: Sendable {
        case pushes, deadTokens, failures, acceptedByFCM, unseen
        case connectFailures, deadLetters, uncounted, skippedRecords, misrouted
    }

    /// One sum, and whose it is, in the words that a person gets to read.
    struct Tally: Hashable, Sendable {
        var kind: Kind
        var subject = ""
    }

    private struct Sample: Sendable {
        var at: MonotonicTime
        /// Without those that are 0: most of what can go wrong never does.
        var totals: [Tally: Double]
    }

    private struct State: Sendable {
        var samples: [Sample] = []
        var holdsSince: [ReplicaReport.Problem: MonotonicTime] = [:]
    }

    private let state = Mutex(State())

    private static let interval = TimeSpan.minutes(1)
    private static let kept = TimeSpan.hours(1)

    /// By how much sums have grown since a moment in the past. A process that is younger has
    /// counted all of it since its start.
    struct Growth {
        fileprivate let now: [Tally: Double]
        fileprivate let samples: [(at: MonotonicTime, totals: [Tally: Double])]
        fileprivate let at: MonotonicTime

        /// The growth of a sum in a window of at most an hour that ends now.
        func of(_ tally: Tally, in window: TimeSpan) -> Double {
            let before = samples.last { at - $0.at >= window }?.totals[tally] ?? 0
            return max((now[tally] ?? 0) - before, 0)
        }

        /// The subjects that have grown in a window, in order.
        func subjects(_ kind: Kind, in window: TimeSpan) -> [(subject: String, by: Double)] {
            now.keys.filter { $0.kind == kind }.sorted { $0.subject < $1.subject }
                .map { ($0.subject, of($0, in: window)) }.filter { $0.by > 0 }
        }
    }

    /// Reads the counters, and keeps them if a minute has passed.
    func growth(_ registry: MetricsRegistry, at now: MonotonicTime) -> Growth {
        let totals = Self.totals(registry)
        let samples = state.withLock { state in
            let before = state.samples
            if before.last.map({ now - $0.at >= Self.interval }) ?? true {
                state.samples.append(Sample(at: now, totals: totals))
                // The newest of those beyond the hour is what the whole hour is measured from.
                let old = state.samples.lastIndex { now - $0.at >= Self.kept } ?? 0
                state.samples.removeFirst(old)
            }
            return before
        }
        return Growth(now: totals, samples: samples.map { ($0.at, $0.totals) }, at: now)
    }

    /// Takes in which conditions hold now, and returns for how long each of them has. One that is
    /// not among them begins anew when it comes back.
    func lasting(
        _ conditions: [ReplicaReport.Problem], at now: MonotonicTime
    ) -> [ReplicaReport.Problem: TimeSpan] {
        state.withLock { state in
            let since = state.holdsSince
            state.holdsSince = Dictionary(
                conditions.map { ($0, since[$0] ?? now) }, uniquingKeysWith: { first, _ in first })
            return state.holdsSince.mapValues { now - $0 }
        }
    }

    private static func totals(_ registry: MetricsRegistry) -> [Tally: Double] {
        var totals: [Tally: Double] = [:]
        func add(_ kind: Kind, _ subject: String, _ value: Double) {
            if value > 0 { totals[Tally(kind: kind, subject: subject), default: 0] += value }
        }
        for reading in registry.readings(of: "bugle_outcomes_total") {
            let place = "\(reading.label("gateway")) of \(reading.label("app"))"
            add(.pushes, place, reading.value)
            switch Outcome(rawValue: reading.label("outcome")) {
            case .tokenInvalid: add(.deadTokens, place, reading.value)
            case .failed, .unknown, .rejected: add(.failures, place, reading.value)
            case .accepted where reading.label("gateway") == "fcm":
                add(.acceptedByFCM, reading.label("app"), reading.value)
            default: break
            }
        }
        for reading in registry.readings(of: "bugle_fcm_high_without_display_total") {
            add(.unseen, reading.label("app"), reading.value)
        }
        for reading in registry.readings(of: "bugle_connect_failures_total") {
            add(
                .connectFailures,
                "\(reading.label("host")) for \(reading.label("gateway")) of "
                    + reading.label("app"),
                reading.value)
        }
        for reading in registry.readings(of: "bugle_dead_letters_total") {
            add(.deadLetters, reading.label("code"), reading.value)
        }
        for reading in registry.readings(of: "bugle_events_misrouted_total") {
            add(.misrouted, reading.label("source"), reading.value)
        }
        add(.uncounted, "", registry.sum(of: "bugle_caps_uncounted_total"))
        add(.skippedRecords, "", registry.sum(of: "bugle_index_records_skipped_total"))
        return totals
    }
}
