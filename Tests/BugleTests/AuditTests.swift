import Base
import Kafka
import Testing

@testable import Bugle

/// The arithmetic of `bugle audit`, with every kind of damage.
@Suite struct AuditTests {
    private let place = TopicPartition("push.events", 3)

    /// A ledger of the offsets 10 to 19, committed up to 15; 10 and 11 are events.
    private func ledger(
        allowsRepeats: Bool = false, events: [Int64] = [10, 11]
    ) -> AuditLedger {
        var ledger = AuditLedger(
            [place: 10..<20], committed: [place: 15], allowsRepeats: allowsRepeats)
        for offset in events { ledger.addEvent(place, offset) }
        return ledger
    }

    private func result(_ id: UInt64, _ index: Int, of targets: Int) -> AuditedResult {
        AuditedResult(id: id, index: index, targets: targets)
    }

    /// Both events with all their outcomes.
    private func whole(allowsRepeats: Bool = false, events: [Int64] = [10, 11]) -> AuditLedger {
        var ledger = ledger(allowsRepeats: allowsRepeats, events: events)
        ledger.add(result(1, 0, of: 2), of: place, 10)
        ledger.add(result(2, 1, of: 2), of: place, 10)
        ledger.add(result(3, 0, of: 1), of: place, 11)
        return ledger
    }

    private func report(_ ledger: AuditLedger, listing listed: Int = 100) -> AuditReport {
        var ledger = ledger
        return ledger.report(listing: listed)
    }

    private func details(_ report: AuditReport) -> [String] {
        report.findings.map { "\($0.kind.rawValue) \($0.offset): \($0.detail)" }
    }

    @Test func `one outcome for each target balances`() {
        let report = report(whole())
        #expect(report.isBalanced)
        #expect(report.events == 2)
        #expect(report.targets == 3)
        #expect(report.waiting == 0)
        #expect(report.findings.isEmpty)
        #expect(report.settledUpTo == [place: 15])
    }

    @Test func `an event below the commit point without any outcome is missing`() {
        let report = report(whole(events: [10, 11, 12]))
        #expect(!report.isBalanced)
        #expect(report.missing == 1)
        #expect(details(report) == ["missing 12: any outcome"])
    }

    @Test func `an event above the commit point waits, and so does the rest of one`() {
        var ledger = whole(events: [10, 11, 15, 16])
        ledger.add(result(4, 1, of: 3), of: place, 16)
        let report = report(ledger)
        #expect(report.isBalanced)
        #expect(report.waiting == 3)
        #expect(report.settledUpTo == [place: 15])
    }

    @Test func `a lost outcome is missed by number`() {
        var ledger = whole(events: [10, 11, 12])
        ledger.add(result(4, 0, of: 3), of: place, 12)
        let report = report(ledger)
        #expect(report.missing == 2)
        #expect(details(report) == ["missing 12: 2 of 3 outcomes"])
    }

    @Test func `what waits in a retry topic is not missing`() {
        var ledger = whole(events: [10, 11, 12, 13])
        ledger.add(result(4, 0, of: 3), of: place, 12)
        ledger.addWaiting([1, 2], targets: 3, of: place, 12)
        ledger.addWaiting([], targets: nil, of: place, 13)
        let report = report(ledger)
        #expect(report.isBalanced)
        #expect(report.waiting == 3)
        #expect(report.settledUpTo == [place: 12])
    }

    @Test func `a target that waits and has its outcome was finished above a commit point`() {
        var ledger = whole()
        ledger.addWaiting([0, 1], targets: 2, of: place, 10)
        #expect(report(ledger).isBalanced)
        #expect(report(ledger).waiting == 0)
    }

    @Test func `a retry that was dealt with and led to nothing is missing`() {
        var ledger = whole(events: [10, 11, 12])
        ledger.addPassed(targets: 2, of: place, 12)
        #expect(details(report(ledger)) == ["missing 12: 2 of 2 outcomes"])
        ledger.addWaiting([1], targets: 2, of: place, 12)
        #expect(details(report(ledger)) == ["missing 12: 1 of 2 outcomes"])
    }

