// What `bugle validate` says of an event: whether it is one, whether its words fit, and under a
// configuration whether a route makes content of it.

import Base
import Config
import Foundation
import JSON
import Pipeline
import Routes
import Testing

@testable import Bugle

@Suite struct `An event before it is published` {
    private static let now = UnixMillis(1_767_225_600_000)

    private func withFile<Value>(
        _ text: String, _ body: (EventFile) throws -> Value
    ) throws -> Value {
        let path = URL(filePath: NSTemporaryDirectory())
            .appending(path: "bugle-event-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: path) }
        try Data(text.utf8).write(to: path)
        return try body(EventFile(path.path))
    }

    private func judge(_ text: String) throws -> EventJudgement {
        try withFile(text) { try EventJudgement($0, at: Self.now) }
    }

    private func judge(_ text: String, routes: String) throws -> EventJudgement {
        let configuration = try Configuration.parse(
            text: """
                kafka: {brokers: "localhost:9092"}
                apps: {shop: {fcm: {service_account: "${KEY}"}}}
                routes:

                """ + routes, environment: ["KEY": "k"])
        let table = try RouteTable.compile(configuration)
        return try withFile(text) {
            try EventJudgement($0, configuration, table, of: .transactional, at: Self.now)
        }
    }

    private func fault(_ body: @autoclosure () throws -> EventJudgement) -> EventFault? {
        do {
            _ = try body()
            return nil
        } catch {
            return error as? EventFault
        }
    }

    private func event(_ more: String) -> String {
        #"{"type":"order.shipped","user_id":"u1"\#(more)}"#
    }

    @Test(arguments: [
        (#","notification":{"title":5}"#, "notification.title must be a string"),
        (
            #","notification":{"title":"t","badge":"1"}"#,
            "notification.badge must be a whole number"
        ),
        (#","notification":{"loc_args":["a",1]}"#, "notification.body_loc_args must be a list"),
        (#","apns":{"headers":[]}"#, "apns.headers must be an object"),
        (#","apns":{"aps":"x"}"#, "apns.aps must be an object"),
        (#","fcm":{"data":1}"#, "fcm.data must be an object"),
        (#","payload":{"notification":{"title":5}}"#, ""),
    ])
    func `with a word of the wrong type is refused as every gateway would`(
        more: String, reason: String
    ) throws {
        let alone = fault(try judge(event(more)))
        // The payload's words count only where no route does.
        if reason.isEmpty {
            #expect(alone == nil)
            #expect(try judge(event(more)).warnings.first?.hasPrefix("without a route") == true)
            #expect(fault(try judge(event(more), routes: "  a: {title: x}\n")) != nil)
            #expect(fault(try judge(event(more), routes: "  order.*: {title: x}\n")) == nil)
            return
        }
        #expect(alone?.code == "invalid_content")
        #expect(alone?.reason.hasPrefix(reason) == true)
        #expect(fault(try judge(event(more), routes: "  order.*: {title: x}\n")) == alone)
    }

    @Test func `needs a route or content of its own`() throws {
        let routes = "  order.shipped: {title: \"Order {{payload.order}}\", ttl: 1h}\n"
        let misspelt = #"{"type":"order.shiped","user_id":"u1","payload":{"order":"A"}}"#
        #expect(fault(try judge(misspelt)) == nil)
        let fault1 = fault(try judge(misspelt, routes: routes))
        #expect(fault1?.code == "no_route")
        #expect(fault1?.reason.contains("the nearest is order.shipped") == true)
        let fault2 = fault(try judge(event(""), routes: routes))
        #expect(fault2?.code == "content_error")
        #expect(fault2?.reason.contains("payload.order is missing") == true)
        let good = try judge(event(#","payload":{"order":"A"}"#), routes: routes)
        #expect(good.route == "order.shipped" && good.expiresAt == Self.now + .hours(1))
        #expect(
            try judge(event(#","notification":{"title":"t"}"#), routes: "  a: {title: x}\n").route
                == nil)
    }

    @Test func `names an app that there is`() {
        let other = event(#","app":"shpo","notification":{"title":"t"}"#)
        #expect(fault(try judge(other)) == nil)
        #expect(fault(try judge(other, routes: "  a: {title: x}\n"))?.code == "unknown_app")
    }

    @Test(arguments: [
        (
            #","notifcation":{}"#,
            ["notifcation is not known and is ignored; did you mean notification?"]
        ),
        (#","zzzzzz":1"#, ["zzzzzz is not known and is ignored"]),
        (
            #","notification":{"titel":"t","body":"b"}"#,
            ["notification.titel is not known and is ignored; did you mean title?"]
        ),
        (
            #","only":{"platform":["ios"]}"#,
            ["only.platform is not known and is ignored; did you mean platforms?"]
        ),
        (
            #","only":{"platforms":["iOS","ios"]},"except":{"gateways":["fmc"]}"#,
            [
                "only.platforms: no device has iOS; did you mean ios?",
                "except.gateways: no device has fmc; did you mean fcm?",
            ]
        ),
        (#","notification":{"title":"t","link":"x"},"only":{"install_ids":["a"]}"#, []),
    ])
    func `is warned of words that nobody reads`(more: String, warnings: [String]) throws {
        #expect(try judge(event(more)).warnings == warnings)
    }

    @Test func `may be a CloudEvent with extensions of its own`() throws {
        func cloud(_ more: String) throws -> [String] {
            try judge(
                #"{"specversion":"1.0","id":"1","source":"/s","type":"t","userid":"u"\#(more)}"#
            ).warnings
        }
        #expect(try cloud(#","tenant":"x","traceparent":"y","ttl":60,"data":{"a":1}"#) == [])
        #expect(
            try cloud(#","collapskey":"x""#) == [
                "collapskey is not known and is ignored; did you mean collapsekey?"
            ])
        #expect(
            try cloud(#","data":{"notification":{"titel":"x"}}"#) == [
                "data.notification.titel is not known and is ignored; did you mean title?"
            ])
    }

    @Test func `for a channel has its one target judged`() {
        let event = #"{"type":"t","to":{"apns_channel":"dGVzdA=="},"notification":{"title":"t"}}"#
        #expect(fault(try judge(event)) == nil)
        #expect(
            fault(try judge(event, routes: "  a: {title: x}\n"))?.code == "gateway_not_configured")
    }

    @Test func `has fields and platforms as its schema says`() throws {
        let topics = URL(filePath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent().appending(path: "topics")
        func properties(_ topic: String) throws -> [String: Any] {
            let data = try Data(contentsOf: topics.appending(path: "\(topic).schema.json"))
            let schema = try JSONSerialization.jsonObject(with: data) as? [String: Any]
            return try #require(schema?["properties"] as? [String: Any])
        }
        let event = try properties("push.events")
        #expect(Set(event.keys) == Set(EventCheck.fields))
        for name in ["only", "except"] {
            let filter = (event[name] as? [String: Any])?["properties"] as? [String: Any]
            #expect(Set(try #require(filter).keys) == Set(EventCheck.filterFields))
        }
        let platform = try properties("push.devices")["platform"] as? [String: Any]
        #expect(platform?["enum"] as? [String] == EventLint.platforms)
    }
}
