// Metrics of what waits, of what operators hold back and of credentials, against runs that make them.

import Base
import Gateways
import Simulator
import Telemetry
import Testing

@testable import Pipeline

@Suite(.serialized) struct `The metrics of what waits` {
    @Test func `tell what is in which retry topic, and of no other`() throws {
        var options = SimulatorOptions()
        // A minute: the waits of this world are a hundredth, the gateway's is not.
        options.faults = FaultPlan(rules: [
            FaultRule(
                "busy", FaultMatch(.fcm),
                .answer(FaultAnswer(status: 429, reason: "QUOTA_EXCEEDED")))
        ])
        let world = try World(try Simulator(options), lanes: 2)
        for user in 0..<3 {
            try world.register("phone-\(user)", user: "u\(user)", gateway: .fcm)
        }
        try world.start()
        for user in 0..<3 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        let read = { world.metric("bugle_retry_backlog_records", ["tier": "1h"]) }
        #expect(world.eventually { read() == 3 })
        for tier in ["10s", "1m", "10m"] {
            #expect(world.metric("bugle_retry_backlog_records", ["tier": tier]) == 0)
        }
        #expect(
            world.metric("bugle_targets_postponed_total", ["app": "shop", "gateway": "fcm"]) >= 3)
        #expect(world.metric("bugle_parked_backlog_records") == 0)
        #expect(world.stop())
    }

    @Test func `tell what an operator holds back, and that it went on`() throws {
        let world = try World(try ScriptedGateway(), lanes: 2)
        try world.register("phone", user: "ada")
        let lever = try #require(Lever(.type, "chat.*"))
        world.settings.levers = Levers(paused: [lever], skips: [], loosenedAt: UnixMillis(0))
        try world.start()
        for number in 0..<5 {
            try world.publish(
                #"{"id":"e\#(number)","type":"chat.m","user_id":"ada","notification":{"title":"t"}}"#,
                key: "ada")
        }
        try world.publish(id: "free", user: "ada")
        try world.flush()
        #expect(world.eventually { world.metric("bugle_held_backlog_records") == 5 })
        #expect(world.metric("bugle_held_back_total", ["lever": "type"]) == 5)
        #expect(world.metric("bugle_held_back_total", ["lever": "gateway"]) == 0)
        #expect(
            world.eventually { world.metric("bugle_outcomes_total", ["outcome": "accepted"]) == 1 })
        world.replace(.none)
        #expect(
            world.eventually { world.metric("bugle_outcomes_total", ["outcome": "accepted"]) == 6 })
        #expect(world.eventually { world.metric("bugle_held_backlog_records") == 0 })
        #expect(world.stop())
    }

    @Test func `tell windows and what waits in them`() throws {
        let world = try World(try ScriptedGateway(), lanes: 1)
        world.settings.routes = try routes(
            """
              chat: {title: x, collapse: "c", ttl: 1h, coalesce: {window: 20s, first: hold}}

            """)
        try world.register("phone", user: "ada")
        try world.start()
        for number in 0..<7 {
            try world.publish(#"{"id":"e\#(number)","type":"chat","user_id":"ada"}"#, key: "ada")
        }
        try world.flush()
        #expect(world.eventually { world.metric("bugle_coalescing_events") == 7 })
        #expect(world.metric("bugle_coalescing_windows") == 1)
        #expect(world.metric("bugle_coalescing_bytes") > 7 * 50)
        // Windows are dropped, not flushed: the next owner gathers them again.
        #expect(world.stop())
    }

    @Test func `tell whether a credential is refused, and how old its token is`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "refused", FaultMatch(.oauth),
                .answer(FaultAnswer(status: 400, body: #"{"error":"invalid_grant"}"#)))
        ])
        let world = try World(try Simulator(options), lanes: 1)
        try world.register("phone", user: "ada")
        try world.register("pixel", user: "ada", gateway: .fcm)
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 2)
        let fcm = ["app": "shop", "gateway": "fcm"]
        #expect(world.metric("bugle_credential_refused", fcm) == 1)
        #expect(world.metric("bugle_credential_token_age_seconds", fcm) == 0)
        let age = world.metric(
            "bugle_credential_token_age_seconds", ["app": "shop", "gateway": "apns"])
        #expect(age > 0 && age < 600)
        #expect(
            world.metric(
                "bugle_outcomes_total", fcm.merging(["outcome": "credential_error"]) { $1 }) == 1)
        #expect(world.stop())
    }
}
