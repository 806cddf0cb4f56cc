// When to connect, when to wait and for how long. Pure: events in, one action out.

internal import Base

internal struct ReconnectState {
    enum Phase: Equatable {
        case idle, dialing, greeting
        case ready(since: MonotonicTime)
        case waiting, closed
    }

    enum Action: Equatable {
        case none
        case dial
        case wait(TimeSpan)
    }

    private(set) var phase = Phase.idle
    /// Attempts in a row that came to nothing.
    private(set) var failures = 0
    private var dialedAt = MonotonicTime(nanos: 0)

    var isReady: Bool {
        if case .ready = phase { return true }
        return false
    }

    mutating func started(at now: MonotonicTime) -> Action {
        phase == .idle ? dial(at: now) : .none
    }

    mutating func connected() {
        if phase == .dialing { phase = .greeting }
    }

    mutating func greeted(at now: MonotonicTime) {
        guard phase == .greeting else { return }
        phase = .ready(since: now)
    }

    /// A dial, a greeting or a connection in use ended.
    mutating func failed(at now: MonotonicTime, _ random: inout SeededRandom) -> Action {
        switch phase {
        case .idle, .waiting, .closed: return .none
        case .ready(let since) where now - since >= RedisLimits.steadySpan:
            failures = 0
            return dial(at: now)
        case .dialing, .greeting, .ready:
            failures += 1
            phase = .waiting
            // An attempt that ran into its time limit has waited already.
            return .wait(max(.zero, delay(&random) - (now - dialedAt)))
        }
    }

    mutating func waited(at now: MonotonicTime) -> Action {
        phase == .waiting ? dial(at: now) : .none
    }

    mutating func closed() { phase = .closed }

    private mutating func dial(at now: MonotonicTime) -> Action {
        phase = .dialing
        dialedAt = now
        return .dial
    }

    /// Doubles from the least to the longest wait; the upper half of each is jitter, so that the
    /// lanes of a fleet do not come back in one moment.
    private func delay(_ random: inout SeededRandom) -> TimeSpan {
        let doublings = Int64(min(failures - 1, 10))
        let full = min(
            RedisLimits.reconnectDelayMin * (1 << doublings), RedisLimits.reconnectDelayMax)
        return full / 2 + random.span(upTo: full / 2)
    }
}
