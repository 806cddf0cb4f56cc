import Base
import Gateways
import JSON
import Testing

@Suite struct `Names of broadcasts` {
    @Test(arguments: [
        "'a' in topics", "'a' in topics && 'b' in topics", "!('a' in topics)",
        "'a-_.~%1' in topics||'b' in topics", "('a' in topics && ('b' in topics || 'c' in topics))",
        "'a' in topics && 'b' in topics && 'c' in topics && 'd' in topics && 'e' in topics",
    ])
    func `conditions that FCM takes are taken`(text: String) throws {
        #expect(try BroadcastTarget(.fcmCondition, text).name == text)
    }

    @Test(arguments: [
        ("", "1 to"), ("news", "'news' in topics"), ("'a' in topic", "in topics"),
        ("'a' intopics", "in topics"), ("'a' in topicsx", "in topics"),
        ("\"a\" in topics", "'news'"),
        ("'a' in topics &", "&& or ||"), ("'a' in topics && ", "a topic"),
        ("('a' in topics", "closing parenthesis"), ("'a' in topics)", "between two topics"),
        ("'a in topics", "quote"), ("'a b' in topics", "[a-zA-Z0-9-_.~%]+"),
        ("'' in topics", "1 to"),
        ("'a' in topics 'b' in topics", "between two topics"),
        (Array(repeating: "'a' in topics", count: 6).joined(separator: " || "), "at most 5 topics"),
        (String(repeating: "(", count: 17) + "'a' in topics", "parentheses"),
        (String(repeating: "!", count: 6000), "bytes"),
    ])
    func `conditions that FCM would refuse are refused with the rule`(text: String, rule: String) {
        let error = #expect(throws: BroadcastNameError.self) {
            _ = try BroadcastTarget(.fcmCondition, text)
        }
        #expect(error?.rule.contains(rule) == true, "\(error?.rule ?? "")")
    }

    @Test(arguments: [
        ("news", true), ("a.b-c_d~e%20", true), ("", false), ("a b", false), ("/topics/a", false),
        ("topics/a", false), ("n\u{e9}ws", false), (String(repeating: "a", count: 900), true),
        (String(repeating: "a", count: 901), false),
    ])
    func `topics have FCM's names`(name: String, isGood: Bool) {
        #expect(((try? BroadcastTarget(.fcmTopic, name)) != nil) == isGood)
    }

    @Test(arguments: [
        ("dGVzdA==", true), ("a+/0", true), ("", false), ("a b", false), ("a-b", false),
        (String(repeating: "a", count: 256), false),
    ])
    func `channels have APNs' ids`(name: String, isGood: Bool) {
        #expect(((try? BroadcastTarget(.apnsChannel, name)) != nil) == isGood)
    }
}

@Suite struct `Requests of broadcasts` {
    private func target(
        _ kind: BroadcastTarget.Kind, _ name: String,
        environment: GatewayEnvironment = .production
    ) -> Address {
        Address(
            gateway: kind.gateway, environment: environment, token: Array(name.utf8),
            broadcast: kind)
    }

