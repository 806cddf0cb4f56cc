// Everything that parses a record of somebody else's: events, device addresses, invalidations.

import Base
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
            ], words: ["\"aps\":", "\"headers\":", "\"android\":", "\"webpush\":", "\"alert\":"])
        let apns = APNsRenderer(APNsSettings(topic: "com.example.app"))
        let fcm = FCMRenderer(FCMSettings(projectID: "demo"))
        let token = Array(String(repeating: "ab", count: 32).utf8)
        let provider = ProviderToken(
            header: Array("bearer x".utf8), generation: 1, mintedAt: MonotonicTime(nanos: 0))
        let access = AccessToken(
            header: Array("Bearer x".utf8), generation: 1, fetchedAt: MonotonicTime(nanos: 0))
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
                    fcm: root["fcm"])) != nil
            else { return nil }
            let kind = AddressKind.allCases.randomElement(using: &random) ?? .alert
            let broadcasts: [BroadcastTarget.Kind?] = [nil, nil, .apnsChannel]
            let broadcast = broadcasts.randomElement(using: &random) ?? nil
            let isApple = Bool.random(using: &random)
            let request = OutboundRequest()
            let rendering = token.withUnsafeBytes { token in
                let target = PushTarget(
                    gateway: isApple ? .apns : .fcm, environment: .production, token: token,
                    registeredAt: UnixMillis(0), kind: kind, broadcast: isApple ? broadcast : nil)
                return isApple
                    ? apns.render(content, to: target, authorization: provider, into: request)
                    : fcm.render(content, to: target, authorization: access, into: request)
            }
            guard case .request = rendering else {
                return request.fields.isEmpty && request.body.count == 0 ? nil : "half a request"
            }
            return isWholeJSON(request.body.array)
                ? nil : "a body that is no JSON: \(request.body.text.prefix(300))"
        }
    }
}
