// Every documented rule of the simulated push services, and the words of each.

import Base
import Crypto
import EventLoop
import Glibc
import HTTP2
import JSON
import Simulator
import Testing

/// An answer as the client read it.
private struct WebAnswer {
    var status = 0
    var body = ""
    var note: String?
    var location: String?
    var appleID: String?

    /// A member of a JSON body as text.
    func member(_ name: String) -> String? {
        guard let value = (try? JSONParser().parse(body))?[name] else { return nil }
        return value.string ?? String(decoding: value.source, as: UTF8.self)
    }
}

/// A sender with a VAPID key, and a browser that subscribed with it.
private final class WebSender: HTTP2PoolDelegate {
    let simulator: Simulator
    let time: ManualTime
    let browser: SubscriberKeys
    let key: SimulatedVAPIDKey
    private let signer: SigningKey
    private let loop: EventLoop
    private let caFile: String
    private var answer: WebAnswer?

    init(_ change: (inout SimulatorOptions) -> Void = { _ in }) throws {
        time = ManualTime(wall: SystemTime.shared.wall)
        var options = SimulatorOptions()
        options.time = time
        change(&options)
        simulator = try Simulator(options)
        key = try simulator.makeVAPIDKey()
        signer = try SigningKey(pem: key.privateKeyPEM, for: .es256, setting: "test")
        browser = try #require(
            SubscriberKeys(
                scalar: [UInt8](repeating: 9, count: 32), auth: [UInt8](repeating: 3, count: 16)))
        simulator.facts.setSubscription("live", keys: browser, vapidKey: key.publicKey)
        loop = try EventLoop(name: "sender")
        caFile = "/tmp/bugle-test-ca-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pem"
        try simulator.writeAuthority(to: caFile)
    }

    deinit {
        simulator.stop()
        unlink(caFile)
    }

    func origin(_ service: String) -> String {
        "https://\(service).localhost:\(simulator.port(of: .webpush))"
    }

    func token(
        _ service: String, audience: String? = nil, life: Int64 = 3600,
        subject: String? = "mailto:a@example.com", signer: SigningKey? = nil
    ) throws -> String {
        let sub = subject.map { ",\"sub\":\"\($0)\"" } ?? ""
        let jwt = try JWT.signed(
            header: #"{"typ":"JWT","alg":"ES256"}"#,
            claims: "{\"aud\":\"\(audience ?? origin(service))\","
                + "\"exp\":\(time.wall.seconds + life)\(sub)}",
            with: signer ?? self.signer)
        return "vapid t=\(jwt), k=\(key.publicKey)"
    }

    func message(_ text: String = #"{"bugle":{"id":"m1"}}"#) throws -> [UInt8] {
        let body = ByteWriter()
        let keys = try SubscriptionKeys(p256dh: browser.p256dh, auth: browser.auth)
        try Array(text.utf8).withUnsafeBytes { bytes in
            try MessageEncryptor().encrypt(bytes, for: keys, into: body)
        }
        return body.array
    }

    /// Sends a correct message with fields replaced or, for nil, left out.
    func send(
        to service: String, _ changes: [(StaticString, String?)] = [],
        method: StaticString = "POST", path: String = "/push/live", body: [UInt8]? = nil
    ) throws -> WebAnswer {
        let request = OutboundRequest()
        request.add(":method", method)
        request.add(":scheme", "https")
        request.add(":authority", "\(service).localhost:\(simulator.port(of: .webpush))")
        request.add(":path", path)
        let fields: [(StaticString, String)] = [
            ("authorization", try token(service)), ("ttl", "60"),
            ("content-encoding", "aes128gcm"),
        ]
        func spells(_ name: StaticString, _ other: StaticString) -> Bool {
            name.description == other.description
        }
        for (name, value) in fields where !changes.contains(where: { spells($0.0, name) }) {
            request.add(name, value)
        }
        for (name, value) in changes { if let value { request.add(name, value) } }
        request.body.append(try body ?? message())
        let pool = HTTP2Pool(
            loop: loop,
            origin: Origin(host: "\(service).localhost", port: simulator.port(of: .webpush)),
            tls: try TLSContext.client(caFile: caFile, alpn: ["h2"]),
            policy: .webPush(reach: .publicOrLoopback))
        pool.delegate = self
        answer = nil
        pool.submit(request, tag: 1, deadline: loop.now + .seconds(30))
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        while answer == nil, SystemTime.shared.monotonic < deadline {
            loop.turn(waitingUpTo: .milliseconds(50))
        }
        pool.delegate = nil
        pool.close()
        return try #require(answer)
    }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        var answer = WebAnswer()
        if case .response(let response) = result {
            answer.status = response.status
            answer.body = String(decoding: response.body, as: UTF8.self)
            answer.note = response.text(.wnsError)
            answer.location = response.text(.location)
            answer.appleID = response.text(.apnsID)
        }
        self.answer = answer
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) {}
}

