import Base
import Kafka
import Synchronization
import Testing

@Suite struct MockClusterTests {
    @Test func `records come back as they were written`() throws {
        let cluster = try MockCluster()
        try cluster.createTopic("t", partitions: 3)
        let configuration = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
        let producer = try TopicProducer(configuration)
        try producer.send(
            to: "t", partition: 1, key: [1, 2], value: Array("body".utf8),
            headers: [.init("a", "1"), .init("b", nil), .init("a", "2")], timestampMillis: 77_000)
        try producer.send(to: "t", partition: 1, key: nil, value: nil)
        try producer.send(to: "t", partition: 1, key: [], value: [])
        try producer.flush(timeout: .seconds(10))

        let reader = try TopicReader(configuration, topics: ["t"], from: .beginning)
        var seen: [String] = []
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        let ended = reader.readToEnd(deadline: deadline) { record in
            var headers: [String] = []
            record.forEachHeader { name, value in
                headers.append(
                    String(decoding: name, as: UTF8.self) + "="
                        + (value.map { String(decoding: $0, as: UTF8.self) } ?? "nil"))
            }
            let last = record.withHeader("a") { String(decoding: $0, as: UTF8.self) }
            seen.append(
                "\(record.topic)/\(record.partition)/\(record.offset)"
                    + " \(record.key.map { Array($0) } as [UInt8]?)"
                    + " \(record.value.map { $0.count } as Int?) \(headers) \(last as String?)")
            if record.offset == 0 {
                #expect(record.timestampMillis == 77_000)
                #expect(record.timestampKind == .creation)
            }
        }
        #expect(ended)
        #expect(
            seen == [
                "t/1/0 Optional([1, 2]) Optional(4) [\"a=1\", \"b=nil\", \"a=2\"] Optional(\"2\")",
                "t/1/1 nil nil [] nil", "t/1/2 Optional([]) Optional(0) [] nil",
            ])
    }

    @Test func `a reader knows when it has all that was visible, however much comes since`() throws
    {
        let cluster = try MockCluster()
        try cluster.createTopic("t", partitions: 2)
        let configuration = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
        let producer = try TopicProducer(configuration)
        func write() throws {
            _ = try producer.sendAndWait(to: "t", partition: 1, key: nil, value: [1])
        }
        for _ in 0..<3 { try write() }
        let reader = try TopicReader(configuration, topics: ["t"], from: .beginning)
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        /// Reads one record at a time, and writes another one for each.
        func readAll() throws -> Int {
            var count = 0
            while !reader.hasReachedEveryEnd {
                try #require(SystemTime.shared.monotonic < deadline, "no end")
                guard reader.read(max: 1, timeout: .milliseconds(100), { _ in }) > 0 else {
                    continue
                }
                count += 1
                try write()
            }
            return count
        }
        try reader.aimAtEnds(timeout: .seconds(10))
        #expect(!reader.hasReachedEveryEnd)
        #expect(try readAll() == 3)
        // Three more came meanwhile.
        try reader.aimAtEnds(timeout: .seconds(10))
        #expect(!reader.hasReachedEveryEnd)
        #expect(try readAll() == 3)
        // Without a word about it, it is where the partition ended when reading began.
        let other = try TopicReader(configuration, topics: ["t"], from: .beginning)
        // Each answer of the broker is older than the next record: no end is ever seen.
        cluster.setRoundTrip(.milliseconds(40), broker: 1)
        while !other.hasReachedEveryEnd {
            try #require(SystemTime.shared.monotonic < deadline, "no end")
            try producer.send(to: "t", partition: 0, key: nil, value: [1])
            try producer.send(to: "t", partition: 1, key: nil, value: [1])
            other.read(max: 10, timeout: .milliseconds(2)) { _ in }
        }
    }

    @Test func `the key decides the partition as Java's producer does`() throws {
        let cluster = try MockCluster()
        try cluster.createTopic("t", partitions: 7)
        let producer = try TopicProducer(
            KafkaConfiguration(bootstrapServers: cluster.bootstrapServers))
        for user in 0..<20 {
            let key = Array("user-\(user)".utf8)
            let sent = try producer.sendAndWait(to: "t", key: key, value: [1])
            let expected = key.withUnsafeBytes { Murmur2.partition(of: $0, count: 7) }
            #expect(sent.place.partition == expected)
        }
    }

    @Test func `the cluster is described and asking creates no topic`() throws {
        let cluster = try MockCluster()
        try cluster.createTopic("t", partitions: 5)
        let admin = try Admin(KafkaConfiguration(bootstrapServers: cluster.bootstrapServers))
        let description = try admin.describeCluster(timeout: .seconds(10))
        #expect(description.brokers.count == 1)
        #expect(description.topic("t")?.partitions == 5)
        #expect(description.topic("other") == nil)
        let watermarks = try admin.watermarks(TopicPartition("t", 0), timeout: .seconds(10))
        #expect(watermarks.isEmpty)
        #expect(throws: KafkaError.self) {
            try TopicReader(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers), topics: ["other"],
                from: .beginning)
        }
    }

    @Test func `log lines of the client reach whoever asked for them`() throws {
        let box = LogBox()
        let configuration = KafkaConfiguration(
            bootstrapServers: "127.0.0.1:1", properties: ["debug": "broker"]
        ) { line in box.lines.withLock { $0.append(line) } }
        let producer = try TopicProducer(configuration)
        try producer.send(to: "t", key: nil, value: [1])
        #expect(throws: KafkaError.self) { try producer.flush(timeout: .milliseconds(300)) }
        #expect(box.lines.withLock { !$0.isEmpty })
    }

    @Test func `an unreachable broker is one clear error in time`() throws {
        let admin = try Admin(KafkaConfiguration(bootstrapServers: "127.0.0.1:1"))
        do {
            _ = try admin.describeCluster(timeout: .milliseconds(500))
            Issue.record("a broker answered")
        } catch {
            #expect(error.kind == .unreachable || error.kind == .timedOut)
        }
    }
}

private final class LogBox: Sendable {
    let lines = Mutex<[KafkaLogLine]>([])
}
