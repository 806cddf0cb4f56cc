import Base
import JSON
import Kafka
import Simulator
import Testing

@testable import Pipeline

@Suite struct `A lever` {
    @Test(arguments: [
        ("chat.message", "chat.message", true), ("chat.message", "chat.messages", false),
        ("chat.*", "chat.message", true), ("chat.*", "chat", false), ("chat.*", "chatter.x", false),
        ("*", "anything", true),
    ])
    func `for a type fits it, or all that begin so`(pattern: String, type: String, fits: Bool) {
        #expect(NamePatterns([pattern]).match(type) == fits)
    }

    @Test func `for a gateway names one, or an environment of it`() {
        #expect(Lever(.gateway, "apns") != nil && Lever(.gateway, "apns/sandbox") != nil)
        #expect(Lever(.gateway, "fcm/production") == nil && Lever(.gateway, "smtp") == nil)
        #expect(Lever(.type, "") == nil)
    }

    @Test func `holds its environment only`() throws {
        let lever = try #require(Lever(.gateway, "apns/sandbox"))
        let levers = Levers(paused: [lever], skips: [], loosenedAt: UnixMillis(0))
        #expect(levers.holds(.apns, .sandbox))
        #expect(!levers.holds(.apns, .production) && !levers.holds(.fcm, .none))
    }
}

@Suite struct `The book of what operators said` {
    private let parser = JSONParser()

    private func apply(_ book: inout ControlBook, _ record: ControlRecord, at now: Int64 = 500) {
        let bytes = ByteWriter()
        record.write(to: bytes)
        let key = Array(record.key.utf8)
        key.withUnsafeBytes {
            book.apply(key: $0, value: bytes.bytes, at: UnixMillis(now), parser: parser)
        }
    }

    private func lever(_ text: String) throws -> Lever { try #require(Lever(.type, text)) }

    @Test func `keeps the newest word of each lever`() throws {
        let a = try lever("a")
        let b = try lever("b")
        var book = ControlBook()
        apply(&book, ControlRecord(.pause(a), at: UnixMillis(1)))
        apply(&book, ControlRecord(.pause(b), at: UnixMillis(2)))
        #expect(book.levers(at: UnixMillis(3)).paused == [a, b])
        apply(&book, ControlRecord(.resume(a), at: UnixMillis(4)))
        let levers = book.levers(at: UnixMillis(5))
        #expect(levers.paused == [b] && levers.loosenedAt == UnixMillis(4))
    }

    @Test func `ends a pause by itself when its time is over`() throws {
        let a = try lever("a")
        var book = ControlBook()
        apply(&book, ControlRecord(.pause(a), at: UnixMillis(1), until: UnixMillis(10)))
        #expect(book.levers(at: UnixMillis(9)).paused == [a])
        let levers = book.levers(at: UnixMillis(10))
        #expect(levers.paused.isEmpty && levers.loosenedAt == UnixMillis(10))
    }

    @Test func `never looks ahead of its own clock`() throws {
        var book = ControlBook()
        apply(&book, ControlRecord(.resume(try lever("a")), at: UnixMillis(1_000)))
        #expect(book.levers(at: UnixMillis(500)).loosenedAt == UnixMillis(500))
        #expect(book.levers(at: UnixMillis(900)).loosenedAt == UnixMillis(500), "one moment")
    }

    @Test func `takes a null for a release`() throws {
        let a = try lever("a")
        var book = ControlBook()
        apply(&book, ControlRecord(.pause(a), at: UnixMillis(1)))
        let key = Array(ControlRecord(.pause(a), at: UnixMillis(1)).key.utf8)
        key.withUnsafeBytes {
            book.apply(key: $0, value: nil, at: UnixMillis(7), parser: parser)
        }
        let levers = book.levers(at: UnixMillis(8))
        #expect(levers.paused.isEmpty && levers.loosenedAt == UnixMillis(7))
    }

    @Test(arguments: [
        "nonsense", #"{"v":1,"action":"stop","at":1}"#, #"{"v":1,"action":"pause","at":1}"#,
        #"{"v":1,"action":"pause","lever":"gateway","value":"smtp","at":1}"#,
        #"{"v":1,"action":"skip","at":1}"#,
    ])
    func `is not changed by what it does not understand`(text: String) throws {
        let a = try lever("a")
        var book = ControlBook()
        apply(&book, ControlRecord(.pause(a), at: UnixMillis(1)))
        let before = book.levers(at: UnixMillis(2))
        Array(text.utf8).withUnsafeBytes { value in
            book.apply(key: nil, value: value, at: UnixMillis(2), parser: parser)
        }
        #expect(book.unreadable == 1 && book.levers(at: UnixMillis(2)) == before)
    }
}

@Suite struct `What an operator holds back` {
    private func levers(_ paused: [(LeverKind, String)], loosenedAt: UnixMillis = UnixMillis(0))
        throws -> Levers
    {
        Levers(
            paused: Set(try paused.map { try #require(Lever($0.0, $0.1)) }), skips: [],
            loosenedAt: loosenedAt)
    }

    private func publish(_ world: World, _ id: String, type: String, extra: String = "") throws {
        try world.publish(
            """
            {"id":"\(id)","type":"\(type)","user_id":"ada","notification":{"title":"t"}\(extra)}
            """, key: "ada")
    }

    private var now: UnixMillis { SystemTime.shared.wall }

    @Test(.timeLimit(.minutes(2)))
    func `waits in Kafka, is written there once, and goes on when it is released`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        try world.register("phone", user: "ada")
        world.settings.levers = try levers([(.type, "chat.*"), (.type, "news")])
        try world.start()
        try publish(world, "n1", type: "news")
        for number in 1...5 { try publish(world, "c\(number)", type: "chat.message") }
        try publish(world, "free", type: "order.shipped")
        let first = try world.records(of: "push.results", atLeast: 1)
        #expect(first.map { $0.text("event_id") } == ["free"])
        let held = try world.records(of: "push.events-parked-held", atLeast: 6)
        #expect(held.count == 6)
        #expect(held.allSatisfy { $0.headers["bugle-error-code"] == "paused" })

        // The news at the head stays paused; what is behind it goes on all the same.
        world.replace(try levers([(.type, "news")], loosenedAt: now))
        let results = try world.records(of: "push.results", atLeast: 6)
        #expect(Set(results.compactMap { $0.text("event_id") }).isSuperset(of: ["c1", "c5"]))
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        // Once for each release, not again and again.
        let rewritten = try world.records(of: "push.events-parked-held", atLeast: 7)
        #expect(rewritten.count == 7)

        world.replace(try levers([], loosenedAt: now))
        let all = try world.records(of: "push.results", atLeast: 7)
        #expect(
            all.compactMap { $0.text("event_id") }.sorted() == [
                "c1", "c2", "c3", "c4", "c5", "free", "n1",
            ])
        #expect(world.stop())
        #expect(gateway.seen.count == 7)
    }

