// A gateway may ask that all of a project's pushes wait, not only the one it answers.

internal import Base

/// The pause of one project at a gateway, as a lane knows it. Loop-confined.
internal final class ProjectRest {
    @exclusivity(unchecked) private var until: MonotonicTime?
    /// Answers without an acceptance between them that speak of a rate and not of whose.
    @exclusivity(unchecked) private var throttledInRow = 0

    private static let throttledInRowMax = 5

    /// How long nothing may be sent; nil when something may.
    func left(at now: MonotonicTime) -> TimeSpan? {
        guard let until else { return nil }
        if now < until { return until - now }
        self.until = nil
        return nil
    }

    /// The gateway has asked for a pause: of the project, or of nobody in particular, which several
    /// have to hear before it is believed of all. One device's quota must not stop the others.
    func throttled(for wait: TimeSpan, isProject: Bool, at now: MonotonicTime) {
        throttledInRow += 1
        guard isProject || throttledInRow >= Self.throttledInRowMax else { return }
        until = max(until ?? now, now + wait)
    }

    /// The gateway took something.
    func accepted() { throttledInRow = 0 }
}
