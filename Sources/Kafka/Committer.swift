// The only producer of the dispatcher and the only one who commits: results and offsets in one
// transaction, or results first and offsets after them. Lanes post batches and never wait; they ask
// `hasRoom` before they read more.

public import Base
internal import Synchronization

/// What a person or a metric may want to know about the committer's work.
public enum CommitterEvent: Sendable {
    /// Records of a topic were refused; they are produced again. Nothing is lost, but their
    /// events' offsets do not move meanwhile.
    case deliveryFailed(topic: String, records: Int, KafkaError)
    /// A commit was refused or not answered; the newest offsets are tried again.
    case commitFailed(KafkaError, partitions: Int)
    /// The producer could not go on and was replaced; undelivered records were produced again.
    case producerRebuilt(KafkaError)
    /// The producer reports trouble: credentials, brokers out of reach.
    case producerError(KafkaError)
    /// A step of a transaction failed. What it carries is kept, and committed with the next one.
    case transactionFailed(KafkaError, during: String)
    /// No transaction can be made any more: the process has to end.
    case ended(CommitterFailure)
}

/// Counters since the start.
public struct CommitterStatistics: Sendable, Equatable {
    /// Records that the brokers acknowledged.
    public var delivered: UInt64 = 0
    /// Records produced once more after a failure.
    public var redelivered: UInt64 = 0
    /// Commits that succeeded.
    public var commits: UInt64 = 0
    /// Commits that failed.
    public var commitFailures: UInt64 = 0
    /// Producers replaced after a fatal error.
    public var rebuilds: UInt64 = 0
}

/// How results and offsets are committed.
public enum CommitMode: Sendable, Equatable {
    /// Offsets follow delivered results. After a crash results may be there twice.
    case plain
    /// Both in one transaction: a reader with `isolation.level=read_committed` sees every result
    /// once, whatever crashes. `instance` is this process' name among the replicas of `group`: no
    /// two may have the same.
    case transactional(group: String, instance: String)
}

/// Settings of the committer.
public struct CommitterConfiguration: Sendable {
    /// How it commits.
    public var mode = CommitMode.plain
    /// The topics it may write to.
    public var topics: [String]
    /// The producer's settings.
    public var producer = ProducerConfiguration()
    /// The shortest distance of two commits of a group.
    public var commitInterval = TimeSpan.milliseconds(200)
    /// Above so many undelivered records `hasRoom` is false.
    public var outboxRecords = Limits.outboxRecords
    /// Above so many undelivered bytes `hasRoom` is false.
    public var outboxBytes = Limits.outboxBytes
    /// Told what goes wrong, on the committer's thread.
    public var onEvent: (@Sendable (CommitterEvent) -> Void)?

    /// A committer for these topics.
    public init(topics: [String]) { self.topics = topics }
}

/// The committer's thread, seen from the others. Every method may be called from any thread.
public final class Committer: Sendable {
    private let inbox: CommitterInbox
    private let topics: [String]
    private let outboxRecords: Int
    private let outboxBytes: Int
    private let ended: Latch

    /// Starts the thread and looks the output topics up, so that the first records find them known.
    public init(
        _ configuration: KafkaConfiguration, _ settings: CommitterConfiguration,
        time: any TimeSource = SystemTime.shared
    ) throws(KafkaError) {
        topics = settings.topics
        outboxRecords = settings.outboxRecords
        outboxBytes = settings.outboxBytes
        var names: TransactionNames?
        if case .transactional(let group, let instance) = settings.mode {
            names = TransactionNames(group: group, instance: instance)
        }
        let producer = try RecordProducer(
            configuration, settings.producer, topics: settings.topics, transactions: names)
        let inbox = CommitterInbox(wakes: producer.queue)
        self.inbox = inbox
        let parts = Parts(producer: producer)
        ended = try ControlThread.start(name: "committer") { [names] in
            if let names {
                TransactionSession(
                    configuration: configuration, settings: settings, producer: parts.producer,
                    names: names, inbox: inbox, time: time
                ).run()
            } else {
                inbox.noteReady()
                CommitterSession(
                    configuration: configuration, settings: settings, producer: parts.producer,
                    inbox: inbox, time: time
                ).run()
            }
        }
    }

