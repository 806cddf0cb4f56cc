// The topics of the token index, read by a command from their beginning to their end and on from
// there: what Redis is compared with, and what has to be found again to be erased.

internal import Base
internal import Config
internal import JSON
internal import Kafka
internal import TokenIndex

/// A record of one of the topics, as far as it can be read.
internal struct IndexRecord {
    /// What it says.
    enum Content {
        /// A record of `push.devices`.
        case registration(DecodedRegistration)
        /// A record of `push.invalidations`; nil for a null value.
        case invalidation(InvalidationRecord?)
        /// A record of `push.users`.
        case user(UserChange)
    }

    var content: Content
    /// Where it stands, with the timestamp that counts.
    var position: TopicPosition
    /// The topic.
    var topic: IndexTopic
    /// The key's bytes.
    var key: [UInt8]

    /// The changes that an index makes of it, in order.
    var changes: [IndexChange] {
        switch content {
        case .registration(let decoded): decoded.records.map { .registration($0) }
        case .invalidation(let record): record.map { [.invalidation($0)] } ?? []
        case .user(let change): [.user(change)]
        }
    }
}

/// Reads the topics. Confined to one thread.
internal final class IndexTopicScan {
    private let cluster: ClusterAccess
    private let names: Configuration.Topics
    private let decoder: RegistrationDecoder
    private let invalidations = InvalidationDecoder()
    private let parser = JSONParser(maximumBytes: IndexLimits.recordBytes)
    private let reader: TopicReader
    /// The offset behind the last record of each partition that has any.
    private(set) var ends: [IndexTopicPartition: Int64] = [:]
    /// Records read.
    private(set) var count = 0
    /// Records that are not readable; an index skips them too.
    private(set) var skipped = 0

    /// How long a broker may say nothing at all.
    private static let patience = TimeSpan.seconds(30)
    /// How long it may take to say where a partition ends.
    private static let askTimeout = TimeSpan.seconds(10)

    init(_ configuration: Configuration, _ cluster: ClusterAccess) throws(Failure) {
        self.cluster = cluster
        names = configuration.kafka.topics
        decoder = RegistrationDecoder(
            tables: configuration.index.tables.map(RegistrationTable.init))
        // Not everybody has one.
        let hasUsers = (try cluster.partitionCounts()[names.users] ?? 0) > 0
        do throws(KafkaError) {
            reader = try TopicReader(
                cluster.configuration,
                topics: [names.devices, names.invalidations] + (hasUsers ? [names.users] : []),
                from: .beginning)
        } catch {
            throw cluster.failure(error, doing: "read \(names.devices)")
        }
    }

    /// Hands every record up to the present end to `body`, and perhaps some that came since.
    func readToEnd(_ body: (IndexRecord) -> Void) throws(Failure) {
        let progress = ProgressLine()
        defer { progress.end() }
        var heardAt = SystemTime.shared.monotonic
        var fault: KafkaError?
        reader.onFault = { fault = $1 }
        // Registries never rest: what comes while this reads is not waited for.
        do throws(KafkaError) {
            try reader.aimAtEnds(timeout: Self.askTimeout)
        } catch {
            throw cluster.failure(error, doing: "read \(names.devices)")
        }
        while !reader.hasReachedEveryEnd {
            let got = reader.read(max: 2_000, timeout: .milliseconds(100)) { record in
                if let record = take(record) { body(record) }
            }
            let now = SystemTime.shared.monotonic
            if got > 0 { heardAt = now }
            guard now - heardAt < Self.patience else {
                let reason = fault.map { ": \($0)" } ?? ""
                throw .failed(
                    "kafka: \(names.devices) and \(names.invalidations) cannot be read to their "
                        + "end\(reason)")
            }
            progress.show("\(count) records of \(names.devices) and \(names.invalidations) read")
        }
    }

    private func take(_ record: borrowing KafkaRecord) -> IndexRecord? {
        let topic: IndexTopic =
            record.topic == names.devices
            ? .devices : record.topic == names.users ? .users : .invalidations
        ends[IndexTopicPartition(topic, record.partition)] = record.offset + 1
        count += 1
        var position = TopicPosition(
            partition: record.partition, offset: record.offset,
            timestamp: record.timestampMillis ?? 0)
        do throws(RecordError) {
            let content: IndexRecord.Content
            switch topic {
            case .devices:
                let decoded = try decoder.decode(
                    key: record.key, value: record.value, timestamp: position.timestamp)
                position.timestamp = decoded.timestamp
                content = .registration(decoded)
            case .invalidations:
                content = .invalidation(
                    try invalidations.decode(key: record.key, value: record.value))
            case .users:
                content = .user(
                    try UserChange.decode(
                        key: record.key, value: record.value, parser: parser))
            }
            return IndexRecord(
                content: content, position: position, topic: topic,
                key: record.key.map { Array($0) } ?? [])
        } catch {
            skipped += 1
            return nil
        }
    }
}
