import Base
import Simulator
import Testing

@testable import Pipeline

/// Nobody else's push: what waits for a connection is looked up again before it is written.
@Suite struct `Ownership while a push waits` {
    @Test func `a push that waited over a second does not go to a user who logged out`() throws {
        var options = SimulatorOptions()
        // The first push holds the only stream of the only connection until the test has
        // unlinked the second one's address.
        options.faults = FaultPlan(rules: [
            FaultRule(
                "slow gate", FaultMatch(.apnsProduction, count: 1),
                .delay(.fixed(.milliseconds(2500))))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        world.settings.apnsConnections = 1...1
        try world.register("i1", user: "u1")
        try world.register("i2", user: "u2")
        try world.register("i3", user: "u2")
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let isHeld = simulator.journal.wait(upTo: .seconds(20)) { $0.pushes == 1 }
        #expect(isHeld)
        // All of one user's partition, so that the third is looked up after the second.
        try world.publish(id: "e2", user: "u2")
        try world.publish(id: "e3", user: "u2", extra: #","only":{"install_ids":["nobody"]}"#)
        try world.flush()
        let early = try world.records(of: "push.results", atLeast: 1)
        #expect(early.first?.text("event_id") == "e3")
        try world.register("i2", user: nil, registeredAt: 1_735_689_700_000)
        let results = try world.records(of: "push.results", atLeast: 4)
        let byInstall = Dictionary(
            results.compactMap { result in
                result.text("install_id").map { ($0, result.text("outcome") ?? "") }
            }, uniquingKeysWith: { first, _ in first })
        #expect(byInstall == ["i1": "accepted", "i2": "suppressed", "i3": "accepted"])
        #expect(simulator.journal.count(token: World.token(of: "i2")) == 0)
    }
}
