// One pass over the books: what each event has, and what it should have.

internal import Kafka

/// Sums up books whose entries are in order.
internal struct AuditSum {
    let allowsRepeats: Bool
    /// How many findings of each kind are kept.
    let listed: Int
    private(set) var report = AuditReport()
    private var kept: [AuditFinding.Kind: Int] = [:]

    init(allowsRepeats: Bool, listed: Int) {
        self.allowsRepeats = allowsRepeats
        self.listed = listed
    }

    /// Adds a partition.
    mutating func add(_ book: AuditLedger.Book, _ place: TopicPartition) {
        var next = 0
        var unsettled: Int64?
        // What is below the first record was deleted while the topics were read.
        let read = AuditLedger.State.event | AuditLedger.State.other
        let first = book.states.firstIndex { $0 & read != 0 }
        for (slot, state) in book.states.enumerated() {
            let start = next
            while next < book.entries.count, book.entries[next].slot == UInt32(slot) { next += 1 }
            guard state != 0 || next > start, slot >= first ?? .max else { continue }
            let event = AuditedEvent(
                state, book.entries[start..<next], place: place,
                offset: book.range.lowerBound + Int64(slot),
                isCommitted: book.range.lowerBound + Int64(slot) < book.committed)
            let waitedBefore = report.waiting
            check(event)
            if report.waiting > waitedBefore, unsettled == nil { unsettled = event.offset }
        }
        report.settledUpTo[place] =
            unsettled
            ?? max(min(book.committed, book.range.upperBound), book.range.lowerBound)
    }

    private mutating func check(_ event: AuditedEvent) {
        guard !event.isOther else { return }
        guard event.isEvent else {
            let records = event.outcomes.count + event.letters
            if records > 0 { note(.stray, records, event, "outcomes or dead letters, no event") }
            return
        }
        report.events += 1
        countOutcomes(event)
        if event.letters > 0 { return checkLetter(event) }
        if event.outcomes.contains(where: { $0.flags & AuditLedger.Entry.deadLetter != 0 }) {
            return note(.missing, 1, event, "its dead letter")
        }
        if event.contradicts {
            note(.doubled, 1, event, "its records claim different numbers of targets")
        }
        checkTargets(event)
    }

    /// Counts each target once; a second outcome of one is doubled, or repeated if it is the same
    /// record.
    private mutating func countOutcomes(_ event: AuditedEvent) {
        var previous: AuditLedger.Entry?
        for outcome in event.outcomes {
            defer { previous = outcome }
            guard let previous, previous.index == outcome.index else {
                report.targets += 1
                continue
            }
            if previous.id != outcome.id {
                note(.doubled, 1, event, "two outcomes of target \(outcome.index)")
            } else if allowsRepeats {
                report.repeated += 1
            } else {
                note(.doubled, 1, event, "the outcome of target \(outcome.index) twice")
            }
        }
    }

    private mutating func checkLetter(_ event: AuditedEvent) {
        report.deadLetters += 1
        if event.letters > 1 {
            if allowsRepeats {
                report.repeated += 1
            } else {
                note(.doubled, 1, event, "two dead letters")
            }
        }
        let others = event.outcomes.count { $0.flags & AuditLedger.Entry.deadLetter == 0 }
        if others > 0 { note(.doubled, others, event, "a dead letter and other outcomes") }
    }

    private mutating func checkTargets(_ event: AuditedEvent) {
        let claimed = event.targets
        guard claimed > 0 else {
            if event.waitsAsWhole || !event.isCommitted {
                report.waiting += 1
            } else {
                note(.missing, 1, event, "any outcome")
            }
            return
        }
        let done = Self.indexes(event.outcomes)
        let beyond = done.count { $0 >= claimed }
        if beyond > 0 { note(.doubled, beyond, event, "more outcomes than its \(claimed) targets") }
        let open = claimed - (done.count - beyond)
        guard open > 0 else { return }
        let waits = Self.indexes(event.waiting)
        let waiting = waits.count { $0 < claimed && !done.contains($0) }
        let lost = open - waiting
        report.waiting += waiting
        if lost == 0 { return }
        if event.waitsAsWhole || !event.isCommitted {
            report.waiting += lost
        } else {
            note(.missing, lost, event, "\(lost) of \(claimed) outcomes")
        }
    }

    /// The different targets of some entries, ascending; events with many targets are rare.
    private static func indexes(_ entries: ArraySlice<AuditLedger.Entry>) -> [Int] {
        var indexes: [Int] = []
        for entry in entries where indexes.last != Int(entry.index) {
            indexes.append(Int(entry.index))
        }
        return indexes
    }

    private mutating func note(
        _ kind: AuditFinding.Kind, _ count: Int, _ event: AuditedEvent, _ detail: String
    ) {
        switch kind {
        case .missing: report.missing += count
        case .doubled: report.doubled += count
        case .stray: report.strays += count
        }
        guard kept[kind, default: 0] < listed else { return }
        kept[kind, default: 0] += 1
        report.findings.append(
            AuditFinding(kind: kind, place: event.place, offset: event.offset, detail: detail))
    }
}

/// One offset of an events topic with all that belongs to it.
internal struct AuditedEvent {
    private let state: UInt32
    let outcomes: ArraySlice<AuditLedger.Entry>
    let waiting: ArraySlice<AuditLedger.Entry>
    let place: TopicPartition
    let offset: Int64
    /// Whether the group has committed it.
    let isCommitted: Bool

    init(
        _ state: UInt32, _ entries: ArraySlice<AuditLedger.Entry>, place: TopicPartition,
        offset: Int64, isCommitted: Bool
    ) {
        self.state = state
        let split = entries.firstIndex { $0.isWaiting } ?? entries.endIndex
        outcomes = entries[..<split]
        waiting = entries[split...]
        self.place = place
        self.offset = offset
        self.isCommitted = isCommitted
    }

    var isEvent: Bool { state & AuditLedger.State.event != 0 }
    /// Whether nobody asks about it.
    var isOther: Bool { state & AuditLedger.State.other != 0 }
    var contradicts: Bool { state & AuditLedger.State.contradiction != 0 }
    var waitsAsWhole: Bool { state & AuditLedger.State.waiting != 0 }
    /// The number of targets; 0 when nobody said.
    var targets: Int { Int(state >> AuditLedger.State.targetsShift) }
    /// Dead letters: none, one, or more.
    var letters: Int {
        state & AuditLedger.State.letterAgain != 0
            ? 2 : state & AuditLedger.State.letter != 0 ? 1 : 0
    }
}
