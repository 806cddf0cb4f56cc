import Base
import EventLoop
import Kafka
import Testing

/// Transactions against a broker in its own process. Readers here read committed records only.
@Suite(.serialized) struct TransactionTests {
    private let broker: TestBroker

    init() throws { broker = try TestBroker.withTopics() }

    private func member(
        _ instance: String, _ configuration: KafkaConfiguration? = nil,
        drainDeadline: TimeSpan = .seconds(10)
    ) throws -> TestMember {
        var settings = TestMember.groupSettings("g", sessionTimeout: .seconds(6))
        settings.drainDeadline = drainDeadline
        settings.commitMetadata = instance
        var committer = CommitterConfiguration(topics: [TestMember.output])
        committer.mode = .transactional(group: "g", instance: instance)
        return try TestMember(
            configuration ?? broker.configuration, group: settings, committer: committer)
    }

    @Test func `results and offsets come together`() throws {
        try broker.publish(0..<600)
        let member = try member("a")
        #expect(member.turn { member.seen.count == 600 })
        #expect(member.stop())
        #expect(try broker.results() == TestBroker.expected(600))
        #expect(try broker.committed() == [Int64](repeating: 100, count: 6))
        #expect(member.committer.backlog == (0, 0))
        #expect(member.reports.all.isEmpty)
    }

    @Test func `a topic that is made anew is read and committed from its beginning`() throws {
        try broker.publish(0..<60, partition: 0)
        let member = try member("a")
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

    @Test func `what is finished behind an open event is committed and not done again`() throws {
        try broker.publish(0..<60, partition: 0)
        let first = try member("a", drainDeadline: .milliseconds(500))
        first.holds = true
        #expect(first.turn { first.heldCount == 60 })
        first.release { $0 != 3 && $0 != 7 && $0 < 50 }
        #expect(first.turn { first.committer.backlog.records == 0 })
        #expect(try broker.results().count == 48)
        first.answersTickets = false
        first.stop()
        #expect(try broker.committed()[0] == 3)

        let second = try member("a")
        #expect(second.turn { second.seen.count + second.skipped.count == 57 })
        #expect(second.seen == ["0/3", "0/7"] + (50..<60).map { "0/\($0)" })
        #expect(second.stop())
        #expect(try broker.committed()[0] == 60)
        #expect(try broker.results() == (0..<60).map { "0/\($0)" }.sorted())
    }

    @Test func `a second process of the same name ends the first, which says so`() throws {
        try broker.publish(0..<6)
        let first = try member("same")
        #expect(first.turn { first.committer.committedOffsets.count == 6 })
        let second = try member("same")
        #expect(
            second.turn(until: .seconds(60)) {
                (try? second.committer.waitUntilReady(upTo: .zero)) == true
            })
        try broker.publish(6..<60)
        #expect(
            first.turn(until: .seconds(60)) {
                second.turn()
                return first.committer.failure != nil
            })
        let text = first.committer.failure?.description ?? ""
        #expect(text.hasPrefix("another process runs as instance \"same\" of group \"g\""))
        #expect(!first.committer.hasRoom)
        first.stop(within: .seconds(5))
        #expect(second.turn(until: .seconds(60)) { second.partitions.count == 6 })
        #expect(
            second.turn(until: .seconds(60)) {
                (try? broker.committed()) == [Int64](repeating: 10, count: 6)
            })
        #expect(second.stop())
        #expect(try broker.results() == TestBroker.expected(60))
    }

    @Test func `a broker that goes away and comes back loses and doubles nothing`() throws {
        try broker.publish(0..<300)
        let member = try member("a")
        #expect(member.turn { member.seen.count == 300 })
        broker.stop()
        try broker.start()
        try broker.publish(300..<600)
        #expect(member.turn(until: .seconds(90)) { Set(member.seen).count == 600 })
        #expect(
            member.turn(until: .seconds(60)) {
                (try? broker.committed()) == [Int64](repeating: 100, count: 6)
            })
        member.stop()
        #expect(try broker.results() == TestBroker.expected(600))
    }
}
