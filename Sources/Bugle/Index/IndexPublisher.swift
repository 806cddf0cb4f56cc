// What a command writes to the topics of the index, and the wait until the index shows it.

internal import Base
internal import Config
internal import Glibc
internal import JSON
internal import Kafka
internal import TokenIndex

/// Writes records to the topics of the index. Confined to one thread.
internal final class IndexPublisher {
    private let access: IndexAccess
    private let producer: TopicProducer
    /// The offset behind the last record written, by partition.
    private(set) var ends: [IndexTopicPartition: Int64] = [:]

    /// How long the process that writes the index may take to follow.
    private static let patience = TimeSpan.seconds(30)

    init(_ access: IndexAccess) throws(Failure) {
        self.access = access
        do throws(KafkaError) {
            producer = try TopicProducer(access.cluster.configuration)
        } catch {
            throw access.cluster.failure(error, doing: "write")
        }
    }

    /// Writes a verdict.
    func write(_ record: InvalidationRecord) throws(Failure) {
        let bytes = ByteWriter()
        record.encode(to: bytes)
        try write(
            .invalidations, key: Array(record.addressID.text.utf8), value: bytes.array,
            partition: nil)
    }

    /// Writes a null value under a key as it was found, so that compaction takes away what is
    /// there.
    func writeNull(
        _ key: [UInt8], partition: Int32, of topic: IndexTopic = .devices
    ) throws(Failure) {
        try write(topic, key: key, value: nil, partition: partition)
    }

    private func write(
        _ topic: IndexTopic, key: [UInt8], value: [UInt8]?, partition: Int32?
    ) throws(Failure) {
        let names = access.configuration.kafka.topics
        let name = names.name(of: topic)
        do throws(KafkaError) {
            let sent = try producer.sendAndWait(
                to: name, partition: partition, key: key, value: value)
            ends[IndexTopicPartition(topic, sent.place.partition)] = sent.offset + 1
        } catch {
            throw access.cluster.failure(error, doing: "write to \(name)")
        }
    }

    /// Waits until the index in Redis shows all that was written; false when it does not in time.
    func waitUntilShown(by index: RedisIndexOperator) throws(Failure) -> Bool {
        try Self.wait(for: ends, in: index, upTo: Self.patience, "the index follows")
    }

    /// Waits until an index has applied everything before some offsets.
    static func wait(
        for ends: [IndexTopicPartition: Int64], in index: RedisIndexOperator,
        upTo span: TimeSpan, _ what: String
    ) throws(Failure) -> Bool {
        let progress = ProgressLine()
        defer { progress.end() }
        let deadline = SystemTime.shared.monotonic + span
        while true {
            let markers = try IndexAccess.orFail { () throws(IndexOperationError) in
                try index.markers()
            }
            let behind = markers.behind(ends)
            if behind == 0 { return true }
            guard SystemTime.shared.monotonic < deadline else { return false }
            progress.show("\(what): \(behind) records are left")
            pause(.milliseconds(100))
        }
    }
}

extension Configuration.Topics {
    /// The name of a topic of the index.
    internal func name(of topic: IndexTopic) -> String {
        switch topic {
        case .devices: devices
        case .invalidations: invalidations
        case .users: users
        }
    }
}

extension IndexMarkers {
    /// How many records before some offsets are not applied everywhere yet.
    internal func behind(_ ends: [IndexTopicPartition: Int64]) -> Int64 {
        let applied = Dictionary(
            positions.map { (IndexTopicPartition($0.topic, $0.partition), $0.nextOffset) },
            uniquingKeysWith: { first, _ in first })
        return ends.reduce(0) { $0 + max($1.value - (applied[$1.key] ?? 0), 0) }
    }
}

/// Lets some time pass on the calling thread.
internal func pause(_ span: TimeSpan) { poll(nil, 0, Int32(clamping: span.millis)) }
