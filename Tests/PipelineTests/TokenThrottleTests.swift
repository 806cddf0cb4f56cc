import Base
import HTTP2
import Simulator
import Testing
import TokenIndex

@testable import Pipeline

@Suite struct `Tokens that are left alone` {
    private func address(_ name: String) throws -> DeviceAddress {
        DeviceAddress(
            DeviceFields(
                id: try #require(AddressID(app: "shop", installID: name)), userID: "u",
                platform: "ios", gateway: .apns, environment: .production, token: name,
                registeredAt: UnixMillis(0)))
    }

    private let start = MonotonicTime(nanos: 0)

    @Test func `wait until their time, the others do not`() throws {
        var throttles = TokenThrottles()
        let (slow, quick) = (try address("slow"), try address("quick"))
        #expect(throttles.isEmpty)
        throttles.hold(slow, until: start + .seconds(60), at: start)
        throttles.hold(slow, until: start + .seconds(30), at: start)
        #expect(throttles.wait(slow, at: start + .seconds(1)) == .seconds(59))
        #expect(throttles.wait(quick, at: start) == nil)
        #expect(throttles.wait(slow, at: start + .seconds(60)) == nil)
        #expect(throttles.isEmpty)
    }

    @Test func `are bounded, and make room when their time is over`() throws {
        var throttles = TokenThrottles()
        for number in 0..<TokenThrottles.tokensMax {
            throttles.hold(try address("\(number)"), until: start + .seconds(5), at: start)
        }
        let late = try address("late")
        throttles.hold(late, until: start + .seconds(9), at: start + .seconds(1))
        #expect(throttles.wait(late, at: start + .seconds(1)) == nil)
        throttles.hold(late, until: start + .seconds(9), at: start + .seconds(6))
        #expect(throttles.wait(late, at: start + .seconds(6)) == .seconds(3))
        #expect(throttles.wait(try address("1"), at: start + .seconds(6)) == nil)
    }
}

@Suite(.serialized) struct `A throttled token, end to end` {
    /// FCM's answer when somebody's quota is used up.
    private static func quotaExceeded(of subject: String) -> String {
        """
        {"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError",
         "errorCode":"QUOTA_EXCEEDED"},
        {"@type":"type.googleapis.com/google.rpc.QuotaFailure",
         "violations":[{"subject":"\(subject)"}]}]}}
        """
    }

