// What the metrics of the pipeline say, held against runs whose numbers are known from the other
// side: the gateway's, the topics', the test's own.

import Base
import Gateways
import Kafka
import Simulator
import Synchronization
import Telemetry
import Testing
import TokenIndex

@testable import Pipeline

extension World {
    /// The sum of the series of a name that have these labels.
    func metric(_ name: String, _ labels: [String: String] = [:]) -> Double {
        registry.readings(of: name)
            .filter { reading in labels.allSatisfy { reading.label($0.key) == $0.value } }
            .reduce(0) { $0 + $1.value }
    }
}

@Suite(.serialized) struct `The metrics of a gateway` {
    private static let apns = ["app": "shop", "gateway": "apns"]
    private static let production = apns.merging(["environment": "production"]) { $1 }

    @Test func `add up to what it was asked and what it answered`() throws {
        let names = (0..<10).map { "ok-\($0)" } + ["gone-0", "gone-1", "large", "again"]
        let byToken = Dictionary(uniqueKeysWithValues: names.map { (World.token(of: $0), $0) })
        let gateway = try ScriptedGateway(streamLimit: 7) { token, attempt in
            switch byToken[token]?.split(separator: "-").first {
            case "gone": .answer(410, #"{"reason":"Unregistered","timestamp":1798761600000}"#)
            case "large": .answer(413, #"{"reason":"PayloadTooLarge"}"#)
            case "again" where attempt == 1: .answer(503, #"{"reason":"Shutdown"}"#)
            default: .answer(200, "")
            }
        }
        let world = try World(gateway)
        for name in names { try world.register(name, user: name) }
        try world.start()
        for name in names { try world.publish(id: name, user: name) }
        try world.flush()
        #expect(try world.records(of: "push.results", atLeast: names.count).count == names.count)
        func count(_ name: String, _ labels: [String: String]) -> Int {
            Int(world.metric(name, labels))
        }
        func outcome(_ outcome: Outcome) -> Int {
            let labels = Self.production.merging(["outcome": outcome.rawValue]) { $1 }
            return count("bugle_outcomes_total", labels)
        }
        let pool = Self.apns.merging(["host": "localhost"]) { $1 }
        #expect(gateway.seen.count == names.count + 1)
        // Pools show themselves twice a second.
        #expect(world.eventually { count("bugle_requests_total", pool) == gateway.seen.count })
        #expect(outcome(.accepted) == 11 && outcome(.tokenInvalid) == 2)
        #expect(outcome(.rejected) == 1 && outcome(.failed) == 0)
        for (reason, times) in [("Unregistered", 2), ("PayloadTooLarge", 1), ("Shutdown", 0)] {
            let labels = Self.apns.merging(["reason": reason]) { $1 }
            #expect(count("bugle_reasons_total", labels) == times, "\(reason)")
        }
        for (status, times) in [("2xx", 11), ("4xx", 3), ("5xx", 1), ("1xx", 0)] {
            let labels = Self.production.merging(["status": status]) { $1 }
            #expect(count("bugle_answers_total", labels) == times, "\(status)")
        }
        #expect(count("bugle_gateway_seconds", Self.production) == gateway.seen.count)
        #expect(count("bugle_settle_seconds", [:]) == names.count)
        #expect(count("bugle_retries_total", Self.production) == 1)
        #expect(count("bugle_events_consumed_total", [:]) == names.count)
        #expect(count("bugle_invalidations_total", [:]) == 2)
        let connections = count("bugle_connections", pool)
        #expect(connections > 0)
        #expect(count("bugle_stream_limit", pool) == connections * 7)
        // The word Shutdown asks for another connection.
        #expect(count("bugle_connections_opened_total", pool) >= connections)
        // What the ratio of dead tokens divides by.
        #expect(count("bugle_outcomes_total", Self.apns) == names.count)
        #expect(world.stop())
    }

    @Test func `show what is under way and what waits for room`() throws {
        let gateway = try ScriptedGateway { _, _ in .hold }
        let world = try World(gateway, lanes: 1)
        world.settings.inFlightPerBulkhead = 10
        for user in 0..<14 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<14 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        // The last tenth is for critical events.
        #expect(world.eventually { world.metric("bugle_bulkhead_in_flight", Self.production) == 9 })
        #expect(world.eventually { world.metric("bugle_requests_in_flight", Self.apns) == 9 })
        #expect(world.eventually { world.metric("bugle_bulkhead_waiting", Self.production) == 5 })
        #expect(world.metric("bugle_bulkhead_limit", Self.production) == 10)
        #expect(world.eventually { world.metric("bugle_events_in_flight") >= 9 })
        #expect(world.metric("bugle_targets_in_flight") >= 9)
        #expect(world.metric("bugle_record_bytes_in_flight") > 9 * 50)
        // What waited too long is parked, and comes back when there is room.
        #expect(
            world.eventually {
                gateway.release()
                return world.metric("bugle_outcomes_total", ["outcome": "accepted"]) == 14
            })
        for name in [
            "bugle_bulkhead_in_flight", "bugle_requests_in_flight", "bugle_bulkhead_waiting",
            "bugle_requests_queued", "bugle_events_in_flight", "bugle_targets_in_flight",
            "bugle_record_bytes_in_flight", "bugle_parked_backlog_records",
            "bugle_outbox_records", "bugle_outbox_bytes", "bugle_commit_age_seconds",
        ] {
            #expect(world.eventually { world.metric(name) == 0 }, "\(name)")
        }
        #expect(world.metric("bugle_commits_total", ["mode": "plain"]) > 0)
        #expect(world.metric("bugle_records_delivered_total") >= 14)
        #expect(world.metric("bugle_commit_failures_total") == 0)
        #expect(world.stop())
    }

    @Test func `count connections that it ends, and streams that it refuses`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "away", FaultMatch(.apnsProduction, connectionRequest: 2, count: 1),
                .goAway(GoAwayFault(closeAfter: .zero))),
            FaultRule("refused", FaultMatch(.apnsProduction, skip: 4, count: 1), .refuse),
        ])
        let world = try World(try Simulator(options), lanes: 1)
        for user in 0..<20 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<20 {
            try world.publish(id: "e\(user)", user: "u\(user)")
            try world.flush()
        }
        #expect(try world.records(of: "push.results", atLeast: 20).count == 20)
        for name in [
            "bugle_goaways_total", "bugle_streams_refused_total", "bugle_requests_resent_total",
        ] {
            #expect(world.eventually { world.metric(name, Self.apns) >= 1 }, "\(name)")
            #expect(world.metric(name, ["gateway": "fcm"]) == 0, "\(name)")
        }
        #expect(world.stop())
    }

    @Test func `show a breaker, and what is parked behind it`() throws {
        let isBroken = Flag()
        let gateway = try ScriptedGateway { _, _ in
            isBroken.isSet ? .answer(200, "") : .answer(503, #"{"reason":"Shutdown"}"#)
        }
        let world = try World(gateway, lanes: 1)
        for user in 0..<40 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<40 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        #expect(world.eventually { world.metric("bugle_breakers_open", Self.production) == 1 })
        #expect(world.metric("bugle_breakers_open", ["gateway": "fcm"]) == 0)
        let lot = ["gateway": "apns", "environment": "production"]
        #expect(world.eventually { world.metric("bugle_parked_backlog_records", lot) > 0 })
        #expect(world.metric("bugle_targets_postponed_total", Self.production) > 0)
        isBroken.set()
        _ = try world.records(of: "push.results", atLeast: 40, within: .seconds(120))
        #expect(world.eventually { world.metric("bugle_breakers_open") == 0 })
        #expect(world.eventually { world.metric("bugle_parked_backlog_records") == 0 })
        #expect(world.metric("bugle_retry_records_read_total") > 0)
        #expect(world.stop())
    }

    @Test func `count requests that nobody answered`() throws {
        let gateway = try ScriptedGateway { _, attempt in
            attempt == 1 ? .cut : .answer(200, "")
        }
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
        #expect(world.metric("bugle_requests_unanswered_total", Self.production) == 1)
        #expect(world.eventually { world.metric("bugle_connections_lost_total", Self.apns) == 1 })
        #expect(world.stop())
    }
}

