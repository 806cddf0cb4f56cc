// How fast a pool takes requests, and whether more of them would help it. Work that is read
// before a stream is free for it only grows old, leaves the processor's caches and takes memory;
// it is better kept in Kafka.

internal import Base
internal import EventLoop
internal import HTTP2

/// One pool of a lane as the lane's reading sees it. Loop-confined.
internal final class PoolPace {
    let pool: HTTP2Pool
    /// Whether the credential that its connections are bound to was replaced; it takes nothing new.
    private(set) var isRetired = false
    /// Requests, or messages of requests to come, that wait in front of the pool.
    @exclusivity(unchecked) var waitingElsewhere = 0
    /// When a request was submitted last.
    @exclusivity(unchecked) private(set) var lastUse = MonotonicTime(nanos: .min / 2)
    @exclusivity(unchecked) private var lastAnswer = MonotonicTime(nanos: .min / 2)
    @exclusivity(unchecked) private(set) var roundTrip = RoundTrip()

    private enum Limits {
        /// A pool that got no request for so long has no say.
        static let useMemory = TimeSpan.seconds(5)
        /// A pool that answered nothing for so long is not waited for.
        static let answerMemory = TimeSpan.seconds(1)
        /// Requests that may wait in any case.
        static let waiting = 128
        /// From this round trip on a pool may need more connections; it opens them when requests
        /// wait for `growthWait`, so as many are let in.
        static let farRoundTrip = TimeSpan.milliseconds(30)
        static let growthWait = TimeSpan.milliseconds(250)
    }

    init(_ pool: HTTP2Pool) { self.pool = pool }

    /// Sends what it has, then closes its connections.
    func retire() {
        isRetired = true
        pool.drain()
    }

    /// A request was submitted.
    func used(at now: MonotonicTime) { lastUse = now }

    /// An answer came.
    func answered(after span: TimeSpan, at now: MonotonicTime) {
        lastAnswer = now
        roundTrip.answered(after: span, at: now)
    }

    /// What the pool says to reading on.
    enum Vote {
        /// It is not in use.
        case none
        /// It has too little to do, or does nothing at all and must not hold up the others.
        case more
        /// It answers, and enough requests wait for it.
        case enough
    }

    /// `expected` more requests may come of what was read already.
    func vote(expecting expected: Int, at now: MonotonicTime) -> Vote {
        guard now - lastUse < Limits.useMemory else { return .none }
        guard now - lastAnswer < Limits.answerMemory else { return .more }
        return pool.queued + waitingElsewhere + expected < waitingMax ? .more : .enough
    }

    /// As many as are under way keep every stream busy from one turn to the next.
    private var waitingMax: Int {
        var most = max(pool.inFlight, Limits.waiting)
        if roundTrip.smoothed >= Limits.farRoundTrip {
            let wanted = Int64(pool.inFlight) * Limits.growthWait.nanos / roundTrip.smoothed.nanos
            most = max(most, Int(wanted))
        }
        return most
    }
}
