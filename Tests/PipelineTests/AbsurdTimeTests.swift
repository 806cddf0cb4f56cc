// Times that nobody can have meant, but which are well formed: one of them must not end a process,
// and then the next owner of its partition.

import Base
import Kafka
import Testing

@testable import Pipeline

@Suite(.serialized) struct `Times far away` {
    @Test func `are times like others`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            """
              chat: {title: "{{id}}", collapse: chat, coalesce: {window: 1s}}
              plain: {title: "{{id}}", collapse: plain}

            """)
        try world.register("phone", user: "ada")
        try world.start()
        let (far, past) = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z")
        let events = [
            ("test", #""expires_at":"\#(far)""#), ("test", #""time":"\#(far)""#),
            ("test", #""not_before":"\#(far)""#), ("test", #""time":"\#(past)""#),
            ("test", #""time":"\#(far)","not_before":"\#(far)","expires_at":"\#(far)""#),
            ("test", #""time":99999999999999,"ttl":315360000"#),
            ("chat", #""expires_at":"\#(far)""#), ("chat", #""not_before":"\#(far)""#),
            ("plain", #""expires_at":"\#(far)""#), ("plain", #""time":"\#(past)""#),
        ]
        for (number, event) in events.enumerated() {
            let content = event.0 == "test" ? #","notification":{"title":"t"}"# : ""
            try world.publish(
                #"{"id":"e\#(number)","type":"\#(event.0)","user_id":"ada",\#(event.1)\#(content)}"#,
                key: "ada")
        }
        for (number, header) in ["9223372036854775807", "253402300799000"].enumerated() {
            try world.publish(
                #"{"id":"r\#(number)","type":"plain","user_id":"ada"}"#, key: "ada",
                to: "push.events-retry-10s",
                headers: [
                    .init("bugle-original-topic", "push.events"),
                    .init("bugle-original-partition", "0"),
                    .init("bugle-original-offset", "\(number)"),
                    .init("bugle-original-timestamp", header),
                    .init("bugle-first-failed-at", header), .init("bugle-not-before", header),
                ])
        }
        try world.publish(id: "last", user: "ada")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: events.count - 1)
        #expect(world.stop())
        let told = outcomes(results)
        #expect(told["last"] == "accepted" && told["e0"] == "accepted")
        // One whose moment is that of the last day of all waits for it.
        for number in events.indices where number != 4 {
            #expect(told["e\(number)"] != nil, "e\(number): \(told)")
        }
    }
}
