// The bounds of this room: what may wait, for how long, and how much of it.

internal import Base

/// Every limit of the Kafka room, with its unit.
enum Limits {
    /// Records the producer of librdkafka may hold before it answers "queue full".
    static let producerQueueRecords = 100_000
    /// Bytes (KiB) the producer of librdkafka may hold before it answers "queue full".
    static let producerQueueKiB = 65_536
    /// Largest record a producer hands to librdkafka; the broker's own limit may be lower.
    static let producedRecordBytes = 4 * 1024 * 1024
    /// Records handed to librdkafka in one produce call.
    static let produceChunkRecords = 512
    /// Delivery reports taken from one event at a time.
    static let deliveryReportChunk = 512
    /// Events of the producer's queue served before new work is looked at again.
    static let eventsPerTurn = 64
    /// Above so many records waiting for delivery, lanes stop reading.
    static let outboxRecords = 50_000
    /// Above so many bytes waiting for delivery, lanes stop reading.
    static let outboxBytes = 48 * 1024 * 1024
    /// Emptied batches kept for reuse.
    static let spareBatches = 32
    /// A batch whose arena grew beyond this is not kept for reuse.
    static let spareBatchBytes = 256 * 1024
    /// Records of one batch; their number must fit the delivery reports' opaque.
    static let batchRecordBits: UInt = 20
    /// Shortest and longest wait before a record that failed is produced again.
    static let redeliveryMin = TimeSpan.milliseconds(100)
    static let redeliveryMax = TimeSpan.seconds(5)
    /// Longest wait of the committer for events while nothing is due.
    static let committerIdle = TimeSpan.milliseconds(500)
    /// Pause of the committer between two turns while records are on their way.
    static let committerRest = TimeSpan.milliseconds(1)
    /// Longest wait of the committer while a commit is on its way.
    static let committerBusy = TimeSpan.milliseconds(5)
    /// How long the look-up of output topics may take at start.
    static let topicWarmUp = TimeSpan.seconds(5)
    /// Time a producer that is replaced gets to report on the records it held.
    static let producerPurge = TimeSpan.milliseconds(500)
    /// Longest wait of the group thread between two looks at its queue.
    static let groupPoll = TimeSpan.milliseconds(500)
    /// Time for the look-up of committed offsets when partitions are assigned.
    static let committedLookUp = TimeSpan.seconds(5)
    /// Pause between two such look-ups when one failed.
    static let committedLookUpPause = TimeSpan.milliseconds(200)
    /// Time for the last commit of partitions that leave.
    static let revokeCommit = TimeSpan.seconds(5)
    /// Time kept back from a stop for the last commit and for leaving the group.
    static let stopReserve = TimeSpan.seconds(1)
    /// Time to wait for the answer to a commit of partitions that were lost.
    static let lostSettle = TimeSpan.seconds(2)
    /// How long it is remembered what was delivered and could not be committed any more.
    static let finishedMemory = TimeSpan.minutes(1)
    /// Time kept back from a flush for the commit itself.
    static let flushCommitReserve = TimeSpan.seconds(1)
    /// Bytes of text for the map of finished offsets in a commit's metadata. Brokers take 4096 in
    /// all unless told otherwise (`offset.metadata.max.bytes`).
    static let offsetMapBytes = 4000
    /// Bytes of the name beside the map.
    static let commitNameBytes = 32
    /// How far above the commit point a map may speak of an offset.
    static let offsetMapReach: Int64 = 1 << 40
    /// A lane reads no further in a partition while the newest event is so far ahead of the oldest
    /// open one and it keeps so many events between them. Either alone bounds the map: an eighth of
    /// a byte for each offset, or some bytes for each event where offsets have large holes.
    static let offsetWindow: Int64 = 20_000
    static let offsetWindowEvents = 256
    /// A transaction older than this is ended by the broker.
    static let transactionTimeout = TimeSpan.seconds(10)
    /// Records and bytes beyond which a transaction takes no further batch.
    static let transactionRecords = 10_000
    static let transactionBytes = 8 * 1024 * 1024
    /// Longest wait in one call that takes the transactional id over.
    static let transactionInitialise = TimeSpan.seconds(5)
    /// Longest wait for room in the producer's queue, and for the offsets to be taken.
    static let transactionProduce = TimeSpan.seconds(5)
    static let transactionOffsets = TimeSpan.seconds(3)
    /// Longest pause between two calls when they keep failing.
    static let transactionPauseMax = TimeSpan.seconds(2)
    /// Messages taken from a partition queue before their records are handed out.
    static let consumeChunk = 256
    /// How long a thread that was told to stop is waited for beyond its own deadline.
    static let joinGrace = TimeSpan.milliseconds(500)
    /// Group, topic and client names in error texts are cut here.
    static let errorTextBytes = 512
}
