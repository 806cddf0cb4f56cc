import Base
import Gateways
import JSON
import Testing

@testable import Pipeline

/// Decodes a value as it would stand in a topic.
private func decode(
    _ value: [UInt8]?, headers: [(String, String)] = [], maximumBytes: Int = 262_144
) throws(Refusal) -> EventEnvelope {
    let parser = JSONParser()
    let texts = headers.map { Array($0.1.utf8) }
    // The headers' bytes must stand still while the record borrows them.
    let bytes = ByteWriter(capacity: 4096)
    var places: [(String, Range<Int>)] = []
    for (header, text) in zip(headers, texts) {
        places.append((header.0, bytes.count..<bytes.count + text.count))
        bytes.append(text)
    }
    let input = places.map {
        InputHeader(name: $0.0, value: UnsafeRawBufferPointer(rebasing: bytes.bytes[$0.1]))
    }
    let body = ByteWriter(capacity: 16)
    if let value { body.append(value) }
    let record = InputRecord(
        position: RecordPosition(topic: "push.events", partition: 3, offset: 42),
        timestamp: UnixMillis(1_735_689_600_000), key: nil,
        value: value == nil ? nil : body.bytes, headers: input)
    let decoder = EventDecoder(maximumBytes: maximumBytes)
    let envelope = try decoder.decode(record, with: parser)
    withExtendedLifetime((bytes, body, parser)) {}
    return envelope
}

private func decode(_ text: String, headers: [(String, String)] = []) throws(Refusal)
    -> EventEnvelope
{
    try decode(Array(text.utf8), headers: headers)
}

private func refused(
    _ value: [UInt8]?, headers: [(String, String)] = [], maximumBytes: Int = 262_144
)
    -> Refusal?
{
    do throws(Refusal) {
        _ = try decode(value, headers: headers, maximumBytes: maximumBytes)
        return nil
    } catch {
        return error
    }
}

@Suite struct `Decoding an event` {
    @Test func `a native event keeps every field`() throws {
        let event = try decode(
            """
            {"id":"e1","type":"order.shipped","user_id":7000000000000000001,"app":"shop",
             "source":"orders","time":"2025-01-01T00:00:01Z","ttl":3600,"priority":"high",
             "collapse_key":"o-1","unread":3,"cursor":{"log":"l","seq":9},
             "notification":{"title":"t"},"only":{"gateways":["apns"]},"mode":"validate","new":1}
            """)
        #expect(event.id == "e1" && event.hasOwnID)
        #expect(event.userID == "7000000000000000001")
        #expect(event.time == UnixMillis(1_735_689_601_000))
        #expect(event.expiresAt == UnixMillis(1_735_693_201_000))
        #expect(event.priority == .high && event.isValidation && event.unread == 3)
        #expect(event.only?.gateways == ["apns"])
        #expect(event.content.isExplicit)
    }

