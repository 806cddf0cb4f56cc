// A member of a consumer group, as far as several threads may share it: the group thread serves its
// queue, lanes read its partition queues, the committer commits with it.

public import Base
internal import CRDKafka
internal import Synchronization

/// The consumer handle of one group. Every method may be called from any thread.
public final class Consumer: Sendable {
    /// The group and its settings.
    public let group: GroupConfiguration
    let client: ClientHandle
    let assignments = AssignmentTable()
    private let finished = Mutex<[TopicPartition: Finished]>([:])
    private let cells = Mutex<[TopicPartition: PartitionCell]>([:])

    /// Creates the handle; the group is joined when a `GroupThread` starts.
    public init(_ configuration: KafkaConfiguration, group: GroupConfiguration) throws(KafkaError) {
        try group.validate()
        self.group = group
        let builder = ClientConfiguration(configuration)
        try builder.apply(group.properties, fixed: group.fixed)
        client = try builder.makeClient(
            RD_KAFKA_CONSUMER,
            events: RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_STATS
                | RD_KAFKA_EVENT_OFFSET_COMMIT)
        rd_kafka_poll_set_consumer(client.pointer)
    }

    /// The offsets the group has committed; a partition without one is left out.
    public func committedOffsets(
        _ places: [TopicPartition], timeout: TimeSpan
    ) throws(KafkaError) -> [TopicPartition: Int64] {
        let list = try committed(places, timeout: timeout)
        var offsets: [TopicPartition: Int64] = [:]
        for element in list.elements where element.error == nil && element.offset >= 0 {
            offsets[element.place] = element.offset
        }
        return offsets
    }

    /// What the group has committed for a partition.
    public struct Committed: Sendable, Equatable {
        /// The lowest offset that is not finished.
        public var offset: Int64
        /// Offsets above it that are finished.
        public var finished = OffsetRuns()
        /// Whoever committed it: the `commitMetadata` of its group settings.
        public var name = ""
        /// Tells one commit of a transactional process from another.
        var attempt = ""
    }

    /// What the group has committed, with what is finished above it; a partition without a
    /// committed offset is left out.
    public func committedState(
        _ places: [TopicPartition], timeout: TimeSpan
    ) throws(KafkaError) -> [TopicPartition: Committed] {
        let list = try committed(places, timeout: timeout)
        var states: [TopicPartition: Committed] = [:]
        for element in list.elements {
            // Without its answer a partition may have been finished further than is known.
            if let error = element.error { throw error }
            guard element.offset >= 0 else { continue }
            var state = Committed(offset: element.offset)
            if let note = CommitNote(element.metadata, at: element.offset) {
                state.finished = note.finished
                state.name = note.name
                state.attempt = note.attempt
            }
            states[element.place] = state
        }
        return states
    }

    private func committed(
        _ places: [TopicPartition], timeout: TimeSpan
    ) throws(KafkaError) -> PartitionList {
        let list = PartitionList(capacity: places.count)
        for place in places { list.add(place) }
        let code = rd_kafka_committed(client.pointer, list.pointer, Int32(clamping: timeout.millis))
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code) }
        return list
    }

    /// The oldest offset and the one after the newest, asked from the broker.
    public func watermarks(
        _ place: TopicPartition, timeout: TimeSpan
    ) throws(KafkaError) -> Range<Int64> {
        try client.watermarks(place, timeout: timeout)
    }

    /// Notes that everything of a partition below a point, and some above it, is delivered although
    /// the group's commit of it was refused. Brokers may refuse the last commit before an eager
    /// rebalance, and librdkafka then calls the assignment lost; when the partition comes straight
    /// back, nothing of it needs to be done twice.
    func noteFinished(_ point: CommitLedger.Point, at now: MonotonicTime) {
        finished.withLock { $0[point.place] = Finished(point: point, at: now) }
    }

    /// Takes that note back, when it is recent. An old one might hide that somebody has set the
    /// group's offsets back on purpose.
    func takeFinished(_ place: TopicPartition, at now: MonotonicTime) -> CommitLedger.Point? {
        guard let note = finished.withLock({ $0.removeValue(forKey: place) }),
            now - note.at < Limits.finishedMemory
        else { return nil }
        return note.point
    }

    private struct Finished: Sendable {
        var point: CommitLedger.Point
        var at: MonotonicTime
    }

    /// The cell of a partition, the same one for every assignment.
    func cell(of place: TopicPartition) -> PartitionCell {
        cells.withLock { cells in
            if let cell = cells[place] { return cell }
            let cell = PartitionCell()
            cells[place] = cell
            return cell
        }
    }

    /// The queue of a partition, detached from the consumer's own. Must happen before the
    /// partition is assigned, or its first messages land in the consumer's queue.
    func detachedQueue(of place: TopicPartition) throws(KafkaError) -> ClientQueue {
        guard
            let queue = rd_kafka_queue_get_partition(
                client.pointer, place.topic, place.partition)
        else { throw KafkaError(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, "\(place) has no queue") }
        rd_kafka_queue_forward(queue, nil)
        return ClientQueue(queue, of: client)
    }
}

extension ClientHandle {
    func watermarks(
        _ place: TopicPartition, timeout: TimeSpan
    ) throws(KafkaError) -> Range<Int64> {
        var low: Int64 = 0
        var high: Int64 = 0
        let code = rd_kafka_query_watermark_offsets(
            pointer, place.topic, place.partition, &low, &high, Int32(clamping: timeout.millis))
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code, "\(place)") }
        return low..<max(low, high)
    }
}
