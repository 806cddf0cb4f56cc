import Base
import Crypto
import Kafka
import Testing
import TokenIndex

@testable import Pipeline

/// Copies of an event: one of them is pushed.
@Suite(.serialized) struct `Copies of an event` {
    private func world(
        deduplicate: TimeSpan = .minutes(10), lanes: Int = 1,
        _ script: @escaping @Sendable (_ token: String, _ attempt: Int) -> GatewayAction = {
            _, _ in .answer(200, "")
        }
    ) throws -> (World, ScriptedGateway) {
        let gateway = try ScriptedGateway(script)
        let world = try World(gateway, lanes: lanes)
        world.settings.deduplicate = deduplicate
        try world.register("phone", user: "ada")
        return (world, gateway)
    }

    private func key(_ id: String, source: String = "") -> EventMarkKey {
        EventMarkKey(
            app: "shop", userID: "ada",
            identity: UUIDv5.make(namespace: Lane.namespace, name: "shop\0\(source)\0\(id)"))
    }

    private func outcomes(_ results: [TopicRecord]) -> [String] {
        results.map { "\($0.text("outcome") ?? "") \($0.text("reason") ?? "")" }.sorted()
    }

    @Test func `are pushed once, and the others say so`() throws {
        let (world, gateway) = try world()
        for _ in 0..<3 { try world.publish(id: "e", user: "ada") }
        try world.publish(id: "f", user: "ada")
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(
            outcomes(results) == [
                "accepted ", "accepted ", "suppressed duplicate", "suppressed duplicate",
            ])
        #expect(gateway.seen.count == 2)
        #expect(Set(results.map { $0.text("result_id") }).count == 4)
        #expect(world.stop())
        #expect(try world.committed() == 4)
    }