@Suite(.serialized) struct `The metrics of the pipeline` {
    @Test func `tell partitions, and how far reading is ahead of what is open`() throws {
        let slow = World.token(of: "slow")
        let gateway = try ScriptedGateway { token, _ in token == slow ? .hold : .answer(200, "") }
        let world = try World(gateway, lanes: 2)
        try world.register("slow", user: "slow")
        try world.register("phone", user: "ada")
        try world.start()
        // All with one key: the offsets of one partition, and of a producer that keys wrongly.
        let content = #""type":"t","source":"billing","notification":{"title":"t"}"#
        for number in 0..<64 {
            let user = number == 0 ? "slow" : "ada"
            try world.publish(
                #"{"id":"e\#(number)","user_id":"\#(user)",\#(content)}"#, key: "everybody")
        }
        try world.flush()
        let accepted = { world.metric("bugle_outcomes_total", ["outcome": "accepted"]) }
        #expect(world.eventually { accepted() == 63 })
        #expect(world.eventually { world.metric("bugle_offset_span") == 64 })
        #expect(world.eventually { world.metric("bugle_consumer_lag_records") == 64 })
        #expect(world.metric("bugle_events_partitions") == Double(World.partitions))
        // Retry and parking topics have as many each.
        #expect(world.metric("bugle_assigned_partitions") > Double(World.partitions))
        #expect(world.metric("bugle_unread_records") == 0)
        // One record in sixteen is looked at and stands for the others.
        let misrouted = world.metric("bugle_events_misrouted_total", ["source": "billing"])
        #expect(misrouted == 64 || misrouted == 48, "\(misrouted)")
        gateway.release()
        #expect(world.eventually { world.metric("bugle_offset_span") == 0 })
        for lane in ["0", "1"] {
            #expect(world.metric("bugle_lane_busy_seconds_total", ["lane": lane]) > 0)
            #expect(world.metric("bugle_lane_idle_seconds_total", ["lane": lane]) > 0)
        }
        #expect(world.stop())
    }

    @Test(.timeLimit(.minutes(5)))
    func `tell partitions that are read no further behind one event`() throws {
        let gateway = try ScriptedGateway { _, _ in .hold }
        let world = try World(gateway, lanes: 1)
        try world.register("slow", user: "slow")
        try world.start()
        let content = #""type":"t","notification":{"title":"t"}"#
        try world.publish(#"{"id":"s","user_id":"slow",\#(content)}"#, key: "k")
        for number in 0..<20_100 {
            try world.publish(#"{"id":"\#(number)","user_id":"x",\#(content)}"#, key: "k")
        }
        try world.flush()
        #expect(world.eventually { world.metric("bugle_partitions_held_back") == 1 })
        #expect(world.metric("bugle_offset_span") >= 20_000)
        #expect(world.metric("bugle_unread_records") > 0)
        gateway.release()
        #expect(world.eventually { world.metric("bugle_partitions_held_back") == 0 })
        #expect(world.eventually { world.metric("bugle_consumer_lag_records") == 0 })
        #expect(world.stop())
    }

    @Test func `tell how long results wait for a commit, and what brokers refused`() throws {
        let gateway = try ScriptedGateway { _, _ in .hold }
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        #expect(world.eventually { world.metric("bugle_requests_in_flight") == 1 })
        #expect(world.metric("bugle_commit_age_seconds") == 0)
        world.cluster.setBroker(1, up: false)
        gateway.release()
        #expect(world.eventually { world.metric("bugle_commit_age_seconds") > 0.5 })
        #expect(world.metric("bugle_outbox_records") >= 1)
        world.cluster.push([.topicUnauthorized, .topicUnauthorized], to: .offsetCommit)
        world.cluster.setBroker(1, up: true)
        let mode = ["mode": "plain"]
        #expect(world.eventually { world.metric("bugle_commit_failures_total", mode) >= 1 })
        #expect(world.eventually { world.metric("bugle_commits_total", mode) >= 1 })
        #expect(world.eventually { world.metric("bugle_commit_age_seconds") == 0 })
        #expect(world.stop())
        #expect(try world.committed() == 1)
    }

    @Test func `tell a fuse that has tripped, and that it was settled`() throws {
        let gateway = try ScriptedGateway { _, _ in .answer(400, #"{"reason":"BadDeviceToken"}"#) }
        let world = try World(gateway, lanes: 1)
        for user in 0..<60 { try world.register("phone-\(user)", user: "u\(user)") }
        try world.start()
        for user in 0..<60 { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()
        let place = ["app": "shop", "gateway": "apns", "environment": "production"]
        #expect(world.metric("bugle_fuse_tripped") == 0)
        for verdict in try world.records(of: "push.invalidations", atLeast: 60) {
            try world.apply(verdict: verdict)
        }
        #expect(world.eventually { world.metric("bugle_fuse_tripped", place) == 1 })
        #expect(world.metric("bugle_fuse_tripped") == 1)
        let fuse = try #require(world.index.fuses().first)
        for (number, record) in try world.index.records(settling: fuse.id, .release).enumerated() {
            _ = world.index.apply(
                .invalidation(record),
                at: TopicPosition(
                    partition: 0, offset: 1_000_000 + Int64(number),
                    timestamp: SystemTime.shared.wall.value))
        }
        #expect(world.eventually { world.metric("bugle_fuse_tripped") == 0 })
        #expect(world.stop())
    }

    /// Labels and the values that they may have; nothing else may be one.
    private static let closed: [String: Set<String>] = [
        "app": ["shop"], "host": ["localhost", "webpush"],
        "gateway": Set(Gateway.allCases.map(\.rawValue)),
        "environment": Set(GatewayEnvironment.allCases.map(\.rawValue)),
        "outcome": Set(Outcome.allCases.map(\.rawValue)),
        "reason": Set(Reason.allCases.map(\.rawValue)),
        "code": Set(DeadLetterCode.allCases.map(\.rawValue)),
        "lever": Set(LeverKind.allCases.map(\.rawValue)),
        "bottleneck": Set(Bottleneck.allCases.map(\.rawValue)),
        "tier": Set(RetryTier.allCases.map(\.suffix)),
        "lane": ["0", "1"], "mode": ["plain", "transactional"],
        "type": Set(AckSample.Kind.allCases.map(\.rawValue)),
        "status": ["1xx", "2xx", "3xx", "4xx", "5xx", "ok", "error", "missing", "lost"],
        "vapid_key": ["v1", "v2"], "source": ["other", "billing"],
    ]

    @Test func `have labels out of closed lists, and no ids, whatever events say`() throws {
        let world = try World(try Simulator())
        world.settings.acks = AckSample(world.registry)
        let browser = try World.browser("b")
        try world.register("install-77", user: "user-77")
        try world.register("install-78", user: "user-77", gateway: .fcm)
        try world.registerExpo("install-79", user: "user-77", token: "ExponentPushToken[abc]")
        try world.subscribe(
            "install-80", user: "user-77", at: "https://localhost:1/push/secret", with: browser)
        try world.start()
        for source in ["billing", "user-77@example.com", "install-77 install-78"] {
            for number in 0..<20 {
                try world.publish(
                    """
                    {"id":"event-77-\(number)","type":"type-77","user_id":"user-77",
                     "source":"\(source)","labels":{"x":"label-77"},"collapse_key":"key-77",
                     "notification":{"title":"title-77"}}
                    """, key: "wrong-\(number)")
            }
        }
        try world.publish("no event 77", key: "user-77")
        try world.publish(#"{"id":"x","type":"type-77","user_id":"nobody-77"}"#, key: "nobody-77")
        try world.flush()
        #expect(world.eventually { world.metric("bugle_dead_letters_total") >= 1 })
        #expect(world.eventually { world.metric("bugle_outcomes_total", ["gateway": "fcm"]) > 0 })
        let text = ByteWriter()
        world.registry.writeExposition(to: text)
        for line in text.text.split(separator: "\n") where !line.hasPrefix("#") {
            let series = line.prefix { $0 != " " }
            #expect(!series.contains("77") && !series.contains("secret"), "an id: \(series)")
        }
        let names = Set(
            text.text.split(separator: "\n").filter { $0.hasPrefix("# TYPE ") }
                .map { String($0.split(separator: " ")[2]) })
        #expect(names.count > 50)
        for name in names {
            let isUnit =
                ["_total", "_seconds", "_bytes"].contains(where: name.hasSuffix)
                || !name.contains("_ms")
            #expect(isUnit && name.hasPrefix("bugle_"), "\(name)")
            for reading in world.registry.readings(of: name) {
                for label in reading.labels {
                    let values = Self.closed[label.name]
                    #expect(
                        values?.contains(label.value) == true,
                        "\(name){\(label.name)=\"\(label.value)\"}")
                }
            }
        }
        // The browser's push service is not there.
        _ = world.stop()
    }
}

/// A flag between a test and its gateway.
private final class Flag: Sendable {
    private let value = Atomic<Bool>(false)
    var isSet: Bool { value.load(ordering: .acquiring) }
    func set() { value.store(true, ordering: .releasing) }
}
