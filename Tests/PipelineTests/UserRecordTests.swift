// What a person said once for all devices counts for each of them.

import Base
import Testing

@testable import Pipeline

@Suite(.serialized) struct `What a person said` {
    private func event(_ id: String, _ type: String, _ more: String = "") -> String {
        #"{"id":"\#(id)","type":"\#(type)","user_id":"u1"\#(more)}"#
    }

    @Test func `an opt-out is the person's: no device gets what was declined`() throws {
        let world = try World(try ScriptedGateway())
        world.settings.routes = try routes(
            """
              alert: {title: x, preference: offers}
              silent: {kind: silent, preference: offers}
              other: {title: x}

            """)
        try world.register("own", user: "u1", extra: #","opt_outs":["news"]"#)
        try world.register("plain", user: "u1")
        try world.register("stranger", user: "u2")
        try world.say(#","opt_outs":["offers"]"#, user: "u1")
        try world.start()
        for type in ["alert", "silent", "other"] {
            try world.publish(event(type, type), key: "u1")
        }
        try world.publish(
            #"{"id":"alert2","type":"alert","user_id":"u2"}"#, key: "u2")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 7)
        #expect(world.stop())
        func reasons(_ event: String) -> [String?] {
            results.filter { $0.text("event_id") == event }.map { $0.text("reason") }
        }
        #expect(reasons("alert") == ["opted_out", "opted_out"])
        #expect(reasons("silent") == ["opted_out", "opted_out"])
        #expect(reasons("other") == [nil, nil] && reasons("alert2") == [nil])
    }

    @Test func `locale, time zone and unread stand in for what nobody else said`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(
            """
              at:
                title: "Hello {{payload.at:time(short)}}"
                translations: {de: {title: "Hallo {{payload.at:time(short)}}"}}
              bare: {title: x, badge: none}

            """)
        try world.register("own", user: "u1", extra: #","locale":"en","time_zone":"Asia/Tokyo""#)
        try world.register("none", user: "u1")
        // What is no locale and no time zone says nothing.
        try world.register("odd", user: "u1", extra: #","locale":"?","time_zone":"Mars/Olympus""#)
        try world.say(
            #","locale":"de-AT","time_zone":"Europe/Vienna","unread":7"#, user: "u1")
        try world.start()
        let at = #","payload":{"at":"2026-01-31T20:00:00Z"}"#
        try world.publish(event("e1", "at", at), key: "u1")
        try world.publish(event("e2", "at", at + #","unread":2"#), key: "u1")
        try world.publish(event("e3", "bare"), key: "u1")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 9)
        #expect(world.stop())
        let bodies = gateway.seen.map(\.body)
        #expect(bodies.count == 9)
        let own = bodies.filter { $0.contains("Hello 5:00") }
        let other = bodies.filter { $0.contains("Hallo 21:00") }
        #expect(own.count == 2 && other.count == 4, "\(bodies)")
        for (bodies, devices) in [(own, 1), (other, 2)] {
            #expect(bodies.count { $0.contains(#""badge":7"#) } == devices)
            #expect(bodies.count { $0.contains(#""badge":2"#) } == devices)
        }
        #expect(bodies.count { !$0.contains("badge") } == 3)
    }
}
