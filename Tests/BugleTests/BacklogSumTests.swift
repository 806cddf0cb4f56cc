import Base
import Pipeline
import Testing

@testable import Bugle

@Suite struct BacklogSumTests {
    private let now = UnixMillis(1_000_000_000)

    private func event(_ type: String?, age: TimeSpan, ttl: TimeSpan = .hours(24)) -> WaitingEvent {
        let due = UnixMillis(now.value - age.millis)
        return WaitingEvent(
            topic: "push.events", type: type, source: "s", app: "shop", dueAt: due,
            expiresAt: due + ttl)
    }

    @Test func `sorts by age and counts what has expired and what soon will`() {
        var sum = BacklogSum(at: now, levers: .none, parkedTopics: "parked")
        sum.add(event("a", age: .seconds(5)))
        sum.add(event("a", age: .minutes(5), ttl: .minutes(10)))
        sum.add(event("a", age: .hours(2), ttl: .hours(1)))
        sum.add(event(nil, age: .hours(30)))
        let topic = sum.topics["push.events"]
        #expect(topic?.byAge == [1, 1, 0, 1, 0, 1])
        #expect(topic?.expired == 1 && topic?.expiresSoon == 1 && topic?.unreadable == 1)
        #expect(topic?.oldest == .hours(30))
    }

    @Test func `counts what an order would end, by type`() throws {
        let lever = try #require(Lever(.type, "chat.*"))
        let order = SkipOrder(lever, before: UnixMillis(now.value - 60_000))
        var sum = BacklogSum(at: now, levers: .none, parkedTopics: "parked", order: order)
        sum.add(event("chat.message", age: .minutes(2)))
        sum.add(event("chat.message", age: .seconds(30)))
        sum.add(event("news", age: .minutes(2)))
        #expect(sum.covered == ["chat.message": 1] && sum.coveredCount == 1)
    }

    @Test func `counts as held what is parked for a paused gateway, and nothing else`() throws {
        let lever = try #require(Lever(.gateway, "fcm"))
        let levers = Levers(paused: [lever], skips: [], loosenedAt: UnixMillis(0))
        var sum = BacklogSum(at: now, levers: levers, parkedTopics: "parked")
        for topic in ["parked-fcm-none", "parked-apns-production", "push.events-retry-10s"] {
            var waiting = event("chat", age: .minutes(2))
            waiting.topic = topic
            sum.add(waiting)
        }
        #expect(sum.topics["parked-fcm-none"]?.held == 1)
        #expect(sum.byLever == [.gateway: 1])
    }
}
