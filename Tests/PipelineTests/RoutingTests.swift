import Base
import Config
import EventLoop
import Routes
import Testing

@testable import Pipeline

/// The routes of a configuration whose only app is `shop`.
func routes(_ text: String) throws -> RouteTable {
    try RouteTable.compile(
        try Configuration.parse(
            text: """
                kafka: {brokers: "localhost:9092"}
                apps:
                  shop:
                    fcm: {service_account: "${KEY}"}
                    apns: {team_id: ABCDE12345, key_id: FGHIJ67890, key: "${KEY}", topic: a.b}
                routes:

                """ + text, environment: ["KEY": "k"]))
}

@Suite(.serialized) struct `Routes in the pipeline` {
    private func event(_ id: String, _ type: String, user: String = "u1", _ more: String = "")
        -> String
    {
        #"{"id":"\#(id)","type":"\#(type)","user_id":"\#(user)"\#(more)}"#
    }

    @Test func `a business event becomes a notification in each device's language`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            """
              order.*:
                title: "Order {{payload.id}}"
                body: "{{payload.total:number(2)}} on {{payload.at:date(short)}}"
                ttl: 1h
                collapse: "order-{{payload.id}}"
                translations: {de: {title: "Bestellung {{payload.id}}"}}

            """)
        try world.register(
            "at", user: "u1", extra: #","locale":"de-AT","time_zone":"Europe/Vienna""#)
        try world.register("gb", user: "u1", extra: #","locale":"en-GB","time_zone":"Asia/Tokyo""#)
        try world.register("gb2", user: "u1", extra: #","locale":"en-GB","time_zone":"Asia/Tokyo""#)
        try world.register("none", user: "u1")
        try world.start()
        try world.publish(
            event(
                "e1", "order.shipped",
                #","payload":{"id":"A1","total":1234.5,"at":"2026-01-31T20:00:00Z"}"#),
            key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(world.stop())
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(results.allSatisfy { $0.text("route") == "order.*" && $0.text("kind") == "alert" })
        #expect(results.allSatisfy { $0.text("collapse_id") == "order-A1" })
        func body(_ install: String) throws -> String {
            try #require(gateway.seen.first { $0.token == World.token(of: install) }).body
        }
        #expect(try body("at").contains(#""title":"Bestellung A1","body":"1,234.50 on 1/31/26""#))
        #expect(try body("gb").contains(#""title":"Order A1","body":"1,234.50 on 01/02/2026""#))
        #expect(try body("gb2").contains(#""body":"1,234.50 on 01/02/2026""#))
        #expect(try body("none").contains(#""body":"1,234.50 on 1/31/26""#))
        #expect(gateway.seen.allSatisfy { $0.body.contains($0.messageID) })
        #expect(Set(gateway.seen.map(\.messageID)).count == 4)
    }

    @Test func `what the route needs and the event lacks is a dead letter that names it`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            """
              order.shipped: {title: "Order {{payload.order.id}}", data: {n: "{{payload.n}}"}}
              hint: {kind: hint}

            """)
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(event("e1", "order.shipped"), key: "u1")
        try world.publish(
            event("e2", "order.shipped", #","payload":{"order":{"id":null},"n":1}"#), key: "u1")
        try world.publish(event("e3", "hint"), key: "u1")
        try world.publish(event("e4", "order.shiped"), key: "u1")
        try world.publish(
            event(
                "e5", "order.shipped",
                #","payload":{"n":1},"notification":{"title":"own"},"collapse_key":"own-key""#),
            key: "u1")
        try world.flush()
        let letters = try world.records(of: "push.events-dlt", atLeast: 4)
        #expect(
            letters.map { $0.headers["bugle-error-code"] } == [
                "content_error", "content_error", "content_error", "no_route",
            ])
        #expect(
            letters.map { $0.headers["bugle-error-reason"] ?? "" } == [
                "route order.shipped: payload.order.id is missing",
                "route order.shipped: payload.order.id is missing",
                "route hint: cursor is missing",
                "the event has no notification, data, apns or fcm, and no route is for its type;"
                    + " the nearest is order.shipped",
            ])
        let results = try world.records(of: "push.results", atLeast: 5)
        #expect(world.stop())
        #expect(results.count { $0.text("outcome") == "dead_lettered" } == 4)
        // What the event says itself needs nothing of the route, and wins.
        let own = try #require(results.first { $0.text("event_id") == "e5" })
        #expect(own.text("outcome") == "accepted" && own.text("collapse_id") == "own-key")
        #expect(gateway.seen.map(\.body).allSatisfy { $0.contains(#""alert":{"title":"own"}"#) })
        #expect(gateway.seen.first?.body.contains(#""n":1"#) == true)
    }

    @Test func `a reload routes what is read next and touches nothing in flight`() throws {
        let arrived = Semaphore()
        let gateway = try ScriptedGateway { token, _ in
            guard token == World.token(of: "slow") else { return .answer(200, "") }
            arrived.signal()
            return .hold
        }
        let world = try World(gateway, lanes: 1)
        world.settings.routes = try routes("  t: {title: old}\n")
        try world.register("slow", user: "u1")
        try world.register("quick", user: "u2")
        try world.start()
        try world.publish(event("e1", "t"), key: "u1")
        try world.flush()
        #expect(arrived.wait(upTo: .seconds(20)))
        world.replaceRoutes(try routes("  t: {title: new}\n"))
        try world.publish(event("e2", "t", user: "u2"), key: "u2")
        try world.flush()
        #expect(try world.records(of: "push.results", atLeast: 1).count == 1)
        gateway.release()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(world.stop())
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(gateway.seen.map { $0.body.contains(#""title":"old""#) } == [true, false])
        #expect(gateway.seen.map { $0.body.contains(#""title":"new""#) } == [false, true])
        // Both results were written when the new configuration was in force.
        #expect(results.map { $0.text("config_hash") } == ["changed", "changed"])
    }

    @Test func `PAY-03: a body that is too long for the gateway is cut between characters`() throws
    {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            """
              t: {title: "{{payload.t}}", body: "{{payload.b}}", data: {k: "{{payload.k|}}"}}
              whole: {title: x, body: "{{payload.b}}", shrink_body: false}

            """)
        try world.register("i1", user: "u1")
        try world.start()
        // Twenty-five bytes, one character.
        let family = "👨‍👩‍👧‍👦"
        let families = String(repeating: family, count: 1100)
        let quotes = String(repeating: #"\""#, count: 3000)
        let long = String(repeating: "k", count: 5000)
        let payloads = [
            #"{"t":"one","b":"x\#(families)"}"#, #"{"t":"two","b":"\#(quotes)"}"#,
            #"{"t":"three","b":"abc","k":"\#(long)"}"#,
        ]
        for (number, payload) in payloads.enumerated() {
            try world.publish(event("e\(number)", "t", #","payload":\#(payload)"#), key: "u1")
        }
        try world.publish(
            event("e3", "whole", #","payload":{"b":"x\#(families)"}"#), key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(world.stop())
        func result(_ id: String) -> TopicRecord? { results.first { $0.text("event_id") == id } }
        func body(_ title: String) throws -> String {
            try #require(gateway.seen.first { $0.body.contains("\"title\":\"\(title)\"") }).body
        }
        let cut = try body("one")
        #expect(cut.utf8.count <= 4096 && cut.utf8.count > 4096 - 25 - 3)
        #expect(cut.contains("\"body\":\"x\(family)") && cut.contains("\(family)…\""))
        let escaped = try body("two")
        #expect(escaped.utf8.count <= 4096 && escaped.utf8.count > 4096 - 2 - 3)
        #expect(escaped.contains(#"\"…""#))
        // Data never shrinks, and a route may want its texts whole.
        for id in ["e2", "e3"] {
            #expect(result(id)?.text("outcome") == "rejected")
            #expect(result(id)?.text("reason") == "payload_too_large")
            #expect(result(id)?.text("detail")?.hasSuffix("4096 are allowed") == true)
        }
        #expect(gateway.seen.count == 2)
    }

    @Test func `an event that waited is not a dead letter when its route is gone`() throws {
        let (arrived, proceed) = (Semaphore(), Semaphore())
        let gateway = try ScriptedGateway { _, attempt in
            guard attempt == 1 else { return .answer(200, "") }
            arrived.signal()
            _ = proceed.wait(upTo: .seconds(20))
            return .answer(503, #"{"reason":"Shutdown"}"#)
        }
        let world = try World(gateway)
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.routes = try routes("  t: {title: x}\n")
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(event("e1", "t"), key: "u1")
        try world.flush()
        #expect(arrived.wait(upTo: .seconds(20)))
        world.replaceRoutes(try routes("  t: {title: '{{payload.new}}'}\n"))
        proceed.signal()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(world.stop())
        #expect(results.map { $0.text("outcome") } == ["rejected"])
        #expect(results.map { $0.text("reason") } == ["invalid_content"])
        #expect(results.map { $0.text("install_id") } == ["i1"])
        #expect(results.map { $0.text("detail") } == ["route t: payload.new is missing"])
    }

    @Test func `who does not want it gets nothing`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            """
              alert: {title: x, preference: offers, android_channel: sales}
              silent: {kind: silent, preference: offers}
              other: {title: x}

            """)
        try world.register("opted", user: "u1", extra: #","opt_outs":["news","offers"]"#)
        try world.register("muted", user: "u1", extra: #","muted_channels":["sales"]"#)
        try world.register("denied", user: "u1", permission: "denied")
        try world.register("plain", user: "u1")
        try world.start()
        for type in ["alert", "silent", "other"] {
            try world.publish(event(type, type), key: "u1")
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 12)
        #expect(world.stop())
        func reasons(_ event: String) -> [String: String?] {
            Dictionary(
                uniqueKeysWithValues: results.filter { $0.text("event_id") == event }.map {
                    ($0.text("install_id") ?? "", $0.text("reason"))
                })
        }
        #expect(
            reasons("alert") == [
                "opted": "opted_out", "muted": "channel_muted", "denied": "permission_denied",
                "plain": nil,
            ])
        #expect(
            reasons("silent") == ["opted": "opted_out", "muted": nil, "denied": nil, "plain": nil])
        #expect(
            reasons("other") == [
                "opted": nil, "muted": nil, "denied": "permission_denied", "plain": nil,
            ])
        let silent = gateway.seen.filter { $0.body.contains("content-available") }
        #expect(silent.count == 3 && silent.allSatisfy { !$0.body.contains("alert") })
    }

    @Test func `a call rings at the VoIP address and is never stored`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            "  call: {kind: call, data: {from: '{{payload.from}}'}}\n")
        try world.register("phone", user: "u1")
        try world.register("phone-voip", user: "u1", kind: "voip")
        try world.start()
        try world.publish(
            event("e1", "call", #","payload":{"from":"Ada"},"collapse_key":"x""#), key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(world.stop())
        #expect(results.count == 1)
        #expect(results[0].text("address_kind") == "voip" && results[0].text("kind") == "call")
        #expect(results[0].text("outcome") == "accepted")
        let seen = try #require(gateway.seen.first)
        #expect(seen.token == World.token(of: "phone-voip") && seen.collapseID.isEmpty)
        #expect(seen.body.contains(#""from":"Ada""#))
    }

    @Test(arguments: [
        #""ttl":3600"#, #""expires_at":"2026-01-01T09:00:00Z""#, #""ttl":0"#, #""labels":{}"#,
    ])
    func `a call is stored nowhere and never late, whatever its event says`(member: String) throws {
        let explained = try Explained(routes: "  call: {kind: call, addresses: [alert]}\n")
        let call =
            #"{"id":"e","type":"call","user_id":"u1","time":"2026-01-01T00:00:00Z",\#(member)}"#
        let apple = try #require(try explained.answer(to: call, on: .apns).request)
        #expect(apple.fields.first { $0.name == "apns-expiration" }?.value == "0")
        let google = try #require(try explained.answer(to: call, on: .fcm).request)
        #expect(google.body.replacing(" ", with: "").contains(#""ttl":"0s""#))
        #expect(try explained.explain(call).expiresAt == Explained.now + .seconds(30))
    }

    @Test func `a call does not wait for longer than it was to`() throws {
        let explained = try Explained(routes: "  call: {kind: call}\n")
        let explanation = try explained.explain(
            #"{"id":"e","type":"call","user_id":"u1","time":"2026-01-01T00:00:00Z","ttl":7}"#)
        #expect(explanation.expiresAt == Explained.now + .seconds(7))
    }

    @Test func `where duplicates are to be avoided a lost answer is left at that`() throws {
        let gateway = try ScriptedGateway { _, attempt in attempt == 1 ? .cut : .answer(200, "") }
        let world = try World(gateway)
        world.settings.routes = try routes("  code: {title: x, duplicates: avoid}\n")
        try world.register("i1", user: "u1")
        try world.start()
        try world.publish(event("e1", "code"), key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(world.stop())
        #expect(results.map { $0.text("outcome") } == ["unknown"])
        #expect(gateway.seen.count == 1)
    }

    @Test func `an alert carries its cursor itself, and a call replaces no other`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes("  note: {title: x, ttl: 1h}\n  ring: {kind: call}\n")
        try world.register("phone", user: "u1")
        try world.register("phone-calls", user: "u1", kind: "voip")
        try world.start()
        try world.publish(event("n", "note", #","cursor":{"log":"inbox","seq":7}"#), key: "u1")
        for id in ["c1", "c2"] {
            try world.publish(event(id, "ring", #","collapse_key":"line""#), key: "u1")
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        #expect(outcomes(results) == ["n": "accepted", "c1": "accepted", "c2": "accepted"])
        #expect(gateway.seen.count == 3, "no second push brings the cursor")
        let note = try #require(gateway.seen.first { $0.body.contains("alert") })
        #expect(note.body.contains(#""cursor":{"log":"inbox","seq":7}"#))
        #expect(!note.body.contains("content-available"))
        #expect(gateway.seen.allSatisfy { $0.collapseID != "line" })
    }
}
