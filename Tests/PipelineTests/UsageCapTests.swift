// Nobody gets too much, and no source sends too much.

import Base
import Routes
import Simulator
import Testing
import TokenIndex

@testable import Pipeline

@Suite(.serialized) struct `Caps in the pipeline` {
    private func event(
        _ id: String, _ type: String, user: String = "u1", source: String = "s", _ more: String = ""
    ) -> String {
        #"{"id":"\#(id)","type":"\#(type)","user_id":"\#(user)","source":"\#(source)"\#(more)}"#
    }

    /// Routes under a section `caps`.
    private func routes(_ caps: String) throws -> RouteTable {
        try PipelineTests.routes(
            """
              offer: {title: x, preference: offers}
              news: {title: x, preference: news}
              code: {title: x}
              silent: {kind: silent}
              hint: {kind: hint}
            \(caps)

            """)
    }

    @Test func `a person gets so many of a preference, and of all together`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes("caps: {user: 3/1d, preferences: {offers: 2/1d}}")
        try world.register("phone", user: "u1")
        try world.register("tablet", user: "u1")
        try world.register("other", user: "u2")
        try world.start()
        for id in ["o1", "o2", "o3"] { try world.publish(event(id, "offer"), key: "u1") }
        for id in ["n1", "n2"] { try world.publish(event(id, "news"), key: "u1") }
        for id in ["c1", "c2"] { try world.publish(event(id, "code"), key: "u1") }
        try world.publish(event("x1", "offer", user: "u2"), key: "u2")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 13)
        #expect(world.stop())
        // An event counts once, however many devices it reaches.
        #expect(
            outcomes(results) == [
                "o1": "accepted, accepted", "o2": "accepted, accepted", "o3": "suppressed over_cap",
                "n1": "accepted, accepted", "n2": "suppressed over_cap",
                "c1": "accepted, accepted", "c2": "accepted, accepted", "x1": "accepted",
            ])
        #expect(world.metrics().contains(#"bugle_event_reasons_total{reason="over_cap"} 2"#))
        #expect(gateway.seen.count == 11)
    }

    @Test(arguments: [("hold", 1), ("send", 2)])
    func `each push of a burst counts once`(first: String, pushes: Int) throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.retryDivisor = 1
        // As many places as the burst needs, and no other.
        world.settings.routes = try PipelineTests.routes(
            """
              chat: {title: x, preference: chats, ttl: 1h, collapse: c, coalesce: {window: 1s, first: \(first)}}
              news: {title: x, preference: chats, ttl: 1h}
            caps: {preferences: {chats: \(pushes)/1d}}

            """)
        try world.register("phone", user: "u1")
        for id in ["c1", "c2", "c3"] { try world.publish(event(id, "chat"), key: "u1") }
        try world.flush()
        try world.start()
        _ = try world.records(of: "push.results", atLeast: 3)
        try world.publish(event("n", "news"), key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "c1": first == "send" ? "accepted" : "coalesced", "c2": "coalesced",
                "c3": "accepted", "n": "suppressed over_cap",
            ])
        #expect(gateway.seen.count == pushes)
    }

    @Test func `what reaches nobody counts for nobody, and a copy counts once`() throws {
        let world = try World(try ScriptedGateway())
        world.settings.routes = try routes("caps: {preferences: {offers: 1/1d}}")
        world.settings.retryDivisor = 100
        try world.register("phone", user: "u1")
        try world.register("declined", user: "u2", extra: #","opt_outs":["offers"]"#)
        try world.start()
        try world.publish(event("d", "offer", user: "u2"), key: "u2")
        try world.publish(event("nobody", "offer", user: "u3"), key: "u3")
        try world.publish(event("test", "offer", #","mode":"validate""#), key: "u1")
        // Too large for a push: refused before it is sent, and its place is free again.
        let large = String(repeating: "x", count: 5_000)
        try world.publish(event("large", "offer", #","data":{"a":"\#(large)"}"#), key: "u1")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 4)
        try world.publish(event("sent", "offer"), key: "u1")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 5)
        // The same again after a crash: the id has its place.
        try world.sendReentry(event("sent", "offer"), key: "u1", number: 1)
        try world.publish(event("late", "offer"), key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 7)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "d": "suppressed opted_out", "nobody": "no_devices", "test": "accepted",
                "large": "rejected payload_too_large", "sent": "accepted, accepted",
                "late": "suppressed over_cap",
            ])
    }

    @Test func `a source is held to its quota, in the open`() throws {
        let world = try World(try ScriptedGateway())
        world.settings.routes = try routes(
            """
            caps:
              sources:
                noisy: {rate: 5/1d}
                "*": {day: 8}
            """)
        for user in 0..<10 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        for number in 0..<10 {
            let user = "u\(number)"
            try world.publish(
                event("n\(number)", "code", user: user, source: "noisy"), key: user)
            try world.publish(event("c\(number)", "code", user: user, source: "calm"), key: user)
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 20)
        #expect(world.stop())
        func count(_ source: String, _ outcome: String) -> Int {
            results.count { $0.text("source") == source && $0.text("outcome") == outcome }
        }
        #expect(count("noisy", "accepted") == 5 && count("noisy", "suppressed") == 5)
        #expect(count("calm", "accepted") == 8 && count("calm", "suppressed") == 2)
        let refused = results.filter { $0.text("outcome") == "suppressed" }
        #expect(refused.allSatisfy { $0.text("reason") == "over_quota" })
        #expect(world.metrics().contains(#"bugle_event_reasons_total{reason="over_quota"}"#))
    }

    @Test func `of silent pushes a device gets so many, then the newest in the next slot`()
        throws
    {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.retryDivisor = 100
        world.settings.routes = try routes("caps: {silent: 2/3s}")
        try world.register("phone", user: "u1")
        try world.register("pixel", user: "u1", gateway: .fcm)
        try world.start()
        for id in ["s1", "s2", "s3", "s4", "s5"] {
            try world.publish(
                event(id, "silent", #","except":{"gateways":["fcm"]}"#), key: "u1")
        }
        try world.publish(event("shown", "code", #","except":{"gateways":["fcm"]}"#), key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 6)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "s1": "accepted", "s2": "accepted", "s3": "suppressed over_cap",
                "s4": "suppressed over_cap", "s5": "accepted", "shown": "accepted",
            ])
        let last = try #require(results.first { $0.text("event_id") == "s5" })
        let first = try #require(results.first { $0.text("event_id") == "s1" })
        let sent = try [last, first].map { try #require(Int64($0.text("first_sent_at") ?? "")) }
        #expect(sent[0] - sent[1] >= 2_900, "it waited for its slot")
        let held = try world.records(of: "push.events-retry-1m", atLeast: 1)
        #expect(held.allSatisfy { $0.headers["bugle-error-code"] == "hold" })
        #expect(held.allSatisfy { $0.headers["bugle-pending"] == #"["shop/phone"]"# })
        #expect(world.metrics().contains(#"bugle_holds_total{reason="silent_cap"}"#))
    }

    @Test func `a silent push that is not stored does not end the one that waits`() throws {
        let world = try World(try ScriptedGateway())
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.retryDivisor = 100
        world.settings.routes = try routes("caps: {silent: 1/3s}")
        try world.register("phone", user: "u1")
        try world.start()
        for (id, more) in [("s1", ""), ("s2", ""), ("s3", #","ttl":0"#)] {
            try world.publish(event(id, "silent", more), key: "u1")
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "s1": "accepted", "s2": "accepted", "s3": "suppressed over_cap",
            ])
    }

    @Test func `a silent push that would wait beyond its time ends at once`() throws {
        let world = try World(try ScriptedGateway())
        world.settings.routes = try routes("caps: {silent: 1/1h}")
        try world.register("phone", user: "u1")
        try world.start()
        for (id, ttl) in [("a", 60), ("b", 60), ("c", 0)] {
            try world.publish(event(id, "silent", #","ttl":\#(ttl)"#), key: "u1")
        }
        try world.publish(
            #"{"id":"h","type":"hint","user_id":"u1","ttl":60,"cursor":{"log":"l","seq":1}}"#,
            key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "a": "accepted", "b": "suppressed over_cap", "c": "suppressed over_cap",
                "h": "suppressed over_cap",
            ])
        // A result of the target, not of the event: other devices may have got it.
        #expect(results.allSatisfy { $0.text("install_id") == "phone" })
    }

    @Test func `without caps nobody is asked anything`() throws {
        let world = try World(try ScriptedGateway())
        world.settings.routes = try routes("caps: {silent: none}")
        try world.register("phone", user: "u1")
        try world.start()
        for number in 0..<20 {
            try world.publish(event("s\(number)", "silent"), key: "u1")
            try world.publish(event("o\(number)", "offer"), key: "u1")
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 40)
        #expect(world.stop())
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(world.usage.questions == 0)
    }
}
