// Web push through the whole pipeline: what a browser gets, what services refuse, and that one
// service's trouble stays its own.

import Base
import Crypto
import Gateways
import HTTP2
import JSON
import Simulator
import Telemetry
import Testing

@testable import Pipeline
@testable import Telemetry

@Suite(.serialized) struct `Web push, end to end` {
    private func world(
        faults: [FaultRule] = [], lanes: Int = 2
    ) throws -> (Simulator, World) {
        var options = SimulatorOptions()
        options.journal = .full(bodies: true)
        options.faults = FaultPlan(rules: faults)
        let simulator = try Simulator(options)
        return (simulator, try World(simulator, lanes: lanes))
    }

    private func subscribe(
        _ install: String, user: String, browser: String = "other", vapidKeyID: String? = nil,
        boundTo vapidKey: String? = nil, state: SubscriptionState = .live, _ simulator: Simulator,
        _ world: World
    ) throws {
        let keys = try World.browser(install)
        simulator.facts.setSubscription(install, keys: keys, vapidKey: vapidKey, state)
        try world.subscribe(
            install, user: user, at: simulator.endpoint(of: install, at: browser), with: keys,
            vapidKeyID: vapidKeyID)
    }

    /// The results by install.
    private func results(_ world: World, atLeast count: Int) throws -> [String: TopicRecord] {
        let records = try world.records(of: "push.results", atLeast: count)
        return Dictionary(
            records.map { ($0.text("install_id") ?? "", $0) }, uniquingKeysWith: { $1 })
    }

    @Test func `every browser gets what it can decrypt, from the service that it is at`() throws {
        let (simulator, world) = try world()
        let browsers = ["google", "mozilla", "apple", "windows", "other"]
        for browser in browsers {
            try subscribe("at-\(browser)", user: "u1", browser: browser, simulator, world)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1", extra: #","data":{"order":7},"ttl":600"#)
        try world.flush()
        let results = try results(world, atLeast: browsers.count)
        #expect(results.count == browsers.count)
        for browser in browsers {
            let result = try #require(results["at-\(browser)"])
            #expect(result.text("outcome") == "accepted" && result.text("status") == "201")
            #expect(result.text("gateway") == "webpush" && result.text("environment") == "none")
            let entry = try #require(simulator.journal.entries(token: "at-\(browser)").first)
            #expect(entry.messageID == result.text("message_id"))
            let body = try #require(World.browser("at-\(browser)").decrypt(entry.body))
            let message = try JSONParser().parse(body)
            #expect(message["notification"]?["title"]?.string == "t")
            #expect(message["data"]?["order"]?.int64 == 7)
            #expect(message["bugle"]?["type"]?.string == "test.alert")
            #expect(entry.neverIndexed.contains(":path"))
            #expect(entry.neverIndexed.contains("authorization"))
            // 600 s, less what has passed since the event was published.
            #expect((500...600).contains(Int(entry.expiration ?? "") ?? 0))
        }
        // Apple names its messages.
        #expect(results["at-apple"]?.text("gateway_id") != nil)
        // One connection for each service, though they are one listener, and one token each.
        #expect(simulator.journal.authorizations.count == browsers.count)
        #expect(simulator.journal.counters.violations.isEmpty)
        #expect(simulator.journal.counters.advisories.isEmpty)
        #expect(world.stop())
    }

    @Test func `keys that are replaced go on being counted, in the same place`() throws {
        let (simulator, world) = try world()
        try subscribe(
            "by-v1", user: "u1", vapidKeyID: "v1", boundTo: try world.vapidPublicKey("v1"),
            simulator, world)
        try world.start()
        func shards() -> [String: [Int]] {
            world.registry.snapshot().filter { $0.name.hasPrefix("bugle_webpush_") }
                .reduce(into: [:]) { $0[$1.name] = $1.series.map(\.shards.count) }
        }
        let before = shards()
        #expect(before.keys.contains("bugle_webpush_built_total"))
        for round in 1...3 {
            try world.publish(id: "e\(round)", user: "u1")
            try world.flush()
            let results = try world.records(of: "push.results", atLeast: round)
            #expect(results.count { $0.text("outcome") == "accepted" } == round)
            try world.replaceCredential(of: world.apps[0], at: .webpush)
        }
        #expect(shards() == before)
        #expect(world.registry.sum(of: "bugle_webpush_built_total") == 3)
        // One subscription, however often the keys were replaced.
        #expect(world.registry.sum(of: "bugle_webpush_subscriptions") == 1)
        #expect(world.stop())
    }

    @Test func `a key signs for the subscriptions that were made with it`() throws {
        let (simulator, world) = try world()
        for id in ["v1", "v2"] {
            try subscribe(
                "by-\(id)", user: "u1", vapidKeyID: id, boundTo: try world.vapidPublicKey(id),
                simulator, world)
        }
        try subscribe(
            "by-none", user: "u1", boundTo: try world.vapidPublicKey("v1"), simulator, world)
        try subscribe("by-lost", user: "u1", vapidKeyID: "v0", simulator, world)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 4)
        for install in ["by-v1", "by-v2", "by-none"] {
            #expect(results[install]?.text("outcome") == "accepted")
        }
        // A key that is not configured is the operator's mistake: the subscription stays.
        #expect(results["by-lost"]?.text("outcome") == "credential_error")
        #expect(results["by-lost"]?.text("reason") == "vapid_key_unknown")
        // What a rotation waits for: how many subscriptions are left on each key.
        let gauge = Dictionary(
            world.registry.readings(of: "bugle_webpush_subscriptions").map {
                ($0.label("vapid_key"), $0.value)
            }, uniquingKeysWith: +)
        #expect(gauge == ["v1": 2, "v2": 1], "\(gauge)")
        #expect(simulator.journal.count(token: "by-lost") == 0)
        #expect(world.stop())
        #expect(try world.records(of: "push.invalidations", atLeast: 0).isEmpty)
    }

