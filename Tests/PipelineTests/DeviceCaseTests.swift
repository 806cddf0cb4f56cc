// Cases from the field about one bad device: what it costs itself, and what it must not cost others.

import Base
import Crypto
import HTTP2
import JSON
import Kafka
import Simulator
import Testing

@testable import Pipeline

@Suite(.serialized) struct `A bad device` {
    @Test func `APNS-03: is refused once, told once and not sent to again`() throws {
        let gateway = try ScriptedGateway { _, _ in
            .answer(400, #"{"reason":"BadDeviceToken"}"#)
        }
        let world = try World(gateway)
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "ev-1", user: "ada")
        try world.flush()
        let first = try world.records(of: "push.results", atLeast: 1)
        #expect(first.map { $0.text("outcome") } == ["token_suspended"])
        #expect(first.map { $0.text("environment") } == ["production"])
        for verdict in try world.records(of: "push.invalidations", atLeast: 1) {
            try world.apply(verdict: verdict)
        }

        try world.publish(id: "ev-2", user: "ada")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(results.map { $0.text("outcome") } == ["token_suspended", "no_devices"])
        #expect(gateway.seen.count == 1)
        #expect(world.stop())
        let verdicts = try world.records(of: "push.invalidations", atLeast: 1)
        #expect(verdicts.map { $0.text("verdict") } == ["suspend"])
        #expect(verdicts.map { $0.text("reason") } == ["BadDeviceToken"])
    }

    @Test func `APNS-13: is tried again alone, its neighbours only once`() throws {
        let bad = World.token(of: "i3")
        let gateway = try ScriptedGateway { token, attempt in
            token == bad && attempt == 1
                ? .answer(400, #"{"reason":"IdleTimeout"}"#) : .answer(200, "")
        }
        let world = try World(gateway)
        for device in 0..<10 { try world.register("i\(device)", user: "u1") }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 10)
        #expect(results.count { $0.text("outcome") == "accepted" } == 10)
        #expect(gateway.seen.count == 11)
    }

