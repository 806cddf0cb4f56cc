// What the group thread tells the rest of the process about partitions that come and go.

public import Base
internal import Synchronization

/// A partition that was assigned to this process.
public struct PartitionAssignment: Sendable {
    /// The partition.
    public let place: TopicPartition
    /// The number of this assignment; it travels with every piece of work.
    public let epoch: Epoch
    /// The offset reading starts at; nil when none is committed and the start policy decides.
    public let startOffset: Int64?
    /// Offsets above `startOffset` that an earlier assignment has finished. Their records come
    /// again and must only be completed, without any record of their own.
    public let finished: OffsetRuns
    /// What the group has committed; below `startOffset` when the last commit was refused.
    let committedOffset: Int64?
    /// Where the records come from; hand it to the lane that will own the partition.
    public let queue: PartitionQueue
}

/// Receives the events of a consumer group. All calls come from the group thread and should return
/// quickly: hand the partitions to their lanes and go.
public protocol AssignmentHandler: AnyObject, Sendable {
    /// These partitions are ours now. May be empty: the member joined and got nothing.
    func assigned(_ partitions: [PartitionAssignment])
    /// These partitions will be given away. Stop starting work on them, wait for what is in flight,
    /// post the results, then finish the ticket, from any thread. What the committer has by then is
    /// committed before they leave. After the ticket's deadline they leave anyhow, as lost ones do.
    func revoked(_ partitions: [PartitionAssignment], ticket: RevokeTicket)
    /// These partitions are somebody else's, whether they were revoked before or not: drop their
    /// work and start no more of it. Nothing of it is committed.
    func lost(_ partitions: [PartitionAssignment])
    /// Something a person should know: credentials, a missing topic, all brokers down, or a fatal
    /// error after which the group must be rebuilt. Nothing here ends the process.
    func groupError(_ error: KafkaError)
    /// librdkafka's statistics document, when an interval was configured.
    func statistics(_ json: String)
}

extension AssignmentHandler {
    /// Ignores the document.
    public func statistics(_ json: String) {}
}

/// The promise to answer a revocation.
public final class RevokeTicket: Sendable {
    /// When the partitions leave whether the ticket is finished or not.
    public let deadline: MonotonicTime
    private let finished = Atomic<Bool>(false)
    private let wake: @Sendable () -> Void

    init(deadline: MonotonicTime, wake: @escaping @Sendable () -> Void) {
        self.deadline = deadline
        self.wake = wake
    }

    /// Says that nothing more will be posted for the partitions. Callable from any thread, once or
    /// more.
    public func finish() {
        if finished.exchange(true, ordering: .acquiringAndReleasing) { return }
        wake()
    }

    var isFinished: Bool { finished.load(ordering: .acquiring) }
}

/// Which assignment of each partition is the current one, for one consumer. The group thread writes
/// it before it answers a rebalance; the committer asks it, under the lock, before every commit.
final class AssignmentTable: Sendable {
    private let current = Mutex<[TopicPartition: Epoch]>([:])

    func assign(_ place: TopicPartition, _ epoch: Epoch) {
        current.withLock { $0[place] = epoch }
    }

    func remove(_ places: [TopicPartition]) {
        current.withLock { table in for place in places { table[place] = nil } }
    }

    /// Runs `body` with a test for currency; no rebalance is answered meanwhile.
    func whileStable(_ body: (_ isCurrent: (TopicPartition, Epoch) -> Bool) -> Void) {
        current.withLock { table in
            let snapshot = table
            body { snapshot[$0] == $1 }
        }
    }

    private static let lastEpoch = Atomic<UInt32>(0)

    /// A number no assignment of this process had before.
    static func nextEpoch() -> Epoch {
        Epoch(lastEpoch.add(1, ordering: .relaxed).newValue)
    }
}