    @Test func `a subscription that names no key outlives the key that new ones are made with`()
        throws
    {
        let (simulator, world) = try world(lanes: 1)
        let browsers = ["google", "mozilla", "apple"]
        for browser in browsers {
            try subscribe(
                "old-\(browser)", user: "u1", browser: browser,
                boundTo: try world.vapidPublicKey("v2"), simulator, world)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let first = try results(world, atLeast: browsers.count)
        for browser in browsers {
            let result = try #require(first["old-\(browser)"])
            #expect(result.text("outcome") == "accepted", "\(browser)")
            #expect(result.text("attempts") == "2", "\(browser)")
        }
        // The right one is known from then on, and what is counted is on it.
        try world.publish(id: "e2", user: "u1")
        try world.flush()
        let second = try results(world, atLeast: browsers.count * 2)
        #expect(second.values.allSatisfy { $0.text("attempts") == "1" })
        let gauge = Dictionary(
            world.registry.readings(of: "bugle_webpush_subscriptions").map {
                ($0.label("vapid_key"), $0.value)
            }, uniquingKeysWith: +)
        #expect(gauge == ["v1": 0, "v2": 3], "\(gauge)")
        #expect(world.stop())
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
    }

    @Test func `only what is gone ends a subscription; another key suspends it`() throws {
        let (simulator, world) = try world()
        for browser in ["google", "mozilla", "apple", "windows"] {
            try subscribe(
                "gone-\(browser)", user: "u1", browser: browser, state: .gone, simulator, world)
            try subscribe(
                "other-key-\(browser)", user: "u1", browser: browser, boundTo: "another",
                simulator, world)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 8)
        let invalidations = try world.records(of: "push.invalidations", atLeast: 7)
        let verdicts = Dictionary(
            invalidations.map { ($0.text("install_id") ?? "", $0.text("verdict") ?? "") },
            uniquingKeysWith: { $1 })
        for browser in ["google", "mozilla", "apple", "windows"] {
            #expect(results["gone-\(browser)"]?.text("outcome") == "token_invalid")
            #expect(verdicts["gone-\(browser)"] == "invalidate")
        }
        for browser in ["google", "mozilla", "apple"] {
            #expect(results["other-key-\(browser)"]?.text("outcome") == "token_suspended")
            #expect(verdicts["other-key-\(browser)"] == "suspend")
        }
        // Windows does not say what is wrong with the credential: it counts as ours.
        #expect(results["other-key-windows"]?.text("outcome") == "credential_error")
        #expect(verdicts["other-key-windows"] == nil)
        #expect(world.stop())
    }

    @Test func `what cannot be a subscription is refused without a request`() throws {
        let (simulator, world) = try world()
        let keys = try World.browser("any")
        let endpoints = [
            "http": ("http://push.example.net/x", "token_invalid"),
            "literal": (
                "https://127.0.0.1:\(simulator.port(of: .webpush))/push/x", "token_invalid"
            ),
            "metadata": ("https://169.254.169.254/latest", "token_invalid"),
            "user": ("https://user@fcm.googleapis.com/x", "token_invalid"),
            "elsewhere": ("https://push.example.net/x", "rejected"),
            "other-port": ("https://fcm.googleapis.com:9200/x", "rejected"),
        ]
        for (install, (endpoint, _)) in endpoints {
            try world.subscribe(install, user: "u1", at: endpoint, with: keys)
        }
        try subscribe("good", user: "u1", simulator, world)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: endpoints.count + 1)
        #expect(results["good"]?.text("outcome") == "accepted")
        for (install, (_, outcome)) in endpoints {
            #expect(results[install]?.text("outcome") == outcome, "\(install)")
            #expect(results[install]?.text("attempts") == "0", "\(install)")
        }
        #expect(simulator.journal.counters.pushes == 1)
        #expect(world.stop())
    }

