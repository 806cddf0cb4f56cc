import Base
import Crypto
import EventLoop
import HTTP2
import JSON
import Kafka
import Simulator
import Synchronization
import Telemetry
import Testing

@testable import Pipeline

@Suite struct `A breaker` {
    private let start = MonotonicTime(nanos: 1_000_000_000_000)

    /// A breaker that has just opened.
    private func opened(seed: UInt64 = 1) -> (Breaker, SeededRandom) {
        var breaker = Breaker()
        var random = SeededRandom(seed: seed)
        for _ in 0..<10 { _ = breaker.failed(at: start, using: &random) }
        return (breaker, random)
    }

    @Test func `opens after ten failures in a row and not after nine`() {
        var breaker = Breaker()
        var random = SeededRandom(seed: 1)
        for _ in 0..<9 {
            let opened = breaker.failed(at: start, using: &random)
            #expect(!opened)
        }
        #expect(breaker.isClosed)
        let opened = breaker.failed(at: start, using: &random)
        #expect(opened && !breaker.isClosed)
        let admission = breaker.admit(at: start)
        #expect(admission == .park)
    }

    @Test func `opens when half of many fail, however they are mixed`() {
        var breaker = Breaker()
        var random = SeededRandom(seed: 1)
        var failures = 0
        while breaker.isClosed, failures < 100 {
            breaker.succeeded(at: start)
            _ = breaker.failed(at: start, using: &random)
            failures += 1
        }
        #expect(failures == 20)
    }

    @Test func `stays closed while one in five fails`() {
        var breaker = Breaker()
        var random = SeededRandom(seed: 1)
        for number in 0..<10_000 {
            let now = start + .milliseconds(Int64(number))
            if number % 5 == 0 {
                _ = breaker.failed(at: now, using: &random)
            } else {
                breaker.succeeded(at: now)
            }
        }
        #expect(breaker.isClosed)
    }

    @Test(arguments: 0..<50 as Range<UInt64>)
    func `lets one probe through at a time, later after each that failed`(seed: UInt64) {
        var (breaker, random) = opened(seed: seed)
        var now = start
        var longest = TimeSpan.seconds(5)
        for _ in 0..<8 {
            guard case .open(let until) = breaker.state else {
                Issue.record("not open, seed \(seed)")
                return
            }
            #expect(until - now >= longest / 2 && until - now <= longest, "seed \(seed)")
            now = until
            let (first, second) = (breaker.admit(at: now), breaker.admit(at: now))
            #expect(first == .probe && second == .park)
            _ = breaker.failed(at: now, using: &random)
            longest = min(longest * 2, .seconds(60))
        }
        now = now + .minutes(2)
        let probe = breaker.admit(at: now)
        breaker.succeeded(at: now)
        let next = breaker.admit(at: now)
        #expect(probe == .probe && next == .go)
    }

    @Test func `a probe that told nothing is followed by another`() {
        var (breaker, _) = opened()
        let now = start + .minutes(1)
        let first = breaker.admit(at: now)
        breaker.probeWasted(at: now)
        let second = breaker.admit(at: now)
        #expect(first == .probe && second == .probe)
    }

    @Test func `lets parked events return slowly at first and then fast`() {
        var (breaker, _) = opened()
        let end = start + .minutes(1)
        _ = breaker.admit(at: end)
        breaker.succeeded(at: end)
        var perSecond: [Int] = []
        for second in 0..<12 as Range<Int64> {
            var count = 0
            for step in 1...200 as ClosedRange<Int64> {
                let now = end + .seconds(second) + .milliseconds(step * 5)
                while breaker.takeReturn(at: now) { count += 1 }
            }
            perSecond.append(count)
        }
        #expect(perSecond[0] <= 25 && perSecond[0] >= 10)
        #expect(zip(perSecond, perSecond.dropFirst()).allSatisfy { $0 <= $1 })
        #expect(perSecond[11] > 10_000)
    }
}

@Suite struct `A budget` {
    private let start = MonotonicTime(nanos: 1_000_000_000_000)

