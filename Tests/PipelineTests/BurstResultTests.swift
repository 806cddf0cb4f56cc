// Bursts in the whole pipeline: what stands in the results, and what is committed.

import Base
import EventLoop
import JSON
import Kafka
import Telemetry
import Testing

@testable import Pipeline

private func chat(_ coalesce: String, preference: String = "chats") -> String {
    """
      chat:
        title: "{{payload.from}}"
        collapse: chat
        ttl: 1h
        preference: \(preference)
        coalesce: {\(coalesce), summary: {title: "{{count}} new"}}

    """
}

extension World {
    /// Publishes so many events of one burst, all of them before anything is read.
    fileprivate func publishBurst(of count: Int, user: String = "u1") throws {
        for number in 0..<count {
            try publish(
                #"{"id":"e\#(number)","type":"chat","user_id":"\#(user)","payload":{"from":"p\#(number)"}}"#,
                key: user)
        }
        try flush()
    }

    fileprivate func metric(_ line: String) -> Bool {
        let bytes = ByteWriter()
        registry.writeExposition(to: bytes)
        return bytes.text.split(separator: "\n").contains { $0 == line }
    }
}

extension TopicRecord {
    /// A member of `folded_into`.
    fileprivate func carrier(_ member: StaticString) -> String? {
        let parser = JSONParser()
        guard let value, let found = (try? parser.parse(value))?["folded_into"]?[member] else {
            return nil
        }
        return found.string ?? found.int64.map(String.init)
    }

    fileprivate var isFolded: Bool { text("outcome") == "coalesced" }
}

@Suite(.serialized) struct `The results of a burst` {
    /// The others of a burst of `count` events, each with one result that names the carrier.
    private func expectFolded(_ results: [TopicRecord], _ ids: [String], into carrier: String) {
        let folded = results.filter(\.isFolded)
        #expect(folded.compactMap { $0.text("event_id") }.sorted() == ids)
        let offset = results.first { $0.text("event_id") == carrier }?.text("input_offset")
        for result in folded {
            #expect(result.carrier("event_id") == carrier)
            #expect(result.carrier("offset") == offset)
            #expect(result.carrier("topic") == "push.events")
            #expect(result.text("install_id") == nil && result.text("targets") == "1")
            #expect(result.text("outcome_class") == "policy" && result.text("attempts") == "0")
            #expect(result.key == "u1" && result.text("collapse_id") == "chat")
        }
        #expect(Set(results.compactMap { $0.text("result_id") }).count == results.count)
    }

