// The order of events that wait as a whole, before anybody knows for which devices they are: over
// night, behind an operator's pause, for their publisher's moment.

import Base
import JSON
import Kafka
import Testing

@testable import Pipeline

@Suite(.serialized) struct `What is held as a whole` {
    private static let table = """
          score: {title: "{{id}}", collapse: match, ttl: 1d, quiet_hours: {high_passes: true}}
          extra: {title: "{{id}}", collapse: match, ttl: 1d}

        """

    private func world(_ gateway: ScriptedGateway) throws -> World {
        let world = try World(gateway)
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.routes = try routes(Self.table)
        try world.register("phone", user: "ada")
        return world
    }

    private func publish(_ id: String, _ type: String, to world: World, _ more: String = "") throws
    {
        try world.publish(
            #"{"id":"\#(id)","type":"\#(type)","user_id":"ada"\#(more)}"#, key: "ada")
        try world.flush()
    }

    /// Waits until the partition is read: from then on what is published is read at once.
    private func awaitReading(_ world: World) throws {
        try world.publish(#"{"id":"first","type":"extra","user_id":"nobody"}"#, key: "ada")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
    }

    /// Sends records of a waiting topic again, due now.
    private func letGo(_ records: [TopicRecord], in world: World) throws {
        for record in records {
            var headers = record.headers
            headers["bugle-not-before"] = "\(SystemTime.shared.wall.value)"
            try world.producer.send(
                to: "push.events-retry-10s", key: record.key.map { Array($0.utf8) },
                value: record.value.map { Array($0.utf8) },
                headers: headers.map { TopicProducer.Header($0.key, $0.value) })
        }
        try world.flush()
    }

    private func shown(_ gateway: ScriptedGateway) -> [String] {
        gateway.seen.map { seen in
            let root = try? JSONParser().parse(seen.body)
            return root?["aps"]?["alert"]?["title"]?.string ?? "?"
        }
    }

    private func carriers(_ results: [TopicRecord]) -> [String: String] {
        var carriers: [String: String] = [:]
        for result in results {
            let parser = JSONParser()
            guard let value = result.value, let root = try? parser.parse(value),
                let into = root["folded_into"]?["event_id"]?.string,
                let id = root["event_id"]?.string
            else { continue }
            carriers[id] = into
        }
        return carriers
    }

    private static func night(isOn: Bool) -> String {
        let now = SystemTime.shared.wall
        func text(_ hours: Int64) -> String {
            QuietHours.text(Int((now + .hours(hours)).value / 60_000 % 1_440))
        }
        return isOn
            ? #","time_zone":"UTC","quiet_hours":{"from":"\#(text(-1))","to":"\#(text(2))"}"#
            : #","time_zone":"UTC","quiet_hours":{"from":"\#(text(5))","to":"\#(text(6))"}"#
    }

    @Test func `over night, is folded into what passed meanwhile`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        try world.say(Self.night(isOn: true), user: "ada")
        try world.start()
        try publish("e1", "score", to: world)
        let held = try world.records(of: "push.events-retry-1h", atLeast: 1)
        try publish("e2", "score", to: world, #","priority":"high""#)
        _ = try world.records(of: "push.results", atLeast: 1)
        #expect(shown(gateway) == ["e2"])
        try world.say(Self.night(isOn: false), user: "ada")
        try letGo(Array(held.prefix(1)), in: world)
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(world.stop())
        #expect(shown(gateway) == ["e2"], "the older one does not take its place")
        #expect(outcomes(results) == ["e1": "coalesced", "e2": "accepted"])
        #expect(carriers(results) == ["e1": "e2"])
        #expect(results.last?.text("install_id") == "phone", "each device has its own outcome")
    }

    @Test func `with others, is one push in the end, of the newest`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        try world.start()
        try awaitReading(world)
        let moment = RFC3339.text(SystemTime.shared.wall + .seconds(10))
        for id in ["e1", "e2", "e3"] {
            try publish(id, "extra", to: world, #","not_before":"\#(moment)""#)
        }
        let results = try world.records(of: "push.results", atLeast: 4)
        #expect(world.stop())
        #expect(shown(gateway) == ["e3"])
        #expect(carriers(results) == ["e1": "e3", "e2": "e3"])
    }

    @Test func `behind a pause, is folded into what was not paused`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        try world.start()
        world.replace(
            Levers(
                paused: [try #require(Lever(.type, "score"))], skips: [],
                loosenedAt: UnixMillis(0)))
        try publish("e1", "score", to: world)
        _ = try world.records(of: "push.events-parked-held", atLeast: 1)
        try publish("e2", "extra", to: world)
        _ = try world.records(of: "push.results", atLeast: 1)
        world.replace(Levers(paused: [], skips: [], loosenedAt: SystemTime.shared.wall))
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(world.stop())
        #expect(shown(gateway) == ["e2"])
        #expect(carriers(results) == ["e1": "e2"])
    }

    @Test func `for its moment, is newer than what goes out before that`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        try world.start()
        try awaitReading(world)
        let moment = RFC3339.text(SystemTime.shared.wall + .seconds(10))
        try publish("e1", "extra", to: world, #","not_before":"\#(moment)""#)
        try publish("e2", "extra", to: world)
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        #expect(shown(gateway) == ["e2", "e1"])
        #expect(carriers(results).isEmpty)
    }

    @Test func `in two copies, is one push`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        world.settings.deduplicate = .minutes(10)
        try world.start()
        try awaitReading(world)
        let moment = RFC3339.text(SystemTime.shared.wall + .seconds(10))
        for _ in 0..<2 { try publish("e", "extra", to: world, #","not_before":"\#(moment)""#) }
        let results = try world.records(of: "push.results", atLeast: 3)
        #expect(world.stop())
        #expect(shown(gateway) == ["e"], "neither copy may end for the other's sake alone")
        #expect(results.count { $0.text("outcome") == "accepted" } == 1)
    }

    @Test func `and is skipped, takes no older one with it`() throws {
        let gateway = try ScriptedGateway()
        let world = try world(gateway)
        try world.say(Self.night(isOn: true), user: "ada")
        try world.start()
        try publish("e1", "score", to: world)
        let held = try world.records(of: "push.events-retry-1h", atLeast: 1)
        let lever = try #require(Lever(.source, "b"))
        world.replace(Levers(paused: [lever], skips: [], loosenedAt: UnixMillis(0)))
        try publish("e2", "score", to: world, #","source":"b""#)
        _ = try world.records(of: "push.events-parked-held", atLeast: 1)
        world.replace(
            Levers(
                paused: [lever],
                skips: [SkipOrder(lever, before: SystemTime.shared.wall + .seconds(1))],
                loosenedAt: SystemTime.shared.wall))
        let skipped = outcomes(try world.records(of: "push.results", atLeast: 1))
        #expect(skipped == ["e2": "expired skipped"], "\(skipped)")
        try world.say(Self.night(isOn: false), user: "ada")
        try letGo(Array(held.prefix(1)), in: world)
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(world.stop())
        #expect(shown(gateway) == ["e1"])
        #expect(outcomes(results)["e1"] == "accepted")
    }
}