@Suite(.serialized) struct `The simulated push services` {
    @Test func `take a correct message and name it by what is inside`() throws {
        let sender = try WebSender()
        for service in ["google", "mozilla", "apple", "windows", "other"] {
            let answer = try sender.send(
                to: service, [("topic", "abc_-9"), ("urgency", "high")])
            #expect(answer.status == 201)
            #expect(answer.location != nil)
            #expect((answer.appleID != nil) == (service == "apple"))
        }
        let entries = sender.simulator.journal.entries(token: "live")
        #expect(entries.count == 5 && entries.allSatisfy { $0.messageID == "m1" })
        #expect(entries.allSatisfy { $0.collapseID == "abc_-9" && $0.priority == "high" })
        #expect(sender.simulator.journal.counters.advisories.isEmpty)
    }

    @Test func `ask for a TTL, a known urgency and a topic of 32 characters`() throws {
        let sender = try WebSender()
        let faults: [(StaticString, String?, Int, String)] = [
            ("ttl", nil, 111, "BadTtl"), ("ttl", "-1", 112, "BadTtl"),
            ("ttl", "soon", 112, "BadTtl"), ("ttl", "2592001", 112, "BadTtl"),
            ("urgency", "now", 110, "BadUrgency"),
            ("topic", String(repeating: "a", count: 33), 113, "BadWebPushTopic"),
            ("topic", "a b", 113, "BadWebPushTopic"),
        ]
        for (name, value, errno, reason) in faults {
            let mozilla = try sender.send(to: "mozilla", [(name, value)])
            #expect(mozilla.status == 400 && mozilla.member("errno") == "\(errno)")
            let apple = try sender.send(to: "apple", [(name, value)])
            #expect(apple.status == 400 && apple.member("reason") == reason)
        }
        #expect(try sender.send(to: "other", [("ttl", "0")]).status == 201)
        let windows = try sender.send(to: "windows", [("ttl", "0")])
        #expect(windows.status == 400 && windows.body.isEmpty)
        #expect(windows.note == "Ttl value conflicts with X-WNS-Cache-Policy.")
        #expect(
            try sender.send(
                to: "windows", [("ttl", "0"), ("x-wns-cache-policy", "no-cache")]
            ).status == 201)
    }

    @Test func `check the whole VAPID token`() throws {
        let sender = try WebSender()
        let other = try SigningKey(
            pem: try KeyPair.generate(for: .es256).privateKeyPEM, for: .es256, setting: "test")
        let bad = [
            try sender.token("other", audience: "https://elsewhere.example"),
            try sender.token("other", audience: sender.origin("other") + "/"),
            try sender.token("other", life: 24 * 3600 + 60), try sender.token("other", life: -1),
            try sender.token("other", subject: nil), try sender.token("other", subject: "me"),
            try sender.token("other", signer: other),
            try sender.token("other").replacing("t=ey", with: "t=ez"),
        ]
        for token in bad {
            #expect(try sender.send(to: "other", [("authorization", token)]).status == 403)
        }
        #expect(try sender.send(to: "other", [("authorization", nil)]).status == 401)
        #expect(try sender.send(to: "google", [("authorization", nil)]).status == 401)
        #expect(
            try sender.send(to: "mozilla", [("authorization", "WebPush x")]).member("errno")
                == "109")
        let apple = try sender.send(
            to: "apple", [("authorization", try sender.token("apple", subject: "me"))])
        #expect(apple.status == 403 && apple.member("reason") == "BadJwtToken")
        // Apple looks at the subject's host too; the others do not.
        for subject in [
            "mailto:ops@localhost", "mailto:x@app.local", "https://y.invalid/z", "mailto:me",
        ] {
            let token = try sender.token("apple", subject: subject)
            let answer = try sender.send(to: "apple", [("authorization", token)])
            #expect(answer.status == 403 && answer.member("reason") == "BadJwtToken")
            let google = try sender.token("google", subject: subject)
            #expect(try sender.send(to: "google", [("authorization", google)]).status == 201)
        }
        // A token that was good is not good for ever.
        let token = try sender.token("other")
        #expect(try sender.send(to: "other", [("authorization", token)]).status == 201)
        sender.time.advance(by: .hours(2))
        #expect(try sender.send(to: "other", [("authorization", token)]).status == 403)
    }

    @Test func `refuse what is no message of one record in aes128gcm`() throws {
        let sender = try WebSender()
        #expect(try sender.send(to: "other", [("content-encoding", "aesgcm")]).status == 400)
        #expect(try sender.send(to: "other", [("content-encoding", nil)]).status == 400)
        #expect(try sender.send(to: "other", [("crypto-key", "dh=x")]).status == 400)
        #expect(try sender.send(to: "other", body: [1, 2, 3]).status == 400)
        // Without a body there is nothing to be coded.
        #expect(
            try sender.send(to: "other", [("content-encoding", nil)], body: []).status == 201)
        sender.simulator.facts.setSubscription("phone", .bridged)
        let fits = try sender.message(String(repeating: "x", count: 2969))
        #expect(try sender.send(to: "mozilla", path: "/push/phone", body: fits).status == 201)
        let wide = try sender.message(String(repeating: "x", count: 2970))
        #expect(
            try sender.send(to: "mozilla", path: "/push/phone", body: wide).member("errno")
                == "104")
        var offCurve = try sender.message()
        offCurve[30] ^= 1
        #expect(try sender.send(to: "other", body: offCurve).status == 400)
        // The key of a message must not be the sender's.
        var own = try sender.message()
        let vapid = try #require(Base64URL.decode(sender.key.publicKey.utf8))
        own.replaceSubrange(21..<86, with: vapid)
        #expect(try sender.send(to: "other", body: own).status == 400)
        let most = try sender.message(String(repeating: "x", count: 3993))
        #expect(most.count == 4096)
        #expect(try sender.send(to: "google", body: most).status == 201)
        let tooMuch = most + [0]
        #expect(try sender.send(to: "google", body: tooMuch).status == 400)
        #expect(try sender.send(to: "mozilla", body: tooMuch).member("errno") == "104")
        #expect(try sender.send(to: "apple", body: tooMuch).status == 413)
        #expect(try sender.send(to: "other", method: "PUT").status == 405)
        #expect(try sender.send(to: "other", path: "/x").status == 404)
        // Encrypted well, but for another browser: nobody but the browser can tell.
        var garbled = try sender.message()
        garbled[garbled.count - 1] ^= 1
        #expect(try sender.send(to: "other", body: garbled).status == 201)
        #expect(sender.simulator.journal.counters.advisories.values.reduce(0, +) == 1)
    }

    @Test func `say in their own words what is gone and what was made with another key`() throws {
        let sender = try WebSender()
        sender.simulator.facts.setSubscription("gone", .gone)
        sender.simulator.facts.setSubscription("foreign", vapidKey: "another")
        for service in ["google", "mozilla", "apple", "windows", "other"] {
            #expect(try sender.send(to: service, path: "/push/gone").status == 410)
        }
        let google = try sender.send(to: "google", path: "/push/foreign")
        #expect(google.status == 403 && google.body.contains("do not correspond"))
        let mozilla = try sender.send(to: "mozilla", path: "/push/foreign")
        #expect(mozilla.status == 401 && mozilla.body.contains("VAPID public key mismatch"))
        let apple = try sender.send(to: "apple", path: "/push/foreign")
        #expect(apple.status == 400 && apple.member("reason") == "VapidPkHashMismatch")
        #expect(try sender.send(to: "windows", path: "/push/foreign").status == 403)
        // What nobody registered is live, unless it is said otherwise.
        #expect(try sender.send(to: "other", path: "/push/unknown").status == 201)
        sender.simulator.facts.unknownTokens = .unregistered
        #expect(try sender.send(to: "other", path: "/push/unknown").status == 410)
    }

    @Test func `give scripted answers in their own form`() throws {
        let sender = try WebSender { options in
            options.faults = FaultPlan(
                rules: [
                    FaultRule(
                        "busy", FaultMatch(.webpush),
                        .answer(
                            FaultAnswer(
                                status: 429, reason: "201",
                                fields: [ServerField("retry-after", "7")])))
                ])
        }
        #expect(try sender.send(to: "mozilla").member("errno") == "201")
        #expect(try sender.send(to: "apple").member("reason") == "201")
        #expect(try sender.send(to: "windows").note == "201")
        #expect(try sender.send(to: "google").body == "201")
    }
}
