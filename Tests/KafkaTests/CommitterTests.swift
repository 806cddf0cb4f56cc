import Base
import EventLoop
import Kafka
import Synchronization
import Testing

/// The committer's producing half against the broker in process: whatever happens, every record
/// arrives.
@Suite struct CommitterTests {
    private let cluster: MockCluster

    init() throws {
        cluster = try MockCluster()
        try cluster.createTopic("results", partitions: 3)
        try cluster.createTopic("other", partitions: 1)
    }

    private func configuration(_ properties: [String: String] = [:]) -> KafkaConfiguration {
        KafkaConfiguration(
            bootstrapServers: cluster.bootstrapServers, properties: properties)
    }

    /// What the committer reported, for tests to wait on.
    private final class Reports: Sendable {
        private let events = Mutex<[CommitterEvent]>([])
        private let arrival = Semaphore()

        func add(_ event: CommitterEvent) {
            events.withLock { $0.append(event) }
            arrival.signal()
        }

        func wait(_ matches: (CommitterEvent) -> Bool) -> Bool {
            let deadline = SystemTime.shared.monotonic + .seconds(30)
            while !events.withLock({ $0.contains(where: matches) }) {
                let left = deadline - SystemTime.shared.monotonic
                guard left > .zero, arrival.wait(upTo: left) else { return false }
            }
            return true
        }
    }

    private func committer(
        _ properties: [String: String] = [:], reports: Reports? = nil
    ) throws -> Committer {
        var settings = CommitterConfiguration(topics: ["results", "other"])
        if let reports { settings.onEvent = { reports.add($0) } }
        return try Committer(configuration(properties), settings)
    }

    private func fill(
        _ committer: Committer, _ numbers: Range<Int>, headers: Bool = false
    ) throws {
        let batch = committer.makeBatch()
        let topics = [
            try #require(committer.topic("results")), try #require(committer.topic("other")),
        ]
        for number in numbers {
            let key = batch.bytes { $0.append(decimal: Int64(number % 10)) }
            let value = batch.bytes { $0.append(decimal: Int64(number)) }
            batch.addRecord(to: topics[number % 7 == 0 ? 1 : 0], key: key, value: value)
            guard headers else { continue }
            batch.addHeader("bugle-error-code", value)
            let name = batch.bytes { $0.append("free-name") }
            batch.addHeader(name: name, .null)
        }
        batch.detachRecords()
        committer.post(batch)
    }

    private func written(headers: Bool = false) throws -> [Int] {
        let reader = try TopicReader(
            configuration(), topics: ["results", "other"], from: .beginning)
        var numbers: [Int] = []
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        let ended = reader.readToEnd(deadline: deadline) { record in
            let text = record.value.map { String(decoding: $0, as: UTF8.self) } ?? ""
            numbers.append(Int(text) ?? -1)
            let code = record.withHeader("bugle-error-code") {
                String(decoding: $0, as: UTF8.self)
            }
            if (code == text) != headers { numbers.append(-2) }
        }
        #expect(ended)
        return numbers.sorted()
    }

    private func stop(_ committer: Committer, within span: TimeSpan = .seconds(30)) -> Bool {
        committer.stop(deadline: SystemTime.shared.monotonic + span)
    }

    @Test func `a queue without bound takes everything`() throws {
        let committer = try committer(["queue.buffering.max.messages": "0"])
        try fill(committer, 0..<1_000)
        #expect(committer.stop(deadline: SystemTime.shared.monotonic + .seconds(20)))
        #expect(committer.backlog == (0, 0))
        #expect(committer.statistics.delivered == 1_000)
    }

    @Test func `records reach their topics with and without headers`() throws {
        let committer = try committer()
        try fill(committer, 0..<500)
        #expect(stop(committer))
        #expect(try written() == Array(0..<500))
        #expect(committer.statistics.delivered == 500)
        #expect(committer.backlog == (0, 0))
    }

    @Test func `a full queue drops nothing and frees headers once`() throws {
        let committer = try committer(["queue.buffering.max.messages": "10"])
        for start in stride(from: 0, to: 1_000, by: 50) {
            try fill(committer, start..<start + 50, headers: true)
        }
        #expect(stop(committer))
        #expect(try written(headers: true) == Array(0..<1_000))
    }

    @Test func `a broker that is down for a while loses nothing`() throws {
        let reports = Reports()
        let committer = try committer(
            ["queue.buffering.max.messages": "10", "message.timeout.ms": "1000"],
            reports: reports)
        cluster.setBroker(1, up: false)
        for start in stride(from: 0, to: 1_000, by: 50) { try fill(committer, start..<start + 50) }
        #expect(
            reports.wait {
                if case .deliveryFailed = $0 { return true }
                return false
            })
        #expect(committer.backlog.records == 1_000)
        cluster.setBroker(1, up: true)
        #expect(stop(committer, within: .seconds(60)))
        #expect(Set(try written()) == Set(0..<1_000))
        #expect(committer.statistics.redelivered > 0)
    }

    @Test func `what the broker refuses is produced again`() throws {
        let committer = try committer()
        cluster.push([.topicUnauthorized, .tooLarge, .topicUnauthorized], to: .produce)
        try fill(committer, 0..<100)
        #expect(stop(committer))
        #expect(Set(try written()) == Set(0..<100))
    }

    @Test func `a producer that died is replaced and nothing is lost`() throws {
        let reports = Reports()
        cluster.push([.clusterUnauthorized], to: .initProducerID)
        let committer = try committer(reports: reports)
        try fill(committer, 0..<200)
        #expect(
            reports.wait {
                if case .producerRebuilt(let error) = $0 { return error.kind == .unauthorized }
                return false
            })
        #expect(stop(committer))
        #expect(try written() == Array(0..<200))
        #expect(committer.statistics.rebuilds == 1)
    }

    @Test func `stopping while the broker is away keeps the deadline and says so`() throws {
        let committer = try committer()
        cluster.setBroker(1, up: false)
        try fill(committer, 0..<10)
        let start = SystemTime.shared.monotonic
        #expect(!stop(committer, within: .seconds(1)))
        #expect(SystemTime.shared.monotonic - start < .seconds(10))
        #expect(committer.backlog.records == 10)
    }

    @Test func `back-pressure shows when too much waits`() throws {
        var settings = CommitterConfiguration(topics: ["results", "other"])
        settings.outboxRecords = 20
        let committer = try Committer(configuration(), settings)
        cluster.setBroker(1, up: false)
        #expect(committer.hasRoom)
        try fill(committer, 0..<20)
        #expect(!committer.hasRoom)
        cluster.setBroker(1, up: true)
        #expect(stop(committer))
        #expect(committer.hasRoom)
    }
}
