internal import Base

/// Says on standard error how far something is that takes longer than a second: on a terminal one
/// line that changes, elsewhere a line after that second and every ten seconds behind it.
internal final class ProgressLine {
    private let started = SystemTime.shared.monotonic
    private var shownAt: MonotonicTime?
    private let interval: TimeSpan = Terminal.showsProgress ? .milliseconds(200) : .seconds(10)

    /// What takes less is not talked about.
    private static let quiet = TimeSpan.seconds(1)

    /// Shows where it stands, if it is time to.
    func show(_ line: @autoclosure () -> String) {
        let now = SystemTime.shared.monotonic
        guard now - started >= Self.quiet else { return }
        if let shownAt, now - shownAt < interval { return }
        shownAt = now
        Terminal.showsProgress ? Terminal.progress(line()) : Terminal.note(line())
    }

    /// Takes the line away.
    func end() {
        if Terminal.showsProgress, shownAt != nil { Terminal.endProgress() }
        shownAt = nil
    }
}
