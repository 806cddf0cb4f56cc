import Base
import Crypto
import Gateways
import JSON
import Testing

@Suite struct `APNs requests` {
    private func alert() throws -> Event { try Event(#"{"notification":{"title":"x"}}"#) }

    @Test func `a notification becomes a whole request`() throws {
        let event = try Event(
            #"""
            {"notification":{"title":"Ada","subtitle":"Room 12","body":"Are you there? 🎉",
             "sound":"default","thread_id":"room-12","image":"https://example.com/a.png"},
             "data":{"room":12,"big":9007199254740993},"unread":3}
            """#)
        event.content.audience = "u-7"
        event.content.cursor = PushContent.Cursor(log: "room-12", seq: 341)
        let built = Built(apns: event.content)
        #expect(built.rendering == .request([]))
        #expect(
            built.request.fields.map { $0.name.description } == [
                ":method", ":scheme", ":authority", ":path", "authorization", "apns-topic",
                "apns-push-type", "apns-priority", "apns-id", "apns-expiration",
                "apns-collapse-id",
            ])
        #expect(built[":method"] == "POST")
        #expect(built[":scheme"] == "https")
        #expect(built[":authority"] == "api.push.apple.com")
        #expect(built[":path"] == "/3/device/" + String(repeating: "ab", count: 32))
        #expect(built["authorization"] == "bearer a.b.c")
        #expect(built["apns-topic"] == "com.example.app")
        #expect(built["apns-push-type"] == "alert")
        #expect(built["apns-priority"] == "10")
        #expect(built["apns-id"] == Event.message.text)
        #expect(built["apns-expiration"] == "1735693200")
        #expect(built["apns-collapse-id"] == Event.identity.text)
        #expect(
            built.body
                == #"{"aps":{"alert":{"title":"Ada","subtitle":"Room 12","#
                + #""body":"Are you there? 🎉"},"sound":"default","thread-id":"room-12","#
                + #""badge":3,"mutable-content":1},"bugle":{"id":"\#(Event.message.text)","#
                + #""type":"order.shipped","aud":"u-7","image":"https://example.com/a.png","#
                + #""cursor":{"log":"room-12","seq":341}},"room":12,"big":9007199254740993}"#)
    }

    @Test func `what is secret or unique stays out of compression tables`() throws {
        let built = Built(apns: try alert().content)
        let never = built.request.fields.filter { $0.indexing == .neverIndexed }
        #expect(
            Set(never.map { $0.name.description }) == [
                ":path", "authorization", "apns-id", "apns-expiration", "apns-collapse-id",
            ])
    }

    @Test func `APNS-02: the host is the environment's`() throws {
        let built = Built(apns: try alert().content, to: apnsTarget(environment: .sandbox))
        #expect(built[":authority"] == "api.sandbox.push.apple.com")
    }

    @Test func `APNS-06: a token is hex or no request is made`() throws {
        let event = try alert()
        for token in [
            "", "(null)", "<aabb ccdd>", "zz", "abc", "ab\r\n", "ab/../x", "ab:1",
            String(repeating: "ab", count: 257), "é",
        ] {
            let built = Built(apns: event.content, to: apnsTarget(Array(token.utf8)))
            #expect(built.isMalformedToken, "\(token.prefix(12))")
        }
        let upper = Built(apns: event.content, to: apnsTarget(Array("ABCDEF0189".utf8)))
        #expect(upper[":path"] == "/3/device/abcdef0189")
    }

    @Test func `APNS-09: type and priority fit the content and the address`() throws {
        let silent = Built(apns: try Event(#"{"data":{"k":"1"},"unread":4}"#).content)
        #expect(silent["apns-push-type"] == "background")
        #expect(silent["apns-priority"] == "5")
        #expect(silent.body.hasPrefix(#"{"aps":{"content-available":1},"#))
        #expect(silent.body.hasSuffix(#","k":"1"}"#))

        let event = try alert()
        let call = Built(apns: event.content, to: apnsTarget(topic: "com.example.app.voip"))
        #expect(call["apns-push-type"] == "voip")
        #expect(call["apns-topic"] == "com.example.app.voip")
        let pushKit = Built(apns: event.content, to: apnsTarget(kind: .voip))
        #expect(pushKit["apns-push-type"] == "voip")
        #expect(pushKit["apns-topic"] == "com.example.app.voip")
        #expect(pushKit["apns-priority"] == "10")
        #expect(pushKit["apns-collapse-id"] == nil)

        let low = event.content
        low.priority = .low
        #expect(Built(apns: low)["apns-priority"] == "5")
        let badge = Built(apns: try Event(#"{"notification":{"badge":0}}"#).content)
        #expect(badge["apns-push-type"] == "alert")
        #expect(badge.body.hasPrefix(#"{"aps":{"badge":0},"#))
    }

    @Test func `APNS-09: every kind of address has its topic and priority`() throws {
        let event = try Event(
            #"{"data":{"k":"1","mdm":"magic","container-identifier":"c"}}"#)
        let kinds: [(AddressKind, String, String)] = [
            (.alert, "", "5"), (.complication, ".complication", "5"),
            (.controls, ".push-type.controls", "10"),
            (.fileprovider, ".pushkit.fileprovider", "5"), (.location, ".location-query", "5"),
            (.mdm, "", "10"), (.pushtotalk, ".voip-ptt", "10"), (.voip, ".voip", "10"),
            (.widgets, ".push-type.widgets", "5"),
        ]
        for (kind, suffix, priority) in kinds {
            let built = Built(apns: event.content, to: apnsTarget(kind: kind))
            #expect(built["apns-topic"] == "com.example.app" + suffix)
            #expect(built["apns-priority"] == priority)
            #expect(built["apns-push-type"] == (kind == .alert ? "background" : kind.rawValue))
            #expect((built["apns-expiration"] == "0") == (kind == .pushtotalk))
        }
        let management = Built(
            apns: try Event(#"{"data":{"mdm":"magic"}}"#).content, to: apnsTarget(kind: .mdm))
        #expect(management.body == #"{"mdm":"magic"}"#)
    }

    @Test func `APNS-09: a kind gets what Apple demands of it, without an override too`() throws {
        let cases: [(AddressKind, String, String)] = [
            (.fileprovider, #"{"data":{"k":"1"}}"#, "fileprovider-container"),
            (.fileprovider, #"{"notification":{"title":"x"}}"#, "fileprovider-container"),
            (.mdm, #"{"data":{"k":"1"}}"#, "mdm-magic"),
            (.mdm, #"{"data":{"mdm":"m","aps":{}}}"#, "mdm-without-aps"),
            (.mdm, #"{"notification":{"title":"x"}}"#, "mdm-magic"),
        ]
        for (kind, json, rule) in cases {
            let event = try Event(json)
            for _ in 0..<2 {
                let built = Built(apns: event.content, to: apnsTarget(kind: kind))
                guard case .rejected(.invalidContent, let detail) = built.rendering else {
                    Issue.record("\(kind) \(json): sent")
                    continue
                }
                #expect(detail.hasPrefix("rule \(rule): "))
                event.content.shared = SharedRequest()
            }
        }
        for topic in ["x.push-type.liveactivity", "x.voip-ptt", "x.complication"] {
            let built = Built(apns: try alert().content, to: apnsTarget(topic: topic))
            guard case .rejected(.invalidContent, let detail) = built.rendering else {
                Issue.record("\(topic): sent")
                continue
            }
            #expect(detail.hasPrefix("rule topic-suffix: "))
        }
        let own = apnsTarget(topic: "x.pushkit.fileprovider", kind: .fileprovider)
        let event = try Event(#"{"data":{"container-identifier":"c"}}"#)
        #expect(Built(apns: event.content, to: own).rendering == .request([]))
    }

    @Test(
        arguments: [
            ("badge", "-1"), ("badge", "1.5"), ("interruption_level", #""loud""#),
            ("relevance_score", "5"), ("relevance_score", "-0.1"), ("color", #""red""#),
            ("color", ##""#12345g""##), ("sound", #"{"critical":2}"#), ("sound", #"{"volume":2}"#),
        ])
    func `a word that a gateway would refuse is refused when it is read`(
        name: String, value: String
    ) {
        let error = #expect(throws: ContentError.self) {
            _ = try Event(#"{"notification":{"title":"x","\#(name)":\#(value)}}"#)
        }
        #expect(error?.field == "notification.\(name)")
    }

    @Test func `APNS-09: a live activity needs content of its own`() throws {
        let target = apnsTarget(kind: .liveactivity)
        #expect(Built(apns: try alert().content, to: target).isRejected(for: .invalidContent))
        let event = try Event(
            #"{"apns":{"aps":{"event":"update","content-state":{"goals":2}}}}"#)
        let built = Built(apns: event.content, to: target)
        #expect(built["apns-topic"] == "com.example.app.push-type.liveactivity")
        #expect(
            built.body.hasPrefix(
                #"{"aps":{"timestamp":1735689600,"event":"update","content-state":{"goals":2}}"#))
        let start = try Event(#"{"apns":{"aps":{"event":"start","content-state":{}}}}"#)
        #expect(Built(apns: start.content, to: target).isRejected(for: .invalidContent))
    }

    @Test func `APNS-10: the topic is the registration's, and it is checked`() throws {
        let event = try alert()
        let other = Built(apns: event.content, to: apnsTarget(topic: "com.example.other"))
        #expect(other["apns-topic"] == "com.example.other")
        for topic in ["", "a b", "a\r\nb: c", "é", String(repeating: "a", count: 256)] {
            let built = Built(apns: event.content, to: apnsTarget(topic: topic))
            #expect(built.isRejected(for: .malformedTopic))
        }
    }

    @Test func `APNS-11: collapse ids are short, printable, stable and distinct`() throws {
        func id(_ key: String) throws -> String {
            let event = try alert()
            event.content.collapseKey = key
            return try #require(Built(apns: event.content)["apns-collapse-id"])
        }
        let stem = "article:" + String(repeating: "a", count: 56)
        #expect(try id(stem + ":1") != id(stem + ":2"))
        // A digest of the key is the same on every machine and after every restart.
        #expect(try id(stem + ":1") == SHA256Digest(of: stem + ":1").hex)
        let keys = [
            stem + ":1", "chat:" + String(repeating: "я", count: 30), "a\r\nb: c", " ", "",
            "a b", String(repeating: "x", count: 1024),
        ]
        for key in keys {
            let made = try id(key)
            #expect(made.utf8.count <= 64 && !made.isEmpty)
            #expect(made.utf8.allSatisfy { (0x21...0x7E).contains($0) })
        }
        let whole = String(repeating: "k", count: 64)
        #expect(try id(whole) == whole)
    }

    @Test func `APNS-12: every attempt has the same identity`() throws {
        let event = try alert()
        let first = Built(apns: event.content)
        event.content.now = at(30)
        let second = Built(apns: event.content)
        for name in ["apns-id", "apns-collapse-id", "apns-expiration"] {
            #expect(first[name] == second[name])
        }
        #expect(first.body == second.body)
    }

    @Test func `APNS-15: what is over is not sent, and the expiry is the event's`() throws {
        let event = try alert()
        event.content.now = at(600)
        #expect(Built(apns: event.content)["apns-expiration"] == "1735693200")
        event.content.now = at(3601)
        let over = Built(apns: event.content)
        #expect(over.rendering == .expired)
        #expect(over.request.fields.isEmpty)
        event.content.storesNothing = true
        #expect(Built(apns: event.content)["apns-expiration"] == "0")
        let long = try Event(#"{"notification":{"title":"x"}}"#, ttl: 90 * 86_400)
        let built = Built(apns: long.content)
        #expect(built["apns-expiration"] == String(at(30 * 86_400).seconds))
        #expect(built.rendering == .request(.shortenedExpiry))
    }

    @Test func `PAY-01: the limit counts bytes of the very body`() throws {
        func built(_ count: Int, escaped: Bool = false) throws -> Built {
            let party = escaped ? #"\ud83c\udf89"# : "🎉"
            let text = String(repeating: party, count: count)
            let event = try Event(#"{"notification":{"body":"\#(text)"}}"#)
            event.content.eventType = "t"
            return Built(apns: event.content)
        }
        let block = #","bugle":{"id":"\#(Event.message.text)","type":"t"}"#.utf8.count
        let fits = (4096 - 29 - block) / 4
        #expect(try built(fits).rendering == .request([]))
        #expect(try built(fits).body.utf8.count == 29 + block + 4 * fits)
        #expect(try built(fits, escaped: true).body == built(fits).body)
        #expect(try built(fits + 1).isRejected(for: .localPayloadTooLarge))
        #expect(try built(fits + 1).request.fields.isEmpty)
    }

    @Test func `PAY-01: a call may have a kilobyte more`() throws {
        func fits(_ bytes: Int, _ kind: AddressKind) throws -> Bool {
            let empty = try Event(#"{"data":{"k":""}}"#)
            let frame = Built(apns: empty.content, to: apnsTarget(kind: kind)).body.utf8.count
            let text = String(repeating: "x", count: bytes - frame)
            let event = try Event(#"{"data":{"k":"\#(text)"}}"#)
            let built = Built(apns: event.content, to: apnsTarget(kind: kind))
            #expect(built.body.utf8.count == bytes || built.body.isEmpty)
            return built.rendering == .request([])
        }
        #expect(try fits(4096, .alert))
        #expect(try !fits(4097, .alert))
        #expect(try fits(5120, .voip))
        #expect(try !fits(5121, .voip))
    }

    @Test func `an override is merged last, member by member`() throws {
        let event = try Event(
            #"""
            {"notification":{"title":"a","body":"b","sound":"default"},
             "data":{"k":1,"n":{"x":1,"y":2},"aps":{"evil":1},"bugle":2},
             "apns":{"aps":{"alert":{"body":"c"},"sound":null,"category":"REPLY"},
                     "n":{"y":3},"bugle":"evil","headers":{"apns-priority":5}}}
            """#)
        let built = Built(apns: event.content)
        #expect(built.rendering == .request(.droppedReservedKeys))
        #expect(built["apns-priority"] == "5")
        #expect(
            built.body
                == #"{"aps":{"alert":{"title":"a","body":"c"},"category":"REPLY"},"#
                + #""bugle":{"id":"\#(Event.message.text)","type":"order.shipped"},"#
                + #""k":1,"n":{"x":1,"y":3}}"#)
    }

    @Test func `FCM-11: data keeps names that only FCM reserves, and cannot overwrite ours`() throws
    {
        let event = try Event(
            #"{"notification":{"title":"a"},"data":{"aps":1,"bugle":2,"from":"alice","a":1,"a":2}}"#
        )
        let built = Built(apns: event.content)
        #expect(built.rendering == .request(.droppedReservedKeys))
        #expect(built.body.hasSuffix(#","from":"alice","a":2}"#))
        #expect(!built.body.contains(#""aps":1"#))
    }

    @Test(arguments: [
        #"{"headers":{"authorization":"x"}}"#, #"{"headers":{"apns-topic":"x"}}"#,
        #"{"headers":{"apns-priority":"7"}}"#, #"{"headers":{"apns-push-type":"nonsense"}}"#,
        #"{"headers":{"apns-expiration":-1}}"#,
        #"{"headers":{"apns-collapse-id":""}}"#,
        #"{"headers":{"apns-push-type":"background"},"aps":{"alert":"x"}}"#,
        #"{"headers":{"apns-push-type":"background","apns-priority":10}}"#,
        #"{"aps":{"alert":null,"sound":null}}"#,
    ])
    func `APNS-09: an override that APNs would refuse is refused here`(override: String) throws {
        let event = try Event(#"{"notification":{"title":"a","sound":"s"},"apns":\#(override)}"#)
        #expect(Built(apns: event.content).isRejected(for: .invalidContent))
    }

    @Test func `an override can make a visible push of silent data`() throws {
        let event = try Event(#"{"data":{"k":1},"apns":{"aps":{"alert":"hello"}}}"#)
        let built = Built(apns: event.content)
        #expect(built["apns-push-type"] == "alert")
        #expect(built.body.hasPrefix(#"{"aps":{"alert":"hello"},"#))
    }

    @Test func `words of a wrong type are refused by name`() throws {
        let wrong = [
            (#"{"notification":"text"}"#, "notification"),
            (#"{"notification":{"title":1}}"#, "notification.title"),
            (#"{"notification":{"badge":"3"}}"#, "notification.badge"),
            (#"{"notification":{"loc_args":[1]}}"#, "notification.body_loc_args"),
            (#"{"data":[]}"#, "data"), (#"{"apns":1}"#, "apns"), (#"{"fcm":[]}"#, "fcm"),
            (#"{"apns":{"aps":null}}"#, "apns.aps"), (#"{"fcm":{"data":1}}"#, "fcm.data"),
        ]
        for (json, field) in wrong {
            let error = #expect(throws: ContentError.self) { try Event(json) }
            #expect(error?.field == field)
        }
    }

    @Test func `localised words go where the device looks for them`() throws {
        let event = try Event(
            #"""
            {"notification":{"title_loc_key":"T","title_loc_args":["a"],"loc_key":"B",
             "loc_args":["x","y"],"interruption_level":"time-sensitive","relevance_score":0.5,
             "content_available":true,"mutable_content":false,"unknown":1,"title":null}}
            """#)
        #expect(
            Built(apns: event.content).body.hasPrefix(
                #"{"aps":{"alert":{"title-loc-key":"T","title-loc-args":["a"],"loc-key":"B","#
                    + #""loc-args":["x","y"]},"interruption-level":"time-sensitive","#
                    + #""relevance-score":0.5,"content-available":1},"#))
    }
}
