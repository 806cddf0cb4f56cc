// The thread that is the group's one owner: it joins, answers every rebalance, and leaves. Nobody
// else assigns or unassigns.

public import Base
internal import CRDKafka
internal import Synchronization

/// Runs one consumer's membership on a thread of its own.
///
/// With a committer, partitions leave only after what the lanes posted for them was delivered and
/// committed, or after its bound; without one they leave as soon as the ticket is finished.
public final class GroupThread: Sendable {
    private let control: GroupControl
    private let ended: Latch

    /// Joins the group and subscribes to `topics`. Equal partition numbers of several topics meet
    /// in one member when the assignor is `range` and the topics have equally many partitions.
    public init(
        _ consumer: Consumer, topics: [String], handler: any AssignmentHandler,
        committer: Committer? = nil, time: any TimeSource = SystemTime.shared
    ) throws(KafkaError) {
        let queue = try ClientQueue.consumer(of: consumer.client)
        let closing = try ClientQueue.new(of: consumer.client)
        let control = GroupControl(queue: queue)
        self.control = control
        try Self.subscribe(consumer, to: topics)
        ended = try ControlThread.start(name: "group") {
            let session = GroupSession(
                consumer: consumer, queue: queue, closing: closing, control: control,
                handler: handler, committer: committer, time: time)
            session.run()
        }
    }

    /// Leaves the group: revokes everything, waits for the tickets, commits, says good-bye. Returns
    /// true when all of that was done by `deadline`. Never waits longer; a thread that is stuck
    /// inside the client is left behind, and correctness does not need it.
    @discardableResult
    public func stop(deadline: MonotonicTime) -> Bool {
        control.stop(by: deadline)
        return ended.wait(until: deadline + Limits.joinGrace) && control.closedCleanly
    }

    /// Monotonic time of the last turn of the group thread, for a liveness probe.
    public var lastTurn: MonotonicTime { control.lastTurn }

    private static func subscribe(
        _ consumer: Consumer, to topics: [String]
    ) throws(KafkaError) {
        guard !topics.isEmpty else {
            throw KafkaError(configuration: "kafka: no topic to subscribe to")
        }
        let list = PartitionList(capacity: topics.count)
        for topic in topics { list.add(TopicPartition(topic, RD_KAFKA_PARTITION_UA)) }
        let code = rd_kafka_subscribe(consumer.client.pointer, list.pointer)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code) }
    }
}

/// What other threads may say to the group thread.
final class GroupControl: Sendable {
    private let queue: ClientQueue
    private let stopBy = Atomic<Int64>(Int64.max)
    private let clean = Atomic<Bool>(false)
    private let turn = Atomic<Int64>(0)

    init(queue: ClientQueue) { self.queue = queue }

    func stop(by deadline: MonotonicTime) {
        stopBy.store(deadline.nanos, ordering: .releasing)
        queue.wake()
    }

    func wake() { queue.wake() }

    var stopDeadline: MonotonicTime? {
        let nanos = stopBy.load(ordering: .acquiring)
        return nanos == .max ? nil : MonotonicTime(nanos: nanos)
    }

    func noteTurn(at now: MonotonicTime) { turn.store(now.nanos, ordering: .relaxed) }
    var lastTurn: MonotonicTime { MonotonicTime(nanos: turn.load(ordering: .relaxed)) }

    func noteCleanClose() { clean.store(true, ordering: .releasing) }
    var closedCleanly: Bool { clean.load(ordering: .acquiring) }
}

extension ClientQueue {
    /// The queue of the group: rebalances, errors, statistics.
    static func consumer(of client: ClientHandle) throws(KafkaError) -> ClientQueue {
        guard let queue = rd_kafka_queue_get_consumer(client.pointer) else {
            throw KafkaError(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP)
        }
        return ClientQueue(queue, of: client)
    }
}
