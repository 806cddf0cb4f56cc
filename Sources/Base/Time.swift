// Time, in the two kinds a sender needs: monotonic time for ages, deadlines and timers, which
// no clock step can disturb, and wall-clock milliseconds for what is written into records and
// tokens. Both come from an injected `TimeSource`, so that a test turns the clock by hand.

#if canImport(Glibc)
    import Glibc
#endif

// Times come from records, headers and answers of others, so they may be absurd: an event that
// expires in the year 9999, a registration in microseconds. Sums, differences and multiples that
// do not fit end at the largest value of their sign.

/// Integers that stay within their range.
@usableFromInline
internal enum Saturated {
    @inlinable
    static func sum(_ left: Int64, _ right: Int64) -> Int64 {
        let (value, overflow) = left.addingReportingOverflow(right)
        return bounded(overflow ? (right < 0 ? -.max : .max) : value)
    }

    @inlinable
    static func difference(_ left: Int64, _ right: Int64) -> Int64 {
        let (value, overflow) = left.subtractingReportingOverflow(right)
        return bounded(overflow ? (right > 0 ? -.max : .max) : value)
    }

    @inlinable
    static func product(_ left: Int64, _ right: Int64) -> Int64 {
        let (value, overflow) = left.multipliedReportingOverflow(by: right)
        return bounded(overflow ? ((left < 0) == (right < 0) ? .max : -.max) : value)
    }

    /// The least of all integers has no magnitude.
    @inlinable
    static func bounded(_ value: Int64) -> Int64 { max(value, -.max) }
}

/// A length of time in whole nanoseconds, up to 292 years.
public struct TimeSpan: Comparable, Hashable, Sendable {
    /// The length in nanoseconds; may be negative.
    public var nanos: Int64

    /// A span of `nanos` nanoseconds.
    @inlinable
    public init(nanos: Int64) { self.nanos = nanos }

    /// No time at all.
    @inlinable public static var zero: TimeSpan { TimeSpan(nanos: 0) }

    /// A span of whole microseconds.
    @inlinable
    public static func microseconds(_ value: Int64) -> TimeSpan {
        TimeSpan(nanos: Saturated.product(value, 1_000))
    }

    /// A span of whole milliseconds.
    @inlinable
    public static func milliseconds(_ value: Int64) -> TimeSpan {
        TimeSpan(nanos: Saturated.product(value, 1_000_000))
    }

    /// A span of whole seconds.
    @inlinable
    public static func seconds(_ value: Int64) -> TimeSpan {
        TimeSpan(nanos: Saturated.product(value, 1_000_000_000))
    }

    /// A span of whole minutes.
    @inlinable
    public static func minutes(_ value: Int64) -> TimeSpan { .seconds(value) * 60 }

    /// A span of whole hours.
    @inlinable
    public static func hours(_ value: Int64) -> TimeSpan { .seconds(value) * 3_600 }

    /// The span in milliseconds, rounded towards zero.
    @inlinable public var millis: Int64 { nanos / 1_000_000 }

    /// The span in seconds.
    @inlinable public var seconds: Double { Double(nanos) / 1e9 }

    /// Order by length.
    @inlinable
    public static func < (left: TimeSpan, right: TimeSpan) -> Bool { left.nanos < right.nanos }

    /// The sum of two spans.
    @inlinable
    public static func + (left: TimeSpan, right: TimeSpan) -> TimeSpan {
        TimeSpan(nanos: Saturated.sum(left.nanos, right.nanos))
    }

    /// The difference of two spans.
    @inlinable
    public static func - (left: TimeSpan, right: TimeSpan) -> TimeSpan {
        TimeSpan(nanos: Saturated.difference(left.nanos, right.nanos))
    }

    /// A multiple of a span.
    @inlinable
    public static func * (left: TimeSpan, right: Int64) -> TimeSpan {
        TimeSpan(nanos: Saturated.product(left.nanos, right))
    }

    /// A fraction of a span, rounded towards zero.
    @inlinable
    public static func / (left: TimeSpan, right: Int64) -> TimeSpan {
        TimeSpan(nanos: left.nanos / right)
    }
}

/// A point on the monotonic clock; comparable only within one process.
public struct MonotonicTime: Comparable, Hashable, Sendable {
    /// Nanoseconds since an arbitrary origin.
    public var nanos: Int64

    /// The point `nanos` nanoseconds after the origin.
    @inlinable
    public init(nanos: Int64) { self.nanos = nanos }

    /// A point later than any that occurs.
    @inlinable public static var distantFuture: MonotonicTime { MonotonicTime(nanos: .max) }

    /// Order in time.
    @inlinable
    public static func < (left: MonotonicTime, right: MonotonicTime) -> Bool {
        left.nanos < right.nanos
    }

    /// The point a span later; `distantFuture` stays where it is.
    @inlinable
    public static func + (left: MonotonicTime, right: TimeSpan) -> MonotonicTime {
        MonotonicTime(nanos: Saturated.sum(left.nanos, right.nanos))
    }

    /// The point a span earlier.
    @inlinable
    public static func - (left: MonotonicTime, right: TimeSpan) -> MonotonicTime {
        MonotonicTime(nanos: Saturated.difference(left.nanos, right.nanos))
    }

    /// The span from `right` to `left`.
    @inlinable
    public static func - (left: MonotonicTime, right: MonotonicTime) -> TimeSpan {
        TimeSpan(nanos: Saturated.difference(left.nanos, right.nanos))
    }
}

/// A point in wall-clock time: milliseconds since the Unix epoch, UTC.
public struct UnixMillis: Comparable, Hashable, Sendable {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    public var value: Int64

    /// The point `value` milliseconds after the epoch.
    @inlinable
    public init(_ value: Int64) { self.value = value }

    /// Whole seconds since the epoch, rounded down.
    @inlinable public var seconds: Int64 { value / 1000 - (value % 1000 < 0 ? 1 : 0) }

    /// Order in time.
    @inlinable
    public static func < (left: UnixMillis, right: UnixMillis) -> Bool { left.value < right.value }

    /// The point a span later, to the millisecond.
    @inlinable
    public static func + (left: UnixMillis, right: TimeSpan) -> UnixMillis {
        UnixMillis(Saturated.sum(left.value, right.millis))
    }

    /// The point a span earlier, to the millisecond.
    @inlinable
    public static func - (left: UnixMillis, right: TimeSpan) -> UnixMillis {
        UnixMillis(Saturated.difference(left.value, right.millis))
    }

    /// The span from `right` to `left`.
    @inlinable
    public static func - (left: UnixMillis, right: UnixMillis) -> TimeSpan {
        .milliseconds(Saturated.difference(left.value, right.value))
    }
}

/// Where time comes from. Loops read it once per turn and hand the value down.
public protocol TimeSource: AnyObject, Sendable {
    /// The monotonic clock.
    var monotonic: MonotonicTime { get }
    /// The wall clock, which may step.
    var wall: UnixMillis { get }
}

/// The clocks of the operating system.
public final class SystemTime: TimeSource {
    /// The one instance a process needs.
    public static let shared = SystemTime()

    /// A source that reads the system's clocks.
    public init() {}

    /// `CLOCK_MONOTONIC`.
    public var monotonic: MonotonicTime { MonotonicTime(nanos: Self.read(CLOCK_MONOTONIC)) }

    /// `CLOCK_REALTIME`, in milliseconds.
    public var wall: UnixMillis { UnixMillis(Self.read(CLOCK_REALTIME) / 1_000_000) }

    private static func read(_ clock: clockid_t) -> Int64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}
