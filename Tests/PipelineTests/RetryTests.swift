import Base
import HTTP2
import JSON
import Kafka
import Simulator
import Testing

@testable import Pipeline

@Suite struct `The retry tiers` {
    private let tiers = RetryTiers()

    @Test(arguments: [
        (0, RetryTier.tenSeconds), (6, .tenSeconds), (59, .tenSeconds), (60, .minute),
        (599, .minute), (600, .tenMinutes), (900, .tenMinutes), (3600, .hour), (86_400, .hour),
    ])
    func `take a wait that they do not outlast`(seconds: Int, tier: RetryTier) {
        #expect(tiers.fitting(.seconds(Int64(seconds))) == tier)
    }

    @Test(arguments: [15 * 60, 61, 7_200, 3_599] as [Int64])
    func `add up to any wait and never to more than ten seconds beyond it`(seconds: Int64) {
        var left = TimeSpan.seconds(seconds)
        var hops = 0
        while left > .zero {
            left = left - tiers.delay(of: tiers.fitting(left))
            hops += 1
        }
        #expect(left > .seconds(-10))
        #expect(hops < 25)
    }

    @Test func `wait longer for what waits again and again`() {
        let waits = (0..<10).map { tiers.patience(after: $0) }
        #expect(waits.first == .seconds(10) && waits.last == .minutes(10))
        #expect(waits == waits.sorted())
    }
}

@Suite struct `The next attempt` {
    private let now = UnixMillis(1_735_689_600_000)

    private func decide(
        _ policy: RetryPolicy = RetryPolicy(), minimum: TimeSpan = .zero, after attempts: Int = 1,
        isOneAttempt: Bool = false, ttl: TimeSpan = .hours(1), _ random: inout SeededRandom
    ) -> RetryPolicy.Decision {
        policy.decide(
            minimumWait: minimum, attempts: attempts, isOneAttempt: isOneAttempt, now: now,
            expiresAt: now + ttl, random: &random)
    }

    /// The first bound is 200 ms; it doubles with each attempt and stops at the longest wait.
    @Test(
        arguments: [
            (1, 200), (2, 400), (3, 800), (5, 3_200), (6, 5_000), (50, 5_000),
        ] as [(Int, Int64)])
    func `waits for a random part of a bound that doubles, beyond the vendor's minimum`(
        attempts: Int, bound: Int64
    ) {
        var policy = RetryPolicy()
        policy.attempts = 100
        var random = SeededRandom(seed: UInt64(attempts))
        let waits = (0..<2_000).map { _ in
            switch decide(policy, minimum: .seconds(7), after: attempts, &random) {
            case .wait(let span): span
            case .expires, .exhausted: TimeSpan.hours(9)
            }
        }
        let jitter = waits.map { ($0 - .seconds(7)).nanos }
        let limit = TimeSpan.milliseconds(bound).nanos
        #expect(jitter.allSatisfy { (0...limit).contains($0) })
        // All of the bound is used, and evenly: whoever failed together does not come together.
        for quarter in 0..<4 {
            let part = jitter.count { $0 * 4 / (limit + 1) == quarter }
            #expect((350...650).contains(part), "quarter \(quarter): \(part) of 2000")
        }
    }

    @Test func `never lies behind the expiry`() {
        var random = SeededRandom(seed: 3)
        let minimum = TimeSpan.seconds(60)
        #expect(decide(minimum: minimum, ttl: .seconds(60), &random) == .expires)
        #expect(decide(minimum: minimum, ttl: .milliseconds(59_999), &random) == .expires)
        #expect(decide(minimum: minimum, ttl: .milliseconds(60_201), &random) != .expires)
    }

    @Test func `is not made when attempts are used up, nor of what may be sent once`() {
        var random = SeededRandom(seed: 4)
        #expect(decide(after: 2, &random) != .exhausted)
        #expect(decide(after: 3, &random) == .exhausted)
        #expect(decide(isOneAttempt: true, &random) == .exhausted)
    }
}