    @Test func `a topic and a condition stand where the token stands, for every platform`() throws {
        for (kind, name) in [
            (BroadcastTarget.Kind.fcmTopic, "news"), (.fcmCondition, "'a' in topics"),
        ] {
            let event = try Event(#"{"notification":{"title":"x"},"data":{"a":1}}"#)
            let built = Built(fcm: event.content, to: target(kind, name))
            #expect(built.rendering == .request([]))
            try built.json { body in
                let message = body["message"]
                #expect(message?[kind == .fcmTopic ? "topic" : "condition"]?.string == name)
                #expect(message?["token"] == nil)
                for block: StaticString in ["android", "apns", "webpush"] {
                    #expect(message?[block]?.isObject == true)
                }
            }
        }
    }

    @Test(arguments: [(2048, true), (2049, false)])
    func `a topic's payload has 2,048 bytes, a token's 4,096`(bytes: Int, fits: Bool) throws {
        func built(_ count: Int, _ target: Address) throws -> Built {
            let text = String(repeating: "x", count: count)
            return Built(fcm: try Event(#"{"data":{"k":"\#(text)"}}"#).content, to: target)
        }
        let empty = try built(0, target(.fcmTopic, "news"))
        let used = try empty.json { body in
            var count = 0
            body["message"]?["data"]?.forEachMember { name, value in
                count += name.count + (value.stringBytes?.count ?? 0)
            }
            return count
        }
        let topic = try built(bytes - used, target(.fcmTopic, "news"))
        #expect((topic.rendering == .request([])) == fits)
        #expect(topic.isRejected(for: .localPayloadTooLarge) == !fits)
        let token = try built(bytes - used, fcmTarget())
        #expect(token.rendering == .request([.wakesUnseen]) || token.rendering == .request([]))
    }

    @Test func `a channel's request has the path of broadcasts and its own fields`() throws {
        let event = try Event(
            #"{"apns":{"aps":{"event":"update","content-state":{"score":3}}}}"#)
        let built = Built(
            apns: event.content, to: target(.apnsChannel, "dGVzdA==", environment: .sandbox))
        #expect(built.rendering == .request([]))
        #expect(
            built.request.fields.map { $0.name.description } == [
                ":method", ":scheme", ":authority", ":path", "authorization", "apns-channel-id",
                "apns-push-type", "apns-priority", "apns-expiration", "apns-request-id",
            ])
        #expect(built[":authority"] == "api.sandbox.push.apple.com")
        #expect(built[":path"] == "/4/broadcasts/apps/com.example.app")
        #expect(built["apns-channel-id"] == "dGVzdA==")
        #expect(built["apns-push-type"] == "liveactivity")
        #expect(built["apns-expiration"] == "0")
        #expect(built["apns-request-id"] == Event.message.text)
        try built.json { body in
            #expect(body["aps"]?["timestamp"]?.int64 == newYear.seconds)
            #expect(body["aps"]?["event"]?.string == "update")
        }
    }

    @Test func `a channel keeps a push as long as its event says, at most eight hours`() throws {
        for (ttl, seconds) in [(600 as Int64, 600 as Int64), (86_400, 8 * 3600)] {
            let event = try Event(#"{"apns":{"aps":{"event":"end"}}}"#, ttl: ttl)
            event.content.hasOwnExpiry = true
            let built = Built(apns: event.content, to: target(.apnsChannel, "dGVzdA=="))
            #expect(built["apns-expiration"] == "\(newYear.seconds + seconds)")
        }
    }

    @Test(arguments: [
        (#"{"notification":{"title":"x"}}"#, "Live Activity"),
        (
            #"{"apns":{"aps":{"event":"start","content-state":{},"attributes-type":"A","#
                + #""attributes":{},"alert":"x"}}}"#, "broadcast-event"
        ),
        (
            #"{"apns":{"headers":{"apns-push-type":"alert"},"aps":{"alert":"x"}}}"#,
            "broadcast-type"
        ),
        (
            #"{"apns":{"headers":{"apns-collapse-id":"c"},"aps":{"event":"end"}}}"#,
            "broadcast-collapse"
        ),
        (
            #"{"apns":{"headers":{"apns-priority":"1"},"aps":{"event":"end"}}}"#,
            "liveactivity-priority"
        ),
    ])
    func `what a channel would refuse is refused with the rule`(json: String, rule: String) throws {
        let built = Built(apns: try Event(json).content, to: target(.apnsChannel, "dGVzdA=="))
        guard case .rejected(.invalidContent, let detail) = built.rendering else {
            Issue.record("\(built.rendering)")
            return
        }
        #expect(detail.contains(rule), "\(detail)")
        #expect(built.request.fields.isEmpty)
    }

    @Test(arguments: [(5120, true), (5121, false)])
    func `a channel takes 5,120 bytes`(bytes: Int, fits: Bool) throws {
        func built(_ count: Int) throws -> Built {
            let text = String(repeating: "x", count: count)
            return Built(
                apns: try Event(#"{"apns":{"aps":{"event":"end"},"k":"\#(text)"}}"#).content,
                to: target(.apnsChannel, "dGVzdA=="))
        }
        let used = try built(0).request.body.count
        let made = try built(bytes - used)
        #expect((made.rendering == .request([])) == fits)
        #expect(made.isRejected(for: .localPayloadTooLarge) == !fits)
    }
}

@Suite struct `The verdicts on broadcasts` {
    @Test(arguments: [
        (400, "FeatureNotEnabled", Outcome.credentialError), (400, "MissingChannelId", .rejected),
        (400, "BroadcastFeatureNotEnabled", .credentialError), (400, "BadChannelId", .rejected),
        (400, "ChannelNotRegistered", .rejected), (400, "BadRequestParams", .rejected),
        (400, "BadRequestPayload", .rejected), (400, "PayloadEmpty", .rejected),
        (400, "BadMessageId", .rejected), (400, "MissingPushType", .rejected),
        (400, "InvalidPushType", .rejected), (400, "BadPriority", .rejected),
        (400, "BadExpirationDate", .rejected), (400, "TopicDisallowed", .credentialError),
        (400, "CannotCreateChannelConfig", .rejected), (403, "BadCertificate", .credentialError),
        (403, "BadCertificateEnvironment", .credentialError),
        (403, "TopicMismatch", .credentialError), (403, "MissingProviderToken", .credentialError),
        (403, "ExpiredProviderToken", .credentialError),
        (403, "InvalidProviderToken", .credentialError), (404, "BadPath", .rejected),
        (405, "MethodNotAllowed", .rejected), (413, "PayloadTooLarge", .rejected),
        // What no channel answers, but would end a device's token.
        (410, "Unregistered", .rejected), (400, "BadDeviceToken", .rejected),
    ])
    func `are final for these`(status: Int, reason: String, outcome: Outcome) {
        let verdict = judge(status, reason)
        #expect(verdict.outcome == outcome)
        #expect(verdict.reason?.rawValue == reason)
        #expect(verdict.tokenAction == .none && !verdict.countsForFuse)
    }

    @Test(arguments: [
        (429, "TooManyRequests"), (429, "TooManyProviderTokenUpdates"),
        (500, "InternalServerError"),
        (503, "ServiceUnavailable"), (503, "Shutdown"), (502, "?"),
    ])
    func `are retries for these`(status: Int, reason: String) {
        #expect(judge(status, reason).advice != nil)
    }

    private func judge(_ status: Int, _ reason: String) -> Verdict {
        Array(#"{"reason":"\#(reason)"}"#.utf8).withUnsafeBytes {
            APNsBroadcastVerdict.judge(
                GatewayAnswer(status: status, body: $0, now: newYear),
                sent: SentRequest(sentAt: newYear, registeredAt: UnixMillis(0)))
        }
    }
}
