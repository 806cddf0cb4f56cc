// Nobody is woken by what can wait: held until quiet hours are over, or not sent at all.

import Base
import JSON
import Kafka
import Telemetry
import Testing

@testable import Pipeline

/// Hours that are on now in UTC, or that were over a while ago: `from` and `to` of a record.
private func hours(areOn: Bool, until minutes: Int64 = 120) -> String {
    let now = SystemTime.shared.wall
    let shift: TimeSpan = areOn ? .zero : .hours(-6)
    func text(_ time: UnixMillis) -> String {
        QuietHours.text(Int(time.value / 60_000 % 1_440))
    }
    let from = text(now + shift - .minutes(60))
    return #"{"from":"\#(from)","to":"\#(text(now + shift + .minutes(minutes)))"}"#
}

@Suite(.serialized) struct `Quiet hours in the pipeline` {
    private func event(_ id: String, _ type: String, user: String = "u1", _ more: String = "")
        -> String
    {
        #"{"id":"\#(id)","type":"\#(type)","user_id":"\#(user)"\#(more)}"#
    }

    private func world(_ gateway: ScriptedGateway) throws -> World {
        let world = try World(gateway)
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.routes = try routes(
            """
              held: {title: x, ttl: 1d, preference: offers, quiet_hours: hold}
              short: {title: x, ttl: 1h, quiet_hours: hold}
              dropped: {title: x, ttl: 1d, quiet_hours: suppress}
              urgent: {title: x, ttl: 1d, importance: high, quiet_hours: {high_passes: true}}
              calm: {title: x, ttl: 1d, quiet_hours: {high_passes: true}}
              code: {title: x, ttl: 1d}
              silent: {kind: silent}

            """)
        return world
    }

