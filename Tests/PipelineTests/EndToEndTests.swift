import Base
import JSON
import Kafka
import Telemetry
import Testing

@testable import Pipeline

@Suite(.serialized) struct `The pipeline, end to end` {
    @Test func `every target of every event ends in exactly one result`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        for user in 0..<20 {
            for device in 0...(user % 3) {
                try world.register("i-\(user)-\(device)", user: "u\(user)")
            }
        }
        try world.start()
        for event in 0..<200 { try world.publish(id: "e\(event)", user: "u\(event % 21)") }
        try world.flush()
        // u20 has no device; the others have one to three.
        let targets = (0..<200).map { event in
            event % 21 == 20 ? 1 : (event % 21) % 3 + 1
        }.reduce(0, +)
        let results = try world.records(of: "push.results", atLeast: targets)
        #expect(results.count == targets)
        #expect(Set(results.map { $0.text("result_id") }).count == targets)
        #expect(results.count { $0.text("outcome") == "no_devices" } == 200 / 21)
        #expect(results.count { $0.text("outcome") == "accepted" } == targets - 200 / 21)
        #expect(results.allSatisfy { $0.key == $0.text("user_id") })
        #expect(Set(gateway.seen.map(\.messageID)).count == targets - 200 / 21)
        #expect(Set(gateway.seen.map(\.authorization)).count == 1)
        #expect(world.stop())
        #expect(try world.committed() == 200)
    }

    @Test func `what finished behind an event that takes long is not sent again`() throws {
        let gateway = try ScriptedGateway { token, attempt in
            token == World.token(of: "slow") && attempt == 1 ? .hold : .answer(200, "")
        }
        let world = try World(gateway, lanes: 1)
        world.settings.group.drainDeadline = .milliseconds(500)
        try world.register("slow", user: "u1")
        try world.register("quick", user: "u1")
        try world.start()
        try world.publish(id: "e0", user: "u1", extra: #","only":{"install_ids":["slow"]}"#)
        for event in 1...20 {
            try world.publish(
                id: "e\(event)", user: "u1", extra: #","only":{"install_ids":["quick"]}"#)
        }
        try world.flush()
        #expect(try world.records(of: "push.results", atLeast: 20).count == 20)
        #expect(!world.stop())
        #expect(try world.committed() == 0)

        try world.start()
        let results = try world.records(of: "push.results", atLeast: 21)
        #expect(world.stop())
        #expect(results.count == 21)
        #expect(Set(results.map { $0.text("event_id") }).count == 21)
        #expect(gateway.seen.count { $0.token == World.token(of: "quick") } == 20)
        #expect(gateway.seen.count { $0.token == World.token(of: "slow") } == 2)
        #expect(try world.committed() == 21)
    }

    @Test func `what was answered beside one that takes long is not sent again`() throws {
        let slow = World.token(of: "slow")
        let gateway = try ScriptedGateway { token, attempt in
            token == slow && attempt == 1 ? .hold : .answer(200, "")
        }
        let world = try World(gateway, lanes: 1)
        world.settings.group.drainDeadline = .milliseconds(800)
        for device in ["slow", "quick", "other"] { try world.register(device, user: "u1") }
        try world.start()
        try world.publish(id: "e0", user: "u1")
        try world.flush()
        #expect(world.eventually { gateway.seen.count == 3 })
        // Answers take a moment to arrive.
        #expect(world.eventually { world.registry.sum(of: "bugle_outcomes_total") == 2 })
        #expect(world.stop())
        #expect(try world.committed() == 1)
        let first = try world.records(of: "push.results", atLeast: 2)
        #expect(first.map { $0.text("outcome") } == ["accepted", "accepted"])

        try world.start()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        #expect(results.count == 3)
        #expect(Set(results.map { $0.text("install_id") }).count == 3)
        #expect(Set(results.map { $0.text("result_id") }).count == 3)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        let last = try #require(results.last)
        #expect(last.text("attempts") == "2")
        #expect(last.text("ambiguous") == "true")
        #expect(gateway.seen.count == 4)
        #expect(gateway.seen.count { $0.token == slow } == 2)
    }

    @Test func `a static member whose name another has taken has to end`() throws {
        let world = try World(try ScriptedGateway(), lanes: 1)
        world.settings.group.instanceID = "bugle-0"
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "e1", user: "ada")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
        #expect(world.failure == nil)
        world.cluster.push([.fencedInstanceID], to: .heartbeat)
        #expect(world.eventually { world.failure?.contains("the consumer group") == true })
        _ = world.stop()
    }

    @Test func `an event as large as one may be is sent, also after a wait`() throws {
        let gateway = try ScriptedGateway { _, attempt in
            attempt == 1
                ? .answer(500, #"{"reason":"InternalServerError"}"#) : .answer(200, "")
        }
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        let head =
            #"{"id":"e1","type":"t","user_id":"ada","notification":{"title":"t"},"payload":{"a":["#
        let parts = Array(repeating: "\"\(String(repeating: "x", count: 30_000))\"", count: 8)
        let body = head + parts.joined(separator: ",") + ",\""
        let filler = String(repeating: "y", count: 256 * 1024 - body.utf8.count - 4)
        let event = body + filler + "\"]}}"
        #expect(event.utf8.count == 256 * 1024)
        try world.publish(event, key: "ada")
        try world.flush()
        let retry = try #require(
            try world.records(of: "push.events-retry-1h", atLeast: 1).first)
        #expect(retry.value == event)
        try world.putBack(retry)
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["accepted"])
        #expect(results.map { $0.text("attempts") } == ["2"])
        #expect(world.stop())
    }

    @Test func `poison goes to the dead letters with its reason and delays nothing`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        try world.register("i1", user: "u1")
        try world.start()
        let large = String(repeating: "x", count: 33_000)
        let poison: [String?] = [
            "not json", "[]", #"{"id":1}"#, nil, #"{"id":"x","type":"t","user_id":"u1","ttl":"a"}"#,
            #"{"id":"y","type":"t","user_id":"u1","app":"nobody","notification":{"title":"x"}}"#,
            #"{"id":"z","type":"t","user_id":"u1"}"#, String(repeating: "[", count: 300_000),
            #"{"id":"w","type":"t","user_id":"u1","payload":{"data":{"a":"\#(large)"}}}"#,
        ]
        for value in poison { try world.publish(value, key: "u1") }
        try world.publish(id: "good", user: "u1")
        try world.flush()
        let letters = try world.records(of: "push.events-dlt", atLeast: poison.count)
        #expect(
            letters.map { $0.headers["bugle-error-code"] } == [
                "not_json", "not_json", "missing_field", "null_value", "invalid_field",
                "unknown_app", "no_route", "too_large", "too_large",
            ])
        #expect(letters[0].value == "not json" && letters[0].key == "u1")
        #expect(letters[3].value == nil)
        #expect(letters[7].value?.utf8.count == 262_144)
        #expect(letters[7].headers["bugle-truncated"] == "300000")
        #expect(letters.allSatisfy { $0.headers["bugle-original-topic"] == "push.events" })
        let results = try world.records(of: "push.results", atLeast: 5)
        #expect(
            results.map { $0.text("outcome") } == [
                "dead_lettered", "dead_lettered", "dead_lettered", "dead_lettered", "accepted",
            ])
        #expect(gateway.seen.count == 1)
    }

    @Test func `control characters break no record, no header and no line`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        try world.register("i1", user: "u1")
        try world.start()
        let odd = #"a\r\nb\u0000\u001b[31m"#
        for name in ["id", "type", "source"] {
            let members = ["id": "e", "type": "t", "source": "s"].map { key, value in
                #""\#(key)":"\#(key == name ? odd : value)""#
            }.joined(separator: ",")
            try world.publish(
                #"{\#(members),"user_id":"u1","notification":{"title":"x"}}"#, key: "u1")
        }
        try world.publish(
            id: "good", user: "u1", extra: #","labels":{"a\nb":"c\u0000\u001b[31m","d":"\"é"}"#)
        try world.flush()
        let letters = try world.records(of: "push.events-dlt", atLeast: 3)
        #expect(
            letters.map { $0.headers["bugle-error-reason"] } == [
                "id holds a control character", "type holds a control character",
                "source holds a control character",
            ])
        let results = try world.records(of: "push.results", atLeast: 3)
        let good = try #require(results.first { $0.text("outcome") == "accepted" })
        let labels = try #require(good.text("labels"))
        let root = try JSONParser().parse(labels)
        #expect(root["a\nb"]?.string == "c\u{0}\u{1B}[31m" && root["d"]?.string == "\"é")
        #expect(world.stop())
        // What is said of them is one line of JSON each, whatever they hold.
        #expect(world.lines(with: "holds a control character") > 0)
        for text in world.logLines + results.compactMap(\.value) {
            #expect(!text.utf8.contains { $0 < 0x20 }, "\(text)")
            #expect((try? JSONParser().parse(text)) != nil, "\(text)")
        }
    }

    @Test func `a target without a way to it has a whole result`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        for device in 0..<20 {
            try world.register("i-\(device)", user: "u\(device)", permission: "denied")
        }
        try world.start()
        for device in 0..<20 { try world.publish(id: "e\(device)", user: "u\(device)") }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 20)
        #expect(results.allSatisfy { $0.text("reason") == "permission_denied" })
        #expect(results.allSatisfy { $0.text("address_kind") == "alert" })
        #expect(results.allSatisfy { $0.text("environment") == "production" })
        #expect(gateway.seen.isEmpty)
    }

    @Test func `a dead token is told to the invalidations, unless it was registered later`() throws
    {
        let gateway = try ScriptedGateway { _, _ in
            .answer(410, #"{"reason":"Unregistered","timestamp":1735689700000}"#)
        }
        let world = try World(gateway)
        try world.register("old", user: "u1", registeredAt: 1_735_689_600_000)
        let now = SystemTime.shared.wall.value
        try world.register("new", user: "u1", registeredAt: now)
        // Uploaded again since it died, and dead still.
        try world.register("zombie", user: "u1", registeredAt: 1_735_689_800_000)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        let outcomes = Dictionary(
            uniqueKeysWithValues: results.map { ($0.text("install_id"), $0.text("outcome")) })
        #expect(
            outcomes == ["old": "token_invalid", "new": "rejected", "zombie": "token_invalid"])
        let verdicts = try world.records(of: "push.invalidations", atLeast: 2)
        #expect(Set(verdicts.map(\.key)) == ["shop/old", "shop/zombie"])
        let asOf = verdicts.map { ($0.key, $0.text("as_of").flatMap { Int64($0) } ?? 0) }
        #expect(asOf.allSatisfy { $0 == "shop/old" ? $1 == 1_735_689_700_000 : $1 >= now })
    }

    @Test func `APNS-12: a lost answer is sent once more under the same identity`() throws {
        let gateway = try ScriptedGateway { _, attempt in attempt == 1 ? .cut : .answer(200, "") }
        let world = try World(gateway, lanes: 1)
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.count == 1)
        #expect(results.first?.text("outcome") == "accepted")
        #expect(results.first?.text("ambiguous") == "true")
        #expect(results.first?.text("attempts") == "2")
        #expect(gateway.seen.count == 2)
        #expect(Set(gateway.seen.map(\.messageID)).count == 1)
        // The event names no key: its id stands in, so that the second copy replaces the first.
        #expect(Set(gateway.seen.map(\.collapseID)) == [World.identity(ofEvent: "e1").text])
    }

    @Test func `APNS-15: an expired event is never sent, and one result says so`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(
            id: "e1", user: "u1", extra: #","time":"2025-01-01T00:00:00Z","ttl":3600"#)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["expired"])
        #expect(gateway.seen.isEmpty)
    }

    @Test func `stopping finishes what is in flight and repeats nothing afterwards`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        for user in 0..<50 { try world.register("i\(user)", user: "u\(user)") }
        try world.start()
        for event in 0..<2000 { try world.publish(id: "e\(event)", user: "u\(event % 50)") }
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 200)
        #expect(world.stop())
        let committed = try world.committed()
        let results = try world.records(of: "push.results", atLeast: Int(committed))
        #expect(Int64(results.count) == committed)
        try world.start()
        let all = try world.records(of: "push.results", atLeast: 2000)
        #expect(all.count == 2000)
        #expect(Set(all.map { $0.text("result_id") }).count == 2000)
        #expect(gateway.seen.count == 2000)
        #expect(world.stop())
    }

    @Test func `a payload over the limit costs no request`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(
            id: "big", user: "u1",
            extra: #","data":{"x":"\#(String(repeating: "a", count: 5000))"}"#
        )
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.first?.text("outcome") == "rejected")
        #expect(results.first?.text("reason") == "payload_too_large")
        #expect(results.first?.text("attempts") == "0")
        #expect(gateway.seen.isEmpty)
    }
}