    @Test func `keeps its last part for what is urgent`() {
        var budget = Budget(maximum: 100)
        for _ in 0..<60 { budget.took() }
        #expect(!budget.hasRoom(for: .marketing) && budget.hasRoom(for: .transactional))
        for _ in 0..<30 { budget.took() }
        #expect(!budget.hasRoom(for: .transactional) && budget.hasRoom(for: .critical))
        for _ in 0..<10 { budget.took() }
        #expect(!budget.hasRoom(for: .critical))
    }

    @Test func `falls once a second at most and grows back with good answers`() {
        var budget = Budget(maximum: 1000)
        for _ in 0..<1000 { budget.took() }
        for _ in 0..<50 { budget.lower(at: start) }
        #expect(budget.limit == 700)
        budget.lower(at: start + .seconds(2))
        #expect(budget.limit < 500)
        for _ in 0..<1000 { budget.gave(grows: false) }
        for second in 3..<60 as Range<Int64> { budget.lower(at: start + .seconds(second)) }
        #expect(budget.limit == 10)
        for _ in 0..<300_000 {
            budget.took()
            budget.gave(grows: true)
        }
        #expect(budget.limit == 1000)
    }
}

@Suite struct `A round trip` {
    private let start = MonotonicTime(nanos: 1_000_000_000_000)

    /// Answers of one second, a thousand of them.
    private func second(_ number: Int64, of span: TimeSpan, _ roundTrip: inout RoundTrip) {
        for step in 0..<1000 as Range<Int64> {
            roundTrip.answered(after: span, at: start + .seconds(number) + .milliseconds(step))
        }
    }

    @Test func `is as long as ever while the gateway keeps its pace, and not when it falls behind`()
    {
        var roundTrip = RoundTrip()
        #expect(roundTrip.isUsual)
        for number in 0..<5 as Range<Int64> {
            second(number, of: .milliseconds(40 + number * 10), &roundTrip)
        }
        #expect(roundTrip.isUsual)
        second(5, of: .milliseconds(150), &roundTrip)
        #expect(!roundTrip.isUsual)
        second(6, of: .milliseconds(50), &roundTrip)
        #expect(roundTrip.isUsual)
    }

    @Test func `that stays longer becomes the usual one`() {
        var roundTrip = RoundTrip()
        second(0, of: .milliseconds(40), &roundTrip)
        second(1, of: .milliseconds(200), &roundTrip)
        #expect(!roundTrip.isUsual)
        for number in 2..<120 as Range<Int64> {
            second(number, of: .milliseconds(200), &roundTrip)
        }
        #expect(roundTrip.isUsual)
    }
}

/// Room that does not come, on a clock that the test turns.
@Suite struct `Waiting for room` {
    /// Twenty events for a gateway that takes nine of them and holds back what it says, after it
    /// has answered one.
    private func crowd(_ gateway: ScriptedGateway) throws -> OneLane {
        let world = try OneLane(gateway) { $0.inFlightPerBulkhead = 10 }
        try world.register("phone", user: "ada", token: SHA256Digest(of: "phone").hex)
        try world.publish(id: "first", user: "ada")
        try world.settle(held: 1)
        world.time.advance(by: .milliseconds(20))
        gateway.release()
        try world.turn { world.events.allSatisfy { $0.openTargets == 0 } }
        for number in 0..<20 { try world.publish(id: "e\(number)", user: "ada") }
        try world.settle(held: 9)
        return world
    }

    private func parked(_ world: OneLane) -> Int {
        world.events.count { $0.targets.contains { $0.postponement?.code == "no_room" } }
    }

    @Test func `ends soon at a gateway that answers nothing at all`() throws {
        let world = try crowd(try ScriptedGateway { _, _ in .hold })
        world.time.advance(by: .milliseconds(900))
        for _ in 0..<5 { world.lane.loop.turn(waitingUpTo: .milliseconds(2)) }
        #expect(parked(world) == 0)
        world.time.advance(by: .milliseconds(150))
        try world.turn { self.parked(world) == 11 }
    }

