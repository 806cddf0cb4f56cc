import Base
import Testing

@testable import Simulator

private func entry(
    _ token: String, messageID: String? = nil, status: Int = 200, fate: RequestFate = .answered
) -> JournalEntry {
    JournalEntry(
        service: .apnsProduction, token: token, messageID: messageID, apnsID: nil, collapseID: nil,
        priority: nil, expiration: nil, topic: nil, authorization: "a", neverIndexed: [],
        connection: 1, stream: 1, at: UnixMillis(0), status: status, reason: "", fate: fate,
        body: [])
}

@Suite struct `The journal` {
    @Test func `tells what was taken, how often, and what was not processed`() {
        let journal = Journal()
        journal.record(entry("t1", messageID: "m1"))
        journal.record(entry("t1", messageID: "m1", fate: .unanswered))
        journal.record(entry("t1", messageID: "m1", status: 0, fate: .notProcessed))
        journal.record(entry("t2", messageID: "m2", status: 410))
        #expect(journal.count(token: "t1") == 3)
        #expect(journal.accepted(token: "t1") == 2)
        #expect(journal.accepted(messageID: "m1") == 2)
        #expect(journal.acceptedMessages == ["m1": 2])
        #expect(journal.entries(messageID: "m2").map(\.status) == [410])
        #expect(journal.entries(token: "t1").count == 3)
        let counters = journal.counters
        #expect(counters.pushes == 4)
        #expect(counters.accepted == 2)
        #expect(counters.unanswered == 1)
        #expect(counters.notProcessed == 1)
        #expect(journal.count(.apnsProduction, status: 200) == 2)
        journal.clear()
        #expect(journal.entries.isEmpty && journal.counters.pushes == 0)
    }

    @Test func `keeps counters only when told to`() {
        let journal = Journal(.countersOnly)
        for _ in 0..<1000 { journal.record(entry("t1", messageID: "m1")) }
        #expect(journal.counters.accepted == 1000)
        #expect(journal.entries.isEmpty)
        #expect(journal.acceptedMessages.isEmpty)
        #expect(journal.count(token: "t1") == 0)
    }

    @Test func `lets a thread wait for a count`() {
        let journal = Journal()
        #expect(!journal.wait(upTo: .zero) { $0.pushes >= 1 })
        journal.record(entry("t1"))
        #expect(journal.wait(upTo: .zero) { $0.pushes >= 1 })
    }
}

@Suite struct `Latencies` {
    private func draws(_ latency: LatencyDistribution, seed: UInt64) -> [TimeSpan] {
        var random = SeededRandom(seed: seed)
        return (0..<4001).map { _ in latency.draw(&random) }.sorted()
    }

    @Test func `follow their distribution and repeat with their seed`() {
        #expect(Set(draws(.fixed(.milliseconds(40)), seed: 1)) == [.milliseconds(40)])
        let even = draws(.uniform(.milliseconds(10), .milliseconds(20)), seed: 1)
        #expect(even.allSatisfy { $0 >= .milliseconds(10) && $0 <= .milliseconds(20) })
        #expect((14...16).contains(even[2000].millis))
        let skewed = draws(.lognormal(median: .milliseconds(40), sigma: 0.5), seed: 1)
        #expect((37...43).contains(skewed[2000].millis))
        // The 95th percentile lies at exp(1.645 sigma) times the median: 91 ms.
        #expect((80...103).contains(skewed[3800].millis))
        #expect(draws(.lognormal(median: .milliseconds(40), sigma: 0.5), seed: 1) == skewed)
        #expect(draws(.lognormal(median: .milliseconds(40), sigma: 0.5), seed: 2) != skewed)
    }
}

@Suite struct `Token patterns` {
    @Test(arguments: [
        ("abc", "abc", true), ("abc", "a*", true), ("abc", "*c", true), ("abc", "a?c", true),
        ("abc", "*", true), ("", "*", true), ("", "", true), ("abc", "a*b*c", true),
        ("abbbc", "a*bc", true), ("abc", "ab", false), ("abc", "abcd", false),
        ("abc", "?", false), ("abc", "", false), ("abc", "a*d", false),
    ])
    func `match as in a shell`(text: String, pattern: String, isMatch: Bool) {
        #expect(Glob.matches(Array(text.utf8), Array(pattern.utf8)) == isMatch)
    }
}
