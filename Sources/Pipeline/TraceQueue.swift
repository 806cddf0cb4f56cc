// What lanes tell of traced events: one value for each, handed over when the event ends. Whoever
// exports it does so on a thread of its own; a full queue drops.

public import Base
internal import Synchronization

/// An event that was traced, from its consumption to its end.
public struct TracedEvent: Sendable {
    /// What was done for one target.
    public struct Target: Sendable {
        /// The gateway.
        public var gateway: Gateway
        /// Its environment.
        public var environment: GatewayEnvironment
        /// The message's id.
        public var messageID: UUIDBytes
        /// When the last request was written; nil when there was none.
        public var sentAt: UnixMillis?
        /// From then to the answer.
        public var answeredAfter: TimeSpan
        /// The answer's status; 0 when there was none.
        public var status: Int
        /// What came of it; nil when it waits in a topic.
        public var outcome: Outcome?
        /// Why.
        public var reason: String?
        /// Requests written.
        public var attempts: Int
    }

    /// Its place in the trace.
    public var context: TraceContext
    /// Where its record stood.
    public var topic: String
    /// The partition.
    public var partition: Int32
    /// The offset.
    public var offset: Int64
    /// Its id.
    public var eventID: String
    /// Its type.
    public var eventType: String
    /// Its app.
    public var app: String
    /// When it was read.
    public var consumedAt: UnixMillis
    /// When its user's addresses were asked for.
    public var askedAt: UnixMillis?
    /// When they were known.
    public var fannedOutAt: UnixMillis?
    /// When it ended here.
    public var endedAt: UnixMillis
    /// What it ended as, when it did so before it had targets.
    public var outcome: Outcome?
    /// Its targets.
    public var targets: [Target]
}

/// Carries traced events from lanes to an exporter. Safe on any thread; nobody ever waits.
public final class TraceQueue: Sendable {
    /// A part of the queue, with a door of its own: a lane that finds one locked goes to the next.
    private final class Part: Sendable {
        let events = Mutex<[TracedEvent]>([])
    }

    private let parts = (0..<8).map { _ in Part() }
    private let count = Atomic<Int>(0)
    private let dropCount = Atomic<Int>(0)
    /// The share of events without a trace of their own for which one begins here, 0 to 1.
    public let sample: Double
    private let capacity: Int

    /// Events that wait to be exported at most.
    public static let eventsMax = 2_048

    /// A queue for that share of events.
    public init(sample: Double, capacity: Int = TraceQueue.eventsMax) {
        self.sample = sample
        self.capacity = capacity
    }

    /// Events that found no room, or others at every door.
    public var dropped: Int { dropCount.load(ordering: .relaxed) }

    internal func offer(_ event: TracedEvent) {
        if count.add(1, ordering: .relaxed).newValue <= capacity {
            for part in parts {
                let isTaken: Void? = part.events.withLockIfAvailable { $0.append(event) }
                if isTaken != nil { return }
            }
        }
        count.subtract(1, ordering: .relaxed)
        dropCount.add(1, ordering: .relaxed)
    }

    /// Takes everything out.
    public func take() -> [TracedEvent] {
        var taken: [TracedEvent] = []
        for part in parts {
            part.events.withLock { events in
                taken += events
                events.removeAll(keepingCapacity: true)
            }
        }
        count.subtract(taken.count, ordering: .relaxed)
        return taken
    }
}
