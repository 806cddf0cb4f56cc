import Base
import EventLoop
import Kafka
import Testing

/// Every request of a transaction answered with every kind of error. This broker knows no real
/// transactions: what is shown here is that the committer goes on, loses nothing and ends only when
/// it must. `TransactionTests` show what readers see.
@Suite struct TransactionFaultTests {
    private let cluster: MockCluster
    private let configuration: KafkaConfiguration

    init() throws {
        cluster = try MockCluster()
        try cluster.createTopic("results", partitions: 3)
        try cluster.createTopic(TestMember.input, partitions: 4)
        configuration = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
    }

    private func publish(_ numbers: Range<Int>) throws {
        let producer = try TopicProducer(configuration)
        for number in numbers {
            try producer.send(
                to: TestMember.input, partition: Int32(number % 4),
                key: Array("user-\(number)".utf8), value: Array("event \(number)".utf8))
        }
        try producer.flush(timeout: .seconds(10))
    }

    private func member() throws -> TestMember {
        var committer = CommitterConfiguration(topics: [TestMember.output])
        committer.mode = .transactional(group: "g", instance: "i")
        return try TestMember(
            configuration, group: TestMember.groupSettings("g"), committer: committer)
    }

    private func distinctResults() throws -> Int {
        let reader = try TopicReader(configuration, topics: [TestMember.output], from: .beginning)
        var values: Set<String> = []
        #expect(
            reader.readToEnd(deadline: SystemTime.shared.monotonic + .seconds(20)) { record in
                values.insert(record.value.map { String(decoding: $0, as: UTF8.self) } ?? "")
            })
        return values.count
    }

    private static let faults: [(MockCluster.Request, [MockCluster.Fault])] = [
        (.addPartitionsToTransaction, [.disconnect]),
        (.addPartitionsToTransaction, [.concurrentTransactions, .notCoordinator]),
        (.addPartitionsToTransaction, [.topicUnauthorized]),
        (.addPartitionsToTransaction, [.invalidTransactionState]),
        (.produce, [.notLeader, .disconnect]),
        (.produce, [.tooLarge]),
        (.produce, [.outOfOrderSequence]),
        (.addOffsetsToTransaction, [.notCoordinator, .disconnect]),
        (.addOffsetsToTransaction, [.invalidTransactionState]),
        (.transactionOffsetCommit, [.illegalGeneration]),
        (.transactionOffsetCommit, [.unknownMember]),
        (.transactionOffsetCommit, [.rebalanceInProgress]),
        (.transactionOffsetCommit, [.notCoordinator]),
        (.endTransaction, [.disconnect]),
        (.endTransaction, [.notCoordinator, .notCoordinator]),
        (.endTransaction, [.invalidTransactionState]),
        (.initProducerID, [.notCoordinator, .disconnect]),
    ]

    @Test(arguments: faults)
    func `an error of any step is got over`(
        request: MockCluster.Request, faults: [MockCluster.Fault]
    ) throws {
        let member = try member()
        try publish(0..<40)
        #expect(member.turn { member.seen.count == 40 && member.committer.backlog.records == 0 })
        member.holds = true
        try publish(40..<120)
        #expect(member.turn { member.seen.count == 120 })
        let before = member.committer.statistics.commits
        // A producer asks for its id again when the one it had is no good any more.
        if request == .initProducerID {
            cluster.push([.invalidTransactionState], to: .endTransaction)
        }
        cluster.push(faults, to: request)
        member.holds = false
        member.release()
        #expect(
            member.turn(until: .seconds(60)) {
                member.committer.backlog.records == 0
                    && member.committer.statistics.commits > before
            })
        #expect(member.committer.failure == nil)
        #expect(member.stop())
        #expect(try distinctResults() == 120)
    }

    @Test(arguments: [
        MockCluster.Request.addPartitionsToTransaction, .addOffsetsToTransaction,
        .transactionOffsetCommit, .endTransaction,
    ])
    func `a fenced producer ends the committer`(request: MockCluster.Request) throws {
        let member = try member()
        try publish(0..<40)
        #expect(member.turn { member.committer.statistics.commits > 0 })
        cluster.push([.producerFenced], to: request)
        try publish(40..<80)
        #expect(member.turn { member.committer.failure != nil })
        #expect(member.committer.failure?.error.kind == .fenced)
        #expect(!member.committer.hasRoom)
        let start = SystemTime.shared.monotonic
        member.stop(within: .seconds(10))
        #expect(SystemTime.shared.monotonic - start < .seconds(9))
    }

    @Test func `a probe says whether transactions are offered`() throws {
        #expect(try TransactionProbe.ask(configuration, group: "g", timeout: .seconds(20)))
        cluster.withdraw(.initProducerID)
        #expect(throws: CommitterFailure.self) {
            try TransactionProbe.ask(configuration, group: "g", timeout: .seconds(20))
        }
    }

    @Test func `a broker without transactions is told apart`() throws {
        cluster.withdraw(.initProducerID)
        var settings = CommitterConfiguration(topics: ["results"])
        settings.mode = .transactional(group: "g", instance: "i")
        let committer = try Committer(configuration, settings)
        do {
            _ = try committer.waitUntilReady(upTo: .seconds(30))
            Issue.record("it was ready")
        } catch {
            #expect(error.error.kind == .unsupported)
            #expect(error.description.contains("set kafka.commit: plain"))
        }
        committer.stop(deadline: SystemTime.shared.monotonic + .seconds(5))
    }
}