    @Test func `APNS-13: that has to wait a quarter of an hour comes back alone`() throws {
        let bad = World.token(of: "i3")
        let gateway = try ScriptedGateway { token, attempt in
            token == bad && attempt == 1
                ? .answer(500, #"{"reason":"InternalServerError"}"#) : .answer(200, "")
        }
        let world = try World(gateway)
        for device in 0..<10 { try world.register("i\(device)", user: "u1") }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        // The topics' waits are a hundredth here, so that the hour's is the one that fits.
        let retries = try world.records(of: "push.events-retry-1h", atLeast: 1)
        let retry = try #require(retries.first)
        #expect(retry.headers["bugle-pending"] == #"["shop/i3"]"#)
        let due = try #require(retry.headers["bugle-not-before"].flatMap { Int64($0) })
        #expect(due >= SystemTime.shared.wall.value + 13 * 60_000)
        #expect(try world.records(of: "push.results", atLeast: 9).count == 9)

        // The same record, a quarter of an hour later.
        try world.putBack(retry)
        let results = try world.records(of: "push.results", atLeast: 10)
        #expect(results.count == 10)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(Set(results.map { $0.text("result_id") }).count == 10)
        #expect(gateway.seen.count == 11)
        #expect(Set(gateway.seen.map(\.messageID)).count == 10)
        #expect(world.stop())
    }

    @Test func `FCM-13: or a refused push leaves the user's other devices their own`() throws {
        func token(_ install: String) -> String { World.token(of: install, gateway: .fcm) }
        var options = SimulatorOptions()
        // The field of a payload: an invalid argument that says nothing about the token.
        let refusal =
            #"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"Invalid value","details":[{"#
            + #""@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","#
            + #""errorCode":"INVALID_ARGUMENT"}]}}"#
        options.faults = FaultPlan(rules: [
            FaultRule(
                "dead", FaultMatch(.fcm, tokenPrefix: token("dead")),
                .answer(FaultAnswer(status: 404, reason: "UNREGISTERED"))),
            FaultRule(
                "refused", FaultMatch(.fcm, tokenPrefix: token("refused")),
                .answer(FaultAnswer(status: 400, reason: "INVALID_ARGUMENT", body: refusal))),
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator)
        for install in ["dead", "refused", "good"] {
            try world.register(install, user: "u1", gateway: .fcm)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        let outcomes = results.map { [$0.text("install_id"), $0.text("outcome")] }
        #expect(
            Set(outcomes) == [
                ["dead", "token_invalid"], ["refused", "rejected"], ["good", "accepted"],
            ])
        #expect(results.map { $0.text("attempts") } == ["1", "1", "1"])
        let asked = simulator.journal.entries.filter { $0.service == .fcm }
        #expect(asked.count == 3)
        #expect(Set(asked.map(\.token)) == [token("dead"), token("refused"), token("good")])
        // Only the dead one's registration ends.
        let verdicts = try world.records(of: "push.invalidations", atLeast: 1)
        #expect(verdicts.map(\.key) == ["shop/dead"])
    }

    @Test func `APNS-06: with a malformed token costs no request, and its neighbours nothing`()
        throws
    {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        let good = String(repeating: "ab", count: 32)
        let tokens = ["null": "(null)", "spaced": "<aabb ccdd>", "letters": "zz", "good": good]
        for (install, token) in tokens {
            try world.register(install, user: "u1", token: token)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 4)
        let outcomes = results.map { [$0.text("install_id"), $0.text("outcome")] }
        #expect(
            Set(outcomes) == [
                ["null", "token_invalid"], ["spaced", "token_invalid"],
                ["letters", "token_invalid"], ["good", "accepted"],
            ])
        let malformed = results.filter { $0.text("outcome") == "token_invalid" }
        #expect(malformed.count == 3)
        #expect(malformed.allSatisfy { $0.text("reason") == "malformed_token" })
        #expect(malformed.allSatisfy { $0.text("attempts") == "0" })
        #expect(gateway.seen.map(\.token) == [good])

        // The index forgets them: the next event is for one device.
        let verdicts = try world.records(of: "push.invalidations", atLeast: 3)
        #expect(Set(verdicts.map(\.key)) == ["shop/null", "shop/spaced", "shop/letters"])
        for verdict in verdicts { try world.apply(verdict: verdict) }
        try world.publish(id: "e2", user: "u1")
        try world.flush()
        let all = try world.records(of: "push.results", atLeast: 5)
        #expect(world.stop())
        #expect(try world.records(of: "push.results", atLeast: 5).count == 5)
        #expect(
            all.filter { $0.text("event_id") == "e2" }.map { $0.text("outcome") } == ["accepted"])
        #expect(gateway.seen.map(\.token) == [good, good])
    }

