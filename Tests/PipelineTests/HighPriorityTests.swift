import Base
import Simulator
import Telemetry
import Testing

@testable import Pipeline

@Suite(.serialized) struct `High priority at FCM` {
    private func counted(_ world: World) -> Int {
        let text = ByteWriter()
        world.registry.writeExposition(to: text)
        let lines = text.text.split(separator: "\n")
            .filter { $0.hasPrefix("bugle_fcm_high_without_display_total{") }
        return lines.compactMap { $0.split(separator: " ").last.flatMap { Int($0) } }.reduce(0, +)
    }

    @Test func `is counted where nothing is shown, and only there`() throws {
        let world = try World(try Simulator())
        world.settings.routes = try routes(
            """
              shown: {title: x, importance: high}
              quiet: {kind: silent, data: {a: 1}}
              hint: {kind: hint}
              call: {kind: call, data: {a: 1}}
              own: {title: x, android_display: app}
              unimportant: {title: x, android_display: app, importance: passive}

            """)
        try world.register("pixel", user: "u1", gateway: .fcm)
        try world.start()
        for type in ["shown", "quiet", "hint", "call", "own", "unimportant"] {
            try world.publish(
                #"{"id":"\#(type)","type":"\#(type)","user_id":"u1","cursor":{"log":"l","seq":1}}"#,
                key: "u1")
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 6)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        // The call, and what the app shows itself.
        #expect(counted(world) == 2)
        #expect(world.stop())
    }
}