    @Test func `tell of each event once, and of the carrier what it stands for`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.retryDivisor = 1
        world.settings.routes = try routes(chat("window: 2s, first: hold"))
        try world.register("phone", user: "u1")
        try world.register("pad", user: "u1")
        try world.publishBurst(of: 5)
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 6)
        #expect(world.stop())
        #expect(results.count == 6 && gateway.seen.count == 2)
        #expect(gateway.seen.allSatisfy { $0.body.contains(#""title":"5 new""#) })
        let carried = results.filter { !$0.isFolded }
        #expect(carried.allSatisfy { $0.text("event_id") == "e4" })
        #expect(carried.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(carried.allSatisfy { $0.text("folded_count") == "4" })
        #expect(carried.allSatisfy { $0.text("folded") == #"["e0","e1","e2","e3"]"# })
        expectFolded(results, ["e0", "e1", "e2", "e3"], into: "e4")
        #expect(try world.committed() == 5)
    }

    @Test func `stay with a carrier that waits in a retry topic`() throws {
        let gateway = try ScriptedGateway { _, attempt in
            attempt == 1 ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        let world = try World(gateway)
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.retry.base = .seconds(1)
        world.settings.routes = try routes(chat("window: 200ms, first: hold"))
        try world.register("phone", user: "u1")
        try world.publishBurst(of: 3)
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        expectFolded(results, ["e0", "e1"], into: "e2")
        let carrier = try #require(results.first { !$0.isFolded })
        #expect(carrier.text("outcome") == "accepted" && carrier.text("attempts") == "2")
        #expect(carrier.text("folded_count") == "2" && carrier.text("folded") == #"["e0","e1"]"#)
        #expect(gateway.seen.allSatisfy { $0.body.contains(#""title":"3 new""#) })
        #expect(gateway.seen.count == 2)
    }

    @Test func `leave the furthest cursor with a carrier that waits in a retry topic`() throws {
        let gateway = try ScriptedGateway { _, attempt in
            attempt == 1 ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        let world = try World(gateway)
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.retry.base = .seconds(1)
        world.settings.routes = try routes(
            "  sync: {kind: hint, ttl: 1h, coalesce: {window: 200ms, first: hold}}\n")
        try world.register("phone", user: "u1")
        for seq in [7, 9, 8] {
            try world.publish(
                #"{"id":"e\#(seq)","type":"sync","user_id":"u1","cursor":{"log":"a","seq":\#(seq)}}"#,
                key: "u1")
        }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        let carrier = try #require(results.first { !$0.isFolded })
        #expect(carrier.text("event_id") == "e8" && carrier.text("outcome") == "accepted")
        let cursors = gateway.seen.map(\.body).map { body in
            (try? JSONParser().parse(body))?["bugle"]?["cursor"]?["seq"]?.int64
        }
        #expect(cursors == [9, 9])
        let waited = try world.records(of: "push.events-retry-10s", atLeast: 1)
        #expect(waited.first?.headers["bugle-cursor"] == #"{"log":"a","seq":9}"#)
    }

    @Test(arguments: ["no_devices", "opted_out", "payload_too_large"])
    func `are the same when the carrier is not sent`(reason: String) throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        let long = String(repeating: "x", count: 5_000)
        let data = reason == "payload_too_large" ? "    data: {x: \(long)}\n" : ""
        world.settings.routes = try routes(chat("window: 200ms, first: hold") + data)
        if reason != "no_devices" {
            try world.register(
                "phone", user: "u1", extra: reason == "opted_out" ? #","opt_outs":["chats"]"# : "")
        }
        try world.publishBurst(of: 3)
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        expectFolded(results, ["e0", "e1"], into: "e2")
        let carrier = try #require(results.first { !$0.isFolded })
        #expect(carrier.text("outcome") == reason || carrier.text("reason") == reason)
        #expect(carrier.text("folded_count") == "2" && gateway.seen.isEmpty)
        #expect(try world.committed() == 3)
    }

    @Test func `show what one route is for to who declined what another is for`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        func route(_ name: String, _ more: String) -> String {
            "  \(name): {title: \(name), ttl: 1h, collapse: order, coalesce: {window: 200ms, first: hold}\(more)}\n"
        }
        world.settings.routes = try routes(
            route("shipped", "") + route("review", ", preference: offers"))
        try world.register("phone", user: "u1", extra: #","opt_outs":["offers"]"#)
        for type in ["shipped", "review"] {
            try world.publish(#"{"id":"\#(type)","type":"\#(type)","user_id":"u1"}"#, key: "u1")
        }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(world.stop())
        #expect(
            outcomes(results) == ["shipped": "accepted", "review": "suppressed opted_out"])
        #expect(gateway.seen.count == 1)
    }

    @Test func `are two pushes when events expire before a long window ends`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            chat("window: 60s, first: send").replacing("ttl: 1h", with: "ttl: 8s"))
        try world.register("phone", user: "u1")
        try world.publishBurst(of: 5)
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 5)
        #expect(world.stop())
        #expect(results.count == 5 && gateway.seen.count == 2)
        #expect(gateway.seen.last?.body.contains(#""title":"5 new""#) == true)
        expectFolded(results, ["e1", "e2", "e3"], into: "e4")
        // They waited there, for the end of what they are worth.
        let waited = try world.records(of: "push.events-retry-10s", atLeast: 4)
        #expect(waited.allSatisfy { $0.headers["bugle-error-code"] == "hold" })
    }

    @Test func `belong to the trace that each event came with`() throws {
        let world = try World(try ScriptedGateway())
        let queue = TraceQueue(sample: 0)
        world.settings.traces = queue
        world.settings.routes = try routes(chat("window: 500ms, first: hold"))
        try world.register("phone", user: "u1")
        func trace(_ number: Int) -> String { "4bf92f3577b34da6a3ce929d0e0e473\(number)" }
        for number in 0..<3 {
            // The caller of the second one does not record.
            let flags = number == 1 ? "00" : "01"
            try world.publish(
                #"{"id":"e\#(number)","type":"chat","user_id":"u1","payload":{"from":"p"}}"#,
                key: "u1",
                headers: [.init("traceparent", "00-\(trace(number))-00f067aa0ba902b7-\(flags)")])
        }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        expectFolded(results, ["e0", "e1"], into: "e2")
        for result in results {
            let number = try #require(result.text("event_id").flatMap { Int($0.dropFirst()) })
            let header = try #require(result.headers["traceparent"])
            #expect(header.dropFirst(3).prefix(32) == trace(number))
            #expect(!header.contains("00f067aa0ba902b7"), "our own span")
        }
        let exported = queue.take().sorted { $0.eventID < $1.eventID }
        #expect(exported.map(\.eventID) == ["e0", "e2"])
        #expect(exported.map(\.outcome) == [.coalesced, nil])
        #expect(exported.allSatisfy { $0.eventType == "chat" && $0.app == "shop" })
    }

    @Test func `name fifty events and count all`() throws {
        let world = try World(try ScriptedGateway())
        world.settings.retryDivisor = 1
        world.settings.routes = try routes(chat("window: 2s, first: hold"))
        try world.publishBurst(of: 60)
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 60)
        #expect(world.stop())
        let carrier = try #require(results.first { !$0.isFolded })
        #expect(carrier.text("folded_count") == "59")
        #expect(carrier.text("folded")?.split(separator: ",").count == 50)
    }

    @Test func `are two pushes when a long window waits in the retry topics`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(chat("window: 3s, first: send"))
        try world.register("phone", user: "u1")
        try world.publishBurst(of: 4)
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(world.stop())
        #expect(results.count == 4 && gateway.seen.count == 2)
        #expect(gateway.seen[0].body.contains(#""title":"p0""#))
        #expect(gateway.seen[1].body.contains(#""title":"4 new""#))
        #expect(gateway.seen[0].collapseID == gateway.seen[1].collapseID)
        let folded = results.filter(\.isFolded)
        #expect(folded.count == 2)
        #expect(folded.allSatisfy { $0.text("input_topic") == "push.events" })
        // The first of their hops; three seconds take several.
        let waited = try world.records(of: "push.events-retry-1m", atLeast: 3)
        #expect(waited.count >= 3)
        #expect(waited.allSatisfy { $0.headers["bugle-error-code"] == "hold" })
        #expect(Set(waited.map { $0.headers["bugle-window-until"] }).count == 1)
    }
}