    @Test func `an event waits, ends or passes, as its route says`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        try world.register("phone", user: "u1")
        try world.register("tablet", user: "u1")
        try world.say(#","time_zone":"UTC","quiet_hours":\#(hours(areOn: true))"#, user: "u1")
        try world.start()
        for type in ["held", "short", "dropped", "urgent", "calm", "code", "silent"] {
            try world.publish(event(type, type), key: "u1")
        }
        try world.publish(event("loud", "calm", #","priority":"high""#), key: "u1")
        // How urgent a push is says nothing of how important it is.
        try world.publish(event("grave", "urgent", #","priority":"normal""#), key: "u1")
        try world.publish(event("test", "held", #","mode":"validate""#), key: "u1")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 14)
        let tenMinutes = "push.events-retry-1h"
        let held = try world.records(of: tenMinutes, atLeast: 2)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "short": "suppressed quiet_hours", "dropped": "suppressed quiet_hours",
                "urgent": "accepted, accepted", "code": "accepted, accepted",
                "silent": "accepted, accepted", "loud": "accepted, accepted",
                "grave": "accepted, accepted",
                "test": "accepted, accepted",
            ])
        // One result for the event as a whole: nothing was fanned out.
        let short = results.filter { $0.text("event_id") == "short" }
        #expect(short.map { $0.text("install_id") } == [nil])
        #expect(held.count == 2)
        for record in held {
            #expect(record.headers["bugle-error-code"] == "hold")
            #expect(record.headers["bugle-targets"] == nil)
            let due = try #require(Int64(record.headers["bugle-not-before"] ?? ""))
            #expect(due % 60_000 == 0, "the end of a minute of the day")
            let wait = UnixMillis(due) - SystemTime.shared.wall
            #expect(wait > .minutes(110) && wait <= .minutes(120))
        }
        let metrics = world.metrics()
        #expect(metrics.contains(#"bugle_holds_total{reason="quiet_hours"} 2"#))
        #expect(metrics.contains(#"bugle_event_reasons_total{reason="quiet_hours"} 2"#))
    }

    @Test func `who is awake, has said nothing, or would get nothing anyway is not held`() throws {
        let world = try world(try ScriptedGateway())
        for user in ["awake", "silent", "declined", "denied"] {
            try world.register("phone-\(user)", user: user)
        }
        try world.register("denied", user: "denied", permission: "denied")
        try world.register("phone-denied", user: "denied", permission: "denied")
        try world.say(#","quiet_hours":\#(hours(areOn: false))"#, user: "awake")
        let asleep = #","quiet_hours":\#(hours(areOn: true))"#
        try world.say(asleep + #","opt_outs":["offers"]"#, user: "declined")
        try world.say(asleep, user: "denied")
        try world.say(asleep, user: "nobody")
        try world.start()
        for user in ["awake", "silent", "declined", "denied", "nobody"] {
            try world.publish(event(user, "held", user: user), key: user)
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 6)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "awake": "accepted", "silent": "accepted", "declined": "suppressed opted_out",
                "denied": "suppressed permission_denied, suppressed permission_denied",
                "nobody": "no_devices",
            ])
    }

    @Test func `the clock is the person's, else that of the device seen last`() throws {
        let world = try world(try ScriptedGateway())
        // Twelve hours away: whoever's clock is taken is awake when it is night in UTC.
        let far = #","time_zone":"Etc/GMT-12""#
        let night = #","quiet_hours":\#(hours(areOn: true))"#
        try world.register("a", user: "person", extra: #","time_zone":"UTC""#)
        try world.say(night + far, user: "person")
        try world.register("b", user: "device", registeredAt: 2_000, extra: far)
        try world.register("b2", user: "device", registeredAt: 1_000, extra: #","time_zone":"UTC""#)
        try world.register("b3", user: "device", registeredAt: 3_000, extra: #","time_zone":"?""#)
        try world.say(night, user: "device")
        try world.register("c", user: "route")
        try world.say(night + #","time_zone":"Mars/Olympus""#, user: "route")
        try world.start()
        for user in ["person", "device", "route"] {
            try world.publish(event(user, "dropped", user: user), key: user)
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 5)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "person": "accepted", "device": "accepted, accepted, accepted",
                "route": "suppressed quiet_hours",
            ])
    }

    /// Held events come back through their retry topic; here one is put there by hand, due now.
    @Test func `what comes back is looked at again`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        world.settings.retryDivisor = 1_000
        for user in ["awake", "asleep", "gone"] { try world.register(user, user: user) }
        let night = #","quiet_hours":\#(hours(areOn: true))"#
        for user in ["asleep", "fixed"] { try world.say(night, user: user) }
        try world.say(night + #","opt_outs":["offers"]"#, user: "gone")
        try world.register("fixed", user: "fixed")
        try world.start()
        for (number, user) in ["awake", "asleep", "gone"].enumerated() {
            try world.sendReentry(event(user, "held", user: user), key: user, number: number)
        }
        // One target of two had been sent to before the night began, the other one had not.
        try world.sendReentry(
            event("fixed", "short", user: "fixed"), key: "fixed", number: 9, pending: "shop/fixed")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        let held = try world.records(of: "push.events-retry-1h", atLeast: 1)
        #expect(world.stop())
        #expect(
            outcomes(results) == [
                "awake": "accepted", "gone": "suppressed opted_out",
                "fixed": "suppressed quiet_hours",
            ])
        let fixed = results.filter { $0.text("event_id") == "fixed" }
        #expect(fixed.map { $0.text("install_id") } == ["fixed"])
        #expect(held.allSatisfy { $0.key == "asleep" })
        #expect(gateway.seen.count == 1)
    }
}

/// Outcome and reason of each event, those of several targets one after another.
func outcomes(_ results: [TopicRecord]) -> [String: String] {
    Dictionary(
        results.map { result in
            (
                result.text("event_id") ?? "",
                (result.text("outcome") ?? "") + (result.text("reason").map { " \($0)" } ?? "")
            )
        }, uniquingKeysWith: { "\($0), \($1)" })
}

extension World {
    /// The metrics as a scrape would show them.
    func metrics() -> String {
        let bytes = ByteWriter()
        registry.writeExposition(to: bytes)
        return bytes.text
    }

    /// Puts an event into a retry topic as if it had waited there, due now; with the id of an
    /// address, as one whose targets were fixed and of which that one is open.
    func sendReentry(_ value: String, key: String, number: Int, pending: String? = nil) throws {
        let now = SystemTime.shared.wall.value
        var headers = [
            ("bugle-original-topic", "push.events"), ("bugle-original-partition", "0"),
            ("bugle-original-offset", "\(1_000 + number)"),
            ("bugle-original-timestamp", "\(now - 60_000)"),
            ("bugle-first-failed-at", "\(now - 60_000)"), ("bugle-not-before", "\(now)"),
        ]
        if let pending {
            let state =
                #"[{"target_index":0,"attempts":1,"not_before":0,"gateway":"apns","#
                + #""environment":"production","platform":"ios","token_hash":"0123abcd"}]"#
            headers += [
                ("bugle-targets", "2"), ("bugle-fanout-at", "\(now - 50_000)"),
                ("bugle-pending", #"["\#(pending)"]"#), ("bugle-pending-state", state),
            ]
        }
        try producer.send(
            to: "push.events-retry-10s", key: Array(key.utf8), value: Array(value.utf8),
            headers: headers.map { TopicProducer.Header($0.0, $0.1) })
    }
}
