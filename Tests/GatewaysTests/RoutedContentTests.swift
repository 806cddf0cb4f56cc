import Base
import Foundation
import Gateways
import JSON
import Testing

@Suite struct `What routes add to a push` {
    private let parser = JSONParser()

    private func shown(_ importance: Importance) throws -> Event {
        let event = try Event(#"{"notification":{"title":"x"}}"#)
        event.content.kind = .alert
        event.content.importance = importance
        event.content.priority = importance.priority
        return event
    }

    /// The rows of the table of importance in the documentation.
    private static let published: [[String]] = {
        let path = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "topics/README.md")
        let text = (try? String(contentsOf: path, encoding: .utf8)) ?? ""
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
            .drop { !$0.hasPrefix("| importance |") }.prefix { $0.hasPrefix("|") }
        return lines.dropFirst(2).map { line in
            line.split(separator: "|").map { $0.filter { $0 != "`" }.trimmed }
        }
    }()

    private func expoMessage(
        _ content: PushContent, platform: String? = nil
    ) throws -> JSONValue {
        let message = ByteWriter()
        let token = Address(
            gateway: .expo, token: Array("ExponentPushToken[a]".utf8), platform: platform)
        let renderer = ExpoRenderer(try #require(ExpoCredential(accessToken: nil)))
        _ = token.lend { renderer.render(content, to: $0, into: message) }
        return try parser.parse(message.bytes)
    }

    @Test func `the table of importance is the one that is sent`() throws {
        #expect(Self.published.map { $0[0] } == Importance.allCases.map(\.rawValue))
        for (row, importance) in zip(Self.published, Importance.allCases) {
            let event = try shown(importance)
            let apple = Built(apns: event.content)
            let android = Built(fcm: event.content)
            let browser = Built(fcm: event.content, to: fcmTarget(platform: "web"))
            let level = try apple.json { $0["aps"]?["interruption-level"]?.string } ?? "active"
            let message = try android.json { root in
                [
                    root["message"]?["android"]?["priority"]?.string,
                    root["message"]?["android"]?["notification"]?["notification_priority"]?.string,
                ]
            }
            let urgency = try browser.json {
                $0["message"]?["webpush"]?["headers"]?["Urgency"]?.string
            }
            let expo = try expoMessage(event.content)
            #expect(expo["interruptionLevel"]?.string ?? "active" == level)
            #expect(
                Array(row[1...7]) == [
                    importance.priority.rawValue, level, apple["apns-priority"], message[0],
                    message[1], urgency, expo["priority"]?.string,
                ], "\(importance)")
        }
    }

