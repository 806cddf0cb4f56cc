import Testing

@testable import Bugle

@Suite struct LedgerCheckTests {
    private let place = LedgerPlace(topic: "push.events", partition: 3, offset: 7)
    private let event = Published.event(
        id: "e", required: ["a", "b"], possible: ["a", "b", "dying"])

    private func result(
        _ install: String?, _ outcome: String = "accepted", of targets: Int = 2,
        id: String? = nil, at place: LedgerPlace? = nil, event: String = "e"
    ) -> RecordedResult {
        RecordedResult(
            place: place ?? self.place, resultID: id ?? "r-\(install ?? "none")",
            messageID: install.map { "m-\($0)" }, eventID: event, installID: install,
            gateway: install == nil ? "" : "apns", outcome: outcome, targets: targets)
    }

    private func check(
        _ results: [RecordedResult], letters: [LedgerPlace] = [],
        published: [LedgerPlace: Published]? = nil, taken: [String: Int]? = nil
    ) -> LedgerReport {
        var check = LedgerCheck()
        for result in results { check.add(result) }
        for letter in letters { check.addDeadLetter(of: letter) }
        let published = published ?? [place: event]
        let events = published.values.count { if case .event = $0 { true } else { false } }
        return check.finish(published: published, wanted: events, takenMessages: taken)
    }

    @Test func `one outcome for each target balances`() {
        let report = check(
            [result("a"), result("b")], taken: ["m-a": 1, "m-b": 2])
        #expect(report.isBalanced, "\(report.missing)")
        #expect(report.events == 1)
        #expect(report.targets == 2)
        #expect(report.outcomes == ["apns": ["accepted": 2]])
        #expect(report.sentTwice == 1)
    }

    @Test func `a dying install may be a target and need not be accepted`() {
        let report = check([
            result("a", of: 3), result("b", of: 3), result("dying", "token_invalid", of: 3),
        ])
        #expect(report.isBalanced, "\(report.missing)")
    }

    @Test func `the same record twice is counted once`() {
        let report = check([result("a"), result("b"), result("b")])
        #expect(report.isBalanced)
        #expect(report.repeated == 1)
        #expect(report.targets == 2)
    }

    @Test func `what is missing is named`() {
        #expect(check([]).missing == ["e: no outcome"])
        #expect(check([result("a", of: 1)]).missing == ["e: no outcome for b"])
        #expect(
            check([result("a"), result("b", "failed")]).missing
                == ["e: failed for b, expected accepted"])
    }

    @Test func `two outcomes of one target do not balance`() {
        let report = check([result("a"), result("b"), result("b", "failed")])
        #expect(!report.isBalanced)
        let other = check([result("a", of: 3), result("b", of: 3), result("b", of: 3, id: "other")])
        #expect(!other.isBalanced)
    }

    @Test func `a stranger's device and another number of targets do not balance`() {
        #expect(!check([result("a", of: 3), result("b", of: 3), result("x", of: 3)]).isBalanced)
        #expect(!check([result("a", of: 3), result("b", of: 3)]).isBalanced)
        #expect(!check([result("a"), result("b", event: "f")]).isBalanced)
    }

    @Test func `what was folded went to the same install with a newer event of the same key`() {
        let newer = LedgerPlace(topic: "push.events", partition: 3, offset: 9)
        func report(
            into place: LedgerPlace?, _ collapse: String = "u k", sent: Bool = true
        ) -> LedgerReport {
            var folded = result("a", "coalesced")
            folded.foldedInto = place
            var results = [folded, result("b"), result("b", id: "n-b", at: newer, event: "n")]
            if sent { results.append(result("a", id: "n-a", at: newer, event: "n")) }
            return check(
                results,
                published: [
                    self.place: .event(
                        id: "e", required: ["a", "b"], possible: ["a", "b"], collapse: "u k"),
                    newer: .event(
                        id: "n", required: ["b"], possible: ["a", "b"], collapse: collapse),
                ])
        }
        #expect(report(into: newer).isBalanced, "\(report(into: newer).missing)")
        #expect(!report(into: nil).isBalanced)
        #expect(!report(into: self.place).isBalanced)
        #expect(!report(into: newer, "u other").isBalanced)
        #expect(!report(into: newer, sent: false).isBalanced)
    }

    @Test func `a user without devices has one outcome`() {
        let nobody = [place: Published.event(id: "e", required: [], possible: [])]
        #expect(check([result(nil, "no_devices", of: 1)], published: nobody).isBalanced)
        #expect(!check([], published: nobody).isBalanced)
    }

    @Test func `every poison record has a dead letter and nothing else has one`() {
        let other = LedgerPlace(topic: "push.events", partition: 3, offset: 8)
        let published: [LedgerPlace: Published] = [place: event, other: .poison]
        let good = [result("a"), result("b")]
        #expect(check(good, letters: [other], published: published).isBalanced)
        #expect(check(good, letters: [other, other], published: published).isBalanced)
        #expect(!check(good, published: published).isBalanced)
        #expect(!check(good, letters: [other, place], published: published).isBalanced)
        let told = result(nil, "dead_lettered", of: 1, at: other)
        #expect(check(good + [told], letters: [other], published: published).isBalanced)
        let sent = result("a", at: other)
        #expect(!check(good + [sent], letters: [other], published: published).isBalanced)
    }

    @Test func `events that are not in the topic are missed`() {
        let report = LedgerCheck().finish(published: [:], wanted: 2, takenMessages: nil)
        #expect(report.missing == ["0 events are in the topic, published 2"])
    }

    @Test func `gateways and results agree`() {
        let good = [result("a"), result("b")]
        #expect(!check(good, taken: ["m-a": 1]).isBalanced)
        #expect(!check(good, taken: ["m-a": 1, "m-b": 1, "m-x": 1]).isBalanced)
    }
}
