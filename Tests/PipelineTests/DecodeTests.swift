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

    /// With what is added to it a copy has to fit into topics with Kafka's usual limit; and merging
    /// takes time that grows with the square of the members.
    @Test func `what no payload and no copy has room for is refused whole`() throws {
        let long = String(repeating: "h", count: 70_000)
        let value = #"{"type":"t","user_id":"ada","payload":{"title":"t"}}"#
        #expect(refused(Array(value.utf8), headers: [("x", long)])?.code == .tooLarge)
        #expect(refused(Array(value.utf8), headers: [("x", String(long.prefix(60_000)))]) == nil)
        for name in ["data", "apns", "fcm", "webpush", "expo"] {
            func event(_ bytes: Int) -> [UInt8] {
                let text = String(repeating: "x", count: bytes)
                return Array(#"{"type":"t","user_id":"ada","\#(name)":{"a":"\#(text)"}}"#.utf8)
            }
            #expect(refused(event(33_000))?.code == .tooLarge)
            #expect(refused(event(32_000)) == nil, "too large for a gateway is said by target")
        }
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
