internal import Base
internal import Config
internal import Kafka
internal import Pipeline

/// Reads what the group has not completed: of the events topics and of those in which events wait.
internal struct BacklogScan {
    /// Records that are looked at unless somebody asks for more.
    static let recordsMax = 1_000_000

    private let configuration: Configuration
    private let cluster: ClusterAccess
    private let events: Set<String>
    private let names: [String]

    private static let timeout = TimeSpan.seconds(10)

    init(_ configuration: Configuration, _ cluster: ClusterAccess) throws(Failure) {
        self.configuration = configuration
        self.cluster = cluster
        let topics = configuration.kafka.topics
        events = Set(topics.events.map(\.name))
        let counts = try cluster.partitionCounts()
        let wanted =
            topics.events.map(\.name) + RetryTier.allCases.map { $0.topic(of: topics.retry) }
            + ParkedTopics.names(of: topics.parked)
        names = wanted.filter { (counts[$0] ?? 0) > 0 }
        self.counts = counts
    }

    private let counts: [String: Int32]

    /// Adds everything up; false when there was more than `limit`.
    func run(limit: Int, into sum: inout BacklogSum) throws(Failure) -> Bool {
        let starts: [TopicPartition: Int64]
        var open: [TopicPartition: Int64] = [:]
        do throws(KafkaError) {
            starts = try committed()
            for (place, start) in starts {
                let marks = try cluster.admin.watermarks(place, timeout: Self.timeout)
                if max(start, marks.lowerBound) < marks.upperBound {
                    open[place] = max(start, marks.lowerBound)
                }
            }
        } catch {
            throw cluster.failure(error, doing: "look up offsets")
        }
        let busy = Set(open.keys.map(\.topic)).sorted()
        guard !busy.isEmpty else { return true }
        // A partition without a backlog is read from its end, that is not at all.
        var offsets = open
        let reader: TopicReader
        do throws(KafkaError) {
            for name in busy {
                for partition in 0..<(counts[name] ?? 0) {
                    let place = TopicPartition(name, partition)
                    guard offsets[place] == nil else { continue }
                    offsets[place] =
                        try cluster.admin.watermarks(place, timeout: Self.timeout).upperBound
                }
            }
            reader = try TopicReader(
                cluster.configuration, topics: busy, from: .offsets(offsets))
        } catch {
            throw cluster.failure(error, doing: "read \(busy.joined(separator: ", "))")
        }
        let progress = ProgressLine()
        defer { progress.end() }
        return try reader.readWhole { record in
            if let event = event(record) { sum.add(event) }
        } while: { count in
            progress.show("\(count) records read")
            return count < limit
        }
    }

    /// The consumer asks for its group's offsets and joins nothing.
    private func committed() throws(KafkaError) -> [TopicPartition: Int64] {
        let consumer = try Consumer(
            cluster.configuration, group: GroupConfiguration(groupID: configuration.kafka.group))
        let places = names.flatMap { name in
            (0..<(counts[name] ?? 0)).map { TopicPartition(name, $0) }
        }
        let known = try consumer.committedOffsets(places, timeout: Self.timeout)
        return Dictionary(places.map { ($0, known[$0] ?? 0) }, uniquingKeysWith: { $1 })
    }

    private func event(_ record: borrowing KafkaRecord) -> WaitingEvent? {
        var headers: [(name: String, value: [UInt8])] = []
        record.forEachHeader { name, value in
            headers.append((String(decoding: name, as: UTF8.self), value.map { Array($0) } ?? []))
        }
        func text(_ name: String) -> String? {
            headers.last { $0.name == name }.map { String(decoding: $0.value, as: UTF8.self) }
        }
        if let group = text("bugle-consumer-group"), group != configuration.kafka.group {
            return nil
        }
        let isFirst = events.contains(record.topic)
        let written = UnixMillis(record.timestampMillis ?? 0)
        let published =
            isFirst
            ? written
            : text("bugle-original-timestamp").flatMap { Int64($0) }.map { UnixMillis($0) }
                ?? written
        var event = WaitingEvent(
            topic: record.topic, dueAt: published, expiresAt: published,
            code: isFirst ? nil : text("bugle-error-code"))
        guard let value = record.value,
            let summary = try? EventCheck.check(
                Array(value), headers: headers, maximumBytes: configuration.limits.eventBytes,
                takesUserFromSubject: configuration.cloudEvents.userFromSubject, at: published)
        else { return event }
        event.type = summary.type
        event.source = summary.source
        event.app =
            summary.app ?? (configuration.apps.count == 1 ? configuration.apps[0].name : nil)
        event.dueAt = summary.dueAt
        event.expiresAt = summary.expiresAt
        return event
    }
}