    @Test func `ends at once when the project has to rest for longer than anybody waits`() throws {
        let world = try crowd(try ScriptedGateway { _, _ in .hold })
        let bulkhead = try #require(
            world.lane.apps.first?.bulkhead(.apns, .production))
        bulkhead.rest.throttled(for: .seconds(60), isProject: true, at: world.lane.loop.now)
        world.time.advance(by: .milliseconds(150))
        try world.turn {
            world.events.count { $0.targets.contains { $0.postponement?.code == "throttled" } }
                == 11
        }
    }

    @Test func `does not put what is critical behind what is not`() throws {
        let gateway = try ScriptedGateway { _, _ in .hold }
        let world = try OneLane(gateway) { $0.inFlightPerBulkhead = 10 }
        try world.register("phone", user: "ada", token: SHA256Digest(of: "phone").hex)
        for number in 0..<12 {
            try world.publish(id: "m\(number)", user: "ada", eventClass: .marketing)
        }
        try world.settle(held: 6)
        for number in 0..<6 {
            try world.publish(id: "c\(number)", user: "ada", eventClass: .critical)
        }
        try world.settle(held: 10)
        gateway.release()
        try world.turn { gateway.seen.count == 16 }
        let order = gateway.seen.map { seen -> String in
            let root = try? JSONParser().parse(seen.body)
            return root?["aps"]?["alert"]?["title"]?.string ?? "?"
        }
        #expect(Array(order[10...]) == ["c4", "c5", "m6", "m7", "m8", "m9"], "\(order)")
    }

    @Test func `goes on at one that is slow`() throws {
        let gateway = try ScriptedGateway { _, _ in .hold }
        let world = try crowd(gateway)
        world.time.advance(by: .milliseconds(900))
        gateway.release()
        try world.turn { gateway.seen.count == 19 }
        world.time.advance(by: .milliseconds(900))
        for _ in 0..<5 { world.lane.loop.turn(waitingUpTo: .milliseconds(2)) }
        #expect(parked(world) == 0)
    }
}

