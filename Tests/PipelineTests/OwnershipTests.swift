import Base
import Testing

@testable import Pipeline

/// Nobody else's push: what waits for a connection is looked up again before it is written.
@Suite struct `Ownership while a push waits` {
    @Test func `a push that waited too long does not go to a user who logged out`() throws {
        // The first push holds the only stream of the only connection until the test has
        // unlinked the second one's address.
        let gateway = try ScriptedGateway(streamLimit: 1) { token, _ in
            token == World.token(of: "i1") ? .hold : .answer(200, "")
        }
        let world = try World(gateway, lanes: 1)
        world.settings.apnsConnections = 1...1
        let lookUpAge = TimeSpan.milliseconds(10)
        world.settings.lookUpAge = lookUpAge
        try world.register("i1", user: "u1")
        try world.register("i2", user: "u2")
        try world.register("i3", user: "u2")
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.publish(id: "e0", user: "u1", extra: #","only":{"install_ids":["nobody"]}"#)
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
        // It may have waited for its connection so long that it was looked up again.
        #expect(world.eventually { gateway.seen.count == 1 })
        // All of one user's partition, so that the third is looked up after the second.
        try world.publish(id: "e2", user: "u2")
        try world.publish(id: "e3", user: "u2", extra: #","only":{"install_ids":["nobody"]}"#)
        try world.flush()
        let early = try world.records(of: "push.results", atLeast: 2)
        #expect(Set(early.map { $0.text("event_id") }) == ["e0", "e3"])
        // The look-up of the second user was made before that; only an older one is repeated.
        let seenAt = SystemTime.shared.monotonic
        #expect(world.eventually { SystemTime.shared.monotonic - seenAt > lookUpAge })
        try world.register("i2", user: nil, registeredAt: 1_735_689_700_000)
        gateway.release()
        let results = try world.records(of: "push.results", atLeast: 5)
        let byInstall = Dictionary(
            results.compactMap { result in
                result.text("install_id").map { ($0, result.text("outcome") ?? "") }
            }, uniquingKeysWith: { first, _ in first })
        #expect(byInstall == ["i1": "accepted", "i2": "suppressed", "i3": "accepted"])
        #expect(!gateway.seen.contains { $0.token == World.token(of: "i2") })
    }

    @Test func `what waits for room is left to the next owner of a partition that was lost`() throws
    {
        // The first push holds the only stream; the second is with the pool, a third waits in the
        // lane.
        let gateway = try ScriptedGateway(streamLimit: 1) { _, attempt in
            attempt == 1 ? .hold : .answer(200, "")
        }
        let world = try OneLane(gateway) { $0.inFlightPerBulkhead = 2 }
        let epoch = try world.assign()
        let users = ["u1", "u2", "u3"]
        for user in users { try world.register(user, user: user, token: World.token(of: user)) }
        for user in users { try world.publish(id: user, user: user) }
        try world.turn { world.lane.lookUpsOpen == 0 && gateway.seen.count == 1 }
        #expect(world.lane.events.count == 3)
        world.lane.forget([epoch])
        gateway.release()
        try world.turn { world.lane.events.count == 0 }
        #expect(gateway.seen.map(\.token) == [World.token(of: "u1")])
        #expect(world.lane.targets.count == 0)
    }
}
