// One line for each change of something that has a state, of the level that says whether somebody must
// act, and none for a push.

import Base
import HTTP2
import Kafka
import Simulator
import Synchronization
import Telemetry
import Testing
import TokenIndex

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

@Suite(.serialized) struct `The log of a gateway that is not reached` {
    /// A world with as many users as it needs to fail, whose gateway resets its first connections.
    private func world(resets: Int?, lanes: Int) throws -> World {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule("reset", FaultMatch(.apnsProduction, count: resets), .accept(.reset))
        ])
        let world = try World(try Simulator(options), lanes: lanes)
        for user in 0..<80 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<80 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        return world
    }

    /// How often each of the two ways was told in which a reset shows, before and in the handshake.
    private func failures(_ world: World) -> [Int] {
        [#""msg":"no connection to the gateway""#, #""msg":"TLS with the gateway failed"#]
            .map { world.lines(with: $0) }
    }

    private let reached = #""level":"info","msg":"the gateway is reached again""#

    @Test(.timeLimit(.minutes(3)))
    func `has one line, however many attempts and lanes there are`() throws {
        let world = try world(resets: nil, lanes: 2)
        #expect(
            world.eventually { world.registry.sum(of: "bugle_connect_failures_total") >= 8 })
        #expect([[1, 0], [0, 1], [1, 1]].contains(failures(world)), "\(failures(world))")
        #expect(world.lines(with: reached) == 0)
    }

    @Test(.timeLimit(.minutes(3)))
    func `has another line when it is`() throws {
        let world = try world(resets: 3, lanes: 1)
        let results = try world.records(of: "push.results", atLeast: 80, within: .seconds(120))
        #expect(results.count == 80)
        #expect(world.eventually { world.lines(with: reached) >= 1 })
        #expect(world.stop())
        #expect(world.lines(with: reached) == 1)
        #expect([[1, 0], [0, 1], [1, 1]].contains(failures(world)), "\(failures(world))")
    }
}

@Suite(.serialized) struct `The log of the pipeline` {
    private final class Switch: Sendable {
        let isBroken = Atomic<Bool>(true)
    }

    private func publish(_ users: Range<Int>, _ round: String, to world: World) throws {
        for user in users { try world.publish(id: "\(round)\(user)", user: "u\(user)") }
        try world.flush()
    }

    @Test(.timeLimit(.minutes(3)))
    func
        `has one error when a credential is refused, however many pushes are, and one line when it is taken`()
        throws
    {
        let state = Switch()
        let gateway = try ScriptedGateway { _, _ in
            state.isBroken.load(ordering: .acquiring)
                ? .answer(403, #"{"reason":"InvalidProviderToken"}"#) : .answer(200, "")
        }
        let world = try World(gateway, lanes: 2)
        for user in 0..<300 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        try publish(0..<300, "refused", to: world)
        let results = try world.records(of: "push.results", atLeast: 300, within: .seconds(60))
        #expect(results.allSatisfy { $0.text("outcome") == "credential_error" })
        let refused = #""level":"error","msg":"the gateway refuses our credential""#
        #expect(world.lines(with: refused) == 1)
        #expect(world.lines(with: #""level":"error""#) == 1)
        #expect(world.eventually { world.registry.sum(of: "bugle_bulkhead_refused") == 2 })
        state.isBroken.store(false, ordering: .releasing)
        try publish(0..<300, "taken", to: world)
        _ = try world.records(of: "push.results", atLeast: 600, within: .seconds(60))
        #expect(
            world.lines(with: #""level":"info","msg":"the gateway takes our pushes again""#) == 1)
        #expect(world.lines(with: refused) == 1)
        #expect(world.eventually { world.registry.sum(of: "bugle_bulkhead_refused") == 0 })
        #expect(world.stop())
    }

    @Test(.timeLimit(.minutes(3)))
    func `has one error when the token endpoint refuses a service account`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "refused", FaultMatch(.oauth),
                .answer(FaultAnswer(status: 400, body: #"{"error":"invalid_grant"}"#)))
        ])
        let world = try World(try Simulator(options), lanes: 2)
        for user in 0..<200 {
            try world.register("phone-\(user)", user: "u\(user)", gateway: .fcm)
        }
        try world.start()
        try publish(0..<200, "e", to: world)
        _ = try world.records(of: "push.results", atLeast: 200, within: .seconds(60))
        #expect(
            world.lines(
                with: #""level":"error","msg":"the token endpoint refuses our credential""#) == 1)
        #expect(world.lines(with: #""level":"error""#) == 1)
        #expect(world.stop())
    }

    @Test(.timeLimit(.minutes(3)))
    func `has a warning, and no error, when one token belongs to another project`() throws {
        var options = SimulatorOptions()
        let stray = World.token(of: "stray", gateway: .fcm)
        options.faults = FaultPlan(rules: [
            FaultRule(
                "mismatch", FaultMatch(.fcm, tokenPrefix: stray),
                .answer(FaultAnswer(status: 403, reason: "SENDER_ID_MISMATCH")))
        ])
        let world = try World(try Simulator(options), lanes: 1)
        for install in ["stray", "good"] {
            try world.register(install, user: install, gateway: .fcm)
        }
        try world.start()
        // The last word of this lane is about the one token.
        try world.publish(id: "good", user: "good")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1, within: .seconds(60))
        try world.publish(id: "stray", user: "stray")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 2, within: .seconds(60))
        let outcomes = results.compactMap { $0.text("outcome") }.sorted()
        #expect(outcomes == ["accepted", "token_suspended"])
        let warning =
            #""level":"warning","msg":"the gateway says that a token belongs to another project"#
        #expect(world.eventually { world.lines(with: warning) == 1 })
        #expect(world.lines(with: #""level":"error""#) == 0)
        #expect(world.stop())
        #expect(world.registry.sum(of: "bugle_bulkhead_refused") == 0)
    }