    @Test func `FCM-08: or a gateway that was unavailable shows one notification`() throws {
        var options = SimulatorOptions()
        options.journal = .full(bodies: true)
        // Retry-After takes the record to a topic that waits long enough for the test to go first.
        options.faults = FaultPlan(rules: [
            FaultRule(
                "unavailable", FaultMatch(.fcm, count: 1),
                .answer(
                    FaultAnswer(
                        status: 503, reason: "UNAVAILABLE",
                        fields: [ServerField("retry-after", "900")])))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator)
        try world.register("pixel", user: "u1", gateway: .fcm)
        try world.start()
        try world.publish(
            id: "e1", user: "u1", extra: #","fcm":{"android":{"collapse_key":"news"}}"#)
        try world.flush()
        let retries = try world.records(of: "push.events-retry-1h", atLeast: 1)
        #expect(try world.records(of: "push.results", atLeast: 1, within: .zero).isEmpty)
        try world.putBack(try #require(retries.first))
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(world.stop())
        #expect(results.map { $0.text("outcome") } == ["accepted"])
        #expect(results.map { $0.text("attempts") } == ["2"])
        let asked = simulator.journal.entries.filter { $0.service == .fcm }
        #expect(asked.map(\.status) == [503, 200])
        #expect(asked.map(\.collapseID) == ["news", "news"])
        let tags = try asked.map { entry in
            let root = try JSONParser().parse(String(decoding: entry.body, as: UTF8.self))
            return try #require(
                root["message"]?["android"]?["notification"]?["tag"]?.string)
        }
        #expect(tags.count == 2 && Set(tags).count == 1)
        // The event's id decides it, whatever the attempt and wherever the event was read.
        #expect(tags.first == World.identity(ofEvent: "e1").text)
        #expect(try world.records(of: "push.results", atLeast: 1).count == 1)
    }

    /// Without a key of its own an event collapses under its id: a copy of it replaces it, and
    /// nothing else does.
    @Test func `FCM-08 and APNS-12: or an event published twice shows one notification`() throws {
        var options = SimulatorOptions()
        options.journal = .full(bodies: true)
        let simulator = try Simulator(options)
        let world = try World(simulator)
        try world.register("pixel", user: "u1", gateway: .fcm)
        try world.register("phone", user: "u1")
        try world.start()
        for id in ["e1", "e2", "e1"] { try world.publish(id: id, user: "u1") }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 6)
        #expect(world.stop())
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        let ids = ["e1", "e1", "e2"].map { World.identity(ofEvent: $0).text }
        let apple = simulator.journal.entries.filter { $0.service == .apnsProduction }
        #expect(apple.compactMap(\.collapseID).sorted() == ids.sorted())
        let tags = try simulator.journal.entries.filter { $0.service == .fcm }.map { entry in
            let root = try JSONParser().parse(String(decoding: entry.body, as: UTF8.self))
            let android = try #require(root["message"]?["android"])
            // FCM keeps four keys of a device apart at most, so none is made up.
            #expect(android["collapse_key"] == nil)
            return try #require(android["notification"]?["tag"]?.string)
        }
        #expect(tags.sorted() == ids.sorted())
    }

    @Test func `APNS-10: refused under one app's topic stays with the other app`() throws {
        let gateway = try ScriptedGateway { _, attempt in
            attempt == 1 ? .answer(400, #"{"reason":"DeviceTokenNotForTopic"}"#) : .answer(200, "")
        }
        let world = try World(gateway, apps: ["shop", "news"])
        for app in ["shop", "news"] { try world.register("phone", user: "u1", app: app) }
        try world.start()
        func outcome(of id: String, _ app: String, _ number: Int) throws -> String? {
            try world.publish(id: id, user: "u1", extra: #","app":"\#(app)""#)
            try world.flush()
            let results = try world.records(of: "push.results", atLeast: number)
            return results.first { $0.text("event_id") == id }?.text("outcome")
        }
        #expect(try outcome(of: "e1", "shop", 1) == "token_suspended")
        #expect(try outcome(of: "e2", "news", 2) == "accepted")
        let verdicts = try world.records(of: "push.invalidations", atLeast: 1)
        #expect(verdicts.map(\.key) == ["shop/phone"])
        #expect(verdicts.map { $0.text("verdict") } == ["suspend"])
        #expect(verdicts.map { $0.text("reason") } == ["DeviceTokenNotForTopic"])
        for verdict in verdicts { try world.apply(verdict: verdict) }
        #expect(try outcome(of: "e3", "shop", 3) == "no_devices")
        #expect(try outcome(of: "e4", "news", 4) == "accepted")
        #expect(
            gateway.seen.map(\.topic) == [
                "com.example.shop", "com.example.news", "com.example.news",
            ])
        #expect(Set(gateway.seen.map(\.token)) == [World.token(of: "phone")])
        #expect(world.stop())
    }
}

extension World {
    /// What the pushes of an event of the only app have in common when nothing else is said.
    static func identity(ofEvent id: String) -> UUIDBytes {
        UUIDv5.make(namespace: Lane.namespace, name: "shop\0\0\(id)")
    }

    /// Puts a record of a retry topic in again as if its wait were over.
    func putBack(_ retry: TopicRecord) throws {
        let due = try #require(retry.headers["bugle-not-before"])
        let now = "\(SystemTime.shared.wall.value)"
        var headers = retry.headers
        headers["bugle-not-before"] = now
        headers["bugle-pending-state"] = headers["bugle-pending-state"]?.replacing(due, with: now)
        try publish(
            retry.value, key: retry.key, to: "push.events-retry-10s",
            headers: headers.map { .init($0.key, $0.value) })
        try flush()
    }
}
