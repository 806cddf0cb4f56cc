internal import Base

/// How many connections a pool should have. Pure: counts and times in, one decision out.
///
/// Connections are dialled only for requests: the minimum while there are any, one more at a time
/// while all are at their limit and requests keep waiting, never beyond the maximum. What has
/// grown is retired after long low use.
struct PoolPlan {
    /// The pool as it stands.
    struct Census: Equatable {
        /// Connections on their way to their first SETTINGS.
        var opening = 0
        /// Open connections, the aged ones included.
        var open = 0
        /// Open connections that should be replaced.
        var aged = 0
        /// Streams all open connections may have.
        var capacity = 0
        var inFlight = 0
        var queued = 0
        /// How long the oldest queued request has waited.
        var oldestWait = TimeSpan.zero
        /// Whether an open connection could take a request at once.
        var hasRoom = false
    }

    enum Decision: Equatable {
        case nothing
        case dial
        /// Dial at that time, if it is still wanted.
        case dialAt(MonotonicTime)
        /// Drain the least used connection.
        case retire
        /// Drain an aged connection: its replacement is open.
        case retireAged
    }

    private let policy: PoolPolicy
    private var pressureSince: MonotonicTime?
    private var lowUseSince: MonotonicTime?

    init(policy: PoolPolicy) { self.policy = policy }

    mutating func decide(
        _ census: Census, earliestDial: MonotonicTime, at now: MonotonicTime
    ) -> Decision {
        notePressure(census, at: now)
        noteUse(census, at: now)
        let isIdle = census.queued + census.inFlight == 0
        if census.aged > 0, isIdle || census.open - census.aged >= policy.connectionsMin {
            return .retireAged
        }
        if wantsConnection(census, at: now) {
            if now < earliestDial { return .dialAt(earliestDial) }
            pressureSince = nil
            return .dial
        }
        if let lowUseSince, now >= lowUseSince + policy.shrinkAfter {
            self.lowUseSince = now
            return .retire
        }
        return .nothing
    }

    /// The next time at which `decide` may come to another result by itself.
    var nextTime: MonotonicTime {
        let growth = pressureSince.map { $0 + policy.growthPressure } ?? .distantFuture
        let shrink = lowUseSince.map { $0 + policy.shrinkAfter } ?? .distantFuture
        return min(growth, shrink)
    }

    private func wantsConnection(_ census: Census, at now: MonotonicTime) -> Bool {
        guard census.opening == 0, census.queued + census.inFlight > 0 else { return false }
        let fresh = census.open - census.aged
        if fresh < policy.connectionsMin { return true }
        guard let pressureSince, census.open < policy.connectionsMax else { return false }
        return now >= pressureSince + policy.growthPressure
    }

    private mutating func notePressure(_ census: Census, at now: MonotonicTime) {
        let isPressed =
            census.queued > 0 && !census.hasRoom && census.open > 0
            && census.oldestWait > policy.growthWait
        pressureSince = isPressed ? pressureSince ?? now : nil
    }

    private mutating func noteUse(_ census: Census, at now: MonotonicTime) {
        let isLow =
            census.open > policy.connectionsMin
            && Double(census.inFlight) < Double(census.capacity) * policy.shrinkBelow
        lowUseSince = isLow ? lowUseSince ?? now : nil
    }
}
