import Base
import EventLoop
import Kafka
import Testing

/// Against a broker in its own process: real sockets, real group coordination, restarts.
@Suite(.serialized) struct BrokerTests {
    private let broker: TestBroker
    private let admin: Admin
    private static let partitions = TestBroker.partitions

    init() throws {
        broker = try TestBroker.withTopics()
        admin = try Admin(broker.configuration)
    }

    @Test func `a topic is created once and described`() throws {
        let again = try admin.createTopics(
            [NewTopic(TestMember.input, partitions: 1, replicas: 1)], timeout: .seconds(20))
        #expect(again[TestMember.input]?.kind == .alreadyExists)
        let description = try admin.describeCluster(timeout: .seconds(10))
        #expect(description.topic(TestMember.input)?.partitions == Self.partitions)
    }

    @Test func `the end of a partition is told behind the ends of transactions`() throws {
        for instance in ["a", "b"] {
            var settings = CommitterConfiguration(topics: [TestMember.input])
            settings.mode = .transactional(group: "publishers", instance: instance)
            let publisher = try Committer(broker.configuration, settings)
            let topic = try #require(publisher.topic(TestMember.input))
            let batch = publisher.makeBatch()
            let text = batch.bytes { $0.append("event") }
            batch.addRecord(to: topic, partition: 0, key: text, value: text)
            batch.detachRecords()
            publisher.post(batch)
            #expect(publisher.stop(deadline: SystemTime.shared.monotonic + .seconds(30)))
        }
        var settings = TestMember.groupSettings("g", sessionTimeout: .seconds(6))
        settings.reportsEndOfPartition = true
        let member = try TestMember(broker.configuration, group: settings)
        let place = TopicPartition(TestMember.input, 0)
        #expect(member.turn { member.ends[place] == 4 })
        #expect(member.assignment(of: place)?.queue.end == 4)
        #expect(member.seen == ["0/0", "0/2"])
        #expect(member.ends.count == Int(Self.partitions))
        #expect(member.stop())
    }

    @Test func `a topic that is made anew is read and committed from its beginning`() throws {
        try broker.publish(0..<60, partition: 0)
        let member = try TestMember(
            broker.configuration,
            group: TestMember.groupSettings("g", sessionTimeout: .seconds(6)))
        #expect(member.turn { (try? broker.committed()[0]) == 60 })
        try broker.remakeInput()
        try broker.publish(100..<110, partition: 0)
        #expect(member.turn { member.seen.count == 70 })
        #expect(member.restarts == ["0/0"])
        #expect(member.turn { (try? broker.committed()[0]) == 10 })
        #expect(member.stop())
        #expect(try broker.committed()[0] == 10)
        #expect(try broker.results().count == 70)
    }

    /// This broker refuses commits while an eager rebalance is going on, as Kafka does not: what
    /// moves to the other member may be done twice there. Nothing else may, and nothing is lost.
    @Test func `a second member takes over what was drained`() throws {
        try broker.publish(0..<600)
        var settings = TestMember.groupSettings("g", sessionTimeout: .seconds(6))
        settings.commitMetadata = "first"
        let first = try TestMember(broker.configuration, group: settings)
        first.holds = true
        #expect(first.turn { first.heldCount == 600 })

        // The second joins while everything is open in the first: the revocation finishes it.
        settings.commitMetadata = "second"
        let second = try TestMember(broker.configuration, group: settings)
        #expect(
            first.turn(until: .seconds(60)) {
                second.turn()
                return first.partitions.count == 3 && second.partitions.count == 3
            })
        first.holds = false
        first.release()
        try broker.publish(600..<1_200)
        #expect(
            first.turn(until: .seconds(60)) {
                second.turn()
                return Set(first.seen).union(second.seen).count == 1_200
            })
        #expect(first.stop())
        #expect(second.turn(until: .seconds(60)) { second.partitions.count == 6 })
        #expect(second.stop())

        let isComplete = try Set(broker.results()) == Set(TestBroker.expected(1_200))
        #expect(isComplete)
        #expect(first.seen.count == Set(first.seen).count)
        #expect(try broker.committed() == [Int64](repeating: 200, count: 6))
    }

    @Test func `a broker stopped and restarted loses nothing and work goes on`() throws {
        try broker.publish(0..<300)
        let member = try TestMember(
            broker.configuration, group: TestMember.groupSettings("g", sessionTimeout: .seconds(6)))
        #expect(member.turn { member.seen.count >= 300 })
        broker.stop()
        member.holds = true
        try broker.start()
        try broker.publish(300..<600)
        member.holds = false
        #expect(member.turn(until: .seconds(90)) { Set(member.seen).count == 600 })
        #expect(
            member.turn(until: .seconds(60)) {
                (0..<Self.partitions).allSatisfy {
                    member.committer.committedOffsets[.init(TestMember.input, $0)] == 100
                }
            })
        member.stop()
        let isComplete = try Set(broker.results()) == Set(TestBroker.expected(600))
        #expect(isComplete)
        #expect(try broker.committed() == [Int64](repeating: 100, count: 6))
    }

    @Test func `the group's last commit names who made it`() throws {
        try broker.publish(0..<6)
        var settings = TestMember.groupSettings("g", sessionTimeout: .seconds(6))
        settings.commitMetadata = "replica-7"
        let member = try TestMember(broker.configuration, group: settings)
        #expect(member.turn { member.seen.count == 6 })
        #expect(member.stop())
        let asker = try Consumer(broker.configuration, group: settings)
        let place = TopicPartition(TestMember.input, 0)
        let states = try asker.committedState([place], timeout: .seconds(10))
        #expect(states[place]?.name == "replica-7")
    }
}
