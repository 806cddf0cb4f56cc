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
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "dead",
                FaultMatch(.fcm, tokenPrefix: World.token(of: "gone", gateway: .fcm)),
                .answer(FaultAnswer(status: 404, reason: "UNREGISTERED")))
        ])
        let world = try World(try Simulator(options))
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
        try world.register("gone", user: "u2", gateway: .fcm)
        try world.start()
        for type in ["shown", "quiet", "hint", "call", "own", "unimportant"] {
            try world.publish(
                #"{"id":"\#(type)","type":"\#(type)","user_id":"u1","cursor":{"log":"l","seq":1}}"#,
                key: "u1")
        }
        try world.publish(#"{"id":"dead","type":"call","user_id":"u2"}"#, key: "u2")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 7)
        #expect(results.count { $0.text("outcome") == "accepted" } == 6)
        #expect(results.count { $0.text("outcome") == "token_invalid" } == 1)
        // The call, and what the app shows itself; not the call to a device that is gone.
        #expect(counted(world) == 2)
        #expect(world.stop())
    }
}
