// Reading whole topics without a group: for following results, for rebuilding an index, and for
// tests that look at what was written.

public import Base
internal import CRDKafka

/// Reads every partition of some topics, from where it is told. Confined to one thread.
///
/// No group is joined and nothing is committed.
public final class TopicReader {
    /// Where reading starts.
    public enum Start: Sendable {
        /// At the oldest record.
        case beginning
        /// At the next record written.
        case end
        /// At these offsets; a partition that is not named starts at its oldest record.
        case offsets([TopicPartition: Int64])
    }

    private let client: ClientHandle
    private let queue: ClientQueue
    private var topics: [String: OpaquePointer] = [:]
    private var started: [TopicPartition] = []
    private var progress: [TopicPartition: PartitionProgress] = [:]
    /// Called when a partition delivers an error instead of a record.
    public var onFault: ((TopicPartition, KafkaError) -> Void)?
    /// Called when a partition was read to its end, with the offset that is next.
    public var onEnd: ((TopicPartition, Int64) -> Void)?

    /// Looks the topics up and starts reading all their partitions. `onlyCommitted` hides records
    /// of transactions that were not committed.
    public init(
        _ configuration: KafkaConfiguration, topics names: [String], from start: Start,
        onlyCommitted: Bool = true, timeout: TimeSpan = .seconds(10)
    ) throws(KafkaError) {
        let builder = ClientConfiguration(configuration)
        try builder.apply(
            [
                ("fetch.wait.max.ms", "50"), ("queued.max.messages.kbytes", "4096"),
                ("auto.offset.reset", "earliest"),
                ("isolation.level", onlyCommitted ? "read_committed" : "read_uncommitted"),
            ], fixed: [("enable.partition.eof", "true"), ("enable.auto.offset.store", "false")])
        client = try builder.makeClient(RD_KAFKA_CONSUMER, events: RD_KAFKA_EVENT_ERROR)
        queue = try ClientQueue.new(of: client)
        for name in names {
            let found = try client.topics(named: [name], timeout: timeout)
            guard let topic = found.first, topic.partitions > 0 else {
                throw KafkaError(RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, "topic \(name) does not exist")
            }
            for partition in 0..<topic.partitions {
                try open(TopicPartition(name, partition), from: start)
            }
        }
    }

    deinit {
        for place in started {
            if let topic = topics[place.topic] { rd_kafka_consume_stop(topic, place.partition) }
        }
        // Messages left in the queue hold their topics; they go with the queue.
        for topic in topics.values { rd_kafka_topic_destroy(topic) }
    }

    /// The partitions that are read.
    public var partitions: [TopicPartition] { started }

    /// True when every partition was read to its end and nothing came since.
    public var isAtEnd: Bool { progress.values.allSatisfy(\.isAtEnd) }

    /// True when all that was visible when reading began was handed out, or since `aimAtEnds` when
    /// that was called; on topics that never stand still too.
    public var hasReachedEveryEnd: Bool { progress.values.allSatisfy(\.hasReachedEnd) }

    /// From now on `hasReachedEveryEnd` is about what is visible at this moment.
    public func aimAtEnds(timeout: TimeSpan) throws(KafkaError) {
        for place in started {
            let visible = try client.watermarks(place, timeout: timeout)
            progress[place]?.aim(at: visible)
        }
    }

    /// Hands up to `max` records to `body`, waiting up to `timeout` for the first one; returns how
    /// many came. Several partitions interleave; within one the order is kept.
    @discardableResult
    public func read(
        max: Int = .max, timeout: TimeSpan, _ body: (borrowing KafkaRecord) -> Void
    ) -> Int {
        var delivered = 0
        var wait = Int32(clamping: timeout.millis)
        while delivered < max, let message = rd_kafka_consume_queue(queue.pointer, wait) {
            wait = 0
            if deliver(message, body) { delivered += 1 }
            rd_kafka_message_destroy(message)
        }
        return delivered
    }