    @Test func `the same outcome twice is doubled, or repeated with plain commits`() {
        var ledger = whole()
        ledger.add(result(2, 1, of: 2), of: place, 10)
        let strict = report(ledger)
        #expect(strict.doubled == 1)
        #expect(strict.targets == 3)
        #expect(details(strict) == ["doubled 10: the outcome of target 1 twice"])
        var plain = whole(allowsRepeats: true)
        plain.add(result(2, 1, of: 2), of: place, 10)
        #expect(report(plain).isBalanced)
        #expect(report(plain).repeated == 1)
    }

    @Test func `another outcome of the same target is doubled in both modes`() {
        for allowsRepeats in [false, true] {
            var ledger = whole(allowsRepeats: allowsRepeats)
            ledger.add(result(9, 1, of: 2), of: place, 10)
            #expect(report(ledger).doubled == 1)
            #expect(details(report(ledger)) == ["doubled 10: two outcomes of target 1"])
        }
    }

    @Test func `an outcome beyond the targets is doubled, and stands for none that is missing`() {
        var ledger = whole(events: [10, 11, 12])
        ledger.add(result(4, 0, of: 2), of: place, 12)
        ledger.add(result(5, 2, of: 2), of: place, 12)
        let report = report(ledger)
        #expect(report.doubled == 1)
        #expect(report.missing == 1)
    }

