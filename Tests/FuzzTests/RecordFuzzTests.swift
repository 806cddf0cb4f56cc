// Everything that parses a record of somebody else's: events, device addresses, invalidations.

import Base
import Crypto
import Foundation
import JSON
import Testing
import TokenIndex

@testable import Gateways
@testable import Pipeline

@Suite(.serialized) struct `Fuzzing of records` {
    private static let examples = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "topics/examples")

    /// The published examples of some topics.
    private func corpus(_ folders: String...) throws -> [String] {
        try folders.flatMap { folder in
            try FileManager.default.contentsOfDirectory(
                at: Self.examples.appending(path: folder), includingPropertiesForKeys: nil
            ).map { String(decoding: try Data(contentsOf: $0), as: UTF8.self) }
        }
    }

    @Test func `events, native and CloudEvents`() throws {
        let mutator = Mutator(
            try corpus("push.events", "push.events.cloudevents"),
            words: [
                "\"to\":{\"fcm_topic\":\"a\"}", "\"fcm_condition\":", "\"user_id\":", "\"type\":",
                "\"specversion\":\"1.0\"", "\"ttl\":", "\"time\":", "2025-01-01T00:00:00Z",
            ])
        let headers: [[(name: String, value: [UInt8])]] = [
            [], [("content-type", Array("application/cloudevents+json".utf8))],
            [
                ("ce_specversion", Array("1.0".utf8)), ("ce_type", Array("t".utf8)),
                ("ce_source", Array("/s".utf8)), ("ce_id", Array("1".utf8)),
                ("ce_userid", Array("u".utf8)),
            ],
        ]
        FuzzRun.feed("events") { random in
            let bytes = mutator.next(&random)
            let chosen = headers.randomElement(using: &random) ?? []
            do throws(EventCheck.Refusal) {
                let summary = try EventCheck.check(
                    bytes, headers: chosen, takesUserFromSubject: Bool.random(using: &random),
                    at: UnixMillis(1_735_689_600_000))
                if !isWholeJSON(bytes), bytes.first != 0 {
                    return "an event from \(String(decoding: bytes, as: UTF8.self))"
                }
                return summary.userID.isEmpty && !summary.isBroadcast ? "nobody's event" : nil
            } catch {
                return error.reason.isEmpty ? "a refusal without a reason" : nil
            }
        }
    }

    @Test func `names of broadcasts`() {
        let mutator = Mutator(
            ["'a' in topics && ('b' in topics || !('c' in topics))", "news", "dGVzdA=="],
            words: [" in topics", "&&", "||", "!", "(", ")", "'a'"])
        FuzzRun.feed("conditions") { random in
            let text = String(decoding: mutator.next(&random), as: UTF8.self)
            for kind in BroadcastTarget.Kind.allCases {
                guard (try? BroadcastTarget(kind, text)) != nil else { continue }
                if kind == .fcmTopic, text.contains("'") { return "a topic \(text)" }
                if kind == .fcmCondition {
                    let quotes = text.count { $0 == "'" }
                    let opens = text.count { $0 == "(" }
                    let isSound = quotes % 2 == 0 && (1...5).contains(quotes / 2)
                    if !isSound || opens != text.count(where: { $0 == ")" }) {
                        return "a condition \(text)"
                    }
                }
            }
            return nil
        }
    }

    @Test func `subscriptions of browsers, and tokens of Expo`() throws {
        let point =
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        let mutator = Mutator(
            [
                "https://fcm.googleapis.com/fcm/send/a:b", "https://a.push.apple.com:8443/x?y=%2b",
                "https://wns2-par02p.notify.windows.com/w/?token=a%2b", point,
                "BTBZMqHH6r4Tts7J_aSIgg", "ExponentPushToken[abc]",
                "F5741A13-BCDA-434B-A316-5DC0E6FFA94F",
            ], words: ["https://", "@", ":443", "[::1]", "%00", "ExpoPushToken[", "]", "\\", "="])
        FuzzRun.feed("subscriptions") { random in
            let bytes = mutator.next(&random)
            let text = String(decoding: bytes, as: UTF8.self)
            if let endpoint = try? WebPushEndpoint(bytes) {
                // What is read has to be what is sent: nothing hides a second host or a second field.
                let isPlain = endpoint.path.allSatisfy { (0x21...0x7E).contains($0) }
                let again = try? WebPushEndpoint(
                    Array(endpoint.origin.utf8) + endpoint.path)
                if !isPlain || endpoint.host.contains("@") || again != endpoint {
                    return "an endpoint from \(text)"
                }
            }
            if let keys = try? SubscriptionKeys(p256dh: text, auth: "BTBZMqHH6r4Tts7J_aSIgg") {
                let body = ByteWriter()
                guard let encryptor = try? MessageEncryptor() else { return "no encryptor" }
                let isUsed: Void? = try? [0x61].withUnsafeBytes {
                    try encryptor.encrypt($0, for: keys, into: body)
                }
                if isUsed == nil { return "a key that cannot be used: \(text)" }
            }
            _ = try? SubscriptionKeys(p256dh: point, auth: text)
            let isToken = bytes.withUnsafeBytes { ExpoToken.isToken($0) }
            let isClean = bytes.allSatisfy {
                (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C
            }
            return isToken && !isClean ? "a token from \(text)" : nil
        }
    }

    @Test func `device addresses, native and changed rows`() throws {
        let change = #"""
            {"before":null,"after":{"id":7,"user_id":"u","device_fingerprint":"f","platform":"ios",
             "push_token":"abcd","app_version":"1","is_active":true,"last_seen_at":1735689600000,
             "updated_at":1735689600000},"source":{"table":"device_registrations","schema":"public"},
             "op":"c","ts_ms":1735689600000}
            """#
        let mutator = Mutator(
            try corpus("push.devices") + [change],
            words: [
                "\"token\":", "\"gateway\":\"apns\"", "\"op\":\"d\"", "\"after\":null", "\"keys\":",
            ])
        let decoder = RegistrationDecoder(tables: [
            RegistrationTable(name: "device_registrations", app: "shop")
        ])
        let keys = ["shop/a", "shop/a/voip", "shop/a/liveactivity/x/y", "", "a", "/", "{\"id\":7}"]
        FuzzRun.feed("addresses") { random in
            let value = mutator.next(&random)
            let key = Array((keys.randomElement(using: &random) ?? "").utf8)
            let records = key.withUnsafeBytes { key in
                value.withUnsafeBytes { value in
                    try? decoder.decode(key: key, value: value, timestamp: 1_735_689_600_000)
                }
            }
            for record in records?.records ?? [] {
                guard case .registered(let address) = record else { continue }
                if address.token.isEmpty { return "an address without a token" }
                if AddressID(address.addressID) == nil { return "an id that is none" }
                if address.gateway == .apns, address.environment == .none {
                    return "an APNs address in no environment"
                }
            }
            return nil
        }
    }

    @Test func `invalidations`() throws {
        let mutator = Mutator(
            try corpus("push.invalidations"),
            words: ["\"verdict\":", "\"invalidate\"", "\"as_of\":"])
        let decoder = InvalidationDecoder()
        FuzzRun.feed("invalidations") { random in
            let value = mutator.next(&random)
            let key = Array("shop/a".utf8)
            let record = key.withUnsafeBytes { key in
                value.withUnsafeBytes { try? decoder.decode(key: key, value: $0) }
            }
            guard record != nil else { return nil }
            return isWholeJSON(value)
                ? nil : "a verdict from \(String(decoding: value, as: UTF8.self))"
        }
    }

    @Test func `content, through every renderer`() throws {
        let mutator = Mutator(
            [
                #"{"notification":{"title":"t","body":"b"},"data":{"a":1},"apns":{"aps":{"badge":1},"#
                    + #""headers":{"apns-priority":"5"}},"fcm":{"android":{"ttl":"3s"}}}"#,
                #"{"apns":{"aps":{"event":"update","content-state":{}}}}"#,
                #"{"fcm":{"data":{"a":{"b":[1]}},"android_v2":{"background_sync":{}}}}"#,
                #"{"notification":{"title":"t","channel_id":"c"},"fcm":{"android":{"collapseKey":"k","#
                    + #""notification":{"channelId":"d"}},"fcmOptions":{"analyticsLabel":"l"}}}"#,
                #"{"notification":{"title":"t","image":"https://i","actions":[{"id":"a","title":"b"}]},"#
                    + #""webpush":{"urgency":"low","notification":{"dir":"rtl"}}}"#,
                #"{"notification":{"body":"b","content_available":true,"sound":{"critical":1}},"#
                    + #""expo":{"richContent":{"image":"https://i"},"ttl":5}}"#,
            ],
            words: [
                "\"aps\":", "\"headers\":", "\"android\":", "\"webpush\":", "\"alert\":",
                "\"expo\":", "\"androidV2\":", "\"fcmOptions\":", "\"channelId\":",
                "\"channel_id\":", "\"badge\":",
            ])
        let renderers = try Renderers()
        FuzzRun.feed("content") { random in
            let parser = JSONParser()
            let bytes = mutator.next(&random)
            guard let root = try? bytes.withUnsafeBytes({ try parser.parse($0) }) else {
                return nil
            }
            let content = PushContent(
                messageID: UUIDBytes(high: 1, low: 1), eventType: "t",
                eventIdentity: UUIDBytes(high: 2, low: 2), now: UnixMillis(1_735_689_600_000))
            guard
                (try? content.take(
                    notification: root["notification"], data: root["data"], apns: root["apns"],
                    fcm: root["fcm"], webpush: root["webpush"], expo: root["expo"])) != nil
            else { return nil }
            content.kind = PushKind.allCases.randomElement(using: &random) ?? content.kind
            content.storesNothing = Bool.random(using: &random)
            let gateway = Gateway.allCases.randomElement(using: &random) ?? .apns
            return renderers.problem(with: content, at: gateway, &random)
        }
    }
}

/// One renderer for each gateway, and what is wrong with what it makes.
private struct Renderers {
    private let apns = APNsRenderer(APNsSettings(topic: "com.example.app"))
    private let fcm = FCMRenderer(FCMSettings(projectID: "demo"))
    private let web: WebPushRenderer
    private let expo: ExpoRenderer
    private let subscription: WebPushSubscription
    private let request = OutboundRequest()

    private let hexToken = Array(String(repeating: "ab", count: 32).utf8)
    private let expoToken = Array("ExponentPushToken[abc]".utf8)
    private static let platforms = [nil, "ios", "ipados", "android", "web", "other"]

    init() throws {
        web = try WebPushRenderer(WebPushSettings())
        expo = ExpoRenderer(try #require(ExpoCredential(accessToken: nil)))
        let browser = try #require(
            SubscriberKeys(
                scalar: [UInt8](repeating: 7, count: 32), auth: [UInt8](repeating: 1, count: 16)))
        subscription = WebPushSubscription(
            endpoint: try WebPushEndpoint(Array("https://push.example.net/send/abc".utf8)),
            keys: try SubscriptionKeys(p256dh: browser.p256dh, auth: browser.auth))
    }

    func problem(
        with content: PushContent, at gateway: Gateway, _ random: inout SeededRandom
    ) -> String? {
        let kind = AddressKind.allCases.randomElement(using: &random) ?? .alert
        let platform = Self.platforms.randomElement(using: &random) ?? nil
        let isBroadcast = Int.random(in: 0..<3, using: &random) == 0
        let start = MonotonicTime(nanos: 0)
        func target(_ token: UnsafeRawBufferPointer) -> PushTarget {
            PushTarget(
                gateway: gateway, environment: .production, token: token, platform: platform,
                registeredAt: UnixMillis(0), kind: kind,
                broadcast: gateway == .apns && isBroadcast ? .apnsChannel : nil)
        }
        request.reset()
        let rendering: Rendering
        switch gateway {
        case .apns:
            let token = ProviderToken(
                header: Array("bearer x".utf8), generation: 1, mintedAt: start)
            rendering = hexToken.withUnsafeBytes {
                apns.render(content, to: target($0), authorization: token, into: request)
            }
        case .fcm:
            let token = AccessToken(
                header: Array("Bearer x".utf8), generation: 1, fetchedAt: start)
            rendering = hexToken.withUnsafeBytes {
                fcm.render(content, to: target($0), authorization: token, into: request)
            }
        case .webpush:
            let token = VAPIDToken(
                header: Array("vapid t=a.b.c, k=d".utf8), generation: 1, mintedAt: start)
            rendering = web.render(
                content, to: subscription, authorization: token, into: request)
            if case .request = rendering {
                if request.body.count > 4096 { return "a web push of \(request.body.count) bytes" }
                web.showPayload(content, in: request)
            }
        case .expo:
            rendering = expoToken.withUnsafeBytes {
                expo.render(content, to: target($0), into: request.body)
            }
        }
        guard case .request = rendering else {
            return request.fields.isEmpty && request.body.count == 0 ? nil : "half a request"
        }
        guard isWholeJSON(request.body.array) else {
            return "\(gateway): a body that is no JSON: \(request.body.text.prefix(300))"
        }
        return nil
    }
}