@Suite struct `The headers of a retry topic` {
    /// A record with headers, as a lane reads it.
    private func read(_ headers: [(String, String)]) throws(Refusal) -> Reentry {
        let bytes = ByteWriter(capacity: 4096)
        var places: [(String, Range<Int>)] = []
        for (name, text) in headers {
            let start = bytes.count
            bytes.append(text)
            places.append((name, start..<bytes.count))
        }
        let input = InputRecord(
            position: RecordPosition(topic: "push.events-retry-10s", partition: 3, offset: 9),
            timestamp: UnixMillis(5), key: nil, value: nil,
            headers: places.map {
                InputHeader(name: $0.0, value: UnsafeRawBufferPointer(rebasing: bytes.bytes[$0.1]))
            })
        return try Reentry(input, parser: JSONParser())
    }

    private static let origin = [
        ("bugle-original-topic", "push.events"), ("bugle-original-partition", "3"),
        ("bugle-original-offset", "1201"), ("bugle-original-timestamp", "1767225600000"),
        ("bugle-first-failed-at", "1767225600012"), ("bugle-not-before", "1767225720000"),
    ]

    @Test func `say where the event was read first`() throws {
        let reentry = try read(Self.origin)
        #expect(
            reentry.origin == RecordPosition(topic: "push.events", partition: 3, offset: 1201))
        #expect(reentry.notBefore == UnixMillis(1_767_225_720_000))
        #expect(reentry.targets == nil && reentry.pending.isEmpty)
    }

    @Test(arguments: 0..<50 as Range<UInt64>)
    func `bring every target back as it left`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let targets = (0..<Int.random(in: 1...20, using: &random)).map { number in
            var target = PendingTarget(
                addressID: "shop/\"\(number)\\é", index: number * 2, gateway: "apns",
                environment: "production", platform: "ios",
                appVersion: Bool.random(using: &random) ? "1.2\n" : nil, tokenHash: "0123abcd")
            target.attempts = Int.random(in: 0...9, using: &random)
            target.waits = Int.random(in: 0...9, using: &random)
            target.notBefore = UnixMillis(Int64.random(in: 0...1 << 42, using: &random))
            target.wasAmbiguous = Bool.random(using: &random)
            if Bool.random(using: &random) {
                target.firstSentAt = UnixMillis(Int64.random(in: 0...1 << 42, using: &random))
            }
            return target
        }
        let ids = ByteWriter()
        let states = ByteWriter()
        for (index, target) in targets.enumerated() {
            ids.append(index == 0 ? "[" : ",")
            states.append(index == 0 ? "[" : ",")
            ids.append(jsonString: target.addressID)
            target.write(to: states)
        }
        ids.append("]")
        states.append("]")
        let reentry = try read(
            Self.origin + [
                ("bugle-targets", "40"), ("bugle-fanout-at", "7"),
                ("bugle-pending", String(decoding: ids.bytes, as: UTF8.self)),
                ("bugle-pending-state", String(decoding: states.bytes, as: UTF8.self)),
            ])
        #expect(reentry.pending == targets, "seed \(seed)")
        #expect(reentry.targets == 40 && reentry.fannedOutAt == UnixMillis(7))
    }

    @Test func `share out among records what one has no room for`() {
        let pending = (0..<5_000).map { number in
            PendingTarget(
                addressID: "shop/\(String(repeating: "\u{1}", count: 100))\(number)", index: number,
                gateway: "apns", environment: "production", platform: "ios", appVersion: nil,
                tokenHash: "0123abcd")
        }
        let parts = RetryRecord.parts(of: pending)
        #expect(parts.flatMap { $0 } == pending)
        #expect(parts.count > 1)
        for part in parts {
            let bytes = ByteWriter()
            for target in part {
                bytes.append(jsonString: target.addressID)
                target.write(to: bytes)
            }
            #expect(bytes.bytes.count < 400 << 10)
        }
        #expect(RetryRecord.parts(of: Array(pending.prefix(1))).count == 1)
    }

    @Test(arguments: [
        ("bugle-original-offset", "-1"), ("bugle-original-partition", "9999999999"),
        ("bugle-not-before", "soon"), ("bugle-targets", "many"), ("bugle-pending", "{}"),
        ("bugle-pending", "[\"shop/a\"]"), ("bugle-pending-state", "[{}]"),
        ("bugle-cursor", "9"), ("bugle-cursor", #"{"log":"a"}"#),
    ])
    func `that make no sense are refused by name`(name: String, value: String) {
        var headers =
            Self.origin + [
                ("bugle-targets", "1"), ("bugle-fanout-at", "7"), ("bugle-pending", "[]"),
                ("bugle-pending-state", "[]"),
            ]
        headers.removeAll { $0.0 == name }
        let error = #expect(throws: Refusal.self) {
            _ = try self.read(headers + [(name, value)])
        }
        #expect(error?.code == .invalidField)
        #expect(error?.reason.contains("bugle-") == true)
    }
}

