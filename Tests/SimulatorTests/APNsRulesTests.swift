// Every documented rule of `/3/device`: the offending request is sent by a client that is not
// ours, and the documented answer has to come back.

import Base
import Crypto
import JSON
import Simulator
import Testing

@Suite struct `The simulated APNs` {
    @Test func `accepts a correct push, sends its id back and records it`() throws {
        let fixture = try Fixture()
        let authorization = try fixture.providerToken()
        let id = "12345678-1234-4123-8123-123456789abc"
        var request = fixture.push(
            ["apns-id": id, "apns-collapse-id": "c1", "apns-expiration": "0"],
            authorization: authorization)
        request.sensitive = ["authorization"]
        let answer = try #require(fixture.run(.apnsProduction, [request]).answers.first)
        #expect(answer.status == 200)
        #expect(answer.body.isEmpty)
        #expect(answer.fields["apns-id"] == id)
        #expect(answer.fields["apns-unique-id"] == nil)
        let entry = try #require(fixture.simulator.journal.entries.first)
        #expect(entry.token == Fixture.token)
        #expect(entry.messageID == "message-1")
        #expect(entry.apnsID == id)
        #expect(entry.collapseID == "c1")
        #expect(entry.topic == Fixture.topic)
        #expect(entry.neverIndexed == ["authorization"])
        #expect(fixture.simulator.journal.accepted(messageID: "message-1") == 1)
        #expect(fixture.simulator.journal.count(token: Fixture.token) == 1)
        #expect(fixture.simulator.journal.counters.violations.isEmpty)
        #expect(fixture.simulator.journal.counters.advisories.isEmpty)
    }

    @Test func `makes an id where there is none, and names the push in the sandbox`() throws {
        let fixture = try Fixture()
        let request = fixture.push(authorization: try fixture.providerToken())
        let answer = try #require(fixture.run(.apnsSandbox, [request]).answers.first)
        #expect(answer.status == 200)
        #expect(UUIDBytes(answer.fields["apns-id"] ?? "") != nil)
        #expect(UUIDBytes(answer.fields["apns-unique-id"] ?? "") != nil)
    }

    @Test func `refuses wrong paths, methods and repeated fields`() throws {
        let fixture = try Fixture()
        let authorization = try fixture.providerToken()
        var cases: [(NodeRequest, Int, String)] = []
        func add(_ status: Int, _ reason: String, _ change: (inout NodeRequest) -> Void) {
            var request = fixture.push(authorization: authorization)
            change(&request)
            cases.append((request, status, reason))
        }
        add(405, "MethodNotAllowed") {
            $0.method = "GET"
            $0.body = ""
        }
        add(404, "BadPath") { $0.path = "/4/device/aa" }
        add(404, "BadPath") { $0.path = "/3/device/aa/bb" }
        add(400, "MissingDeviceToken") { $0.path = "/3/device/" }
        add(400, "MissingDeviceToken") { $0.path = "/3/device" }
        add(400, "DuplicateHeaders") { $0.fields.append(("apns-topic", Fixture.topic)) }
        add(400, "DuplicateHeaders") { $0.fields.append(("apns-priority", "10")) }
        try expect(cases, in: fixture)
    }

    @Test func `checks topic, push type and the other fields`() throws {
        let fixture = try Fixture()
        fixture.simulator.facts.setBundleIDs([Fixture.topic], teamID: fixture.key.teamID)
        let authorization = try fixture.providerToken()
        let rows: [([String: String?], Int, String)] = [
            (["apns-topic": nil], 400, "MissingTopic"),
            (["apns-topic": "not a topic"], 400, "BadTopic"),
            (["apns-topic": "com.example.other"], 400, "TopicDisallowed"),
            (["apns-push-type": "shout"], 400, "InvalidPushType"),
            (["apns-push-type": "Alert"], 400, "InvalidPushType"),
            (["apns-topic": Fixture.topic + ".voip"], 400, "InvalidPushType"),
            (["apns-push-type": "voip"], 400, "TopicDisallowed"),
            (["apns-push-type": "voip", "apns-topic": Fixture.topic + ".voip"], 200, ""),
            (
                [
                    "apns-push-type": "liveactivity",
                    "apns-topic": Fixture.topic + ".push-type.liveactivity",
                ], 200, ""
            ),
            (
                ["apns-push-type": "complication", "apns-topic": Fixture.topic + ".complication"],
                200, ""
            ),
            (["apns-push-type": "pushtotalk", "apns-topic": Fixture.topic + ".voip-ptt"], 200, ""),
            (
                ["apns-push-type": "location", "apns-topic": Fixture.topic + ".location-query"],
                200, ""
            ),
            (
                [
                    "apns-push-type": "fileprovider",
                    "apns-topic": Fixture.topic + ".pushkit.fileprovider",
                ], 200, ""
            ),
            (
                ["apns-push-type": "widgets", "apns-topic": Fixture.topic + ".push-type.widgets"],
                200, ""
            ),
            (
                [
                    "apns-push-type": "controls",
                    "apns-topic": Fixture.topic + ".push-type.controls",
                ],
                200, ""
            ),
            (["apns-push-type": nil], 200, ""),
            (["apns-priority": "7"], 400, "BadPriority"),
            (["apns-priority": "high"], 400, "BadPriority"),
            (["apns-priority": nil], 200, ""),
            (["apns-priority": "1"], 200, ""),
            (["apns-push-type": "background"], 400, "BadPriority"),
            (["apns-push-type": "background", "apns-priority": nil], 400, "BadPriority"),
            (["apns-push-type": "background", "apns-priority": "5"], 200, ""),
            (["apns-id": "12345678-1234-4123-8123-123456789abC"], 400, "BadMessageId"),
            (["apns-id": "message"], 400, "BadMessageId"),
            (["apns-expiration": "tomorrow"], 400, "BadExpirationDate"),
            (["apns-expiration": "-1"], 400, "BadExpirationDate"),
            (["apns-expiration": "1735693200"], 200, ""),
            (["apns-collapse-id": String(repeating: "c", count: 64)], 200, ""),
            (["apns-collapse-id": String(repeating: "c", count: 65)], 400, "BadCollapseId"),
        ]
        try expect(
            rows.map { (fixture.push($0.0, authorization: authorization), $0.1, $0.2) },
            in: fixture)
    }

