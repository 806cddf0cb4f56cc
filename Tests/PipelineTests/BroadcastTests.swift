import Base
import Crypto
import JSON
import Kafka
import Simulator
import Testing
import TokenIndex

@testable import Pipeline

/// Events for a topic, a condition or a channel instead of a user.
@Suite(.serialized) struct `Broadcasts, end to end` {
    private static let activity =
        #""apns":{"aps":{"event":"update","content-state":{"score":3}}}"#

    private func event(_ id: String, _ to: String, _ content: String, _ extra: String = "")
        -> String
    {
        #"{"id":"\#(id)","type":"news","to":\#(to),\#(content)\#(extra)}"#
    }

    @Test func `topics, conditions and channels are one target each, without a look-up`() throws {
        var options = SimulatorOptions()
        options.journal = .full(bodies: true)
        options.unknownTokens = .unregistered
        let simulator = try Simulator(options)
        let channel = try #require(
            simulator.facts.addChannel(
                bundleID: "com.example.shop", environment: .production, storagePolicy: 0))
        let world = try World(simulator)
        // The index would keep every look-up waiting.
        world.index.mark(complete: false)
        try world.start()
        let note = #""notification":{"title":"t"}"#
        let condition = "'a' in topics && ('b' in topics || !('c' in topics))"
        try world.publish(event("topic", #"{"fcm_topic":"news"}"#, note), key: nil)
        try world.publish(
            event("condition", #"{"fcm_condition":"\#(condition)"}"#, note), key: nil)
        try world.publish(
            event("channel", #"{"apns_channel":"\#(channel)"}"#, Self.activity), key: nil)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(results.count == 3)
        for result in results {
            #expect(result.text("outcome") == "accepted", "\(result.value ?? "")")
            #expect(result.key == nil)
            #expect(result.text("user_id") == nil && result.text("install_id") == nil)
            #expect(result.text("targets") == "1" && result.text("target_index") == "0")
            #expect(result.text("status") == "200" && result.text("attempts") == "1")
            #expect(result.text("token_hash") == nil && result.text("platform") == nil)
        }
        func result(_ id: String) throws -> TopicRecord {
            try #require(results.first { $0.text("event_id") == id })
        }
        #expect(try result("topic").text("address_kind") == "fcm_topic")
        #expect(try result("topic").text("gateway") == "fcm")
        #expect(try result("topic").text("to") == #"{"fcm_topic":"news"}"#)
        #expect(try result("channel").text("address_kind") == "apns_channel")
        #expect(try result("channel").text("environment") == "production")
        #expect(try result("channel").text("gateway_id") == result("channel").text("message_id"))
        let bodies = simulator.journal.entries.filter { $0.service == .fcm }.map {
            String(decoding: $0.body, as: UTF8.self)
        }
        #expect(bodies.contains { $0.contains(#""topic":"news""#) && !$0.contains(#""token""#) })
        #expect(bodies.contains { $0.contains(#""condition":"\#(condition)""#) })
        #expect(simulator.journal.counters.violations.isEmpty)
        #expect(simulator.journal.counters.advisories.isEmpty)
        #expect(try world.records(of: "push.invalidations", atLeast: 0, within: .zero).isEmpty)
        #expect(world.stop())
    }

    @Test func `the ids of a broadcast are those of its event, app and name`() throws {
        let simulator = try Simulator(SimulatorOptions())
        let world = try World(simulator)
        world.settings.deduplicate = .zero
        try world.start()
        for _ in 0..<2 {
            try world.publish(
                event("same", #"{"fcm_topic":"news"}"#, #""notification":{"title":"t"}"#), key: "k")
        }
        try world.publish(
            event("same", #"{"fcm_topic":"other"}"#, #""notification":{"title":"t"}"#), key: "k")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(Set(results.map { $0.text("result_id") }).count == 3)
        #expect(Set(results.map { $0.text("message_id") }).count == 2)
        let identity = UUIDv5.make(namespace: Lane.namespace, name: "shop\0\0same")
        let named = Array("\(identity.text)shop/-/fcm_topic/none/news".utf8).withUnsafeBytes {
            UUIDv5.make(namespace: Lane.namespace, name: $0)
        }
        #expect(results.contains { $0.text("message_id") == named.text })
    }

    @Test func `a broadcast that has to wait comes back by itself`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "overloaded", FaultMatch(.fcm, count: 1),
                .answer(FaultAnswer(status: 503, reason: "UNAVAILABLE")))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator)
        world.settings.retry.longestWait = .milliseconds(50)
        try world.start()
        try world.publish(
            event("e", #"{"fcm_topic":"news"}"#, #""notification":{"title":"t"}"#), key: nil)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["accepted"])
        #expect(results.map { $0.text("attempts") } == ["2"])
        #expect(results.map { $0.text("install_id") } == [nil])
        let retry = try #require(
            try world.records(of: "push.events-retry-10s", atLeast: 1).first)
        #expect(retry.headers["bugle-pending"] == #"["shop/-/fcm_topic/none/news"]"#)
        #expect(retry.headers["bugle-targets"] == "1")
    }

    @Test func `a broadcast in front of a closed gateway is parked and comes back`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "down", FaultMatch(.fcm, count: 12),
                .answer(FaultAnswer(status: 500, reason: "INTERNAL")))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        world.settings.retry.longestWait = .milliseconds(1)
        try world.start()
        for number in 0..<40 {
            try world.publish(
                event(
                    "e\(number)", #"{"fcm_topic":"news"}"#, #""notification":{"title":"t"}"#),
                key: nil)
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 40, within: .seconds(60))
        #expect(results.count == 40)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(Set(results.map { $0.text("result_id") }).count == 40)
    }

    @Test func `a broadcast whose time is over expires with its own result`() throws {
        let world = try World(try Simulator(SimulatorOptions()))
        try world.start()
        try world.publish(
            event(
                "late", #"{"fcm_topic":"news"}"#, #""notification":{"title":"t"}"#,
                #","expires_at":1735689600000"#), key: nil)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["expired"])
        #expect(results.map { $0.text("user_id") } == [nil])
    }

    @Test func `a refusal of a broadcast ends no token`() throws {
        var options = SimulatorOptions()
        options.unknownTokens = .unregistered
        options.faults = FaultPlan(rules: [
            FaultRule(
                "nobody", FaultMatch(.fcm),
                .answer(FaultAnswer(status: 404, reason: "UNREGISTERED")))
        ])
        let world = try World(try Simulator(options))
        try world.start()
        try world.publish(
            event("topic", #"{"fcm_topic":"news"}"#, #""notification":{"title":"t"}"#), key: nil)
        try world.publish(
            event("channel", #"{"apns_channel":"dGVzdA=="}"#, Self.activity), key: nil)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(results.allSatisfy { $0.text("outcome") == "rejected" })
        #expect(
            Set(results.map { $0.text("reason") }) == ["UNREGISTERED", "ChannelNotRegistered"])
        #expect(try world.records(of: "push.invalidations", atLeast: 0, within: .zero).isEmpty)
    }
}
