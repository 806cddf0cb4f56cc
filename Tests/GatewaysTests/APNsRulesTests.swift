import Base
import JSON
import Testing

@testable import Gateways

/// A row for each combination that APNs refuses, drops or shows wrongly, and beside it the nearest
/// one that is right.
@Suite struct `The rules of APNs` {
    /// A kind of address, an override that breaks a rule, one that keeps it, and the rule.
    struct Row: Sendable, CustomTestStringConvertible {
        var kind: AddressKind
        var wrong: String
        var right: String
        var rule: String
        var topic: String?
        var testDescription: String { rule }
    }

    private static let update = #""event":"update","content-state":{}"#
    private static let start =
        #""event":"start","content-state":{},"attributes-type":"A","attributes":{},"alert":"x""#
    private static let silent = #"{"headers":{"apns-push-type":"background"},"#

    static let rows: [Row] = [
        Row(
            kind: .alert, wrong: #"{"headers":{"apns-push-type":"alert"}}"#,
            right: #"{"headers":{"apns-push-type":"voip"}}"#, rule: "topic-suffix",
            topic: "com.example.app.voip"),
        Row(
            kind: .alert,
            wrong: #"{"headers":{"apns-push-type":"background","apns-priority":"10"}}"#,
            right: #"{"headers":{"apns-push-type":"background","apns-priority":"5"}}"#,
            rule: "background-priority"),
        Row(
            kind: .alert,
            wrong: silent + #""aps":{"content-available":1,"alert":"x"}}"#,
            right: silent + #""aps":{"content-available":1}}"#, rule: "background-silent"),
        Row(
            kind: .alert, wrong: silent + #""aps":{"content-available":null}}"#,
            right: silent + #""aps":{}}"#, rule: "background-content-available"),
        Row(
            kind: .alert,
            wrong: #"{"headers":{"apns-push-type":"alert"},"aps":{"alert":null,"category":"c"}}"#,
            right: #"{"headers":{"apns-push-type":"alert"},"aps":{"badge":1}}"#,
            rule: "alert-visible"),
        Row(
            kind: .pushtotalk, wrong: #"{"headers":{"apns-priority":"5"}}"#,
            right: #"{"headers":{"apns-priority":"10"}}"#, rule: "pushtotalk-priority"),
        Row(
            kind: .pushtotalk, wrong: #"{"headers":{"apns-expiration":"1735693200"}}"#,
            right: #"{"headers":{"apns-expiration":"0"}}"#, rule: "pushtotalk-expiration"),
        Row(
            kind: .controls, wrong: #"{"aps":{"content-changed":false}}"#, right: #"{"aps":{}}"#,
            rule: "content-changed"),
        Row(
            kind: .widgets, wrong: #"{"aps":{"content-changed":null}}"#, right: #"{"aps":{}}"#,
            rule: "content-changed"),
        Row(
            kind: .fileprovider, wrong: #"{"domain":"d"}"#,
            right: #"{"container-identifier":"c","domain":"d"}"#, rule: "fileprovider-container"),
        Row(kind: .mdm, wrong: #"{"x":1}"#, right: #"{"mdm":"magic"}"#, rule: "mdm-magic"),
        Row(
            kind: .mdm, wrong: #"{"mdm":"magic","aps":{}}"#, right: #"{"mdm":"magic"}"#,
            rule: "mdm-without-aps"),
        Row(
            kind: .liveactivity, wrong: #"{"aps":{"event":"pause","content-state":{}}}"#,
            right: #"{"aps":{\#(update)}}"#, rule: "liveactivity-event"),
        Row(
            kind: .liveactivity, wrong: #"{"aps":{\#(update),"timestamp":null}}"#,
            right: #"{"aps":{\#(update),"timestamp":1735689600}}"#, rule: "liveactivity-timestamp"),
        Row(
            kind: .liveactivity, wrong: #"{"headers":{"apns-priority":"1"},"aps":{\#(update)}}"#,
            right: #"{"headers":{"apns-priority":"10"},"aps":{\#(update)}}"#,
            rule: "liveactivity-priority"),
        Row(
            kind: .liveactivity, wrong: #"{"aps":{"event":"update"}}"#,
            right: #"{"aps":{"event":"end"}}"#, rule: "liveactivity-content-state"),
        Row(
            kind: .liveactivity,
            wrong: #"{"aps":{"event":"start","content-state":{},"alert":"x"}}"#,
            right: #"{"aps":{\#(start)}}"#, rule: "liveactivity-start-attributes"),
        Row(
            kind: .liveactivity, wrong: #"{"aps":{\#(start),"alert":null}}"#,
            right: #"{"aps":{\#(start)}}"#, rule: "liveactivity-start-alert"),
        Row(
            kind: .liveactivity, wrong: #"{"aps":{\#(update),"attributes":{}}}"#,
            right: #"{"aps":{\#(start)}}"#, rule: "liveactivity-only-start"),
        Row(
            kind: .liveactivity, wrong: #"{"aps":{\#(update),"input-push-token":1}}"#,
            right: #"{"aps":{\#(start),"input-push-token":1}}"#, rule: "liveactivity-only-start"),
        Row(
            kind: .liveactivity,
            wrong: #"{"aps":{\#(start),"input-push-token":1,"input-push-channel":"YQ=="}}"#,
            right: #"{"aps":{\#(start),"input-push-channel":"YQ=="}}"#,
            rule: "liveactivity-one-input"),
        Row(
            kind: .liveactivity, wrong: #"{"aps":{\#(update),"dismissal-date":1735689600}}"#,
            right: #"{"aps":{"event":"end","dismissal-date":1735689600}}"#,
            rule: "liveactivity-only-end"),
    ]

    @Test(arguments: rows) func `name what is wrong before anything is sent`(row: Row) throws {
        let wrong = try built(row.wrong, row)
        guard case .rejected(.invalidContent, let detail) = wrong.rendering else {
            Issue.record("\(wrong.rendering)")
            return
        }
        #expect(detail.hasPrefix("rule \(row.rule): "), "\(detail)")
        #expect(wrong.request.fields.isEmpty && wrong.body.isEmpty)
    }

    @Test(arguments: rows) func `let the nearest right one pass`(row: Row) throws {
        let right = try built(row.right, row)
        #expect(right.rendering == .request([]), "\(right.rendering)")
    }

    private func built(_ override: String, _ row: Row) throws -> Built {
        let data = row.kind == .mdm ? #""data":{},"# : ""
        let notification = override.contains("background") ? "" : #""notification":{"title":"t"},"#
        return Built(
            apns: try Event("{\(data)\(notification)\"apns\":\(override)}").content,
            to: apnsTarget(topic: row.topic, kind: row.kind))
    }

    /// The rules with tests of their own elsewhere.
    private static let elsewhere = [
        "aps-object", "broadcast-type", "broadcast-event", "location-token",
    ]

    @Test func `all have a row`() {
        let named = Set(Self.rows.map(\.rule) + Self.elsewhere)
        #expect(named == Set(APNsRule.all.map(\.name)))
    }

    @Test func `aps-object: no push without aps, but for the types that need none`() throws {
        let parser = JSONParser()
        for type in APNsPushType.allCases {
            let push = APNsPush(
                type: type, priority: .considerPower, expiration: 0, topic: "com.example.app",
                payload: try parser.parse("{}"))
            let needsNone = [.complication, .fileprovider, .location, .mdm, .pushtotalk, .voip]
                .contains(type)
            let isRefused = APNsRule.problem(with: push)?.hasPrefix("rule aps-object: ") ?? false
            #expect(isRefused != needsNone)
        }
    }

    @Test func `location-token: a location push does not go with a certificate`() throws {
        for json in [#"{"notification":{"title":"x"}}"#, #"{"apns":{"aps":{}}}"#] {
            let event = try Event(json)
            let request = OutboundRequest()
            let renderer = APNsRenderer(APNsSettings(topic: "com.example.app"))
            let target = apnsTarget(kind: .location)
            let rendering = target.lend {
                renderer.render(event.content, to: $0, authorization: nil, into: request)
            }
            guard case .rejected(.invalidContent, let detail) = rendering else {
                Issue.record("\(rendering)")
                continue
            }
            #expect(detail.hasPrefix("rule location-token: "))
            #expect(Built(apns: event.content, to: target).rendering == .request([]))
        }
    }

    // MARK: Members of aps

    static let members: [(key: String, wrong: String, right: [String])] = [
        ("alert", "3", [#""x""#, #"{"title":"x"}"#]), ("badge", "-1", ["0", "3"]),
        ("badge", #""3""#, ["7"]), ("sound", "1", [#""default""#]),
        ("sound", #"{"critical":2}"#, [#"{"critical":1,"name":"a","volume":0.5}"#]),
        ("sound", #"{"critical":1,"volume":1.5}"#, [#"{"critical":1,"volume":1}"#]),
        ("thread-id", "1", [#""a""#]), ("category", "[]", [#""a""#]),
        ("content-available", "true", ["1", "0"]), ("mutable-content", #""1""#, ["1", "0"]),
        ("target-content-id", "1", [#""a""#]), ("interruption-level", #""loud""#, [#""passive""#]),
        ("interruption-level", "1", [#""active""#, #""time-sensitive""#, #""critical""#]),
        ("relevance-score", "1.5", ["0", "0.5", "1"]), ("filter-criteria", "1", [#""a""#]),
        ("stale-date", #""soon""#, ["1735689600"]), ("content-state", "1", ["{}"]),
        ("timestamp", #""now""#, ["1735689600"]), ("event", "1", [#""update""#]),
        ("dismissal-date", #""soon""#, ["1735689600"]), ("attributes-type", "1", [#""A""#]),
        ("attributes", "[]", ["{}"]), ("input-push-token", "2", ["1"]),
        ("input-push-channel", "1", [#""YQ==""#]), ("content-changed", "1", ["true", "false"]),
        ("url-args", #"["a",1]"#, [#"["a","b"]"#]),
    ]

    @Test(arguments: members)
    func `say what a member of aps has to be`(key: String, wrong: String, right: [String]) throws {
        func problem(_ value: String) throws -> String? {
            try self.problem(aps: #"{"alert":"x","\#(key)":\#(value)}"#, .alert)
        }
        #expect(try problem(wrong)?.hasPrefix("rule aps.\(key): ") == true)
        for value in right { #expect(try problem(value) == nil, "\(value)") }
        #expect(try problem("null") == nil || key == "alert")
    }

    @Test func `know every member of aps`() {
        #expect(Set(Self.members.map(\.key)) == Set(APNsKeyRule.all.map(\.key.description)))
    }

    @Test func `let a Live Activity have any score and localised texts`() throws {
        let aps =
            #"{"timestamp":1,"event":"update","content-state":{},"relevance-score":75.5,"#
            + #""alert":{"title":{"loc-key":"k","loc-args":["a"]},"body":"b","sound":"s"}}"#
        #expect(try problem(aps: aps, .liveactivity) == nil)
        #expect(
            try problem(aps: #"{"alert":{"title":{"loc-key":"k"}}}"#, .alert)?
                .hasPrefix("rule aps.alert.title: ") == true)
    }

    @Test(arguments: [
        ("title", "1"), ("subtitle", "{}"), ("body", "[]"), ("launch-image", "1"),
        ("title-loc-key", "1"), ("title-loc-args", #"[1]"#), ("subtitle-loc-key", "1"),
        ("subtitle-loc-args", #""a""#), ("loc-key", "1"), ("loc-args", #"{"a":1}"#),
    ])
    func `say what a member of alert has to be`(key: String, wrong: String) throws {
        let found = try problem(aps: #"{"alert":{"\#(key)":\#(wrong)}}"#, .alert)
        #expect(found?.hasPrefix("rule aps.alert.\(key): ") == true)
    }

    private func problem(aps: String, _ type: APNsPushType) throws -> String? {
        let parser = JSONParser()
        return APNsRule.problem(
            with: APNsPush(
                type: type, priority: .considerPower, topic: "com.example.app",
                payload: try parser.parse(#"{"aps":\#(aps)}"#)))
    }

    // MARK: Push types

    /// Push type, ending of the topic, priority for a normal event, largest payload.
    static let types: [(AddressKind, String, String, String, Int)] = [
        (.alert, "alert", "", "10", 4096), (.voip, "voip", ".voip", "10", 5120),
        (.complication, "complication", ".complication", "5", 4096),
        (.controls, "controls", ".push-type.controls", "10", 4096),
        (.fileprovider, "fileprovider", ".pushkit.fileprovider", "5", 4096),
        (.liveactivity, "liveactivity", ".push-type.liveactivity", "5", 4096),
        (.location, "location", ".location-query", "5", 4096), (.mdm, "mdm", "", "10", 4096),
        (.pushtotalk, "pushtotalk", ".voip-ptt", "10", 4096),
        (.widgets, "widgets", ".push-type.widgets", "5", 4096),
    ]

    @Test(arguments: types)
    func `give every push type its topic, priority and size`(
        kind: AddressKind, type: String, suffix: String, priority: String, limit: Int
    ) throws {
        func built(_ count: Int) throws -> Built {
            let text = String(repeating: "x", count: count)
            let override =
                switch kind {
                case .mdm: #"{"mdm":"m","k":"\#(text)"}"#
                case .liveactivity: #"{"aps":{\#(Self.update)},"k":"\#(text)"}"#
                case .fileprovider: #"{"container-identifier":"c","k":"\#(text)"}"#
                default: #"{"k":"\#(text)"}"#
                }
            return Built(
                apns: try Event(#"{"notification":{"title":"t"},"apns":\#(override)}"#).content,
                to: apnsTarget(kind: kind))
        }
        let small = try built(0)
        #expect(small.rendering == .request([]))
        #expect(small["apns-push-type"] == type)
        #expect(small["apns-topic"] == "com.example.app" + suffix)
        #expect(small["apns-priority"] == priority)
        let full = try built(limit - small.request.body.count)
        #expect(full.rendering == .request([]) && full.request.body.count == limit)
        #expect(
            try built(limit - small.request.body.count + 1).isRejected(for: .localPayloadTooLarge))
    }

    @Test func `give a silent push priority 5 whatever the event says`() throws {
        for priority in [EventPriority.low, .normal, .high] {
            let event = try Event(#"{"data":{"a":1}}"#)
            event.content.priority = priority
            let built = Built(apns: event.content)
            #expect(built["apns-push-type"] == "background" && built["apns-priority"] == "5")
        }
    }

    @Test(arguments: ["1", "5", "10"]) func `take every priority`(priority: String) throws {
        let event = try Event(
            #"{"notification":{"title":"t"},"apns":{"headers":{"apns-priority":"\#(priority)"}}}"#)
        #expect(Built(apns: event.content)["apns-priority"] == priority)
    }

    @Test(arguments: [
        (#"{"apns-priority":"7"}"#, "apns-priority must be 1, 5 or 10"),
        (#"{"apns-push-type":"loud"}"#, "apns-push-type must be one of alert, "),
        (#"{"apns-expiration":"-1"}"#, "apns-expiration must be seconds since 1970"),
        (#"{"apns-collapse-id":""}"#, "apns-collapse-id must have a text"),
        (#"{"apns-id":"x"}"#, "cannot be set"), (#"{"apns-topic":"x"}"#, "cannot be set"),
    ])
    func `say what a field may be`(headers: String, problem: String) throws {
        let event = try Event(#"{"notification":{"title":"t"},"apns":{"headers":\#(headers)}}"#)
        guard case .rejected(.invalidContent, let detail) = Built(apns: event.content).rendering
        else {
            Issue.record("it was built")
            return
        }
        #expect(detail.contains(problem), "\(detail)")
    }
}
