// When to ask for the map of a cluster again. Pure: events in, one action out. Whatever hints that
// the map is old asks for a new one; questions never overlap, keep a distance, and go on with
// growing waits while something is missing.

internal import Base

internal struct MapRefresh {
    enum Action: Equatable {
        case none
        case ask
        /// Call `waited` after so long; replaces an earlier wait.
        case wait(TimeSpan)
    }

    private enum Phase { case resting, asking, waiting }

    private var phase = Phase.resting
    private var askedAt: MonotonicTime?
    private var isWantedAgain = false
    /// Questions in a row after which something was still missing.
    private(set) var failures = 0

    /// Something hints that the map is old.
    mutating func wanted(at now: MonotonicTime) -> Action {
        switch phase {
        case .waiting: return .none
        case .asking:
            isWantedAgain = true
            return .none
        case .resting:
            if let askedAt, now - askedAt < RedisLimits.mapGap {
                phase = .waiting
                return .wait(askedAt + RedisLimits.mapGap - now)
            }
            return ask(at: now)
        }
    }

    mutating func waited(at now: MonotonicTime) -> Action {
        phase == .asking ? .none : ask(at: now)
    }

    /// The question was answered, or came to nothing. `isWhole`: every slot has a node that is
    /// connected.
    mutating func finished(isWhole: Bool, _ random: inout SeededRandom) -> Action {
        guard phase == .asking else { return .none }
        failures = isWhole ? 0 : failures + 1
        if isWhole && !isWantedAgain {
            phase = .resting
            return .wait(RedisLimits.mapInterval)
        }
        isWantedAgain = false
        phase = .waiting
        let doublings = Int64(min(max(failures - 1, 0), 10))
        let full = min(RedisLimits.mapGap * (1 << doublings), RedisLimits.mapRetryMax)
        return .wait(isWhole ? full : full / 2 + random.span(upTo: full / 2))
    }

    private mutating func ask(at now: MonotonicTime) -> Action {
        phase = .asking
        isWantedAgain = false
        askedAt = now
        return .ask
    }
}