    @Test func `FCM-07: the next event of a throttled device waits, its neighbour's does not`()
        throws
    {
        let slow = World.token(of: "slow", gateway: .fcm)
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "quota of a device", FaultMatch(.fcm, tokenPrefix: slow, count: 1),
                .answer(
                    FaultAnswer(
                        status: 429, reason: "QUOTA_EXCEEDED",
                        body: Self.quotaExceeded(of: "device:x"))))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        try world.register("slow", user: "u1", gateway: .fcm)
        try world.register("quick", user: "u2", gateway: .fcm)
        try world.start()
        try world.publish(id: "first", user: "u1")
        try world.flush()
        // The first event has been told to wait a minute when it stands in a retry topic. The waits
        // of these tests are a hundredth, the gateway's is not: a minute outlasts an hour's 36 s.
        let first = try world.records(of: "push.events-retry-1h", atLeast: 1)
        #expect(first.map { $0.headers["bugle-error-code"] } == ["QUOTA_EXCEEDED"])
        try world.publish(id: "second", user: "u1")
        try world.publish(id: "other", user: "u2")
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.first?.text("event_id") == "other")
        #expect(results.first?.text("outcome") == "accepted")
        let isPutOff = world.eventually {
            let waiting = try? world.records(of: "push.events-retry-1h", atLeast: 1)
            return waiting?.contains {
                $0.headers["bugle-error-code"] == "throttled"
                    && $0.headers["bugle-attempts"] == "0"
            } ?? false
        }
        #expect(isPutOff)
        #expect(simulator.journal.count(token: slow) == 1)
        #expect(world.stop())
    }

    @Test func `FCM-07: a project's quota stops the project, at no other event's cost`() throws {
        let first = World.token(of: "first", gateway: .fcm)
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "quota of the project", FaultMatch(.fcm, tokenPrefix: first, count: 1),
                .answer(
                    FaultAnswer(
                        status: 429, reason: "QUOTA_EXCEEDED",
                        fields: [ServerField("retry-after", "90")],
                        body: Self.quotaExceeded(of: "project:demo"))))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        for name in ["first", "second", "third"] {
            try world.register(name, user: name, gateway: .fcm)
        }
        try world.start()
        try world.publish(id: "first", user: "first")
        try world.flush()
        _ = try world.records(of: "push.events-retry-1h", atLeast: 1)
        try world.publish(id: "second", user: "second")
        try world.publish(id: "third", user: "third")
        try world.flush()
        let parked = try world.records(of: "push.events-parked-fcm-none", atLeast: 2)
        #expect(Set(parked.map { $0.headers["bugle-error-code"] }) == ["throttled"])
        #expect(Set(parked.map { $0.headers["bugle-attempts"] }) == ["0"])
        #expect(simulator.journal.entries.count { $0.service == .fcm } == 1)
        #expect(world.stop())
    }

    @Test func `one that does not say whose rate it was stops the project when five have met it`() {
        let start = MonotonicTime(nanos: 1_000_000_000_000)
        let rest = ProjectRest()
        for _ in 0..<4 { rest.throttled(for: .seconds(60), isProject: false, at: start) }
        #expect(rest.left(at: start) == nil)
        rest.accepted()
        for _ in 0..<4 { rest.throttled(for: .seconds(60), isProject: false, at: start) }
        #expect(rest.left(at: start) == nil)
        rest.throttled(for: .seconds(60), isProject: false, at: start)
        #expect(rest.left(at: start + .seconds(20)) == .seconds(40))
        rest.throttled(for: .seconds(10), isProject: false, at: start + .seconds(20))
        #expect(rest.left(at: start + .seconds(59)) == .seconds(1))
        #expect(rest.left(at: start + .seconds(60)) == nil)
    }

    @Test func `FCM-07: a wait that its event does not outlive ends it, and none is shorter`()
        throws
    {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "quota", FaultMatch(.fcm),
                .answer(
                    FaultAnswer(
                        status: 429, reason: "QUOTA_EXCEEDED",
                        fields: [ServerField("retry-after", "7200")])))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        try world.register("phone", user: "u1", gateway: .fcm)
        try world.start()
        try world.publish(id: "short", user: "u1", extra: #","ttl":600"#)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 1)
        #expect(results.map { $0.text("outcome") } == ["expired"])
        #expect(results.map { $0.text("reason") } == ["QUOTA_EXCEEDED"])
        #expect(results.map { $0.text("attempts") } == ["1"])
        #expect(world.stop())
        #expect(simulator.journal.entries.count { $0.service == .fcm } == 1)
        for tier in RetryTier.allCases {
            let topic = tier.topic(of: "push.events-retry")
            #expect(try world.records(of: topic, atLeast: 1, within: .zero).isEmpty)
        }
    }

    @Test func `one attempt alone does not wait`() throws {
        let slow = World.token(of: "slow")
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: [
            FaultRule(
                "busy", FaultMatch(.apnsProduction, tokenPrefix: slow, count: 1),
                .answer(FaultAnswer(status: 429, reason: "TooManyRequests")))
        ])
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        try world.register("slow", user: "u1")
        try world.start()
        try world.publish(id: "first", user: "u1", extra: #","ttl":0"#)
        try world.flush()
        _ = try world.records(of: "push.results", atLeast: 1)
        try world.publish(id: "second", user: "u1", extra: #","ttl":0"#)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(results.map { $0.text("outcome") } == ["failed", "failed"])
        #expect(results.map { $0.text("reason") } == ["TooManyRequests", "throttled"])
        #expect(results.map { $0.text("attempts") } == ["1", "0"])
    }
}
