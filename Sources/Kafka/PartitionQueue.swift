// The detached queue of one assigned partition. Not reading it is the back-pressure.
//
// All handles for one partition wrap the same queue inside librdkafka, whatever the assignment. The
// partition's cell therefore says which epoch may read it or touch its wake-up; a handle of an older
// epoch finds nothing, for ever, so that no message of a newer assignment is ever taken, and no
// newer wake-up ever torn down, by somebody who does not own the partition any more.

internal import CRDKafka
internal import Synchronization

/// Which epoch owns the queue of a partition. Taking messages and changing the owner exclude each
/// other; the lock is otherwise uncontended.
final class PartitionCell: Sendable {
    private let owner = Mutex<UInt32>(0)

    func assign(_ epoch: Epoch) { owner.withLock { $0 = epoch.number } }

    func release() { owner.withLock { $0 = 0 } }

    /// Runs `body` while `epoch` owns the partition and cannot lose it.
    func whileOwned<Result>(by epoch: Epoch, _ body: () -> Result) -> Result? {
        owner.withLock { $0 == epoch.number ? body() : nil }
    }
}

/// The records of one partition during one assignment.
///
/// `@unchecked Sendable`: one thread uses it at a time. The group thread makes it and hands it to
/// the lane that owns the partition; from then on only that lane touches it.
public final class PartitionQueue: @unchecked Sendable {
    /// Where the records come from.
    public let place: TopicPartition
    /// The assignment this handle belongs to.
    public let epoch: Epoch
    /// Called, on the lane, when the queue delivers a fault instead of a record.
    public var onFault: ((PartitionFault) -> Void)?

    private let queue: ClientQueue
    private let cell: PartitionCell
    private let messages: UnsafeMutablePointer<UnsafeMutablePointer<rd_kafka_message_t>>

    init(_ place: TopicPartition, epoch: Epoch, queue: ClientQueue, cell: PartitionCell) {
        self.place = place
        self.epoch = epoch
        self.queue = queue
        self.cell = cell
        messages = .allocate(capacity: Limits.consumeChunk)
    }

    deinit { messages.deallocate() }

    /// Writes eight bytes (the integer 1: an eventfd takes it, a pipe too) to `fd` whenever records
    /// arrive in a queue that was read since the last time. The descriptor must be non-blocking,
    /// may serve several queues, and must stay open until `disableWakeUps` or the end of the
    /// process. After a wake-up read until nothing comes; and read on a timer too.
    public func enableWakeUps(_ fd: Int32) {
        var one: UInt64 = 1
        let size = MemoryLayout<UInt64>.size
        cell.whileOwned(by: epoch) {
            rd_kafka_queue_io_event_enable(queue.pointer, fd, &one, size)
        }
    }

    /// Ends the wake-ups; nothing happens when a newer assignment owns the queue.
    public func disableWakeUps() {
        cell.whileOwned(by: epoch) {
            rd_kafka_queue_io_event_enable(queue.pointer, -1, nil, 0)
        }
    }

    /// The offset after the partition's last record, as the last fetch told it: no call to the
    /// broker. Nil before the first fetch.
    public var end: Int64? {
        var (low, high): (Int64, Int64) = (-1, -1)
        let code = rd_kafka_get_watermark_offsets(
            queue.client.pointer, place.topic, place.partition, &low, &high)
        return code == RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0 ? high : nil
    }

    /// Hands up to `max` records that are there already to `body`, in order, and returns their
    /// number. Never waits. Zero means that nothing is there, or that the assignment is over.
    @discardableResult
    public func consume(max: Int, _ body: (borrowing KafkaRecord) -> Void) -> Int {
        var delivered = 0
        while delivered < max {
            let wanted = min(max - delivered, Limits.consumeChunk)
            let taken = cell.whileOwned(by: epoch) { take(wanted) } ?? 0
            for index in 0..<taken {
                let message = messages[index]
                if message.pointee.err == RD_KAFKA_RESP_ERR_NO_ERROR {
                    body(KafkaRecord(message, at: place))
                    delivered += 1
                } else {
                    onFault?(PartitionFault(message))
                }
                rd_kafka_message_destroy(message)
            }
            if taken < wanted { break }
        }
        return delivered
    }

    /// One at a time: the batch calls lose messages around rebalances.
    private func take(_ wanted: Int) -> Int {
        var taken = 0
        while taken < wanted, let message = rd_kafka_consume_queue(queue.pointer, 0) {
            messages[taken] = message
            taken += 1
        }
        return taken
    }

    /// Frees what was prefetched for an assignment that is over. librdkafka drops outdated entries
    /// when the queue is polled, and would otherwise keep their memory.
    func purge() {
        while let message = rd_kafka_consume_queue(queue.pointer, 0) {
            rd_kafka_message_destroy(message)
        }
    }
}