    /// Reads on until every partition was at its end, or the deadline passed; true when it was.
    public func readToEnd(
        deadline: MonotonicTime, _ body: (borrowing KafkaRecord) -> Void
    ) -> Bool {
        while !isAtEnd {
            let left = deadline - SystemTime.shared.monotonic
            guard left > .zero else { return false }
            read(timeout: min(left, .milliseconds(100)), body)
        }
        return true
    }

    private func deliver(
        _ message: UnsafeMutablePointer<rd_kafka_message_t>,
        _ body: (borrowing KafkaRecord) -> Void
    ) -> Bool {
        let name = message.pointee.rkt.map { String(cString: rd_kafka_topic_name($0)) } ?? ""
        let place = TopicPartition(name, message.pointee.partition)
        switch message.pointee.err {
        case RD_KAFKA_RESP_ERR_NO_ERROR:
            progress[place, default: PartitionProgress()].read(message.pointee.offset) {
                end(of: rd_kafka_topic_name(message.pointee.rkt), place.partition)
            }
            body(KafkaRecord(message, at: place))
            return true
        case RD_KAFKA_RESP_ERR__PARTITION_EOF:
            progress[place, default: PartitionProgress()].ended(at: message.pointee.offset)
            onEnd?(place, message.pointee.offset)
        case let code:
            let text = rd_kafka_message_errstr(message).map { String(cString: $0) }
            onFault?(place, KafkaError(code, text))
        }
        return false
    }

    /// Where a partition ended when its records were last asked for; nil when that is not known.
    public func end(of place: TopicPartition) -> Int64? {
        place.topic.withCString { end(of: $0, place.partition) }
    }

    private func end(of topic: UnsafePointer<CChar>, _ partition: Int32) -> Int64? {
        var low: Int64 = 0
        var high: Int64 = 0
        let code = rd_kafka_get_watermark_offsets(client.pointer, topic, partition, &low, &high)
        return code == RD_KAFKA_RESP_ERR_NO_ERROR && high > 0 ? high : nil
    }

    private func open(_ place: TopicPartition, from start: Start) throws(KafkaError) {
        let topic: OpaquePointer
        if let known = topics[place.topic] {
            topic = known
        } else if let made = rd_kafka_topic_new(client.pointer, place.topic, nil) {
            topics[place.topic] = made
            topic = made
        } else {
            throw KafkaError(rd_kafka_last_error(), place.topic)
        }
        let offset: Int64 =
            switch start {
            case .beginning: Int64(RD_KAFKA_OFFSET_BEGINNING)
            case .end: Int64(RD_KAFKA_OFFSET_END)
            case .offsets(let offsets): offsets[place] ?? Int64(RD_KAFKA_OFFSET_BEGINNING)
            }
        guard rd_kafka_consume_start_queue(topic, place.partition, offset, queue.pointer) == 0
        else { throw KafkaError(rd_kafka_last_error(), "\(place)") }
        started.append(place)
        progress[place] = PartitionProgress()
    }
}

/// How far a partition is read.
private struct PartitionProgress {
    /// Whether nothing came since the end was last seen.
    private(set) var isAtEnd = false
    private(set) var hasReachedEnd = false
    /// The offset that is next, as far as anything was read.
    private var next: Int64?
    /// What has to be reached: a partition that is written to all the time never is at its end.
    private var target: Int64?
    /// Whether the target was asked for; what was fetched before then may end earlier.
    private var isAimed = false

    mutating func aim(at visible: Range<Int64>) {
        target = visible.upperBound
        isAimed = true
        hasReachedEnd = visible.isEmpty || next.map { $0 >= visible.upperBound } ?? false
    }

    /// Takes in a record; `end` tells where the partition ended when it was last asked for any.
    mutating func read(_ offset: Int64, end: () -> Int64?) {
        isAtEnd = false
        next = offset + 1
        guard !hasReachedEnd else { return }
        target = target ?? end()
        if let target, offset + 1 >= target { hasReachedEnd = true }
    }

    mutating func ended(at offset: Int64) {
        isAtEnd = true
        next = offset
        if !isAimed || offset >= target ?? 0 { hasReachedEnd = true }
    }
}