    @Test func `wait for the one that is in flight and delay nobody else`() throws {
        let phone = World.token(of: "phone")
        let (world, gateway) = try world { token, _ in
            token == phone ? .hold : .answer(200, "")
        }
        try world.register("tablet", user: "ada")
        let only = #","only":{"install_ids":["phone"]}"#
        try world.publish(id: "e", user: "ada", extra: only)
        try world.publish(id: "e", user: "ada", extra: only)
        try world.publish(
            id: "behind", user: "ada", extra: #","only":{"install_ids":["tablet"]}"#)
        try world.flush()
        try world.start()
        let first = try world.records(of: "push.results", atLeast: 1)
        #expect(first.map { $0.text("event_id") } == ["behind"])
        #expect(world.eventually { gateway.seen.contains { $0.token == phone } })
        gateway.release()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(outcomes(results) == ["accepted ", "accepted ", "suppressed duplicate"])
        #expect(gateway.seen.count == 2)
    }

    @Test func `are recognised by the next owner, once the first is committed`() throws {
        let (world, gateway) = try world()
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        #expect(world.eventually { world.marks.place(key("e")) != nil })
        #expect(try world.committed() == 1)
        #expect(world.stop())
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(outcomes(results) == ["accepted ", "suppressed duplicate"])
        #expect(gateway.seen.count == 1)
    }

    @Test func `are recognised by the next owner when the first has stopped at once`() throws {
        let (world, gateway) = try world { _, _ in .hold }
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        #expect(world.eventually { gateway.seen.count == 1 })
        gateway.release()
        #expect(world.stop())
        #expect(world.marks.place(key("e")) != nil)
    }

    @Test func `are pushed when nobody took the first`() throws {
        let (world, gateway) = try world { _, attempt in
            attempt == 1 ? .answer(400, #"{"reason":"BadPriority"}"#) : .answer(200, "")
        }
        for _ in 0..<3 { try world.publish(id: "e", user: "ada") }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(outcomes(results) == ["accepted ", "rejected BadPriority", "suppressed duplicate"])
        #expect(gateway.seen.count == 2)
        #expect(world.eventually { world.marks.place(key("e")) != nil })
    }

    @Test func `are none when the event comes back itself`() throws {
        let slow = World.token(of: "slow")
        let (world, gateway) = try world { token, attempt in
            token == slow && attempt == 1
                ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.retryDivisor = 4
        try world.register("slow", user: "ada")
        try world.publish(id: "e", user: "ada")
        try world.flush()
        try world.start()
        // One target was taken, and what is remembered of it must not end the other.
        #expect(world.eventually { world.marks.place(key("e")) != nil })
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(outcomes(results) == ["accepted ", "accepted "])
        #expect(gateway.seen.count { $0.token == slow } == 2)
    }

    @Test func `have the same source, too`() throws {
        let (world, gateway) = try world()
        for source in ["orders", "billing", "orders"] {
            try world.publish(id: "e", user: "ada", extra: #","source":"\#(source)""#)
        }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(outcomes(results) == ["accepted ", "accepted ", "suppressed duplicate"])
        #expect(gateway.seen.count == 2)
    }

    @Test func `are pushed where nobody asked for it`() throws {
        let (world, gateway) = try world(deduplicate: .zero)
        for _ in 0..<2 { try world.publish(id: "e", user: "ada") }
        try world.flush()
        try world.start()
        #expect(
            outcomes(try world.records(of: "push.results", atLeast: 2))
                == ["accepted ", "accepted "])
        #expect(gateway.seen.count == 2)
        #expect(world.stop())
        #expect(world.marks.place(key("e")) == nil)
    }

    @Test func `that replay one dead letter are pushed once in any case`() throws {
        let (world, gateway) = try world(deduplicate: .zero)
        let value = #"{"id":"e","type":"t","user_id":"ada","notification":{"title":"t"}}"#
        try world.publish(value, key: "ada")
        for letter in ["push.events-1-7", "push.events-1-8", "push.events-1-7"] {
            try world.publish(value, key: "ada", headers: [.init("bugle-replay-of", letter)])
        }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(
            outcomes(results)
                == ["accepted ", "accepted ", "accepted ", "suppressed duplicate"])
        #expect(gateway.seen.count == 3)
    }

    @Test func `keep the mark of a replay on every road`() throws {
        let (world, _) = try world(deduplicate: .zero) { _, attempt in
            attempt == 1 ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        world.settings.retry.longestWait = .milliseconds(50)
        try world.publish(
            #"{"id":"e","type":"t","user_id":"ada","notification":{"title":"t"}}"#, key: "ada",
            headers: [.init("bugle-replay-of", "push.events-1-7")])
        try world.flush()
        try world.start()
        let retry = try #require(
            try world.records(of: "push.events-retry-10s", atLeast: 1).first)
        #expect(retry.headers["bugle-replay-of"] == "push.events-1-7")
        let replay = EventMarkKey(
            app: "shop", userID: "ada",
            identity: UUIDv5.make(namespace: Lane.namespace, name: "replay\0push.events-1-7"))
        #expect(world.eventually { world.marks.place(replay) != nil })
    }

    @Test func `are not compared with what stands for a whole burst`() throws {
        let (world, gateway) = try world()
        world.settings.retryDivisor = 1
        world.settings.routes = try routes(
            """
              chat:
                title: "{{payload.from}}"
                collapse: chat
                coalesce: {window: 2s, first: hold, summary: {title: "{{count}} new"}}

            """)
        // Whichever is sent for both, a copy of it is said to be pushed.
        for id in ["e0", "e1"] {
            world.marks.marks().set(key(id), place: "push.events-9-9", for: .minutes(10))
            try world.publish(
                #"{"id":"\#(id)","type":"chat","user_id":"ada","payload":{"from":"p"}}"#,
                key: "ada")
        }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(results.compactMap { $0.text("outcome") }.sorted() == ["accepted", "coalesced"])
        #expect(gateway.seen.count == 1)
    }
}
