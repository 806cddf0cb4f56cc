// Retries: bounded, with full jitter, never sooner than the vendor allows and never beyond the
// event's expiry. Pure.

public import Base
internal import Gateways

/// How often a target is tried, and how long it waits for that in a lane.
public struct RetryPolicy: Sendable, Equatable {
    /// Attempts in all, the first included.
    public var attempts = 3
    /// The first bound of the jitter; it doubles with every attempt.
    public var base = TimeSpan.milliseconds(200)
    /// The longest wait in a lane; what has to wait longer goes through a retry topic.
    public var longestWait = TimeSpan.seconds(5)

    /// The defaults: three attempts, 200 ms, 5 s.
    public init() {}

    /// What becomes of a target that may be tried again.
    internal enum Decision: Equatable {
        /// Try again after this span.
        case wait(TimeSpan)
        /// The wait would outlive the event.
        case expires
        /// Retries are used up.
        case exhausted
    }

    /// Decides on the next attempt after `attempts` made so far.
    internal func decide(
        minimumWait: TimeSpan, attempts: Int, isOneAttempt: Bool, now: UnixMillis,
        expiresAt: UnixMillis, random: inout SeededRandom
    ) -> Decision {
        guard attempts < self.attempts, !isOneAttempt else { return .exhausted }
        let bound = min(base * (1 << Int64(min(max(attempts - 1, 0), 16))), longestWait)
        // The vendor's minimum is never undercut: the jitter comes on top of it.
        let wait = max(minimumWait, .zero) + random.span(upTo: bound)
        return now + wait >= expiresAt ? .expires : .wait(wait)
    }
}
