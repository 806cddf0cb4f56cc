import Base
import Kafka
import Testing

@testable import Pipeline

/// Logs that end before what was read of them: after the loss of a leader, a restore, or a topic
/// that was made anew. The broker in process cannot cut a log; it can say that it did.
@Suite struct `A log that was cut` {
    @Test func `what the group has committed goes back with it`() throws {
        let gateway = try ScriptedGateway { _, attempt in attempt > 3 ? .hold : .answer(200, "") }
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        for number in 0..<3 { try world.publish(id: "e\(number)", user: "ada") }
        try world.flush()
        #expect(world.eventually { (try? world.committed()) == 3 })
        #expect(world.stop())

        // The first word that the end is reached hides the first of these.
        world.cluster.push([.offsetOutOfRange, .offsetOutOfRange], to: .fetch)
        world.settings.group.drainDeadline = .milliseconds(500)
        try world.start()
        #expect(world.eventually { world.lines(with: "a partition ends before") == 1 })
        #expect(world.eventually { (try? world.committed()) == 0 })
        #expect(world.eventually { gateway.seen.count == 6 })
        gateway.release()
        #expect(world.eventually { (try? world.committed()) == 3 })
        #expect(world.stop())
    }

    @Test func `what was read before ends, and moves no offset of the new records`() throws {
        let gateway = try ScriptedGateway { token, attempt in
            token == World.token(of: "slow") && attempt == 1 ? .hold : .answer(200, "")
        }
        let world = try World(gateway, lanes: 1)
        try world.register("slow", user: "ada")
        try world.register("quick", user: "ada")
        try world.start()
        for number in 0..<3 {
            let device = number == 1 ? "slow" : "quick"
            try world.publish(
                id: "e\(number)", user: "ada", extra: #","only":{"install_ids":["\#(device)"]}"#)
        }
        try world.flush()
        #expect(world.eventually { gateway.seen.count == 3 })
        #expect(world.eventually { (try? world.committed()) == 1 })

        world.cluster.push([.offsetOutOfRange], to: .fetch)
        #expect(world.eventually { (try? world.committed()) == 3 })
        #expect(world.lines(with: "a partition ends before") == 1)
        #expect(gateway.seen.count == 6)
        gateway.release()
        let results = try world.records(of: "push.results", atLeast: 6)
        let ids = results.compactMap { $0.text("event_id") }.sorted()
        #expect(ids == ["e0", "e0", "e1", "e1", "e2", "e2"])
        #expect(world.stop())
        #expect(try world.committed() == 3)
    }

    @Test func `a fetch that is repeated brings nothing twice`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        for number in 0..<6 {
            world.cluster.push([.notLeader, .disconnect], to: .fetch)
            try world.publish(id: "e\(number)", user: "ada")
            try world.flush()
        }
        #expect(world.eventually { (try? world.committed()) == 6 })
        #expect(world.stop())
        #expect(gateway.seen.count == 6)
        #expect(world.lines(with: "a partition ends before") == 0)
    }
}
