internal import Base
internal import JSON
internal import Kafka
internal import Pipeline

/// The newest records of an events topic, looked at for producers that partition otherwise.
internal struct RoutingSample {
    private let topic: String
    private var records = 0
    private var strays = 0
    private var withoutKey = 0
    private var sources: [String: Int] = [:]

    /// Records taken of each partition.
    private static let recordsPerPartition: Int64 = 30
    private static let deadline = TimeSpan.seconds(15)

    /// Reads the sample.
    init(
        _ topic: String, cluster: ClusterAccess, takesUserFromSubject: Bool
    ) throws(KafkaError) {
        self.topic = topic
        let description = try cluster.admin.describeCluster(timeout: .seconds(5))
        let count = description.topic(topic)?.partitions ?? 0
        var offsets: [TopicPartition: Int64] = [:]
        for partition in 0..<count {
            let place = TopicPartition(topic, partition)
            let range = try cluster.admin.watermarks(place, timeout: .seconds(5))
            offsets[place] = max(range.lowerBound, range.upperBound - Self.recordsPerPartition)
        }
        let reader = try TopicReader(
            cluster.configuration, topics: [topic], from: .offsets(offsets))
        var seen = Tally()
        let deadline = SystemTime.shared.monotonic + Self.deadline
        _ = reader.readToEnd(deadline: deadline) { record in
            seen.look(at: record, partitions: count, takesUserFromSubject)
        }
        records = seen.records
        strays = seen.strays
        withoutKey = seen.withoutKey
        sources = seen.sources
    }

    /// What the sample says.
    var findings: [Finding] {
        guard strays + withoutKey > 0 else {
            return [.ok("\(topic): the keys of \(records) recent events fit their partitions")]
        }
        let named = sources.sorted { $0.value > $1.value }.prefix(5).map {
            "\($0.key.isEmpty ? "no source" : $0.key.printable): \($0.value)"
        }
        return [
            .warning(
                "\(topic): of \(records) recent events \(strays) are not in the partition of their "
                    + "user, \(withoutKey) have another key than their user "
                    + "(\(named.joined(separator: ", "))); a user's events lose their order. Key: "
                    + "the user id; partitioner: murmur2, Java's default, in librdkafka and kcat "
                    + "partitioner=murmur2_random")
        ]
    }

    private struct Tally {
        var records = 0
        var strays = 0
        var withoutKey = 0
        var sources: [String: Int] = [:]
        private let parser = JSONParser()

        mutating func look(
            at record: borrowing KafkaRecord, partitions: Int32, _ takesUserFromSubject: Bool
        ) {
            guard let value = record.value else { return }
            var headers: [(name: String, value: [UInt8])] = []
            record.forEachHeader { name, value in
                headers.append(
                    (String(decoding: name, as: UTF8.self), value.map { Array($0) } ?? []))
            }
            let bytes = Array(value)
            // Poison has no user; it is counted elsewhere.
            guard
                let event = try? EventCheck.check(
                    bytes, headers: headers, takesUserFromSubject: takesUserFromSubject,
                    at: SystemTime.shared.wall)
            else { return }
            records += 1
            if event.isBroadcast { return }
            let user = Array(event.userID.utf8)
            let isKeyed = record.key.map { $0.elementsEqual(user) } ?? false
            let isHome = user.withUnsafeBytes {
                Murmur2.partition(of: $0, count: partitions) == record.partition
            }
            guard !isKeyed || !isHome else { return }
            if isKeyed { strays += 1 } else { withoutKey += 1 }
            let source = (try? parser.parse(bytes))?["source"]?.string ?? ""
            sources[source, default: 0] += 1
        }
    }
}