    @Test func `an event's own interruption level wins`() throws {
        let event = try Event(
            #"{"notification":{"title":"x","interruption_level":"passive"}}"#)
        event.content.importance = .critical
        let level = try Built(apns: event.content).json { $0["aps"]?["interruption-level"]?.string }
        #expect(level == "passive")
    }

    @Test func `link, actions and pointer ride in the block`() throws {
        let words =
            #""link":"https://x/","pointer":"o/7","actions":[{"id":"a","title":"A","link":"b:c"}]"#
        let event = try Event(#"{"notification":{"title":"x",\#(words)}}"#)
        let apple = Built(apns: event.content).body
        #expect(
            apple.contains(#""bugle":{"#)
                && apple.contains(
                    ","
                        + words.replacing(
                            #""pointer":"o/7","actions""#, with: #""pointer":"o/7","actions""#)
                        + "}")
        )
        let data = try Built(fcm: event.content).json {
            $0["message"]?["data"]?["bugle"]?.string ?? ""
        }
        #expect(data.hasSuffix("," + words + "}"))
        let web = Built(fcm: event.content, to: fcmTarget(platform: "web")).body
        #expect(web.contains(#""fcm_options":{"link":"https://x/"}"#))
        #expect(throws: ContentError.self) {
            try Event(#"{"notification":{"title":"x","actions":[{"id":"a"}]}}"#)
        }
    }

    @Test func `what the app shows on Android is a data message of high priority`() throws {
        let event = try Event(
            #"{"notification":{"title":"x","body":"y","channel_id":"c"},"data":{"k":1}}"#)
        event.content.kind = .alert
        event.content.isShownByAndroidApp = true
        let android = Built(fcm: event.content)
        #expect(android.rendering == .request(.wakesUnseen))
        #expect(try android.json { $0["message"]?["notification"] == nil })
        #expect(try android.json { $0["message"]?["android"]?["notification"] == nil })
        #expect(try android.json { $0["message"]?["android"]?["priority"]?.string } == "HIGH")
        let block = try android.json { $0["message"]?["data"]?["bugle"]?.string ?? "" }
        #expect(
            block.hasSuffix(
                #","notification":{"tag":"\#(Event.identity.text)","title":"x","body":"y","#
                    + #""channel_id":"c"}}"#))
        // Everybody else is shown it by the system.
        let apple = Built(fcm: event.content, to: fcmTarget(platform: "ios"))
        #expect(apple.rendering == .request([]))
        #expect(try apple.json { $0["message"]?["notification"] != nil })
    }

    @Test func `the payload of what the app shows is counted as it is sent`() throws {
        for override in ["", #","fcm":{"android":{"direct_boot_ok":true}}"#] {
            let body = String(repeating: "b", count: 3_800)
            var event = try Event(#"{"notification":{"title":"x","body":"\#(body)"}\#(override)}"#)
            #expect(Built(fcm: event.content).rendering == .request([]))
            event.content.isShownByAndroidApp = true
            #expect(Built(fcm: event.content).rendering == .request(.wakesUnseen))
            let longer = String(repeating: "b", count: 4_000)
            event = try Event(#"{"notification":{"title":"x","body":"\#(longer)"}\#(override)}"#)
            event.content.isShownByAndroidApp = true
            #expect(Built(fcm: event.content).isRejected(for: .localPayloadTooLarge))
        }
    }

    @Test func `a call wakes, shows nothing and is not stored`() throws {
        let event = try Event(#"{"data":{"caller":"Ada"}}"#)
        event.content.kind = .call
        event.content.storesNothing = true
        event.content.priority = .high
        let android = Built(fcm: event.content)
        #expect(android.rendering == .request(.wakesUnseen))
        #expect(android.body.contains(#""android":{"priority":"HIGH","ttl":"0s"}"#))
        let apple = Built(apns: event.content, to: apnsTarget(kind: .voip))
        #expect(apple["apns-push-type"] == "voip" && apple["apns-expiration"] == "0")
        #expect(apple["apns-priority"] == "10" && apple["apns-collapse-id"] == nil)
        #expect(apple["apns-topic"] == "com.example.app.voip")
    }

    @Test(arguments: ["ios", nil])
    func `a call through FCM asks of APNs what it allows a push that shows nothing`(
        platform: String?
    ) throws {
        let event = try Event(#"{"data":{"caller":"Ada"}}"#)
        event.content.kind = .call
        event.content.storesNothing = true
        event.content.priority = .high
        func priority(_ target: Address) throws -> String? {
            try Built(fcm: event.content, to: target).json {
                $0["message"]?["apns"]?["headers"]?["apns-priority"]?.string
            }
        }
        #expect(try priority(fcmTarget(platform: platform)) == "5")
        let message = try expoMessage(event.content, platform: platform)
        // Behind an unknown platform there may be an Android device, which has to be woken.
        #expect(message["priority"]?.string == (platform == nil ? "high" : "normal"))
        #expect(message["contentAvailable"]?.bool == true)
        // One with a text is an alert, and rings.
        let shown = try Event(#"{"notification":{"title":"Ada calls"}}"#)
        shown.content.kind = .call
        let alert = try Built(fcm: shown.content, to: fcmTarget(platform: platform)).json {
            $0["message"]?["apns"]?["headers"]?["apns-priority"]?.string
        }
        #expect(alert == "10")
        #expect(try expoMessage(shown.content, platform: platform)["priority"]?.string == "high")
    }

    @Test func `FCM's collapse key is the route's`() throws {
        let event = try Event(#"{"data":{"k":"1"}}"#)
        event.content.kind = .silent
        event.content.fcmCollapseKey = "sync"
        #expect(
            Built(fcm: event.content).body.contains(
                #""android":{"collapse_key":"sync","priority":"NORMAL","#))
    }
}

extension StringProtocol {
    fileprivate var trimmed: String { trimmingCharacters(in: .whitespaces) }
}
