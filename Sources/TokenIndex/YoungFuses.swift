// Fuses that too many verdicts speak against, some of which do not weigh yet.

internal import Base

/// Remembers when to weigh them again: no further verdict may come. A value.
internal struct YoungFuses: Sendable {
    private var fuses: [FuseName: (reason: String, dueAt: UnixMillis)] = [:]

    mutating func add(_ name: FuseName, _ reason: String, at now: UnixMillis) {
        // The first one waits longest, and by then the others may be old enough.
        let dueAt = fuses[name]?.dueAt ?? now + FusePolicy.weighedAfter
        fuses[name] = (reason, dueAt)
    }

    /// Those whose time has come, with the reason that was given last.
    mutating func due(at now: UnixMillis) -> [(FuseName, String)] {
        guard !fuses.isEmpty else { return [] }
        let due = fuses.filter { $0.value.dueAt <= now }
        for name in due.keys { fuses[name] = nil }
        return due.map { ($0.key, $0.value.reason) }
    }
}