    @Test func `checks the payload's size and form`() throws {
        let fixture = try Fixture()
        let authorization = try fixture.providerToken()
        func payload(_ bytes: Int) -> String {
            let frame = #"{"aps":{"alert":""}}"#
            return frame.replacing(
                "\"\"", with: "\"" + String(repeating: "x", count: bytes - frame.utf8.count) + "\"")
        }
        let voip: [String: String?] = [
            "apns-push-type": "voip", "apns-topic": Fixture.topic + ".voip",
        ]
        let rows: [([String: String?], String, Int, String)] = [
            ([:], "", 400, "PayloadEmpty"),
            ([:], "{", 400, "BadRequestPayload"),
            ([:], "[]", 400, "BadRequestPayload"),
            ([:], payload(4096), 200, ""),
            ([:], payload(4097), 413, "PayloadTooLarge"),
            (voip, payload(5120), 200, ""),
            (voip, payload(5121), 413, "PayloadTooLarge"),
        ]
        try expect(
            rows.map {
                (fixture.push($0.0, body: $0.1, authorization: authorization), $0.2, $0.3)
            }, in: fixture)
    }

    @Test func `knows live, gone, foreign and misplaced tokens`() throws {
        let fixture = try Fixture()
        let facts = fixture.simulator.facts
        let authorization = try fixture.providerToken()
        let gone = UnixMillis(1_735_689_700_000)
        facts.setAPNsToken("AA01", environment: .production, .unregistered(at: gone))
        facts.setAPNsToken("aa02", environment: .production, .expired(at: gone))
        facts.setAPNsToken("aa03", environment: .sandbox)
        facts.setAPNsToken("aa04", environment: .production, topics: ["com.example.other"])
        facts.setAPNsToken("aa05", environment: .production, topics: [Fixture.topic])
        let rows: [(String, Int, String)] = [
            ("aa01", 410, "Unregistered"), ("aa02", 410, "ExpiredToken"),
            ("aa03", 400, "BadDeviceToken"), ("aa04", 400, "DeviceTokenNotForTopic"),
            ("aa05", 200, ""), ("AA05", 200, ""), ("zz", 400, "BadDeviceToken"),
            ("aaa", 400, "BadDeviceToken"), ("(null)", 400, "BadDeviceToken"), ("bb", 200, ""),
        ]
        let answers = try expect(
            rows.map { (fixture.push(token: $0.0, authorization: authorization), $0.1, $0.2) },
            in: fixture)
        #expect(answers[0].body == #"{"reason":"Unregistered","timestamp":1735689700000}"#)
        #expect(answers[2].body == #"{"reason":"BadDeviceToken"}"#)
        facts.unknownTokens = .malformed
        try expect(
            [(fixture.push(token: "bb", authorization: authorization), 400, "BadDeviceToken")],
            in: fixture)
        facts.unknownTokens = .unregistered
        try expect(
            [(fixture.push(token: "bb", authorization: authorization), 410, "Unregistered")],
            in: fixture)
    }

    @Test func `counts what it takes and does not do`() throws {
        let fixture = try Fixture()
        let authorization = try fixture.providerToken()
        let silent: [String: String?] = ["apns-push-type": "background", "apns-priority": "5"]
        _ = fixture.run(
            .apnsProduction,
            [
                fixture.push(
                    silent, body: #"{"aps":{"content-available":1,"sound":"x"}}"#,
                    authorization: authorization),
                fixture.push(
                    silent, body: #"{"aps":{"content-available":1}}"#, authorization: authorization),
                fixture.push(body: #"{"aps":{}}"#, authorization: authorization),
            ])
        #expect(
            fixture.simulator.journal.counters.advisories == [
                "apns-production: background with something to show": 1,
                "apns-production: alert with nothing to show": 1,
            ])
    }
}

@discardableResult
private func expect(
    _ cases: [(NodeRequest, Int, String)], in fixture: Fixture
) throws -> [NodeAnswer] {
    let answers = fixture.run(.apnsProduction, cases.map(\.0)).answers
    try #require(answers.count == cases.count)
    for (answer, (request, status, expected)) in zip(answers, cases) {
        let place = "\(request.path.prefix(20)) \(request.fields) \(request.body.prefix(20))"
        #expect(answer.status == status, "\(place): \(answer.body)")
        #expect(reason(answer) ?? "" == expected, "\(place)")
    }
    return answers
}