    /// Waits until the first transaction can be made; false when that took longer. Plain mode is
    /// ready at once. Throws why none will ever be made, when that is known by then.
    public func waitUntilReady(upTo span: TimeSpan) throws(CommitterFailure) -> Bool {
        let isReady = inbox.waitUntilReady(by: SystemTime.shared.monotonic + span)
        if let failure = inbox.failure { throw failure }
        return isReady
    }

    /// Why nothing is committed any more: another process has this one's name, or the broker offers
    /// no transactions. The process should end.
    public var failure: CommitterFailure? { inbox.failure }

    /// Carries the producer to the thread that will own it.
    private struct Parts: @unchecked Sendable {
        // Safe: the initialiser gives it up when the thread starts.
        let producer: RecordProducer
    }

    /// A topic of the configuration.
    public func topic(_ name: String) -> OutputTopic? {
        topics.firstIndex(of: name).map { OutputTopic(index: Int32($0)) }
    }

    /// An empty batch, reused when there is one.
    public func makeBatch() -> OutboxBatch { inbox.takeSpare() ?? OutboxBatch() }

    /// Hands a batch over; the lane must not touch it any more. Never waits, never refuses: what
    /// is posted is work that is done. `hasRoom` is where back-pressure starts.
    public func post(_ batch: OutboxBatch) {
        precondition(batch.isSealed, "a record of the batch belongs to no event")
        inbox.post(batch)
    }

    /// False while too much waits for delivery: read nothing new until it is true again.
    public var hasRoom: Bool {
        let backlog = inbox.backlog
        return backlog.records < outboxRecords && backlog.bytes < outboxBytes
            && !inbox.isEnded
    }

    /// Records and bytes posted and not delivered.
    public var backlog: (records: Int, bytes: Int) { inbox.backlog }

    /// How long what was posted waits for a commit; zero when nothing waits. It stays within a few
    /// commit intervals while all is well.
    public func commitAge(at now: MonotonicTime) -> TimeSpan { inbox.commitAge(at: now) }

    /// Counters since the start.
    public var statistics: CommitterStatistics { inbox.statistics.withLock { $0 } }

    /// What each assigned partition of a group has committed, as far as this process did it.
    public var committedOffsets: [TopicPartition: Int64] { inbox.committed.withLock { $0 } }

    /// Monotonic time of the last turn of the committer's thread, for a liveness probe.
    public var lastTurn: MonotonicTime { inbox.lastTurn }

    /// Opens the books for partitions. The group thread calls it before any lane knows of them.
    public func assigned(_ partitions: [PartitionAssignment], consumer: Consumer) {
        inbox.post(.assigned(partitions, consumer))
    }

    /// Delivers all that was posted for these assignments, commits it, closes their books, and then
    /// calls `completion` on the committer's thread: at the deadline at the latest, and whatever
    /// the commit's answer was.
    public func flush(
        _ epochs: [Epoch], deadline: MonotonicTime, completion: @escaping @Sendable () -> Void
    ) {
        inbox.post(.flush(epochs, deadline, completion))
    }

    /// Closes the books of assignments that were lost. Their records are still delivered, their
    /// offsets never committed. `completion` follows, within a bound, when no commit for them is
    /// on its way.
    public func discard(_ epochs: [Epoch], completion: @escaping @Sendable () -> Void) {
        inbox.post(.discard(epochs, completion))
    }

    /// Delivers and commits what it has, then ends the thread. True when nothing was left at the
    /// deadline; what was left will be done again by the next owner.
    @discardableResult
    public func stop(deadline: MonotonicTime) -> Bool {
        inbox.post(.stop(deadline))
        return ended.wait(until: deadline + Limits.joinGrace) && inbox.endedCleanly
    }
}
