// The two topics of a test member on a broker of its own: made, filled, read and asked about.

import Base
import Kafka
import Testing

extension TestBroker {
    /// Partitions of the input topic.
    static let partitions: Int32 = 6

    /// A broker with the topics of a `TestMember`.
    static func withTopics() throws -> TestBroker {
        let broker = try TestBroker()
        let admin = try Admin(broker.configuration)
        let failures = try admin.createTopics(
            [
                NewTopic(TestMember.input, partitions: partitions, replicas: 1),
                NewTopic(TestMember.output, partitions: 3, replicas: 1),
            ], timeout: .seconds(20))
        #expect(failures.isEmpty)
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while SystemTime.shared.monotonic < deadline {
            let found = try admin.describeCluster(timeout: .seconds(10))
            if found.topic(TestMember.input)?.partitions == partitions,
                found.topic(TestMember.output)?.partitions == 3
            {
                break
            }
        }
        return broker
    }

    /// Publishes numbered events, in turns over the partitions or into one.
    func publish(_ numbers: Range<Int>, partition: Int32? = nil) throws {
        let producer = try TopicProducer(configuration)
        for number in numbers {
            try producer.send(
                to: TestMember.input, partition: partition ?? Int32(number) % Self.partitions,
                key: Array("user-\(number)".utf8), value: Array("event \(number)".utf8))
        }
        try producer.flush(timeout: .seconds(30))
    }

    /// The results that a reader of committed records sees, in their own order.
    func results() throws -> [String] {
        let reader = try TopicReader(configuration, topics: [TestMember.output], from: .beginning)
        var values: [String] = []
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        let ended = reader.readToEnd(deadline: deadline) { record in
            values.append(record.value.map { String(decoding: $0, as: UTF8.self) } ?? "")
        }
        #expect(ended)
        return values.sorted()
    }

    /// What the group `g` has committed, by partition; -1 where nothing.
    func committed() throws -> [Int64] {
        let places = (0..<Self.partitions).map { TopicPartition(TestMember.input, $0) }
        let asker = try Consumer(
            configuration, group: TestMember.groupSettings("g", sessionTimeout: .seconds(6)))
        let offsets = try asker.committedOffsets(places, timeout: .seconds(10))
        return places.map { offsets[$0] ?? -1 }
    }

    /// The results of the first `total` events that were published in turns.
    static func expected(_ total: Int) -> [String] {
        (0..<total).map { "\($0 % Int(partitions))/\($0 / Int(partitions))" }.sorted()
    }
}
