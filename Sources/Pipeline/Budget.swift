// How many requests of one bulkhead may be under way: a bound that belongs to it alone, lowered
// when the gateway says or shows that it is too much, and raised again while it answers. Pure.

internal import Base
internal import Kafka

/// The budget of one bulkhead on one lane.
internal struct Budget {
    /// Never more than this.
    let maximum: Int
    private(set) var limit: Double
    private(set) var inFlight = 0
    private var loweredAt = MonotonicTime(nanos: .min / 2)

    private enum Limits {
        /// Never less than this, so that recovery is noticed.
        static let minimum = 10.0
        /// What is left of the limit after a sign of overload.
        static let factor = 0.7
        /// A burst of equal answers is one sign.
        static let interval = TimeSpan.seconds(1)
    }

    init(maximum: Int) {
        self.maximum = maximum
        limit = Double(maximum)
    }

    /// Whether a request of that class may be written: the last part of the room is for those that
    /// are more urgent.
    func hasRoom(for eventClass: EventClass) -> Bool {
        let share =
            switch eventClass {
            case .critical: 1.0
            case .transactional: 0.9
            case .marketing: 0.6
            }
        return Double(inFlight) < max(limit * share, 1)
    }

    mutating func took() { inFlight += 1 }

    /// A request is over; `grows` when it was answered well.
    mutating func gave(grows: Bool) {
        inFlight -= 1
        if grows, limit < Double(maximum) { limit = min(limit + 1 / limit * 4, Double(maximum)) }
    }

    /// The gateway asked for less, or did not answer in time.
    mutating func lower(at now: MonotonicTime) {
        guard now - loweredAt > Limits.interval else { return }
        loweredAt = now
        limit = max(min(limit, Double(max(inFlight, 1))) * Limits.factor, Limits.minimum)
    }
}
