import Base
import Crypto
import Gateways
import JSON
import Testing

/// By what a push with a key replaces another one, at each gateway.
private struct Identities {
    let apns: String
    let fcmTag: String
    /// FCM's way to Apple's devices.
    let fcmApple: String
    /// What an Android app shows itself, and FCM's way to browsers.
    let fcmShownByApp: String
    let fcmWebTag: String
    let fcmWebTopic: String
    let expo: String
    let expoApple: String
    let webTopic: String

    init(_ key: String) throws {
        let event = try Event(#"{"notification":{"title":"T","body":"B"}}"#)
        event.content.collapseKey = key
        apns = try #require(Built(apns: event.content)["apns-collapse-id"])
        let message = JSONParser()
        let fcm = try message.parse(Built(fcm: event.content).body)["message"]
        fcmTag = try #require(fcm?["android"]?["notification"]?["tag"]?.string)
        let apple = Built(fcm: event.content, to: fcmTarget(platform: "ios"))
        let headers = try apple.json {
            $0["message"]?["apns"]?["headers"]?["apns-collapse-id"]?.string
        }
        fcmApple = try #require(headers)
        let web = Built(fcm: event.content, to: fcmTarget(platform: "web"))
        (fcmWebTag, fcmWebTopic) = try web.json {
            (
                $0["message"]?["webpush"]?["notification"]?["tag"]?.string ?? "",
                $0["message"]?["webpush"]?["headers"]?["Topic"]?.string ?? ""
            )
        }
        event.content.isShownByAndroidApp = true
        let block = try Built(fcm: event.content).json { $0["message"]?["data"]?["bugle"]?.string }
        let shown = try message.parse(try #require(block))["notification"]
        fcmShownByApp = try #require(shown?["tag"]?.string)
        event.content.isShownByAndroidApp = false
        let renderer = ExpoRenderer(try #require(ExpoCredential(accessToken: nil)))
        let bytes = ByteWriter()
        func expo(_ platform: String, _ member: StaticString) throws -> String? {
            let target = Address(
                gateway: .expo, token: Array("ExponentPushToken[abc]".utf8), platform: platform)
            _ = target.lend { renderer.render(event.content, to: $0, into: bytes) }
            return try message.parse(bytes.bytes)[member]?.string
        }
        self.expo = try #require(try expo("android", "tag"))
        expoApple = try #require(try expo("ios", "collapseId"))
        // There it would be a collapse key, of which a device keeps four.
        #expect(try expo("android", "collapseId") == nil)
        let request = OutboundRequest()
        let vapid = VAPIDToken(
            header: Array("vapid t=a, k=b".utf8), generation: 1, mintedAt: MonotonicTime(nanos: 0))
        _ = try WebPushRenderer(WebPushSettings(ttlMin: 0)).render(
            event.content, to: Web.subscription(), authorization: vapid, into: request)
        webTopic = try #require(request.text("topic"))
    }

    /// Those that are one text.
    var ids: [String] { [apns, fcmTag, fcmApple, fcmShownByApp, fcmWebTag, expo, expoApple] }
    var all: [String] { ids + [fcmWebTopic, webTopic] }
}

@Suite struct `The collapse identity of a push` {
    private static let stem = String(repeating: "conversation/", count: 6)
    static let keys = [
        "k", "order-7", String(repeating: "k", count: 64), String(repeating: "k", count: 65),
        stem + "1", stem + "2", "chat \u{1F389}", "mit Umlaut ä", "a\r\nb: c", " ",
        String(repeating: "\u{1F389}", count: 256),
    ]

    @Test(arguments: keys) func `is one on all gateways, within the limits of each`(key: String)
        throws
    {
        let identities = try Identities(key)
        for id in identities.ids {
            #expect(id == identities.apns)
            #expect((1...64).contains(id.utf8.count))
            #expect(id.utf8.allSatisfy { (0x21...0x7E).contains($0) })
        }
        #expect(identities.fcmWebTopic == identities.webTopic)
        #expect((1...32).contains(identities.webTopic.utf8.count))
        #expect(
            identities.webTopic.utf8.allSatisfy { byte in
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8.contains(
                    byte)
            })
        #expect(try Identities(key).all == identities.all, "the same at every time")
    }

    @Test func `differs where keys do`() throws {
        let identities = try Self.keys.map { try Identities($0) }
        #expect(Set(identities.map(\.apns)).count == Self.keys.count)
        #expect(Set(identities.map(\.webTopic)).count == Self.keys.count)
        // It is no matter of the process: a digest is the same everywhere.
        let long = Self.stem + "1"
        #expect(identities[4].apns == SHA256Digest(of: long).hex)
    }
}