    @Test(.timeLimit(.minutes(2)))
    func `goes on when it is released by somebody whose clock is behind`() throws {
        let world = try World(try ScriptedGateway())
        try world.register("phone", user: "ada")
        world.settings.levers = try levers([(.type, "chat.*"), (.type, "news")])
        try world.start()
        try publish(world, "n1", type: "news")
        try publish(world, "c1", type: "chat.message")
        _ = try world.records(of: "push.events-parked-held", atLeast: 2)
        world.replace(try levers([(.type, "news")], loosenedAt: now - .seconds(8)))
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("event_id") } == ["c1"], "the news in front does not stop it")
        #expect(world.stop())
    }

    @Test(.timeLimit(.minutes(2)))
    func `expires by its own time, at once when it may not be stored`() throws {
        let world = try World(try ScriptedGateway())
        try world.register("phone", user: "ada")
        world.settings.levers = try levers([(.app, "shop")])
        try world.start()
        try publish(world, "now", type: "a", extra: #","ttl":0"#)
        // Only now is it certain that what follows is read before its time is over.
        _ = try world.records(of: "push.results", atLeast: 1)
        try publish(world, "soon", type: "a", extra: #","ttl":5"#)
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(results.map { $0.text("outcome") } == ["expired", "expired"])
        #expect(results.map { $0.text("reason") } == ["paused", "paused"])
        #expect(results.map { $0.text("event_id") } == ["now", "soon"])
    }

    @Test(.timeLimit(.minutes(2)))
    func `of one gateway leaves the others alone`() throws {
        let simulator = try Simulator()
        let world = try World(simulator)
        try world.register("phone", user: "ada")
        try world.register("tablet", user: "ada", gateway: .fcm)
        world.settings.levers = try levers([(.gateway, "fcm")])
        try world.start()
        try publish(world, "e", type: "a")
        let first = try world.records(of: "push.results", atLeast: 1)
        #expect(first.map { $0.text("gateway") } == ["apns"])
        let parked = try world.records(of: "push.events-parked-fcm-none", atLeast: 1)
        #expect(parked.map { $0.headers["bugle-error-code"] } == ["paused"])
        world.replace(.none)
        let both = try world.records(of: "push.results", atLeast: 2)
        #expect(both.map { $0.text("outcome") } == ["accepted", "accepted"])
        #expect(try world.records(of: "push.events-parked-fcm-none", atLeast: 1).count == 1)
    }

    @Test(.timeLimit(.minutes(2)))
    func `is ended by an order to skip, with a result each`() throws {
        let world = try World(try ScriptedGateway())
        try world.register("phone", user: "ada")
        world.settings.levers = try levers([(.source, "billing")])
        try world.start()
        try publish(world, "old-1", type: "a", extra: #","source":"billing""#)
        try publish(world, "old-2", type: "b", extra: #","source":"billing""#)
        _ = try world.records(of: "push.events-parked-held", atLeast: 2)
        world.replace(
            Levers(
                paused: try levers([(.source, "billing")]).paused,
                skips: [SkipOrder(Lever(.type, "a"), before: now + .seconds(1))],
                loosenedAt: UnixMillis(0)))
        let skipped = try world.records(of: "push.results", atLeast: 1)
        #expect(skipped.map { $0.text("event_id") } == ["old-1"])
        #expect(skipped.map { $0.text("outcome") } == ["expired"])
        #expect(skipped.map { $0.text("reason") } == ["skipped"])
        world.replace(.none)
        let all = try world.records(of: "push.results", atLeast: 2)
        #expect(all.map { $0.text("outcome") } == ["expired", "accepted"])
    }

    @Test func `is not even written when it waited for a stream`() throws {
        let gateway = try ScriptedGateway()
        let world = try OneLane(gateway)
        try world.register("phone", user: "ada", token: String(repeating: "ab", count: 32))
        let event = try world.publish(id: "e", user: "ada")
        try world.turn { !event.targets.isEmpty }
        let target = try #require(event.targets.first)
        world.lane.levers = try levers([(.type, "test")])
        #expect(!world.lane.mayWrite(target))
        #expect(target.withdrawal == .unwanted)
    }
}
