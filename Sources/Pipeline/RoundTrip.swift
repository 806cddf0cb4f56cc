// How long answers take, and whether that is as long as ever: the sign of overload that comes
// before a gateway asks for less. Pure.

internal import Base

/// The round trip of one pool, from HEADERS to the answer.
internal struct RoundTrip {
    /// Smoothed over the last answers; zero before the first.
    private(set) var smoothed = TimeSpan.zero
    /// What it is without overload: the lowest, which follows one that stays higher within some
    /// minutes.
    private(set) var usual = TimeSpan.zero
    private var followedAt = MonotonicTime(nanos: .min / 2)

    private enum Limits {
        /// The share of a new answer, as a divisor.
        static let smoothing: Int64 = 16
        /// Up to so many times the usual round trip, and so much more, is as long as ever.
        static let factor: Int64 = 2
        static let slack = TimeSpan.milliseconds(20)
        /// How often, and with which share as a divisor, the usual one follows.
        static let followInterval = TimeSpan.seconds(1)
        static let following: Int64 = 64
    }

    /// Whether answers take about as long as ever. While they take longer, more requests at once
    /// would only wait at the other end.
    var isUsual: Bool { smoothed <= usual * Limits.factor + Limits.slack }

    /// An answer came.
    mutating func answered(after span: TimeSpan, at now: MonotonicTime) {
        guard smoothed > .zero else {
            smoothed = span
            usual = span
            return
        }
        smoothed = smoothed + (span - smoothed) / Limits.smoothing
        if smoothed < usual {
            usual = smoothed
        } else if now - followedAt >= Limits.followInterval {
            followedAt = now
            usual = usual + (smoothed - usual) / Limits.following
        }
    }
}