    @Test func `the founding envelope is an event without an id of its own`() throws {
        let event = try decode(#"{"user_id":"u1","event_type":"chat.message","payload":{"a":1}}"#)
        #expect(event.type == "chat.message" && event.userID == "u1")
        #expect(event.id == "push.events-3-42" && !event.hasOwnID)
        #expect(event.expiresAt - event.time == .hours(24))
        #expect(event.content.payload != nil)
    }

    @Test func `CloudEvents come out alike in both modes`() throws {
        let structured = try decode(
            """
            {"specversion":"1.0","id":"c1","source":"/orders","type":"order.shipped","userid":"u1",
             "time":"2025-01-01T00:00:00Z","ttl":60,"collapsekey":"k","data":{"x":1}}
            """, headers: [("content-type", "application/cloudevents+json; charset=UTF-8")])
        let binary = try decode(
            #"{"x":1}"#,
            headers: [
                ("ce_specversion", "1.0"), ("ce_id", "c1"), ("ce_source", "/orders"),
                ("ce_type", "order.shipped"), ("ce_userid", "u1"), ("ce_ttl", "60"),
                ("ce_time", "2025-01-01T00:00:00Z"), ("ce_collapsekey", "k"),
                ("content-type", "application/json"),
            ])
        for event in [structured, binary] {
            #expect(event.id == "c1" && event.type == "order.shipped" && event.userID == "u1")
            #expect(event.source == "/orders" && event.collapseKey == "k")
            #expect(event.expiresAt - event.time == .seconds(60))
            #expect(event.content.payload != nil)
        }
    }

    /// CloudEvents 1.0, section 3.1: attributes are anybody's to add.
    @Test func `what other extensions of a CloudEvent say is none of ours`() throws {
        let event = try decode(
            """
            {"specversion":"1.0","id":"e1","source":"/o","type":"t","userid":"ada","data":{"a":1},
             "mode":"batch","labels":"eu,blue","to":"warehouse","only":"x","except":1,"cursor":"y",
             "subject":"\(String(repeating: "s", count: 300))"}
            """, headers: [("content-type", "application/cloudevents+json")])
        #expect(event.userID == "ada" && !event.isValidation && event.only == nil)
        let binary = try decode(
            "{}",
            headers: [
                ("ce_specversion", "1.0"), ("ce_id", "e1"), ("ce_source", "/o"), ("ce_type", "t"),
                ("ce_userid", "ada"), ("ce_mode", "validate"), ("ce_labels", "eu"),
            ])
        #expect(!binary.isValidation && binary.labels == nil)
    }

    /// With what is added to it a copy has to fit into topics with Kafka's usual limit; and content is
    /// written and merged for each device.
    @Test func `what no payload and no copy has room for is refused whole`() throws {
        let long = String(repeating: "h", count: 70_000)
        let value = #"{"type":"t","user_id":"ada","payload":{"title":"t"}}"#
        #expect(refused(Array(value.utf8), headers: [("x", long)])?.code == .tooLarge)
        #expect(refused(Array(value.utf8), headers: [("x", String(long.prefix(60_000)))]) == nil)
        for name in ["notification", "data", "apns", "fcm", "webpush", "expo"] {
            func event(_ bytes: Int) -> [UInt8] {
                let text = String(repeating: "x", count: bytes)
                return Array(#"{"type":"t","user_id":"ada","\#(name)":{"a":"\#(text)"}}"#.utf8)
            }
            #expect(refused(event(33_000))?.code == .tooLarge)
            #expect(refused(event(32_000)) == nil, "too large for a gateway is said by target")
        }
    }

    @Test(arguments: ["notification", "data", "apns", "fcm"])
    func `what a payload brings as content is no larger than what an event brings`(
        name: String
    ) throws {
        func refusal(_ bytes: Int) throws -> EventCheck.Refusal? {
            let text = String(repeating: "x", count: bytes)
            let event = #"{"type":"t","user_id":"u","payload":{"\#(name)":{"a":"\#(text)"}}}"#
            let explained = try Explained(routes: "  other: {title: x}\n")
            do throws(EventCheck.Refusal) {
                try explained.explain(event)
                return nil
            } catch {
                return error
            }
        }
        #expect(try refusal(32_000) == nil)
        let refusal = try #require(try refusal(33_000))
        #expect(refusal.code == .tooLarge)
        #expect(refusal.reason.hasPrefix("payload.\(name) has 33008 bytes; the limit is 32768"))
        let text = String(repeating: "x", count: 33_000)
        let event = Array(
            #"{"type":"t","user_id":"u","payload":{"\#(name)":{"a":"\#(text)"}}}"#.utf8)
        let now = Explained.now
        #expect(try EventCheck.check(event, at: now).hasContent)
        #expect(
            try EventCheck.content(of: event, isRouted: false, at: now).fault == refusal.reason)
        #expect(try EventCheck.content(of: event, isRouted: true, at: now).fault == nil)
    }

    @Test func `a payload that is a notification itself may be as large as an event`() throws {
        let text = String(repeating: "x", count: 100_000)
        let event = #"{"type":"t","user_id":"u","payload":{"title":"x","rows":"\#(text)"}}"#
        try Explained(routes: "  other: {title: x}\n").explain(event)
    }

    @Test func `a schema registry's frame before JSON is skipped`() throws {
        let framed = [0, 0, 0, 0, 7] + Array(#"{"type":"t","user_id":"u"}"#.utf8)
        #expect(try decode(framed).type == "t")
    }

    @Test func `ttl 0 is one attempt, not expired on arrival`() throws {
        let event = try decode(#"{"type":"t","user_id":"u","ttl":0}"#)
        #expect(event.isOneAttempt && event.expiresAt > event.time)
    }

    @Test(arguments: [
        ("not json", DeadLetterCode.notJSON), ("[]", .notJSON), ("{\"id\":1}", .missingField),
        ("", .notJSON), ("{\"type\":\"t\"}", .noUser),
        ("{\"type\":1,\"user_id\":\"u\"}", .invalidField),
        ("{\"type\":\"t\",\"user_id\":\"\"}", .invalidField),
        ("{\"type\":\"t\",\"user_id\":1.5}", .invalidField),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"ttl\":-1}", .invalidField),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"time\":1735689600}", .invalidField),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"priority\":\"urgent\"}", .invalidField),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"notification\":\"x\"}", .invalidField),
        ("{\"type\":\"t\",\"user_ids\":[\"u\"]}", .unsupported),
        ("{\"type\":\"t\",\"to\":{\"fcm_topic\":\"x y\"}}", .invalidField),
        ("{\"type\":\"t\",\"to\":{}}", .invalidField),
        ("{\"type\":\"t\",\"to\":\"x\"}", .invalidField),
        ("{\"type\":\"t\",\"to\":{\"fcm_topic\":\"x\",\"apns_channel\":\"x\"}}", .invalidField),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"to\":{\"fcm_topic\":\"x\"}}", .invalidField),
        ("{\"type\":\"t\",\"only\":{},\"to\":{\"fcm_topic\":\"x\"}}", .invalidField),
        (
            "{\"type\":\"t\",\"to\":{\"fcm_topic\":\"x\",\"environment\":\"sandbox\"}}",
            .invalidField
        ),
        ("{\"type\":\"t\\u0000\",\"user_id\":\"u\"}", .invalidField),
    ])
    func `poison is refused with its reason`(value: String, code: DeadLetterCode) throws {
        let refusal = try #require(refused(Array(value.utf8)))
        #expect(refusal.code == code)
        #expect(!refusal.reason.isEmpty)
    }

    /// The fields that are copied into headers, keys and lines, with their limits in bytes.
    private static let names = [
        ("id", 128), ("type", 128), ("source", 256), ("user_id", 256), ("app", 128),
        ("collapse_key", 1024),
    ]

    /// An event one of whose fields is replaced, as it stands in the topic.
    private func event(_ name: String, _ text: String) -> [UInt8] {
        let members = ["id": "e", "type": "t", "user_id": "u"].filter { $0.key != name }
        let rest = members.map { #","\#($0.key)":"\#($0.value)""# }.joined()
        return Array(#"{"\#(name)":"\#(text)"\#(rest)}"#.utf8)
    }

    @Test(arguments: Self.names)
    func `a name with a control character is refused, and the refusal quotes nothing`(
        name: String, limit: Int
    ) throws {
        let escapes = [#"\u0000"#, #"\n"#, #"\r\nx: y"#, #"\u001b[31m"#, #"\u001f"#, #"\u007f"#]
        for escape in escapes {
            // Wherever it stands: the texts are looked at in eights.
            for length in [0, 1, 6, 7, 8, 9, 15, 16, 100] {
                for rest in ["", "b", String(repeating: "b", count: 9)] {
                    let text = String(repeating: "a", count: length) + escape + rest
                    let refusal = try #require(refused(event(name, text)), "\(name): \(text)")
                    #expect(refusal.code == .invalidField)
                    #expect(refusal.reason == "\(name) holds a control character")
                    for copied in [refusal.eventID, refusal.userID, refusal.eventType] {
                        #expect(copied?.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F } != false)
                    }
                }
            }
        }
    }

    @Test(arguments: Self.names)
    func `a name is as long as its limit in bytes, and no longer`(name: String, limit: Int) throws {
        #expect(refused(event(name, String(repeating: "a", count: limit))) == nil)
        #expect(refused(event(name, String(repeating: "\u{e9}", count: limit / 2))) == nil)
        for text in [
            String(repeating: "a", count: limit + 1),
            String(repeating: "\u{e9}", count: limit / 2 + 1), "",
        ] {
            let refusal = try #require(refused(event(name, text)))
            #expect(refusal.code == .invalidField)
            #expect(
                refusal.reason
                    == "\(name) has \(text.utf8.count) bytes; 1 to \(limit) are allowed")
        }
    }

    @Test func `half of a surrogate pair is no text, wherever it stands`() throws {
        for half in [#"\ud800"#, #"a\udc00b"#, #"\ud83c\u0041"#, #"\udf89\ud83c"#] {
            for (name, _) in Self.names {
                #expect(refused(event(name, half))?.code == .notJSON, "\(name): \(half)")
            }
            for labels in [#"{"\#(half)":"x"}"#, #"{"x":"\#(half)"}"#] {
                let value = #"{"type":"t","user_id":"u","labels":\#(labels)}"#
                #expect(refused(Array(value.utf8))?.code == .notJSON, "\(labels)")
            }
        }
        #expect(refused(event("id", #"\ud83c\udf89"#)) == nil)
    }

    @Test func `a control character in an attribute of a binary CloudEvent is refused`() throws {
        let attributes = [
            ("ce_specversion", "1.0"), ("ce_id", "c"), ("ce_source", "s"), ("ce_type", "t"),
            ("ce_userid", "u"),
        ]
        for name in ["ce_id", "ce_source", "ce_type", "ce_userid"] {
            let headers = attributes.map { ($0.0, $0.0 == name ? "a\r\nb" : $0.1) }
            let refusal = try #require(refused(Array("{}".utf8), headers: headers))
            #expect(refusal.code == .invalidField)
            #expect(refusal.reason == "\(name.dropFirst(3)) holds a control character")
        }
    }

    @Test func `labels have limits and may hold any character`() throws {
        func labels(_ members: String) -> [UInt8] {
            Array(#"{"type":"t","user_id":"u","labels":{\#(members)}}"#.utf8)
        }
        let (name, value) = (String(repeating: "n", count: 64), String(repeating: "v", count: 128))
        #expect(refused(labels(#""\#(name)":"\#(value)","a\nb":"\u0000\u001b[31m""#)) == nil)
        let nine = (1...9).map { #""l\#($0)":"x""# }.joined(separator: ",")
        for members in [nine, #""\#(name)n":"x""#, #""x":"\#(value)v""#, #""x":1"#] {
            let refusal = try #require(refused(labels(members)))
            #expect(refusal.code == .invalidField && refusal.reason.hasPrefix("labels "))
        }
    }

    @Test func `a broadcast names its target and the rule that it breaks`() throws {
        let topic = try decode(#"{"type":"t","to":{"fcm_topic":"news"}}"#)
        #expect(topic.to?.kind == .fcmTopic && topic.to?.name == "news")
        #expect(topic.to?.environment == GatewayEnvironment.none && topic.resultUserID == nil)
        let channel = try decode(
            #"{"type":"t","to":{"apns_channel":"dGVzdA==","environment":"sandbox"}}"#)
        #expect(channel.to?.environment == .sandbox)
        let refusal = try #require(
            refused(Array(#"{"type":"t","to":{"fcm_topic":"/topics/news"}}"#.utf8)))
        #expect(refusal.reason.hasPrefix("to.fcm_topic: "))
        #expect(refusal.reason.contains("without /topics/"))
    }

    @Test func `poison that is not even text is refused`() {
        #expect(refused(nil)?.code == .nullValue)
        #expect(refused([0xFF, 0xFE])?.code == .notJSON)
        #expect(refused([0, 0, 0, 0, 7, 2, 8])?.code == .foreignFraming)
        #expect(refused([0x1F, 0x8B, 8, 0])?.code == .foreignFraming)
        #expect(refused([UInt8](repeating: 0x5B, count: 200_000))?.code == .notJSON)
        #expect(refused([UInt8](repeating: 0x20, count: 300_000))?.code == .tooLarge)
    }

    @Test func `a refusal names the event and its user when they can be read`() throws {
        let refusal = try #require(
            refused(Array(#"{"id":"e9","type":"t","user_id":"u9","ttl":"soon"}"#.utf8)))
        #expect(refusal.userID == "u9" && refusal.eventID == "e9" && refusal.eventType == "t")
        #expect(refusal.reason.hasPrefix("ttl "))
    }
}
