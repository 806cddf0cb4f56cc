public import Base
internal import Synchronization

/// A log for one call site that may be reached often: at most so many lines an interval; the
/// first line after a pause says how many were suppressed.
public final class RateLimitedLog: Sendable {
    private struct State: Sendable {
        var windowEnd: MonotonicTime?
        var written = 0
        var suppressed = 0
    }

    private let log: Log
    private let limit: Int
    private let interval: TimeSpan
    private let state = Mutex(State())

    /// At most `limit` lines in each `interval`, on the clock of `log`.
    public init(_ log: Log, limit: Int = 1, interval: TimeSpan = .seconds(10)) {
        precondition(limit > 0 && interval > .zero)
        self.log = log
        self.limit = limit
        self.interval = interval
    }

    /// Writes a line of the level, unless the interval has had its lines.
    public func write(
        _ level: LogLevel, _ message: @autoclosure () -> String,
        _ fields: @autoclosure () -> Log.Fields = [:]
    ) {
        guard level >= log.level, let suppressed = admit(at: log.time.monotonic) else { return }
        log.write(level, message(), fields(), suppressed: suppressed)
    }

    /// Writes a warning, unless the interval has had its lines.
    public func warning(
        _ message: @autoclosure () -> String, _ fields: @autoclosure () -> Log.Fields = [:]
    ) {
        write(.warning, message(), fields())
    }

    /// Writes an error, unless the interval has had its lines.
    public func error(
        _ message: @autoclosure () -> String, _ fields: @autoclosure () -> Log.Fields = [:]
    ) {
        write(.error, message(), fields())
    }

    /// The number of lines suppressed since the last one, or nil when this one is suppressed too.
    private func admit(at now: MonotonicTime) -> Int? {
        state.withLock { state in
            if state.windowEnd.map({ now >= $0 }) ?? true {
                state.windowEnd = now + interval
                state.written = 0
            }
            if state.written == limit {
                state.suppressed += 1
                return nil
            }
            state.written += 1
            defer { state.suppressed = 0 }
            return state.suppressed
        }
    }
}