/// A gateway that failed, and that nobody sends to any more.
@Suite struct `A breaker without events` {
    @Test func `is told of for some minutes, and again when an event fails`() throws {
        let gateway = try ScriptedGateway { _, _ in .answer(503, #"{"reason":"Shutdown"}"#) }
        let world = try OneLane(gateway)
        func pass(_ span: TimeSpan) {
            world.time.advance(by: span)
            // Two turns: timers, and what they lead to.
            for _ in 0..<2 { world.lane.loop.turn(waitingUpTo: .zero) }
        }
        func open() -> Double { world.registry.sum(of: "bugle_breakers_open") }
        func settle() throws {
            try world.turn {
                pass(.milliseconds(10))
                return world.events.allSatisfy { $0.openTargets == 0 }
            }
        }
        try world.register("phone", user: "ada", token: SHA256Digest(of: "phone").hex)
        for number in 0..<20 { try world.publish(id: "e\(number)", user: "ada") }
        try settle()
        pass(.seconds(1))
        #expect(open() == 1)
        for _ in 0..<4 {
            pass(.minutes(1))
            #expect(open() == 1)
        }
        for _ in 0..<3 { pass(.minutes(1)) }
        #expect(open() == 0)
        try world.publish(id: "later", user: "ada")
        try settle()
        pass(.seconds(1))
        #expect(open() == 1)
    }
}

/// A gateway that is down, beside one that works.
@Suite(.serialized) struct `Parking, end to end` {
    private static let topic = "push.events-parked-apns-production"

    @Test func `a gateway that fails costs no event, no attempt and the others nothing`() throws {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule("down", FaultMatch(.apnsProduction, count: 4), .accept(.reset))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        world.settings.streamPatience = .milliseconds(300)
        let events = 60
        for user in 0..<events {
            try world.register("ios-\(user)", user: "u\(user)")
            try world.register("android-\(user)", user: "u\(user)", gateway: .fcm)
        }
        try world.start()
        for user in 0..<events { try world.publish(id: "e\(user)", user: "u\(user)") }
        try world.flush()

        let results = try world.records(of: "push.results", atLeast: events * 2)
        #expect(results.count == events * 2)
        #expect(Set(results.map { $0.text("result_id") }).count == events * 2)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(results.allSatisfy { $0.text("attempts") == "1" })
        #expect(results.allSatisfy { $0.text("targets") == "2" })
        #expect(simulator.journal.acceptedMessages.values.allSatisfy { $0 == 1 })
        // What works does not wait for what does not.
        let gateways = results.map { $0.text("gateway") }
        #expect(gateways.prefix(events).allSatisfy { $0 == "fcm" })
        #expect(world.stop())
    }

    @Test func `events of a gateway that is down are parked and come back when it answers`() throws
    {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "broken", FaultMatch(.apnsProduction, count: 10),
                .answer(FaultAnswer(status: 503, reason: "Shutdown")))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        for user in 0..<10 { try world.register("first-\(user)", user: "first-\(user)") }
        for user in 0..<40 { try world.register("then-\(user)", user: "then-\(user)") }
        // A record that tells of so many targets is larger than any event may be beside its value.
        // One device is more than a user may have: the one that was registered first is left out.
        for install in 0...1_000 {
            try world.register(
                "many-\(install)", user: "many", registeredAt: 1_735_689_600_000 + Int64(install))
        }
        try world.start()
        for user in 0..<10 { try world.publish(id: "first-\(user)", user: "first-\(user)") }
        try world.flush()
        // Ten answers of 503 in a row open the breaker; whatever comes now is parked at once.
        #expect(world.eventually { simulator.journal.counters.pushes >= 10 })
        for user in 0..<40 { try world.publish(id: "then-\(user)", user: "then-\(user)") }
        try world.publish(id: "then-many", user: "many")
        try world.flush()

        let parked = try world.records(of: Self.topic, atLeast: 41)
        let record = try #require(parked.last)
        #expect(record.headers["bugle-error-code"] == "gateway_unavailable")
        #expect(record.headers["bugle-attempts"] != nil && record.headers["bugle-pending"] != nil)
        let results = try world.records(of: "push.results", atLeast: 1_050)
        #expect(results.count == 1_050)
        #expect(Set(results.map { $0.text("result_id") }).count == 1_050)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        // Parking uses no attempt up.
        let many = results.filter { $0.text("event_id") == "then-many" }
        #expect(many.count == 1_000)
        #expect(many.allSatisfy { $0.text("targets") == "1000" })
        #expect(!many.contains { $0.text("install_id") == "many-0" })
        #expect(world.lines(with: "limits.addresses_per_user") >= 1)
        let then = results.filter { $0.text("event_id")?.hasPrefix("then") == true }
        #expect(then.allSatisfy { $0.text("attempts") == "1" })
        #expect(world.stop())
    }

    /// A gateway that cuts what a test wants cut.
    private final class Outage: Sendable {
        private let down: Mutex<Set<String>>
        init(_ tokens: some Sequence<String>) { down = Mutex(Set(tokens)) }
        func end(_ tokens: some Sequence<String>) { down.withLock { $0.subtract(tokens) } }
        func action(_ token: String) -> GatewayAction {
            down.withLock { $0.contains(token) }
                ? .answer(503, #"{"reason":"Shutdown"}"#)
                : .answer(200, "")
        }
    }

    @Test func `what is new queues behind what was parked before it, urgent events excepted`()
        throws
    {
        let token = World.token(of: "phone")
        let outage = Outage([token])
        let gateway = try ScriptedGateway { token, _ in outage.action(token) }
        let world = try World(gateway, lanes: 1)
        world.settings.eventTopics.append(("push.urgent", .critical))
        try world.cluster.createTopic("push.urgent", partitions: World.partitions)
        try world.register("phone", user: "ada")
        try world.start()
        for number in 0..<10 { try world.publish(id: "first-\(number)", user: "ada") }
        try world.flush()
        #expect(world.eventually { gateway.seen.count >= 10 })
        let before = 120
        for number in 0..<before { try world.publish(id: "then-\(number)", user: "ada") }
        try world.flush()
        _ = try world.records(of: Self.topic, atLeast: before)
        // So that what is parked has waited for longer than a target waits for room.
        let since = SystemTime.shared.monotonic
        #expect(world.eventually { SystemTime.shared.monotonic - since > .seconds(2) })
        outage.end([token])
        #expect(world.eventually { world.lines(with: "a gateway answers again") >= 1 })
        try world.publish(id: "new", user: "ada")
        try world.publish(
            #"{"id":"urgent","type":"t","user_id":"ada","notification":{"title":"t"}}"#,
            key: "ada", to: "push.urgent")
        try world.flush()
        let results = try world.records(
            of: "push.results", atLeast: before + 12, within: .seconds(60))
        // Those that were tried in vain come back in their own time.
        let order = results.filter {
            $0.text("attempts") == "1" && $0.text("outcome") == "accepted"
        }
        .compactMap { $0.text("event_id") }
        #expect(order.count > before / 2)
        let new = try #require(order.firstIndex(of: "new"))
        let urgent = try #require(order.firstIndex(of: "urgent"))
        let last = try #require(order.lastIndex { $0.hasPrefix("then-") })
        #expect(new > last)
        #expect(urgent < last)
        #expect(world.stop())
    }

    @Test func `what is parked lies still beside an app that sends nothing`() throws {
        let token = World.token(of: "shop")
        let outage = Outage([token])
        let gateway = try ScriptedGateway { token, _ in outage.action(token) }
        let world = try World(gateway, apps: ["shop", "news"], lanes: 1)
        try world.register("shop", user: "ada", app: "shop")
        try world.start()
        for number in 0..<12 {
            try world.publish(id: "first-\(number)", user: "ada", extra: #","app":"shop""#)
        }
        try world.flush()
        #expect(world.eventually { gateway.seen.count >= 10 })
        for number in 0..<30 {
            try world.publish(id: "e\(number)", user: "ada", extra: #","app":"shop""#)
        }
        try world.flush()
        _ = try world.records(of: Self.topic, atLeast: 30)
        outage.end([token])
        // Those that were tried in vain may have used their attempts up.
        let results = try world.records(of: "push.results", atLeast: 42)
            .filter { $0.text("event_id")?.hasPrefix("e") == true }
        #expect(results.count == 30)
        #expect(results.allSatisfy { $0.text("outcome") == "accepted" })
        // None was written to where nobody waits for anybody, and again from there.
        let tiers = try ["10s", "1m", "10m"].flatMap {
            try world.records(of: "push.events-retry-\($0)", atLeast: 1, within: .zero)
        }
        #expect(tiers.allSatisfy { $0.headers["bugle-error-code"] != "gateway_unavailable" })
        #expect(world.stop())
    }

    @Test func `events of an app that is down do not stand in the way of another app's`() throws {
        let tokens = ["shop", "news"].map { World.token(of: $0) }
        let outage = Outage(tokens)
        let gateway = try ScriptedGateway { token, _ in outage.action(token) }
        let world = try World(gateway, apps: ["shop", "news"], lanes: 1)
        for app in ["shop", "news"] { try world.register(app, user: "ada", app: app) }
        try world.start()
        // Ten answers open the breaker of each.
        for number in 0..<12 {
            for app in ["shop", "news"] {
                try world.publish(
                    id: "\(app)-first-\(number)", user: "ada", extra: #","app":"\#(app)""#)
            }
        }
        try world.flush()
        #expect(world.eventually { gateway.seen.count >= 20 })
        // The next events of both are parked, those of the one that stays down in front.
        for app in ["news", "shop"] {
            for number in 0..<30 {
                try world.publish(
                    id: "\(app)-\(number)", user: "ada", extra: #","app":"\#(app)""#)
            }
        }
        try world.flush()
        _ = try world.records(of: Self.topic, atLeast: 60)
        outage.end([tokens[0]])
        var results: [TopicRecord] = []
        let isThrough = world.eventually {
            results =
                (try? world.records(of: "push.results", atLeast: 42, within: .seconds(2))) ?? []
            let ids = Set(results.compactMap { $0.text("event_id") })
            return (0..<30).allSatisfy { ids.contains("shop-\($0)") }
        }
        #expect(isThrough)
        #expect(!results.contains { $0.text("outcome") == "accepted" && $0.text("app") == "news" })
        #expect(world.stop())
    }
}
