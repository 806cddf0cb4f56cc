// What waits for room at a bulkhead. Critical targets do not stand behind others: the last part of the
// room is theirs, and would stay empty while those in front must not have it.

internal import Base

/// Targets in the order in which they came. Everything is O(1) but for the odd move of what is left:
/// a queue of thousands is looked at with every answer.
internal struct TargetQueue {
    /// Those before `head` have left; their places take what is put back.
    private var places: [TargetInFlight] = []
    private var head = 0

    /// So many places may stand empty.
    private static let emptyMax = 256

    var count: Int { places.count - head }
    var isEmpty: Bool { places.count == head }
    var first: TargetInFlight? { head < places.count ? places[head] : nil }

    mutating func append(_ target: TargetInFlight) {
        if head > Self.emptyMax, head > count {
            places.removeFirst(head)
            head = 0
        }
        places.append(target)
    }

    mutating func popFirst() -> TargetInFlight? {
        guard let first else { return nil }
        head += 1
        return first
    }

    /// Puts some in front of all others, in their order.
    mutating func putBack(_ targets: [TargetInFlight]) {
        if targets.count > head {
            places.insert(contentsOf: targets, at: head)
            return
        }
        head -= targets.count
        for (offset, target) in targets.enumerated() { places[head + offset] = target }
    }
}

/// Targets that wait for room, each class in its own order.
internal struct WaitingTargets {
    private var critical = TargetQueue()
    private var transactional = TargetQueue()
    private var marketing = TargetQueue()

    /// The most urgent first: where one has no room those behind it have none either.
    static let classes = [EventClass.critical, .transactional, .marketing]

    var count: Int { critical.count + transactional.count + marketing.count }
    var isEmpty: Bool { critical.isEmpty && transactional.isEmpty && marketing.isEmpty }

    /// Whether none waits that is as urgent as a class, or more.
    func isEmpty(upTo eventClass: EventClass) -> Bool {
        switch eventClass {
        case .critical: critical.isEmpty
        case .transactional: critical.isEmpty && transactional.isEmpty
        case .marketing: isEmpty
        }
    }

    subscript(eventClass: EventClass) -> TargetQueue {
        get {
            switch eventClass {
            case .critical: critical
            case .transactional: transactional
            case .marketing: marketing
            }
        }
        _modify {
            switch eventClass {
            case .critical: yield &critical
            case .transactional: yield &transactional
            case .marketing: yield &marketing
            }
        }
    }
}
