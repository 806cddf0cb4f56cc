// Whether a bulkhead may be sent to. A gateway that is down must not be waited for by event after
// event: after some failures its events are parked in Kafka, one of them now and then is a probe,
// and when a probe is answered the parked ones come back slowly at first. Pure.

internal import Base

/// The breaker of one bulkhead on one lane.
internal struct Breaker {
    enum State: Equatable {
        /// Everything goes.
        case closed
        /// Nothing goes before that time.
        case open(until: MonotonicTime)
        /// One request is on its way to see.
        case probing
    }

    /// What may become of a target now.
    enum Admission: Equatable {
        case go
        /// Send it: its answer decides for all.
        case probe
        case park
    }

    /// What the times without a probe are divided by; 1 outside tests.
    private let divisor: Int64
    private(set) var state = State.closed
    private var failuresInRow = 0
    private var trips = 0
    private var windowStart = MonotonicTime(nanos: .min / 2)
    private var windowFailures = 0
    private var windowAnswers = 0
    private var closedAt = MonotonicTime(nanos: .min / 2)
    /// Parked targets that may come back now, in nanoseconds of the present rate.
    private var returns = 0.0
    private var returnsCountedAt = MonotonicTime(nanos: .min / 2)

    private enum Limits {
        /// So many failures with no success between them open the breaker.
        static let failuresInRow = 10
        /// So does this share of a window that has enough answers.
        static let windowFailures = 20
        static let window = TimeSpan.seconds(10)
        /// The first and the longest time without a probe.
        static let openMin = TimeSpan.seconds(5)
        static let openMax = TimeSpan.seconds(60)
        /// So long after a probe might have gone nobody wants one.
        static let forgotten = TimeSpan.minutes(5)
        /// Parked targets in the first second after a recovery; it doubles with each further one.
        static let returnsInFirstSecond = 20.0
        static let returnsPerSecondMax = 20_000.0
    }

    init(divisor: Int64 = 1) { self.divisor = divisor }

    /// Whether nothing is held back.
    var isClosed: Bool { state == .closed }

    /// What may become of a target. After `probe` exactly one of the other methods has to tell how
    /// it went.
    mutating func admit(at now: MonotonicTime) -> Admission {
        switch state {
        case .closed: return .go
        case .probing: return .park
        case .open(let until):
            guard now >= until else { return .park }
            state = .probing
            return .probe
        }
    }

    /// Whether `admit` would let one through.
    func wouldAdmit(at now: MonotonicTime) -> Bool {
        switch state {
        case .closed: true
        case .probing: false
        case .open(let until): now >= until
        }
    }

    /// Whether it has stayed open for want of anything to probe with: it holds nothing back, and of
    /// the gateway nothing is known since.
    func isForgotten(at now: MonotonicTime) -> Bool {
        guard case .open(let until) = state else { return false }
        return now - until > Limits.forgotten / divisor
    }

    /// The gateway answered, whatever it said about the target.
    mutating func succeeded(at now: MonotonicTime) {
        failuresInRow = 0
        count(failure: false, at: now)
        guard state != .closed else { return }
        state = .closed
        trips = 0
        windowStart = MonotonicTime(nanos: .min / 2)
        closedAt = now
        returns = 0
        returnsCountedAt = now
    }

    /// The gateway failed: no answer, no connection, or an error of its own. True when that opened
    /// the breaker.
    mutating func failed(
        at now: MonotonicTime, using random: inout SeededRandom
    ) -> Bool {
        failuresInRow += 1
        count(failure: true, at: now)
        switch state {
        case .open: return false
        case .probing: break
        case .closed:
            let isMostly =
                windowFailures >= Limits.windowFailures && windowFailures * 2 >= windowAnswers
            guard failuresInRow >= Limits.failuresInRow || isMostly else { return false }
        }
        let wasClosed = state == .closed
        let longest =
            min(Limits.openMin * (1 << Int64(min(trips, 10))), Limits.openMax) / divisor
        trips += 1
        // Lanes and replicas must not all look at the same moment.
        state = .open(until: now + longest / 2 + random.span(upTo: longest / 2))
        return wasClosed
    }

    /// The probe ended without a word about the gateway: the next one may look.
    mutating func probeWasted(at now: MonotonicTime) {
        if state == .probing { state = .open(until: now) }
    }

    /// Takes one of the parked targets that may come back now; false when there is none yet.
    mutating func takeReturn(at now: MonotonicTime) -> Bool {
        guard state == .closed else { return false }
        let rate = min(
            Limits.returnsInFirstSecond * Self.power(of: (now - closedAt).seconds),
            Limits.returnsPerSecondMax)
        let span = min(max((now - returnsCountedAt).seconds, 0), 1)
        returns = min(returns + rate * span, max(rate / 10, 1))
        returnsCountedAt = now
        guard returns >= 1 else { return false }
        returns -= 1
        return true
    }

    /// 2 to the power of whole seconds, without overflow.
    private static func power(of seconds: Double) -> Double {
        Double(1 << Int(min(max(seconds, 0), 30)))
    }

    private mutating func count(failure: Bool, at now: MonotonicTime) {
        if now - windowStart > Limits.window {
            windowStart = now
            windowFailures = 0
            windowAnswers = 0
        }
        windowAnswers += 1
        if failure { windowFailures += 1 }
    }
}
