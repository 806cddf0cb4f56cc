import Base
import JSON
import Testing

@testable import Gateways

/// The Message resource, field by field: what FCM would refuse is refused with the rule's name.
@Suite struct `The rules of FCM` {
    /// A field, values that are wrong and values that are right, in JSON.
    static let rows: [(path: String, wrong: [String], right: [String])] =
        [
            ("notification.title", ["1"], [#""t""#]), ("notification.body", ["{}"], [#""b""#]),
            ("notification.image", ["[]"], [#""https://example.com/a.png""#]),
            (
                "fcm_options.analytics_label", [#""a b""#, "1", #""""#, long(51)],
                [#""spring-1.~%_""#, long(50)]
            ),
            ("android.priority", [#""URGENT""#, "10"], [#""HIGH""#, #""NORMAL""#, #""high""#]),
            ("webpush.headers", [#"{"TTL":60}"#, "[]"], [#"{"TTL":"60"}"#]),
            ("webpush.data", [#"{"a":1}"#, #"{"gcm.x":"1"}"#], [#"{"a":"1"}"#]),
            ("webpush.notification", [#""t""#], [#"{"title":"t"}"#]),
            (
                "webpush.fcm_options.link", [#""http://example.com""#, "1"],
                [#""https://example.com""#]
            ),
            ("webpush.fcm_options.analytics_label", [#""a b""#], [#""a""#]),
            ("apns.headers", [#"{"apns-priority":10}"#], [#"{"apns-priority":"5"}"#]),
            ("apns.payload", ["[]"], ["{}"]), ("apns.live_activity_token", ["1"], [#""abc""#]),
            ("apns.fcm_options.analytics_label", [#""a b""#], [#""a""#]),
            ("apns.fcm_options.image", ["1"], [#""https://example.com/a.png""#]),
            ("android_v2.background_sync", ["true"], ["{}"]),
            ("android_v2.remote_notification.notification", ["[]"], ["{}"]),
        ]
        + ["android", "android_v2"].flatMap { android -> [(String, [String], [String])] in
            [
                ("\(android).collapse_key", ["1"], [#""k""#]),
                (
                    "\(android).ttl", [#""60""#, "60", #""2419201s""#, #""-1s""#, #""1.s""#],
                    [#""0s""#, #""3.5s""#, #""2419200s""#]
                ),
                ("\(android).restricted_package_name", ["1"], [#""com.example""#]),
                (
                    "\(android).data",
                    [
                        #"{"a":1}"#, #"{"from":"x"}"#, #"{"message_type":"x"}"#,
                        #"{"google.x":"1"}"#,
                        #"{"gcm":"1"}"#,
                    ],
                    [#"{"a":"1","collapse_key":"c"}"#]
                ),
                ("\(android).fcm_options.analytics_label", [#""a b""#], [#""a""#]),
                ("\(android).direct_boot_ok", ["1"], ["true"]),
                ("\(android).bandwidth_constrained_ok", [#""true""#], ["false"]),
                ("\(android).restricted_satellite_ok", ["0"], ["true"]),
            ]
        }
        + ["android.notification", "android_v2.remote_notification.notification"].flatMap { place in
            notification.map { ("\(place).\($0.0)", $0.1, $0.2) }
        }

    private static func long(_ count: Int) -> String {
        "\"\(String(repeating: "a", count: count))\""
    }

    private static let notification: [(String, [String], [String])] = [
        ("title", ["1"], [#""t""#]), ("body", ["1"], [#""b""#]), ("icon", ["1"], [#""i""#]),
        ("color", [#""red""#, "\"#12345\"", "\"#12345g\""], ["\"#1a2B3c\""]),
        ("sound", ["1"], [#""default""#]), ("tag", ["1"], [#""t""#]),
        ("click_action", ["1"], [#""a""#]), ("body_loc_key", ["1"], [#""k""#]),
        ("body_loc_args", ["[1]", #""a""#], [#"["a"]"#]), ("title_loc_key", ["1"], [#""k""#]),
        ("title_loc_args", ["{}"], [#"[]"#]), ("channel_id", ["1"], [#""c""#]),
        ("ticker", ["1"], [#""t""#]), ("sticky", ["1"], ["true"]),
        ("event_time", [#""noon""#, "1"], [#""2025-01-01T00:00:00Z""#]),
        ("local_only", [#""yes""#], ["false"]),
        ("notification_priority", [#""HIGH""#], [#""PRIORITY_HIGH""#]),
        ("default_sound", ["1"], ["true"]), ("default_vibrate_timings", ["1"], ["true"]),
        ("default_light_settings", ["1"], ["true"]),
        ("vibrate_timings", [#"["1"]"#, #""1s""#, "[1]"], [#"["0.5s","1s"]"#]),
        ("visibility", [#""SHOWN""#], [#""PUBLIC""#]),
        ("notification_count", ["1.5", #""1""#], ["3"]),
        (
            "light_settings", ["{}", #"{"color":{},"light_on_duration":"1s"}"#],
            [#"{"color":{"red":1},"light_on_duration":"1s","light_off_duration":"0.5s"}"#]
        ), ("image", ["1"], [#""https://example.com/a.png""#]),
        ("bypass_proxy_notification", ["1"], ["true"]),
        ("proxy", [#""MAYBE""#], [#""IF_PRIORITY_LOWERED""#]),
    ]

    @Test(arguments: rows)
    func `say what a field has to be`(path: String, wrong: [String], right: [String]) throws {
        for isCamel in [false, true] {
            for value in wrong {
                let built = try self.built(path, value, isCamel: isCamel)
                guard case .rejected(.invalidContent, let detail) = built.rendering else {
                    Issue.record("\(path) \(value): \(built.rendering)")
                    continue
                }
                #expect(detail.hasPrefix("rule fcm.\(path): "), "\(detail)")
                #expect(built.request.fields.isEmpty)
            }
            for value in right {
                let built = try self.built(path, value, isCamel: isCamel)
                guard case .request = built.rendering else {
                    Issue.record("\(path) \(value): \(built.rendering)")
                    continue
                }
            }
        }
    }

    @Test func `have a row each`() {
        #expect(Set(Self.rows.map(\.path)) == Set(FCMFieldRule.all.map(\.path)))
    }

    private func built(_ path: String, _ value: String, isCamel: Bool) throws -> Built {
        let names = path.split(separator: ".").map { isCamel ? Self.camel($0) : String($0) }
        let open = names.map { "{\"\($0)\":" }.joined()
        let override = open + value + String(repeating: "}", count: names.count)
        return Built(
            fcm: try Event(#"{"data":{"a":"1"},"fcm":\#(override)}"#).content,
            to: fcmTarget(platform: "unknown"))
    }

    private static func camel(_ name: Substring) -> String {
        let words = name.split(separator: "_")
        // `android_v2` is spelt `androidV2`.
        return words[0]
            + words.dropFirst().map { $0.prefix(1).uppercased() + $0.dropFirst() }.joined()
    }

    @Test func `know a field by both of its spellings, and send one`() throws {
        let event = try Event(
            #"{"notification":{"title":"x","channel_id":"a"},"fcm":{"android":{"collapseKey":"k","#
                + #""notification":{"channelId":"b","lightSettings":{"color":{},"#
                + #""lightOnDuration":"1s","lightOffDuration":"1s"}},"fcmOptions":{}},"#
                + #""apns":{"payload":{"analyticsLabel":1},"headers":{"collapseKey":"h"}},"#
                + #""webpush":{"notification":{"channelId":"w"},"data":{"fcmOptions":"d"}}}}"#)
        event.content.fcmCollapseKey = "route"
        let built = Built(fcm: event.content)
        #expect(built.rendering == .request([]))
        try built.json { body in
            let message = body["message"]
            let android = message?["android"]
            let notification = android?["notification"]
            #expect(notification?["channel_id"]?.string == "b" && notification?["channelId"] == nil)
            #expect(android?["collapse_key"]?.string == "k" && android?["collapseKey"] == nil)
            #expect(android?["fcm_options"]?.isObject == true)
            #expect(notification?["light_settings"]?["light_on_duration"]?.string == "1s")
            // These are not FCM's names.
            #expect(message?["apns"]?["payload"]?["analyticsLabel"]?.int64 == 1)
            #expect(message?["apns"]?["headers"]?["collapseKey"]?.string == "h")
            #expect(message?["webpush"]?["notification"]?["channelId"]?.string == "w")
            #expect(message?["webpush"]?["data"]?["fcmOptions"]?.string == "d")
        }
        let bad = try Event(
            #"{"notification":{"title":"x","channel_id":"a"},"#
                + #""fcm":{"android":{"notification":{"channelId":7}}}}"#)
        #expect(Built(fcm: bad.content).isRejected(for: .invalidContent))
    }

    @Test func `let the newer Android fields stand for the older ones`() throws {
        let event = try Event(
            #"{"notification":{"title":"x"},"fcm":{"android_v2":{"background_sync":{}}}}"#)
        let built = Built(fcm: event.content)
        #expect(built.rendering == .request([]))
        try built.json { body in
            #expect(body["message"]?["android"] == nil)
            #expect(body["message"]?["android_v2"]?.isObject == true)
        }
        let both = try Event(#"{"data":{},"fcm":{"android":{},"android_v2":{}}}"#)
        guard case .rejected(_, let detail) = Built(fcm: both.content).rendering else {
            Issue.record("both were taken")
            return
        }
        #expect(detail.hasPrefix("rule fcm.one-android"))
    }

    @Test func `hold data for Apple devices to priority 5`() throws {
        let event = try Event(
            #"{"data":{"a":"1"},"fcm":{"apns":{"headers":{"apns-priority":"10"}}}}"#)
        guard
            case .rejected(_, let detail) = Built(
                fcm: event.content, to: fcmTarget(platform: "ios")
            ).rendering
        else {
            Issue.record("it was taken")
            return
        }
        #expect(detail.hasPrefix("rule fcm.silent-priority"))
    }

    @Test func `let fields pass that they do not know`() throws {
        let event = try Event(
            #"{"notification":{"title":"x"},"fcm":{"android":{"new_field":[1]},"newer":{"x":1}}}"#)
        #expect(Built(fcm: event.content).rendering == .request([]))
    }

    @Test func `an installation id stands where the token stands`() throws {
        var target = fcmTarget("cXzY_-09abcdefghijklmn")
        target.isInstallation = true
        let built = Built(fcm: try Event(#"{"notification":{"title":"x"}}"#).content, to: target)
        try built.json { body in
            #expect(body["message"]?["fid"]?.string == "cXzY_-09abcdefghijklmn")
            #expect(body["message"]?["token"] == nil)
        }
    }

    @Test func `a verdict tells what APNs told FCM`() {
        let verdict = fcm(
            401,
            #"{"error":{"code":401,"message":"Auth error from APNS or Web Push Service","details":["#
                + #"{"@type":"x/google.firebase.fcm.v1.ApnsError","statusCode":403,"#
                + #""reason":"InvalidProviderToken"},{"@type":"x/google.firebase.fcm.v1.FcmError","#
                + #""errorCode":"THIRD_PARTY_AUTH_ERROR"}]}}"#)
        #expect(verdict.outcome == .credentialError && verdict.tokenAction == .none)
        #expect(verdict.detail.hasSuffix("(APNs: InvalidProviderToken)"))
    }
}
