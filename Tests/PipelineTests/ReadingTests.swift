import Base
import Gateways
import Testing

@testable import Kafka
@testable import Pipeline

/// Partitions that cannot be read, and what tells of it.
@Suite struct `What is not read` {
    @Test func `a topic that may not be read makes the process unready until it may`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        let partition = Array("ada".utf8).withUnsafeBytes {
            Murmur2.partition(of: $0, count: World.partitions)
        }
        let refusals = [MockCluster.Fault](repeating: .topicUnauthorized, count: 10_000)
        world.cluster.push(refusals, to: .fetch)
        try world.start()
        // The partitions of a topic share a line, which names them.
        func isRefused() -> Bool {
            world.hindrances.contains {
                $0.hasPrefix("push.events is not read: TOPIC_AUTHORIZATION_FAILED: allow ")
                    && $0.contains("an ACL for Read and Describe on topic push.events")
                    && $0.split(separator: "(")[1].contains(String(partition))
            }
        }
        #expect(world.eventually { isRefused() })
        #expect(world.lines(with: "a partition cannot be read") > 0)
        world.cluster.clearFaults(of: .fetch)
        try world.publish(id: "e", user: "ada")
        try world.flush()
        #expect(world.eventually { gateway.seen.count == 1 })
        #expect(world.eventually { !isRefused() })
        #expect(world.stop())
    }

    @Test func `a partition that was added meanwhile is left alone, and said`() throws {
        let gateway = try ScriptedGateway()
        let rig = try OneLane(gateway)
        _ = try rig.assign(partition: 1)
        let place = TopicPartition("push.events", 1)
        #expect(rig.partition?.isReading == false)
        #expect(rig.lane.pulse.unreadablePartitions[place]?.contains("then restart") == true)
        let epochs = Set(rig.lane.partitions.map(\.assignment.epoch))
        var isDrained = false
        rig.lane.revoke(epochs, deadline: .distantFuture) { isDrained = true }
        #expect(isDrained)
        #expect(rig.lane.pulse.unreadablePartitions.isEmpty)
        _ = try rig.assign()
        #expect(rig.partition?.isReading == true)
        #expect(rig.lane.pulse.unreadablePartitions.isEmpty)
    }

    @Test func `an end is where the log was cut, when it is before what was committed`() throws {
        let gateway = try ScriptedGateway()
        let rig = try OneLane(gateway)
        _ = try rig.assign(from: 1_000)
        let partition = try #require(rig.partition)
        rig.lane.take(.endOfPartition(offset: 1_000), of: partition)
        #expect(partition.numbering == 0 && partition.position == 1_000)
        rig.lane.take(.endOfPartition(offset: 10), of: partition)
        #expect(partition.numbering == 1)
        #expect(partition.commitPoint == 10 && partition.position == 10)
    }

    @Test func `what nobody can read is no backlog`() throws {
        let gateway = try ScriptedGateway()
        let rig = try OneLane(gateway)
        _ = try rig.assign()
        let partition = try #require(rig.partition)
        #expect(partition.position == 0)
        _ = partition.ledger.begin(0)
        #expect(partition.position == 1)
        // Two transactions ended, one behind the other.
        rig.lane.take(.endOfPartition(offset: 3), of: partition)
        #expect(partition.position == 3)
        #expect(partition.commitPoint == 0)
        _ = partition.ledger.complete(0)
        #expect(partition.position == 3)
        _ = partition.ledger.begin(3)
        #expect(partition.position == 4)
    }

    @Test func `what is unread is as old as the first look at it`() throws {
        let gateway = try ScriptedGateway()
        let rig = try OneLane(gateway)
        _ = try rig.assign()
        let partition = try #require(rig.partition)
        func look(_ millis: Int64, end: Int64) -> Int64? {
            partition.noteUnread(at: UnixMillis(millis), end: end)
            return partition.behindSince?.value
        }
        #expect(look(1, end: 0) == nil)
        #expect(look(2, end: 3) == 2)
        #expect(look(3, end: 5) == 2)
        // What was there at the first look is read: the rest came later.
        rig.lane.take(.endOfPartition(offset: 3), of: partition)
        #expect(look(4, end: 6) == 4)
        rig.lane.take(.endOfPartition(offset: 5), of: partition)
        #expect(look(5, end: 6) == 4)
        rig.lane.take(.endOfPartition(offset: 6), of: partition)
        #expect(look(6, end: 6) == nil)
    }

    @Test func `a dead letter keeps its partition where there is one of its number`() throws {
        let gateway = try ScriptedGateway()
        let settings = try OneLane(gateway).lane.settings
        #expect(settings.deadLetterPartition(of: 0) == 0)
        #expect(settings.deadLetterPartition(of: 1) == nil)
        #expect(settings.deadLetterPartition(of: .max) == nil)
    }
}
