internal import Base

/// When a pool may try its next connection: full jitter after failures, a cap on the pace, a pause
/// when the peer asks for calm, and a halt when it refuses the credentials. Pure.
struct ReconnectDelay {
    private let policy: PoolPolicy
    private(set) var failures = 0
    private(set) var calms = 0
    private(set) var isSuspended = false
    /// When as many attempts as were made are paid for, at one per `dialInterval`.
    private var paidAt = MonotonicTime(nanos: .min / 2)
    private var backedOffUntil = MonotonicTime(nanos: .min)
    private var calmUntil = MonotonicTime(nanos: .min)
    private var suspendedUntil = MonotonicTime(nanos: .min)

    init(policy: PoolPolicy) { self.policy = policy }

    /// The earliest time of the next attempt.
    var earliest: MonotonicTime {
        let burst = failures == 0 ? max(policy.dialBurst, 1) : 1
        let paced = paidAt - policy.dialInterval * Int64(burst - 1)
        let base = max(paced, max(backedOffUntil, calmUntil))
        return isSuspended ? max(base, suspendedUntil) : base
    }

    mutating func attempted(at now: MonotonicTime) {
        paidAt = max(paidAt, now) + policy.dialInterval
        // The one look of a suspended pool: the next is as far away again.
        if isSuspended { suspendedUntil = now + policy.suspendedRetry }
    }

    /// A connection failed before it was of any use.
    mutating func failed(at now: MonotonicTime, using random: inout SeededRandom) {
        let doublings = min(failures, 20)
        let ceiling = min(
            policy.reconnectDelayMax.nanos, policy.reconnectDelayMin.nanos << Int64(doublings))
        failures += 1
        backedOffUntil = max(backedOffUntil, now + random.span(upTo: TimeSpan(nanos: ceiling)))
    }

    /// The peer asked for calm; answers the pause.
    mutating func calmed(at now: MonotonicTime) -> TimeSpan {
        let pause = min(policy.calmDelay * (1 << Int64(min(calms, 8))), policy.calmDelay * 10)
        calms += 1
        calmUntil = max(calmUntil, now + pause)
        return pause
    }

    /// The peer refuses our credentials.
    mutating func credentialsRefused(at now: MonotonicTime) {
        isSuspended = true
        suspendedUntil = now + policy.suspendedRetry
    }

    /// The gateway answered a request.
    mutating func succeeded() {
        failures = 0
        calms = 0
        isSuspended = false
        backedOffUntil = MonotonicTime(nanos: .min)
    }

    /// Somebody else decides when to try again; the next failure counts on from the last.
    mutating func forgetBackOff() { backedOffUntil = MonotonicTime(nanos: .min) }

    /// The credentials were replaced: nothing learned with the old ones counts.
    mutating func credentialsReplaced() {
        isSuspended = false
        failures = 0
        backedOffUntil = MonotonicTime(nanos: .min)
    }
}

/// The pool's own stream limit after ENHANCE_YOUR_CALM: halved each time, doubled for each quiet
/// minute until it no longer binds. Pure.
struct CalmCap {
    private static let recovery = TimeSpan.minutes(1)
    private var cap = Int.max
    private var changedAt = MonotonicTime(nanos: 0)

    /// The limit for one connection at a time.
    mutating func value(at now: MonotonicTime) -> Int {
        while cap != .max, now >= changedAt + Self.recovery {
            let (doubled, overflow) = cap.multipliedReportingOverflow(by: 2)
            cap = overflow || doubled > 1 << 20 ? .max : doubled
            changedAt = changedAt + Self.recovery
        }
        return cap
    }

    mutating func halve(streams: Int, at now: MonotonicTime) {
        cap = max(1, min(cap, streams) / 2)
        changedAt = now
    }
}