@Suite(.serialized) struct `A window and its partition` {
    @Test func `part without a push: the next owner reads the events again`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.retryDivisor = 1
        world.settings.routes = try routes(chat("window: 25s, first: hold"))
        try world.register("phone", user: "u1")
        try world.publishBurst(of: 3)
        try world.start()
        #expect(world.eventually { world.metric("bugle_coalescing_events 3") })
        #expect(world.stop())
        #expect(gateway.seen.isEmpty)
        world.settings.routes = try routes(chat("window: 1s, first: hold"))
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        #expect(results.count == 3 && gateway.seen.count == 1)
        #expect(gateway.seen[0].body.contains(#""title":"3 new""#))
        #expect(try world.committed() == 3)
    }

    @Test func `never come to a standstill: the oldest end early`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway, lanes: 1)
        world.settings.retryDivisor = 1
        world.settings.routes = try routes(
            chat("window: 30s, first: hold") + "  other: {title: x, ttl: 1h}\n")
        try world.register("phone", user: "u1")
        try world.publishBurst(of: 2)
        // More of the same partition than three quarters of what may be open behind one that is,
        // and less than all of it: it is read on without a pause.
        for _ in 0..<19_000 {
            try world.publish(#"{"type":"other","user_id":"u1-nobody"}"#, key: "u1")
        }
        try world.flush()
        let start = SystemTime.shared.monotonic
        try world.start()
        #expect(world.eventually(within: .seconds(120)) { gateway.seen.count == 1 })
        #expect(gateway.seen.first?.body.contains(#""title":"2 new""#) == true)
        #expect(world.eventually { world.metric("bugle_coalescing_ended_early_total 1") })
        print("the window of 30 s ended after \(SystemTime.shared.monotonic - start)")
        #expect(world.stop())
    }
}