/// Waits that a lane does not keep: the event leaves through a retry topic and comes back.
@Suite(.serialized) struct `Retry topics, end to end` {
    private static let tenSeconds = "push.events-retry-10s"

    /// Starts a world and waits until it reads: what follows is not kept waiting by the group.
    private func startReading(_ world: World) throws {
        try world.register("warm", user: "warm")
        try world.start()
        try world.publish(id: "warm", user: "warm")
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
    }

    private func simulator(_ rules: FaultRule...) throws -> Simulator {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: rules)
        return try Simulator(options)
    }

    @Test func `a target that has to wait comes back alone, and its neighbour does not wait`()
        throws
    {
        let slow = World.token(of: "slow")
        let simulator = try simulator(
            FaultRule(
                "shutting down", FaultMatch(.apnsProduction, tokenPrefix: slow, count: 1),
                .answer(FaultAnswer(status: 503, reason: "Shutdown"))))
        let world = try World(simulator)
        world.settings.retry.longestWait = .milliseconds(50)
        try world.register("quick", user: "ada")
        try world.register("slow", user: "ada")
        try world.start()
        try world.publish(
            #"{"id":"e","type":"t","user_id":"ada","notification":{"title":"t"}}"#, key: "ada",
            headers: [.init("traceparent", "00-1-2-03")])
        try world.flush()

        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(results.count == 2)
        #expect(results.map { $0.text("outcome") } == ["accepted", "accepted"])
        #expect(results.map { $0.text("install_id") } == ["quick", "slow"])
        #expect(results.map { $0.text("targets") } == ["2", "2"])
        #expect(Set(results.compactMap { $0.text("target_index") }) == ["0", "1"])
        #expect(results.map { $0.text("attempts") } == ["1", "2"])
        #expect(results.allSatisfy { $0.text("input_topic") == "push.events" })
        #expect(Set(results.map { $0.text("result_id") }).count == 2)
        #expect(Set(results.map { $0.text("input_offset") }).count == 1)

        let retries = try world.records(of: Self.tenSeconds, atLeast: 1)
        let retry = try #require(retries.first)
        #expect(retry.key == "ada" && retry.value?.contains("notification") == true)
        #expect(retry.headers["traceparent"] == "00-1-2-03")
        #expect(retry.headers["bugle-error-code"] == "Shutdown")
        #expect(retry.headers["bugle-attempts"] == "1")
        #expect(retry.headers["bugle-original-topic"] == "push.events")
        #expect(retry.headers["bugle-pending"] == #"["shop/slow"]"#)
        #expect(simulator.journal.acceptedMessages.values.allSatisfy { $0 == 1 })
        #expect(world.stop())
    }

    @Test func `what waits for another installation is left to it`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        let value = """
            {"id":"e","type":"test.alert","user_id":"ada","notification":{"title":"t"}}
            """
        let now = String(SystemTime.shared.wall.value)
        for group in ["other", "bugle"] {
            let headers = [
                ("bugle-original-topic", "push.events"), ("bugle-original-partition", "0"),
                ("bugle-original-offset", group == "bugle" ? "7" : "8"),
                ("bugle-original-timestamp", now), ("bugle-first-failed-at", now),
                ("bugle-not-before", now), ("bugle-consumer-group", group),
            ]
            try world.publish(
                value, key: "ada", to: "push.events-retry-10s",
                headers: headers.map { .init($0.0, $0.1) })
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("input_offset") } == ["7"])
        #expect(world.stop())
        #expect(gateway.seen.count == 1)
        #expect(world.lines(with: "wait for another consumer group") == 1)
        #expect(try world.records(of: "push.events-dlt", atLeast: 1, within: .zero).isEmpty)
    }

    @Test func `an address that moved while its event waited gets nothing`() throws {
        let token = World.token(of: "phone")
        let simulator = try simulator(
            FaultRule(
                "shutting down", FaultMatch(.apnsProduction, tokenPrefix: token, count: 1),
                .answer(FaultAnswer(status: 503, reason: "Shutdown"))))
        let world = try World(simulator)
        world.settings.retry.longestWait = .milliseconds(50)
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        _ = try world.records(of: Self.tenSeconds, atLeast: 1)
        try world.register("phone", user: "grace")

        let results = try world.records(of: "push.results", atLeast: 1)
        let result = try #require(results.first)
        #expect(result.text("outcome") == "suppressed" && result.text("reason") == "superseded")
        #expect(result.text("install_id") == "phone" && result.text("gateway") == "apns")
        #expect(result.text("attempts") == "1" && result.text("user_id") == "ada")
        #expect(simulator.journal.acceptedMessages.isEmpty)
    }

    @Test func `a gateway that cannot be reached costs no attempt and no event`() throws {
        let simulator = try simulator(
            FaultRule("down", FaultMatch(.apnsProduction, count: 2), .accept(.reset)))
        let world = try World(simulator)
        world.settings.retry.attempts = 1
        world.settings.streamPatience = .milliseconds(100)
        try world.register("phone", user: "ada")
        try world.start()
        try world.publish(id: "e", user: "ada")
        try world.flush()
        let retry = try #require(try world.records(of: Self.tenSeconds, atLeast: 1).first)
        #expect(retry.headers["bugle-error-code"] == "connection_failed")
        #expect(retry.headers["bugle-attempts"] == "0")
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["accepted"])
        #expect(results.map { $0.text("attempts") } == ["1"])
    }

    @Test func `an event whose time has not come waits outside the lane`() throws {
        let simulator = try simulator()
        let world = try World(simulator)
        world.settings.retry.longestWait = .milliseconds(50)
        try world.register("phone", user: "ada")
        try startReading(world)
        let due = SystemTime.shared.wall + .milliseconds(1_200)
        try world.publish(id: "e", user: "ada", extra: #","not_before":\#(due.value)"#)
        try world.flush()
        // The waits of these tests are a hundredth: a minute is 600 ms.
        let minute = "push.events-retry-1m"
        let retry = try #require(try world.records(of: minute, atLeast: 1).first)
        #expect(retry.headers["bugle-error-code"] == "hold")
        #expect(retry.headers["bugle-targets"] == nil)
        let results = try world.records(of: "push.results", atLeast: 2)
        let sentAt = Int64(try #require(results.last?.text("first_sent_at"))) ?? 0
        #expect(sentAt >= due.value)
        #expect(results.last?.text("outcome") == "accepted")
    }

    @Test func `APNS-15: what would come back too late has expired`() throws {
        let world = try World(try simulator())
        world.settings.retry.longestWait = .milliseconds(50)
        try world.register("phone", user: "ada")
        try world.start()
        let due = SystemTime.shared.wall + .minutes(2)
        try world.publish(id: "e", user: "ada", extra: #","ttl":60,"not_before":\#(due.value)"#)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["expired"])
    }

    @Test func `a stop does not wait for what waits, and a start finds it again`() throws {
        let world = try World(try simulator())
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.retryDivisor = 2
        try world.register("phone", user: "ada")
        try startReading(world)
        let due = SystemTime.shared.wall + .seconds(4)
        try world.publish(id: "e", user: "ada", extra: #","not_before":\#(due.value)"#)
        try world.flush()
        _ = try world.records(of: Self.tenSeconds, atLeast: 1)
        let start = SystemTime.shared.monotonic
        #expect(world.stop())
        #expect(SystemTime.shared.monotonic - start < .seconds(4))
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(results.map { $0.text("outcome") } == ["accepted", "accepted"])
    }
}
