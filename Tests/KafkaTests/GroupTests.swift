import Base
import EventLoop
import Glibc
import Kafka
import Testing

/// The group thread, the lanes' queues and the committer together, against the broker in process.
@Suite struct GroupTests {
    private let cluster: MockCluster
    private let configuration: KafkaConfiguration

    init() throws {
        cluster = try MockCluster()
        try cluster.createTopic(TestMember.input, partitions: 4)
        try cluster.createTopic(TestMember.output, partitions: 2)
        configuration = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
    }

    private func publish(_ count: Int, from first: Int = 0, partition: Int32? = nil) throws {
        let producer = try TopicProducer(configuration)
        for number in first..<first + count {
            try producer.send(
                to: TestMember.input, partition: partition ?? Int32(number % 4),
                key: Array("user-\(number)".utf8), value: Array("event \(number)".utf8))
        }
        try producer.flush(timeout: .seconds(10))
    }

    private func results() throws -> [String] {
        let reader = try TopicReader(configuration, topics: [TestMember.output], from: .beginning)
        var values: [String] = []
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        let ended = reader.readToEnd(deadline: deadline) { record in
            values.append(record.value.map { String(decoding: $0, as: UTF8.self) } ?? "")
        }
        #expect(ended)
        return values
    }

    /// Asked by somebody who never joins the group.
    private func committed(_ group: String = "g") throws -> [Int64] {
        let places = (0..<4).map { TopicPartition(TestMember.input, Int32($0)) }
        let asker = try Consumer(configuration, group: TestMember.groupSettings(group))
        let offsets = try asker.committedOffsets(places, timeout: .seconds(10))
        return places.map { offsets[$0] ?? -1 }
    }

    @Test func `every record ends in a result and its offset is committed`() throws {
        try publish(400)
        let member = try TestMember(configuration, group: TestMember.groupSettings("g"))
        #expect(member.turn { member.seen.count >= 400 })
        #expect(member.stop())
        #expect(try committed() == [100, 100, 100, 100])
        let results = try results()
        #expect(results.count == 400)
        #expect(Set(results).count == 400)
        #expect(member.events.errors == [])
    }

    @Test func `nothing is committed while the first event is open`() throws {
        try publish(10, partition: 0)
        let member = try TestMember(configuration, group: TestMember.groupSettings("g"))
        member.holds = true
        #expect(member.turn { member.heldCount == 10 })
        member.release { $0 > 0 }
        #expect(member.turn { member.committer.backlog.records == 0 })
        #expect(member.turn { member.committer.committedOffsets[.init("events", 0)] == 0 })
        member.release()
        #expect(member.turn { member.committer.committedOffsets[.init("events", 0)] == 10 })
        #expect(try committed()[0] == 10)
        member.stop()
    }

    @Test func `a successor passes over what was finished behind an open event`() throws {
        try publish(60, partition: 0)
        var settings = TestMember.groupSettings("g")
        settings.drainDeadline = .milliseconds(500)
        let first = try TestMember(configuration, group: settings)
        first.holds = true
        #expect(first.turn { first.heldCount == 60 })
        first.release { $0 != 3 && $0 != 7 && $0 < 50 }
        #expect(first.turn { first.committer.backlog.records == 0 })
        first.answersTickets = false
        first.stop()
        #expect(try committed()[0] == 3)

        let second = try TestMember(configuration, group: settings)
        #expect(second.turn { second.seen.count + second.skipped.count == 57 })
        let again = ["0/3", "0/7"] + (50..<60).map { "0/\($0)" }
        #expect(second.seen == again)
        #expect(second.stop())
        #expect(try committed()[0] == 60)
        #expect(try results().count == 60)
    }

