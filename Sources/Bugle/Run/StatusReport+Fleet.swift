// The fleet's part of a status: this replica's place in it, and what it knows of the others.

internal import Base
internal import JSON
internal import Pipeline
internal import Synchronization
internal import Telemetry

extension StatusReport {
    /// What operators ask for now.
    func writeLevers(to bytes: ByteWriter) {
        let now = SystemTime.shared.wall
        let book = fleet()?.view.book ?? ControlBook()
        array(book.pauses(at: now) + book.skips(at: now), to: bytes) { $0.write(to: bytes) }
    }

    /// What is wrong with the fleet as a whole.
    var fleetProblems: [ReplicaReport.Problem] {
        guard let view = fleet()?.view else { return [] }
        return ReplicaReport.problems(
            ofFleet: Array(view.replicas.values), view.book, at: SystemTime.shared.wall)
    }

    /// The replicas, this one among them.
    func writeFleet(to bytes: ByteWriter) {
        let now = SystemTime.shared.wall
        let replicas = fleet()?.view.replicas.values.sorted { $0.instance < $1.instance } ?? []
        array(replicas, to: bytes) { $0.write(to: bytes, at: now) }
    }
}

/// Turns the totals of a process into a pace, from one report to the next.
internal final class PaceMeter: Sendable {
    private struct Seen: Sendable {
        var at: MonotonicTime
        var events: Double
        var accepted: Double
    }

    private let seen = Mutex<Seen?>(nil)

    /// Writes the pace since the last call.
    func write(_ registry: MetricsRegistry, to object: inout JSONObjectWriter) {
        let accepted = registry.readings(of: "bugle_outcomes_total").filter {
            $0.label("outcome") == Outcome.accepted.rawValue
        }.reduce(0) { $0 + $1.value }
        let now = Seen(
            at: SystemTime.shared.monotonic,
            events: registry.sum(of: "bugle_events_consumed_total"), accepted: accepted)
        let last = seen.withLock { seen in
            defer { seen = now }
            return seen
        }
        let minutes = last.map { max((now.at - $0.at).seconds, 0.001) / 60 }
        func pace(_ value: Double, _ before: Double?) -> Int64 {
            guard let minutes, let before else { return 0 }
            return Int64((max(value - before, 0) / minutes).rounded())
        }
        object.integer("events_per_minute", pace(now.events, last?.events))
        object.integer("accepted_per_minute", pace(now.accepted, last?.accepted))
    }
}
