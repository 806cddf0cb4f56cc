import Base
import HTTP2
import Simulator
import Testing

@testable import Pipeline

/// Connections that end, refuse and vanish: every target still ends in one result, and what was
/// provably not processed is never sent twice.
@Suite(.serialized) struct `Transport faults, end to end` {
    private func run(_ world: World, events: Int) throws -> [TopicRecord] {
        for user in 0..<events { try world.register("i\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<events { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: events)
        #expect(results.count == events)
        #expect(Set(results.map { $0.text("result_id") }).count == events)
        return results
    }

    @Test func `a graceful GOAWAY in a burst costs no push and doubles none`() throws {
        var options = SimulatorOptions()
        options.apnsStreamLimit = 10
        options.faults = FaultPlan(rules: [
            FaultRule(
                "shutdown", FaultMatch(.apnsProduction, connectionRequest: 40),
                .goAway(
                    GoAwayFault(
                        code: 0, debug: #"{"reason":"Shutdown"}"#, lastStream: .current,
                        isGraceful: true)))
        ])
        let simulator = try Simulator(options)
        let results = try run(World(simulator, lanes: 1), events: 300)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(results.allSatisfy { $0.text("attempts") == "1" })
        #expect(simulator.journal.acceptedMessages.values.allSatisfy { $0 == 1 })
        #expect(simulator.journal.counters.violations.isEmpty)
    }

    @Test func `refused streams are sent again and count as no attempt`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "refused", FaultMatch(.apnsProduction, skip: 5, count: 30), .refuse)
        ])
        let simulator = try Simulator(options)
        let results = try run(World(simulator), events: 200)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(results.allSatisfy { $0.text("attempts") == "1" })
        #expect(simulator.journal.acceptedMessages.values.allSatisfy { $0 == 1 })
    }

    @Test func `H2-12: a gateway that never speaks TLS stops neither reading nor another one`()
        throws
    {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule("hangs", FaultMatch(.apnsProduction), .accept(.stallTLS))
        ])
        let world = try World(Simulator(options), lanes: 1)
        try world.register("phone", user: "ada")
        try world.register("pixel", user: "grace", gateway: .fcm)
        try world.start()
        try world.publish(id: "hangs", user: "ada", extra: #","ttl":5"#)
        // Each is published when the one before is through, so it is read while a dial hangs.
        for number in 1...5 {
            try world.publish(id: "e\(number)", user: "grace")
            try world.flush()
            let isThrough = world.eventually {
                let results = try? world.records(of: "push.results", atLeast: number)
                return results?.contains {
                    $0.text("event_id") == "e\(number)" && $0.text("outcome") == "accepted"
                } ?? false
            }
            #expect(isThrough)
        }
        let results = try world.records(of: "push.results", atLeast: 6)
        #expect(results.count == 6)
        let hanging = try #require(results.first { $0.text("event_id") == "hangs" })
        #expect(hanging.text("outcome") == "expired" && hanging.text("attempts") == "0")
    }

    @Test func `a push whose answer is lost twice is not sent a third time`() throws {
        let gateway = try ScriptedGateway { _, _ in .cut }
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "e1", user: "ada")
        try world.flush()
        let result = try #require(try world.records(of: "push.results", atLeast: 1).first)
        #expect(result.text("outcome") == "failed")
        #expect(result.text("reason") == "connection_lost")
        #expect(result.text("attempts") == "2")
        #expect(result.text("ambiguous") == "true")
        #expect(gateway.seen.count == 2)
        #expect(Set(gateway.seen.map(\.messageID)).count == 1)
    }
}