    @Test func `outcomes that claim different numbers of targets contradict each other`() {
        var ledger = whole()
        ledger.add(result(4, 1, of: 2), of: place, 11)
        #expect(report(ledger).doubled > 0)
        #expect(
            details(report(ledger)).contains(
                "doubled 11: its records claim different numbers of targets"))
    }

    @Test func `a dead letter ends an event, twice it is doubled`() {
        var ledger = whole(events: [10, 11, 12])
        ledger.addLetter(of: place, 12, isCopy: false)
        #expect(report(ledger).isBalanced)
        #expect(report(ledger).deadLetters == 1)
        ledger.addLetter(of: place, 12, isCopy: false)
        #expect(details(report(ledger)) == ["doubled 12: two dead letters"])
        var plain = whole(allowsRepeats: true, events: [10, 11, 12])
        plain.addLetter(of: place, 12, isCopy: false)
        plain.addLetter(of: place, 12, isCopy: false)
        #expect(report(plain).isBalanced)
        #expect(report(plain).repeated == 1)
    }

    @Test func `a dead letter may have the outcome that says so, and no other`() {
        var ledger = whole(events: [10, 11, 12])
        ledger.addLetter(of: place, 12, isCopy: false)
        ledger.add(
            AuditedResult(id: 4, index: 0, targets: 1, isDeadLetter: true), of: place, 12)
        #expect(report(ledger).isBalanced)
        ledger.addLetter(of: place, 11, isCopy: false)
        #expect(details(report(ledger)) == ["doubled 11: a dead letter and other outcomes"])
    }

    @Test func `an outcome that tells of a dead letter which is not there`() {
        var ledger = whole(events: [10, 11, 12])
        ledger.add(
            AuditedResult(id: 4, index: 0, targets: 1, isDeadLetter: true), of: place, 12)
        #expect(details(report(ledger)) == ["missing 12: its dead letter"])
    }

    @Test func `a copy in the dead letters neither ends nor doubles an event`() {
        var ledger = whole(events: [10, 11, 12])
        ledger.addLetter(of: place, 10, isCopy: true)
        #expect(details(report(ledger)) == ["missing 12: any outcome"])
        ledger.addLetter(of: place, 12, isCopy: true)
        #expect(report(ledger).missing == 1)
    }

    @Test func `outcomes and letters of no event are strays`() {
        var ledger = whole()
        ledger.add(result(4, 0, of: 1), of: place, 13)
        ledger.addLetter(of: place, 14, isCopy: false)
        let report = report(ledger)
        #expect(report.strays == 2)
        #expect(!report.isBalanced)
        #expect(report.events == 2)
    }

    @Test func `what is outside of the audited offsets is not looked at`() {
        var ledger = whole()
        ledger.add(result(4, 0, of: 1), of: place, 9)
        ledger.add(result(4, 0, of: 1), of: place, 20)
        ledger.add(result(4, 0, of: 1), of: TopicPartition("push.events", 4), 10)
        ledger.addEvent(place, 20)
        ledger.addLetter(of: place, 9, isCopy: false)
        #expect(report(ledger).isBalanced)
        #expect(report(ledger).events == 2)
    }

    @Test func `events nobody asks about are neither counted nor missed`() {
        var ledger = whole()
        ledger.addOther(place, 12)
        ledger.addOther(place, 13)
        ledger.add(result(4, 0, of: 1), of: place, 13)
        #expect(report(ledger).isBalanced)
        #expect(report(ledger).events == 2)
    }

    @Test func `outcomes of events that were deleted meanwhile are no strays`() {
        var ledger = ledger(events: [12])
        ledger.add(result(1, 0, of: 1), of: place, 10)
        ledger.add(result(2, 0, of: 1), of: place, 12)
        #expect(report(ledger).isBalanced)
    }

    @Test func `a group that has committed nothing has everything waiting`() {
        var ledger = AuditLedger([place: 10..<20], committed: [:], allowsRepeats: false)
        ledger.addEvent(place, 10)
        let report = report(ledger)
        #expect(report.isBalanced)
        #expect(report.waiting == 1)
        #expect(report.settledUpTo == [place: 10])
    }

    @Test func `all findings are counted, few are listed`() {
        let report = report(ledger(events: [10, 11, 12, 13]), listing: 2)
        #expect(report.missing == 4)
        #expect(report.findings.map(\.offset) == [10, 11])
    }

    /// The books against a simple count, with random damage.
    @Test func `random damage is counted exactly`() {
        let seed = UInt64.random(in: 0...UInt64.max)
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            var ledger = AuditLedger([place: 0..<50], committed: [place: 40], allowsRepeats: false)
            var missing = 0
            var doubled = 0
            var targets = 0
            for offset in Int64(0)..<40 {
                ledger.addEvent(place, offset)
                let count = Int(random.next() % 4) + 1
                var written = 0
                for index in 0..<count {
                    let times = [0, 1, 1, 1, 1, 1, 2][Int(random.next() % 7)]
                    for _ in 0..<times {
                        ledger.add(
                            result(UInt64(index) + 7, index, of: count), of: place, offset)
                    }
                    written += min(times, 1)
                    targets += min(times, 1)
                    doubled += max(times - 1, 0)
                }
                // Without any outcome nobody knows how many there should be.
                missing += written == 0 ? 1 : count - written
            }
            let report = ledger.report(listing: 0)
            #expect(report.missing == missing, "seed \(seed)")
            #expect(report.doubled == doubled, "seed \(seed)")
            #expect(report.targets == targets, "seed \(seed)")
        }
    }

    @Test func `the books take what the help says`() {
        #expect(AuditLedger.bytesPerOffset == 4)
        #expect(AuditLedger.bytesPerTarget == 16)
        var ledger = whole()
        let before = ledger.bytes
        for number in 0..<10_000 {
            ledger.add(result(UInt64(number), number, of: 10_000), of: place, 12)
        }
        #expect((160_000...400_000).contains(ledger.bytes - before))
    }

    @Test func `times and places are read`() throws {
        let now = UnixMillis(1_700_000_000_000)
        #expect(try AuditCommand.time("30m", at: now).value == now.value - 1_800_000)
        #expect(try AuditCommand.time("2023-11-14T22:13:20Z", at: now).value == 1_700_000_000_000)
        #expect(throws: Failure.self) { try AuditCommand.time("yesterday", at: now) }
        #expect(
            try AuditCommand.places("push.events-3-1200,my-topic-0-7")
                == [TopicPartition("push.events", 3): 1200, TopicPartition("my-topic", 0): 7])
        #expect(throws: Failure.self) { try AuditCommand.places("push.events-x-1") }
    }

    @Test func `machines read counts, findings and where to go on`() {
        var ledger = whole(events: [10, 11, 12])
        var report = ledger.report(listing: 10)
        report.findings[0].eventID = "order-7"
        #expect(
            AuditOutput.json(report) == #"{"balanced":false,"events":3,"targets":3,"missing":1,"#
                + #""doubled":0,"strays":0,"waiting":0,"dead_letters":0,"repeated":0,"#
                + #""findings":[{"kind":"missing","place":"push.events-3-12","#
                + #""event_id":"order-7","detail":"any outcome"}],"#
                + #""continue_from":"push.events-3-15"}"#)
        #expect(AuditOutput.text(report).contains("push.events-3-12  order-7  any outcome"))
    }
}