    @Test func `a service that fails is parked alone`() throws {
        // Mozilla takes no request, Google does.
        let (simulator, world) = try world(
            faults: [FaultRule("down", FaultMatch(.webpush, tokenPrefix: "sick"), .refuse)],
            lanes: 1)
        for number in 0..<12 {
            try subscribe(
                "sick-\(number)", user: "s\(number)", browser: "mozilla", simulator, world)
        }
        try subscribe("well", user: "w", browser: "google", simulator, world)
        try world.start()
        for number in 0..<12 { try world.publish(id: "s\(number)", user: "s\(number)") }
        try world.flush()
        // Ten failures in a row open the breaker of that service.
        let isOpen = world.eventually {
            let metrics = ByteWriter()
            world.registry.writeExposition(to: metrics)
            return metrics.text.split(separator: "\n").contains {
                $0.hasPrefix("bugle_breakers_open{") && $0.contains("webpush") && $0.hasSuffix(" 1")
            }
        }
        #expect(isOpen)
        for number in 0..<20 { try world.publish(id: "w\(number)", user: "w") }
        try world.flush()
        #expect(
            world.eventually {
                simulator.journal.accepted(token: "well") == 20
            })
        // Once it works again, all of it is delivered: from the retry topics, not past them.
        simulator.setFaults(FaultPlan())
        let records = try world.records(of: "push.results", atLeast: 32)
        #expect(records.count == 32)
        #expect(records.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(try world.records(of: "push.events-parked-webpush-none", atLeast: 0).isEmpty)
        #expect(world.stop())
    }

    @Test func `WP-16: what Windows says in header fields goes into the result`() throws {
        let fields = [
            ServerField("x-wns-status", "dropped"),
            ServerField("x-wns-notificationstatus", "channelthrottled"),
        ]
        let (simulator, world) = try world(faults: [
            FaultRule(
                "conflict", FaultMatch(.webpush),
                .answer(
                    FaultAnswer(
                        status: 400, reason: "Ttl value conflicts with X-WNS-Cache-Policy.",
                        fields: fields)))
        ])
        try subscribe("pc", user: "u1", browser: "windows", simulator, world)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let result = try #require(try results(world, atLeast: 1)["pc"])
        #expect(result.text("outcome") == "rejected")
        #expect(
            result.text("detail")
                == "Ttl value conflicts with X-WNS-Cache-Policy.; status dropped; "
                + "notification channelthrottled")
        #expect(world.stop())
    }

    @Test func `more services than connections may be open to take turns`() throws {
        let (simulator, world) = try world(lanes: 1)
        world.settings.servicesMax = 2
        world.settings.serviceIdleMin = .milliseconds(200)
        let browsers = ["google", "mozilla", "apple", "windows"]
        for browser in browsers {
            try subscribe("at-\(browser)", user: "u1", browser: browser, simulator, world)
        }
        try world.start()
        for round in 1...3 {
            try world.publish(id: "e\(round)", user: "u1")
            try world.flush()
            let results = try world.records(of: "push.results", atLeast: 4 * round)
            #expect(results.count == 4 * round)
            #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        }
        // Who waited for a place was put off, and who was idle made room.
        let waiting = try world.records(of: "push.events-retry-10s", atLeast: 1)
        #expect(waiting.allSatisfy { $0.headers["bugle-error-code"] == "no_room" })
        #expect(world.stop())
    }

    /// Two pushes of one line, the second to a new subscription at another service: that service
    /// has nothing to do while the first push is under way.
    @Test func `a push that waits for an older one finds its service again that made room`() throws
    {
        let authority = try CertificateAuthority()
        let first = try ScriptedGateway(of: authority) { _, _ in .hold }
        let second = try ScriptedGateway(of: authority) { _, _ in .answer(201, "") }
        let third = try ScriptedGateway(of: authority) { _, _ in .answer(201, "") }
        let gateways = [first, second, third]
        let authorities = try TLSAuthorities(file: first.caFile)
        let key = try VAPIDKey(
            id: "v1", text: try KeyPair.generate(for: .es256).privateKeyPEM, setting: "test")
        let app = PushApp(
            name: "shop",
            webPush: PushApp.WebPush(
                credential: WebPushCredential(subject: "mailto:ops@example.com", keys: [key]),
                hosts: WebPushHosts(allowsLoopback: true), trusting: authorities))
        let world = try World(apps: [app], lanes: 1) { for gateway in gateways { gateway.stop() } }
        world.settings.servicesMax = 2
        // Who has nothing to do counts as idle in the same moment.
        world.settings.serviceIdleMin = .zero - .milliseconds(1)
        func subscribe(_ install: String, user: String, at gateway: ScriptedGateway) throws {
            try world.subscribe(
                install, user: user, at: "https://localhost:\(gateway.port)/push/\(install)",
                with: try World.browser(install))
        }
        try subscribe("phone", user: "u1", at: first)
        try subscribe("other", user: "u2", at: third)
        try world.start()
        try world.publish(id: "old", user: "u1", extra: #","collapse_key":"k""#)
        try world.flush()
        #expect(world.eventually { first.seen.count == 1 })
        try subscribe("phone", user: "u1", at: second)
        try world.publish(id: "new", user: "u1", extra: #","collapse_key":"k""#)
        // The next one gets the place of the second service, which nobody has sent to yet. Behind
        // the same key it is read after the other.
        try world.publish(
            #"{"id":"other","type":"t","user_id":"u2","notification":{"title":"t"}}"#, key: "u1")
        try world.flush()
        #expect(world.eventually { third.seen.count == 1 })
        #expect(second.seen.isEmpty)
        first.release(201)
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(Set(results.map { $0.text("event_id") }) == ["old", "new", "other"])
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(second.seen.count == 1)
        #expect(world.stop())
    }

    @Test func `a rehearsal is encrypted and goes nowhere`() throws {
        let (simulator, world) = try world()
        try subscribe("a", user: "u1", simulator, world)
        try world.start()
        try world.publish(id: "e1", user: "u1", extra: #","mode":"validate""#)
        try world.flush()
        let results = try results(world, atLeast: 1)
        #expect(results["a"]?.text("outcome") == "accepted")
        #expect(simulator.journal.counters.pushes == 0)
        #expect(world.stop())
    }

    @Test func `WP-11: what a bridged endpoint has no room for goes out once more, shorter`()
        throws
    {
        let (simulator, world) = try world(lanes: 1)
        world.settings.routes = try routes(
            """
              long: {title: "T", body: "{{payload.text}}"}
              whole: {title: "T", body: "{{payload.text}}", shrink_body: false}

            """)
        try subscribe("a", user: "u1", browser: "mozilla", state: .bridged, simulator, world)
        try subscribe("b", user: "u2", browser: "mozilla", simulator, world)
        try world.start()
        func publish(_ id: String, _ type: String, _ count: Int, user: String) throws {
            let text = String(repeating: "x", count: count)
            try world.publish(
                #"{"id":"\#(id)","type":"\#(type)","user_id":"\#(user)","payload":{"text":"\#(text)"}}"#,
                key: user)
            try world.flush()
            let wanted = try world.records(of: "push.results", atLeast: 1).count
            #expect(wanted > 0)
        }
        try publish("short", "long", 5, user: "u1")
        try publish("cut", "long", 3500, user: "u1")
        try publish("kept", "whole", 3500, user: "u1")
        try publish("elsewhere", "long", 3500, user: "u2")
        let found = Dictionary(
            try world.records(of: "push.results", atLeast: 4).map {
                ($0.text("event_id") ?? "", $0)
            }, uniquingKeysWith: { $1 })
        #expect(found["short"]?.text("outcome") == "accepted")
        #expect(found["short"]?.text("attempts") == "1")
        #expect(found["cut"]?.text("outcome") == "accepted")
        #expect(found["cut"]?.text("attempts") == "2")
        let bytes = found["cut"]?.text("payload_bytes").flatMap { Int($0) } ?? 0
        #expect((3060...3070).contains(bytes), "\(bytes)")
        #expect(found["kept"]?.text("outcome") == "rejected")
        #expect(found["kept"]?.text("reason") == "payload_too_large")
        #expect(found["elsewhere"]?.text("attempts") == "1")
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
        #expect(world.stop())
    }

    @Test func `a payload of one byte too many is not sent`() throws {
        let (simulator, world) = try world()
        try subscribe("a", user: "u1", simulator, world)
        try world.start()
        try world.publish(
            id: "e1", user: "u1",
            extra: #","data":{"x":"\#(String(repeating: "x", count: 3993))"}"#)
        try world.flush()
        let results = try results(world, atLeast: 1)
        #expect(results["a"]?.text("outcome") == "rejected")
        #expect(results["a"]?.text("reason") == "payload_too_large")
        #expect(simulator.journal.counters.pushes == 0)
        #expect(world.stop())
    }
}
