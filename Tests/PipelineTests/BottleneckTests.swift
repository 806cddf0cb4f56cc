// What `bugle_seconds_to_drain` names when a real lane is held back by that and nothing else. Lanes
// that are busy, which more replicas or partitions would help, are a matter of the processor and not
// of a test: `DrainEstimateTests` shows those.

import Base
import Kafka
import Simulator
import Telemetry
import Testing
import TokenIndex

@testable import Pipeline

@Suite(.serialized) struct `What holds a lane back` {
    /// A world with one lane that may hold ten events, and more of them than that.
    private func world(
        _ gateway: ScriptedGateway, users: Int,
        _ change: (inout DispatcherSettings) -> Void = { _ in }
    ) throws -> World {
        let world = try World(gateway, lanes: 1)
        world.settings.eventsInFlight = 10
        change(&world.settings)
        for user in 0..<users { try world.register("phone-\(user)", user: "u\(user)") }
        return world
    }

    private func publish(_ count: Int, to world: World, users: Int) throws {
        for number in 0..<count {
            try world.publish(id: "e\(number)", user: "u\(number % users)")
        }
        try world.flush()
    }

    /// Whether one bottleneck is named and no other.
    private func isNamed(_ bottleneck: Bottleneck, in world: World) -> Bool {
        world.eventually(within: .seconds(90)) {
            let above = world.registry.readings(of: "bugle_seconds_to_drain")
                .filter { $0.value > 0 }
            return above.map { $0.label("bottleneck") } == [bottleneck.rawValue]
        }
    }

    private func slowGateway() throws -> Simulator {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule("slow", FaultMatch(), .delay(.fixed(.milliseconds(400))))
        ])
        return try Simulator(options)
    }

    @Test func `is the gateway that takes its time`() throws {
        let world = try World(try slowGateway(), lanes: 1)
        world.settings.eventsInFlight = 10
        for user in 0..<200 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        try publish(3000, to: world, users: 200)
        #expect(isNamed(.gateway, in: world))
    }

    @Test func `is one user whose events are most of all`() throws {
        let gateway = try ScriptedGateway { _, _ in .hold }
        let world = try world(gateway, users: 1)
        try world.start()
        try publish(200, to: world, users: 1)
        #expect(isNamed(.hotKey, in: world))
    }

    @Test func `is the quota that requests wait for`() throws {
        let world = try World(try slowGateway(), lanes: 1)
        world.settings.eventsInFlight = 10
        world.settings.inFlightPerBulkhead = 2
        for user in 0..<200 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        try publish(400, to: world, users: 200)
        #expect(isNamed(.quota, in: world))
    }

    @Test func `is the store of the index that does not answer`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway, users: 200)
        world.index.mark(complete: false)
        try world.start()
        try publish(200, to: world, users: 200)
        #expect(isNamed(.redis, in: world))
        // And nothing is, once it does.
        world.index.mark(complete: true)
        #expect(
            world.eventually(within: .seconds(90)) {
                world.registry.sum(of: "bugle_seconds_to_drain") == 0
            })
    }
}