    @Test func `nothing is read before it is known what is finished`() throws {
        try publish(60, partition: 0)
        var settings = TestMember.groupSettings("g")
        settings.drainDeadline = .milliseconds(500)
        let first = try TestMember(configuration, group: settings)
        first.holds = true
        #expect(first.turn { first.heldCount == 60 })
        first.release { $0 > 0 }
        #expect(first.turn { first.committer.backlog.records == 0 })
        first.answersTickets = false
        first.stop()

        let refusals = [MockCluster.Fault](repeating: .clusterUnauthorized, count: 3)
        cluster.push(refusals, to: .offsetFetch)
        let second = try TestMember(configuration, group: settings)
        #expect(second.turn { second.seen.count + second.skipped.count == 60 })
        #expect(second.seen == ["0/0"])
        #expect(second.events.errors.count { $0.kind == .unauthorized } == 3)
        #expect(second.stop())
        #expect(try results().count == 60)
    }

    @Test func `a lost assignment commits nothing and is assigned again`() throws {
        try publish(40)
        let member = try TestMember(configuration, group: TestMember.groupSettings("g"))
        member.holds = true
        #expect(member.turn { member.heldCount == 40 })
        cluster.push([.unknownMember], to: .heartbeat)
        #expect(member.turn { member.lostCount == 4 })
        #expect(member.heldCount == 0)
        #expect(try committed() == [-1, -1, -1, -1])
        member.holds = false
        #expect(member.turn { member.seen.count == 80 })
        #expect(member.stop())
        #expect(try committed() == [10, 10, 10, 10])
    }

