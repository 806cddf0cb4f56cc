import Synchronization

/// A clock that moves only when told to: for tests and simulations.
///
/// Monotonic and wall time advance together; `step(wall:)` moves the wall clock alone, as an NTP
/// correction does.
public final class ManualTime: TimeSource {
    private struct Reading: Sendable {
        var monotonic: MonotonicTime
        var wall: UnixMillis
        /// Nanoseconds of advances that did not yet make a whole wall-clock millisecond.
        var remainder: Int64 = 0
    }

    private let reading: Mutex<Reading>

    /// A clock that stands at the given points.
    public init(
        monotonic: MonotonicTime = MonotonicTime(nanos: 1_000_000_000_000),
        wall: UnixMillis = UnixMillis(1_735_689_600_000)
    ) {
        reading = Mutex(Reading(monotonic: monotonic, wall: wall))
    }

    /// The monotonic clock.
    public var monotonic: MonotonicTime { reading.withLock { $0.monotonic } }

    /// The wall clock.
    public var wall: UnixMillis { reading.withLock { $0.wall } }

    /// Moves both clocks forward.
    public func advance(by span: TimeSpan) {
        precondition(span.nanos >= 0, "monotonic time never goes back")
        reading.withLock {
            $0.monotonic = $0.monotonic + span
            $0.remainder += span.nanos
            $0.wall.value += $0.remainder / 1_000_000
            $0.remainder %= 1_000_000
        }
    }

    /// Steps the wall clock alone, forwards or backwards.
    public func step(wall span: TimeSpan) {
        reading.withLock { $0.wall = $0.wall + span }
    }
}