    @Test(.timeLimit(.minutes(3)))
    func
        `has one line when the index is not to be trusted and one when it is again, whatever the lanes`()
        throws
    {
        let gateway = try ScriptedGateway()
        let world = try World(gateway, lanes: 2)
        for user in 0..<100 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        try publish(0..<100, "before", to: world)
        _ = try world.records(of: "push.results", atLeast: 100, within: .seconds(60))
        let waits = #""msg":"look-ups wait: the token index is not to be trusted now""#
        let answered = #""msg":"look-ups are answered: the token index is complete""#
        #expect(world.lines(with: waits) == 0 && world.lines(with: answered) == 1)
        world.index.mark(complete: false)
        #expect(world.eventually { world.lines(with: #""level":"warning",\#(waits)"#) == 1 })
        try publish(0..<100, "while", to: world)
        #expect(
            try world.records(of: "push.results", atLeast: 101, within: .seconds(2)).count == 100)
        world.index.mark(complete: true)
        _ = try world.records(of: "push.results", atLeast: 200, within: .seconds(60))
        #expect(
            world.eventually {
                world.lines(with: #""level":"info",\#(answered)"#) == 2
            })
        #expect(world.lines(with: waits) == 1)
        #expect(world.stop())
    }

    @Test(.timeLimit(.minutes(5)))
    func `has lines for partitions that come and go, and none for a push`() throws {
        let kinds = ["ok", "gone", "slow"]
        let names = (0..<200).map { "\(kinds[$0 % 3])-\($0)" }
        let byToken = Dictionary(uniqueKeysWithValues: names.map { (World.token(of: $0), $0) })
        let gateway = try ScriptedGateway { token, _ in
            switch byToken[token]?.split(separator: "-").first {
            case "gone": .answer(410, #"{"reason":"Unregistered","timestamp":1798761600000}"#)
            case "slow": .answer(429, #"{"reason":"TooManyRequests"}"#)
            default: .answer(200, "")
            }
        }
        let world = try World(gateway, lanes: 2)
        for name in names { try world.register(name, user: name) }
        try world.start()
        #expect(
            world.eventually {
                world.lines(with: #""level":"info","msg":"partitions assigned""#) == 1
            })
        let pushes = 5000
        for number in 0..<pushes {
            let name = number % 5 == 4 ? "nobody" : names[number % names.count]
            try world.publish(id: "e\(number)", user: name, extra: #","ttl":5"#)
        }
        for number in 0..<500 { try world.publish("no event \(number)", key: "k") }
        try world.flush()
        let dead = try world.records(of: "push.events-dlt", atLeast: 500, within: .seconds(90))
        #expect(dead.count == 500)
        let results = try world.records(
            of: "push.results", atLeast: pushes, within: .seconds(120))
        #expect(results.count == pushes)
        #expect(Set(results.compactMap { $0.text("outcome") }).count >= 4)
        #expect(world.stop())
        #expect(world.lines(with: #""level":"info","msg":"partitions revoked""#) == 1)
        #expect(world.lines(with: #""msg":"partitions assigned""#) == 1)
        #expect(world.lines(with: #""level":"error""#) == 0)
        // At level debug, of all outcomes that there are.
        #expect(world.lines(with: "") < 60, "\(world.lines(with: "")) lines")
    }
}