    @Test func `a refused commit is repeated and reading goes on`() throws {
        let member = try TestMember(configuration, group: TestMember.groupSettings("g"))
        cluster.push([.notCoordinator, .rebalanceInProgress], to: .offsetCommit)
        try publish(40)
        #expect(member.turn { member.seen.count == 40 })
        #expect(
            member.turn {
                (0..<4).allSatisfy {
                    member.committer.committedOffsets[.init("events", $0)] == 10
                }
            })
        member.stop()
    }

    /// This broker refuses commits while it rebalances. What moves to the other member is then
    /// done twice; what comes back is not, and nothing is lost.
    @Test func `a refused last commit repeats nothing in the member that goes on`() throws {
        try publish(400)
        let first = try TestMember(configuration, group: TestMember.groupSettings("g"))
        first.holds = true
        #expect(first.turn { first.heldCount == 400 })
        let second = try TestMember(configuration, group: TestMember.groupSettings("g"))
        #expect(
            first.turn(until: .seconds(60)) {
                second.turn()
                return first.partitions.count == 2 && second.partitions.count == 2
            })
        #expect(first.reports.commitErrors.contains { $0.kind == .staleMember })
        first.holds = false
        try publish(400, from: 400)
        #expect(
            first.turn {
                second.turn()
                return Set(first.seen).union(second.seen).count == 800
            })
        #expect(first.seen.count == Set(first.seen).count)
        #expect(first.stop())
        #expect(second.turn(until: .seconds(60)) { second.partitions.count == 4 })
        #expect(second.stop())
        #expect(second.seen.count == Set(second.seen).count)
        #expect(Set(try results()).count == 800)
        #expect(try committed() == [200, 200, 200, 200])
    }

    /// This broker may refuse the last commit of what moves, which is then done twice; nothing
    /// else is.
    @Test func `a cooperative group moves only what it must`() throws {
        try publish(400)
        var settings = TestMember.groupSettings("g")
        settings.assignor = .cooperativeSticky
        let first = try TestMember(configuration, group: settings)
        first.holds = true
        #expect(first.turn { first.heldCount == 400 })
        let second = try TestMember(configuration, group: settings)
        #expect(
            first.turn(until: .seconds(60)) {
                second.turn()
                return first.partitions.count == 2 && second.partitions.count == 2
            })
        // Two partitions stayed where they were, their work untouched.
        #expect(first.heldCount == 200)
        first.holds = false
        first.release()
        try publish(400, from: 400)
        #expect(
            first.turn {
                second.turn()
                return Set(first.seen).union(second.seen).count == 800
            })
        let repeated = Set(first.seen).intersection(second.seen)
        #expect(repeated.isEmpty || first.reports.commitErrors.contains { $0.kind == .staleMember })
        #expect(first.seen.count == Set(first.seen).count)
        #expect(first.stop())
        #expect(
            try second.turn(until: .seconds(60)) {
                try second.partitions.count == 4 && committed() == [200, 200, 200, 200]
            })
        #expect(second.stop())
        #expect(second.seen.count == Set(second.seen).count)
        #expect(Set(try results()).count == 800)
    }

    @Test func `work that takes longer than the poll interval causes no rebalance`() throws {
        try publish(40)
        var settings = TestMember.groupSettings("g")
        settings.maxPollInterval = .seconds(6)
        settings.drainDeadline = .milliseconds(500)
        let member = try TestMember(configuration, group: settings)
        member.holds = true
        #expect(member.turn { member.heldCount == 40 })
        // Gateways that do not answer, for longer than the broker waits for a member.
        #expect(!member.turn(until: .seconds(9)) { member.partitions.count != 4 })
        #expect(member.lostCount == 0 && member.events.errors.isEmpty)
        member.holds = false
        member.release()
        #expect(member.stop())
        #expect(member.seen.count == 40)
        #expect(try committed() == [10, 10, 10, 10])
    }

    @Test func `a drain nobody answers ends at its deadline and the member goes on`() throws {
        try publish(40)
        var settings = TestMember.groupSettings("g")
        settings.drainDeadline = .milliseconds(500)
        let member = try TestMember(configuration, group: settings)
        member.holds = true
        member.answersTickets = false
        #expect(member.turn { member.heldCount == 40 })
        cluster.push([.rebalanceInProgress], to: .heartbeat)
        #expect(member.turn { member.partitions.isEmpty })
        member.dropHeld()
        member.holds = false
        member.answersTickets = true
        #expect(member.turn { member.seen.count == 80 })
        #expect(member.stop())
        #expect(try committed() == [10, 10, 10, 10])
    }

    @Test func `a handle of an older assignment reads nothing and wakes nobody`() throws {
        let member = try TestMember(configuration, group: TestMember.groupSettings("g"))
        #expect(member.turn { member.partitions.count == 4 })
        let place = TopicPartition(TestMember.input, 0)
        let old = try #require(member.assignment(of: place))
        var pipe = [Int32](repeating: -1, count: 2)
        #expect(Glibc.pipe(&pipe) == 0)
        for fd in pipe { _ = fcntl(fd, F_SETFL, O_NONBLOCK) }
        defer { for fd in pipe { close(fd) } }
        old.queue.enableWakeUps(pipe[1])

        cluster.push([.unknownMember], to: .heartbeat)
        #expect(member.turn { member.lostCount == 4 && member.partitions.count == 4 })
        let new = try #require(member.assignment(of: place))
        #expect(old.epoch < new.epoch)
        new.queue.enableWakeUps(pipe[1])
        old.queue.disableWakeUps()

        try publish(5, partition: 0)
        var poll = pollfd(fd: pipe[0], events: Int16(POLLIN), revents: 0)
        #expect(Glibc.poll(&poll, 1, 20_000) == 1)
        #expect(old.queue.consume(max: 10) { _ in } == 0)
        #expect(member.turn { member.seen.count == 5 })
        new.queue.disableWakeUps()
        #expect(member.stop())
    }

    @Test func `closing without an assignment and with an open ticket keeps the deadline`() throws {
        let early = try TestMember(configuration, group: TestMember.groupSettings("early"))
        let start = SystemTime.shared.monotonic
        early.stop(within: .seconds(5))
        #expect(SystemTime.shared.monotonic - start < .seconds(7))

        try publish(4)
        let stuck = try TestMember(configuration, group: TestMember.groupSettings("stuck"))
        stuck.holds = true
        stuck.answersTickets = false
        #expect(stuck.turn { stuck.heldCount == 4 })
        let begin = SystemTime.shared.monotonic
        stuck.stop(within: .seconds(3))
        #expect(SystemTime.shared.monotonic - begin < .seconds(5))
        #expect(try committed("stuck") == [-1, -1, -1, -1])
    }
}
