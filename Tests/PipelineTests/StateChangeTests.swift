import Base
import Kafka
import Synchronization
import Telemetry
import Testing

@testable import Pipeline

@Suite struct `The log of a gateway` {
    private final class Switch: Sendable {
        let isBroken = Atomic<Bool>(true)
    }

    @Test(.timeLimit(.minutes(3)))
    func `has one line when it fails and one when it answers again, whatever the lanes`() throws {
        let state = Switch()
        let gateway = try ScriptedGateway { _, _ in
            state.isBroken.load(ordering: .acquiring)
                ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        let world = try World(gateway, lanes: 2)
        for user in 0..<80 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<80 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        #expect(world.eventually { world.registry.sum(of: "bugle_breakers_open") == 2 })
        state.isBroken.store(false, ordering: .releasing)
        let results = try world.records(of: "push.results", atLeast: 80, within: .seconds(120))
        #expect(results.count == 80)
        #expect(world.eventually { world.registry.sum(of: "bugle_breakers_open") == 0 })
        #expect(world.lines(with: "a gateway fails") == 1)
        #expect(world.lines(with: "a gateway answers again") == 1)
        #expect(world.stop())
        // Nothing per push: the lines do not grow with the events.
        #expect(world.lines(with: "") < 40)
    }
}
