import Base
import Crypto
import Gateways
import JSON
import Testing

/// A web push request that was built, or what stood in its way.
private struct WebBuilt {
    let rendering: Rendering
    let request = OutboundRequest()

    init(
        _ content: PushContent, endpoint: String = "https://push.example.net/send/abc?x=%2b",
        settings: WebPushSettings = WebPushSettings()
    ) throws {
        rendering = try WebPushRenderer(settings).render(
            content, to: Web.subscription(endpoint),
            authorization: VAPIDToken(
                header: Array("vapid t=a.b.c, k=d".utf8), generation: 1,
                mintedAt: MonotonicTime(nanos: 0)), into: request)
    }

    subscript(header: String) -> String? { request.text(header) }
}

@Suite struct `Web push requests` {
    private func headers(_ json: String, ttl: Int64? = 3600) throws -> [String: String] {
        let event = try Event(json, ttl: ttl)
        let built = try WebBuilt(event.content)
        #expect(built.rendering == .request([]))
        return Dictionary(
            uniqueKeysWithValues: built.request.fields.map {
                ($0.name.description, built[$0.name.description] ?? "")
            })
    }

    @Test func `WP-21: the fields are those of RFC 8030, 8188 and 8292 and no others`() throws {
        let fields = try headers(#"{"notification":{"title":"T"}}"#)
        #expect(
            fields
                == [
                    ":method": "POST", ":scheme": "https", ":authority": "push.example.net",
                    ":path": "/send/abc?x=%2b", "authorization": "vapid t=a.b.c, k=d",
                    "ttl": "3600",
                    "urgency": "normal", "topic": "ERERERERUREREREREREREQ".prefix(22).description,
                    "content-encoding": "aes128gcm", "content-type": "application/octet-stream",
                ].merging(["topic": fields["topic"] ?? ""]) { _, other in other })
        #expect(fields["topic"] == Base64URL.encode(Event.identity.bytes))
        let event = try Event(#"{"notification":{"title":"T"}}"#)
        let built = try WebBuilt(event.content)
        let secret = built.request.fields.filter { $0.indexing == .neverIndexed }
            .map(\.name.description)
        #expect(secret.contains(":path") && secret.contains("authorization"))
    }

    @Test func `urgency follows kind and priority`() throws {
        for (json, priority, urgency) in [
            (#"{"notification":{"title":"T"}}"#, EventPriority.high, "high"),
            (#"{"notification":{"title":"T"}}"#, .normal, "normal"),
            (#"{"notification":{"title":"T"}}"#, .low, "low"),
            (#"{"data":{"a":1}}"#, .high, "low"),
        ] {
            let event = try Event(json)
            event.content.priority = priority
            #expect(try WebBuilt(event.content)["urgency"] == urgency)
        }
    }

    @Test func `WP-20: keys become topics by hashing, not by cutting`() throws {
        let prefix = String(repeating: "conversation/", count: 6)
        let first = try headers(#"{"data":{},"collapse_key":"\#(prefix)1"}"#)["topic"]
        let second = try headers(#"{"data":{},"collapse_key":"\#(prefix)2"}"#)["topic"]
        #expect(first != second)
        #expect(first?.utf8.count == WebPushLimits.topicCharacters)
        #expect(
            first
                == Base64URL.encode(SHA256Digest(of: "\(prefix)1").bytes.prefix(24)))
    }

    @Test func `WP-17: every request has one TTL, also without an expiry`() throws {
        #expect(try headers("{}", ttl: nil)["ttl"] == "2419200")
        #expect(try headers("{}", ttl: 59)["ttl"] == "59")
        let event = try Event("{}")
        event.content.storesNothing = true
        #expect(try WebBuilt(event.content)["ttl"] == "0")
        let settings = WebPushSettings(ttlMin: 1, ttlMax: 100)
        #expect(try WebBuilt(event.content, settings: settings)["ttl"] == "1")
        let long = try Event("{}", ttl: 1_000_000)
        let cut = try WebBuilt(long.content, settings: settings)
        #expect(cut["ttl"] == "100" && cut.rendering == .request(.shortenedExpiry))
        let over = try Event("{}", ttl: -1)
        #expect(try WebBuilt(over.content).rendering == .expired)
    }

    @Test func `WP-16: Windows is told how a TTL of zero is meant`() throws {
        let endpoint = "https://wns2-db5p.notify.windows.com/w/?token=A%2bB%2f"
        let event = try Event("{}")
        let stored = try WebBuilt(event.content, endpoint: endpoint)
        #expect(stored["x-wns-cache-policy"] == "cache")
        #expect(stored[":path"] == "/w/?token=A%2bB%2f")
        event.content.storesNothing = true
        #expect(
            try WebBuilt(event.content, endpoint: endpoint)["x-wns-cache-policy"] == "no-cache")
        #expect(try WebBuilt(event.content)["x-wns-cache-policy"] == nil)
    }

    @Test func `an override sets the headers it may set`() throws {
        let fields = try headers(
            #"{"webpush":{"headers":{"TTL":7,"urgency":"very-low","Topic":"t"}}}"#)
        #expect(fields["ttl"] == "7" && fields["urgency"] == "very-low")
        #expect(
            fields["topic"] == Base64URL.encode(SHA256Digest(of: "t").bytes.prefix(24)))
        for bad in [
            #"{"webpush":{"headers":{"TTL":-1}}}"#, #"{"webpush":{"headers":{"Urgency":"now"}}}"#,
            #"{"webpush":{"headers":{"Authorization":"x"}}}"#,
        ] {
            let event = try Event(bad)
            guard case .rejected(.invalidContent, _) = try WebBuilt(event.content).rendering else {
                Issue.record("\(bad) was taken")
                continue
            }
        }
    }

    @Test func `WP-12: 3993 bytes are sent, 3994 are not`() throws {
        func built(_ count: Int) throws -> WebBuilt {
            try WebBuilt(
                try Event(#"{"data":{"x":"\#(String(repeating: "a", count: count))"}}"#)
                    .content)
        }
        let empty = try built(0).request.body.count - MessageEncryptor.overheadBytes
        let full = try built(WebPushLimits.payloadBytes - empty)
        #expect(full.rendering == .request([]) && full.request.body.count == 4096)
        let larger = try built(WebPushLimits.payloadBytes - empty + 1)
        #expect(larger.rendering == .tooLarge(bytes: 3994, limit: 3993))
        #expect(larger.request.fields.isEmpty)
    }
}

@Suite struct `Web push endpoints` {
    private func refusal(_ text: String, _ hosts: WebPushHosts = WebPushHosts(["*"])) -> String? {
        do throws(WebPushEndpointError) {
            try hosts.check(try WebPushEndpoint(Array(text.utf8)))
            return nil
        } catch {
            switch error {
            case .malformed: return "malformed"
            case .forbidden: return "forbidden"
            }
        }
    }

    @Test func `WP-25: what leads inside is refused before any look-up`() {
        for text in [
            "http://push.example/x", "https://127.0.0.1/x", "https://[::1]/x",
            "https://169.254.169.254/latest", "https://user@push.example/x",
            "https://10.0.0.5:9200/_search", "https://localhost/x", "https://a.localhost/x",
            "https://printer/x", "https://db.internal/x", "https://nas.local/x",
            "https://0x7f.1/x", "https://2130706433/x", "https://push.example:0/x",
            "https://push.example:99999/x", "https://push.exa mple/x", "https:///x", "https://",
            "ftp://push.example/x", "https://push.example/x#y", "https://push..example/x", "",
            "https://push.example\\@10.0.0.1/x", "https://1.2.3.4./x",
        ] { #expect(refusal(text) == "malformed", "\(text)") }
        #expect(refusal("https://push.example/x") == nil)
        #expect(refusal("https://push.example:8443/x") == "forbidden")
        #expect(refusal("https://localhost:9/x", WebPushHosts(allowsLoopback: true)) == nil)
        #expect(refusal("https://127.0.0.1:9/x", WebPushHosts(allowsLoopback: true)) == "malformed")
    }

    @Test func `only the browsers' services are sent to, unless others are named`() {
        let standard = WebPushHosts()
        for host in [
            "fcm.googleapis.com", "jmt17.google.com", "updates.push.services.mozilla.com",
            "web.push.apple.com", "wns2-par02p.notify.windows.com", "FCM.GoogleAPIs.com",
        ] { #expect(refusal("https://\(host)/x", standard) == nil) }
        #expect(refusal("https://push.example.net/x", standard) == "forbidden")
        #expect(refusal("https://evilnotify.windows.com.example/x", standard) == "forbidden")
        let own = WebPushHosts(["push.example.net:8443", "*.example.org"])
        #expect(refusal("https://push.example.net:8443/x", own) == nil)
        #expect(refusal("https://push.example.net/x", own) == "forbidden")
        #expect(refusal("https://a.b.example.org/x", own) == nil)
        #expect(refusal("https://example.org/x", own) == "forbidden")
    }

    @Test func `WP-02: the audience is the origin, with a port that is not 443`() throws {
        func origin(_ text: String) throws -> String {
            try WebPushEndpoint(Array(text.utf8)).origin
        }
        #expect(try origin("https://fcm.googleapis.com/fcm/send/x") == "https://fcm.googleapis.com")
        #expect(
            try origin("https://Push.Example.net:8443/p/1?q=2") == "https://push.example.net:8443")
        #expect(try origin("https://push.example.net:443/p") == "https://push.example.net")
    }

    @Test func `a subscription is decoded once, until its keys change`() throws {
        let cache = WebPushSubscriptions(hosts: WebPushHosts(["*"]), kept: 2)
        func ask(_ name: UInt64, _ auth: String = Web.auth) throws -> WebPushSubscription {
            try cache.subscription(
                named: UUIDBytes(high: name, low: 0),
                endpoint: Array("https://push.example.net/\(name)".utf8), p256dh: Web.p256dh,
                auth: auth)
        }
        let first = try ask(1)
        #expect(try ask(1) === first && cache.decodings == 1)
        #expect(try ask(1, "AAAAAAAAAAAAAAAAAAAAAA") !== first && cache.decodings == 2)
        // Memory is bounded: the eldest go.
        for name in 2...9 { _ = try ask(UInt64(name)) }
        #expect(cache.decodings == 10)
        _ = try ask(9)
        #expect(cache.decodings == 10)
        _ = try ask(1)
        #expect(cache.decodings == 11)
    }

    @Test func `WP-10: broken keys stop one subscription`() {
        let cache = WebPushSubscriptions(hosts: WebPushHosts(["*"]))
        #expect(throws: WebPushSubscriptionError.self) {
            try cache.subscription(
                named: UUIDBytes(high: 1, low: 0), endpoint: Array("https://a.example/x".utf8),
                p256dh: Web.auth, auth: Web.p256dh)
        }
        #expect(throws: WebPushSubscriptionError.keys("the subscription has no keys")) {
            try cache.subscription(
                named: UUIDBytes(high: 1, low: 0), endpoint: Array("https://a.example/x".utf8),
                p256dh: nil, auth: nil)
        }
    }
}
