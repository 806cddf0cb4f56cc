// The ledger added up again, from what stands in the topics and nothing else: each event must have
// one outcome for each of its targets, or a dead letter, or be waiting. Pure, and apart from
// everything that dispatches and from the demo's check.
//
// Memory is bounded by what is audited: four bytes for each offset of an events topic, sixteen for
// each outcome and each waiting target.

internal import Base
internal import Kafka

/// A record of `push.results`, as far as the sum needs it.
internal struct AuditedResult {
    /// The `result_id`, shortened: two ids of one event fall together once in 2^64.
    var id: UInt64
    /// The target's number in its event.
    var index: Int
    /// How many targets the event claims.
    var targets: Int
    /// Whether it tells of a dead letter.
    var isDeadLetter = false
}

/// Something that does not add up.
internal struct AuditFinding: Equatable {
    /// What kind of damage.
    enum Kind: String { case missing, doubled, stray }

    var kind: Kind
    var place: TopicPartition
    var offset: Int64
    var detail: String
    /// The event's id, when it could be read.
    var eventID: String?
}

/// The sum.
internal struct AuditReport: Equatable {
    /// Records of the events topics.
    var events = 0
    /// Different outcomes.
    var targets = 0
    /// Outcomes and dead letters that should be there.
    var missing = 0
    /// Outcomes and dead letters that are there once too often.
    var doubled = 0
    /// Outcomes and dead letters of records that are no events.
    var strays = 0
    /// Targets, and events without targets so far, that are still to be dealt with.
    var waiting = 0
    /// Events that ended as dead letters.
    var deadLetters = 0
    /// Records that were written again, where that is allowed.
    var repeated = 0
    /// The first findings of each kind, in the order of their places.
    var findings: [AuditFinding] = []
    /// Up to where everything is dealt with: there a later audit may begin.
    var settledUpTo: [TopicPartition: Int64] = [:]

    /// Whether nothing is missing, doubled or out of place.
    var isBalanced: Bool { missing == 0 && doubled == 0 && strays == 0 }
}

/// Adds up.
internal struct AuditLedger {
    /// Bytes that an offset of an events topic takes.
    static let bytesPerOffset = MemoryLayout<UInt32>.stride
    /// Bytes that an outcome or a waiting target takes.
    static let bytesPerTarget = MemoryLayout<Entry>.stride

    private var books: [TopicPartition: Book] = [:]
    /// Whether a record may be there twice: with plain commits, after a crash.
    private let allowsRepeats: Bool

    /// A ledger for these offsets of the events topics. Of what is below its partition's committed
    /// offset, everything must be there.
    init(
        _ ranges: [TopicPartition: Range<Int64>], committed: [TopicPartition: Int64],
        allowsRepeats: Bool
    ) {
        self.allowsRepeats = allowsRepeats
        for (place, range) in ranges {
            books[place] = Book(range, committed: committed[place] ?? range.lowerBound)
        }
    }

    /// Bytes that it takes now.
    var bytes: Int {
        books.values.reduce(0) {
            $0 + $1.states.capacity * Self.bytesPerOffset
                + $1.entries.capacity * Self.bytesPerTarget
        }
    }

    /// A record of an events topic.
    mutating func addEvent(_ place: TopicPartition, _ offset: Int64) {
        mark(place, offset) { $0 |= State.event }
    }

    /// A record of an events topic that is not asked about.
    mutating func addOther(_ place: TopicPartition, _ offset: Int64) {
        mark(place, offset) { $0 |= State.other }
    }

    /// An outcome.
    mutating func add(_ result: AuditedResult, of place: TopicPartition, _ offset: Int64) {
        note(targets: result.targets, of: place, offset)
        append(
            Entry(
                id: result.id, slot: 0, index: UInt16(clamping: result.index),
                flags: result.isDeadLetter ? Entry.deadLetter : 0), to: place, offset)
    }

    /// A dead letter; a copy is one of an event that has its outcomes as well.
    mutating func addLetter(of place: TopicPartition, _ offset: Int64, isCopy: Bool) {
        guard !isCopy else { return }
        mark(place, offset) { $0 |= $0 & State.letter == 0 ? State.letter : State.letterAgain }
    }

    /// A record of a retry or parking topic that was not dealt with yet; without `targets` the
    /// event's targets were not known when it was written.
    mutating func addWaiting(
        _ pending: [Int], targets: Int?, of place: TopicPartition, _ offset: Int64
    ) {
        guard let targets else { return mark(place, offset) { $0 |= State.waiting } }
        note(targets: targets, of: place, offset)
        for index in pending {
            append(
                Entry(id: 0, slot: 0, index: UInt16(clamping: index), flags: Entry.waiting),
                to: place, offset)
        }
    }

    /// A record of such a topic that was dealt with: what it leads to must be there.
    mutating func addPassed(targets: Int?, of place: TopicPartition, _ offset: Int64) {
        if let targets { note(targets: targets, of: place, offset) }
    }

    /// Adds up. `listed` findings of each kind are kept; all are counted.
    mutating func report(listing listed: Int) -> AuditReport {
        var sum = AuditSum(allowsRepeats: allowsRepeats, listed: listed)
        for place in books.keys.sorted() {
            books[place]?.entries.sort()
            if let book = books[place] { sum.add(book, place) }
        }
        return sum.report
    }

    // MARK: Books

    /// What is known of one event: flags below, the number of its targets above.
    enum State {
        static let event: UInt32 = 1
        static let letter: UInt32 = 2
        static let letterAgain: UInt32 = 4
        static let waiting: UInt32 = 8
        static let contradiction: UInt32 = 16
        static let other: UInt32 = 32
        static let targetsShift: UInt32 = 16
    }

    /// An outcome or a waiting target.
    struct Entry: Comparable {
        static let waiting: UInt16 = 1
        static let deadLetter: UInt16 = 2

        var id: UInt64
        var slot: UInt32
        var index: UInt16
        var flags: UInt16

        var isWaiting: Bool { flags & Self.waiting != 0 }

        /// By event, outcomes before what waits, by target.
        static func < (left: Entry, right: Entry) -> Bool {
            (left.slot, left.flags & waiting, left.index, left.id)
                < (right.slot, right.flags & waiting, right.index, right.id)
        }
    }

    /// One partition of an events topic.
    struct Book {
        let range: Range<Int64>
        let committed: Int64
        var states: [UInt32]
        var entries: [Entry] = []

        init(_ range: Range<Int64>, committed: Int64) {
            self.range = range
            self.committed = committed
            states = [UInt32](repeating: 0, count: range.count)
        }

        mutating func change(_ slot: Int, _ change: (inout UInt32) -> Void) {
            change(&states[slot])
        }
    }

    private mutating func mark(
        _ place: TopicPartition, _ offset: Int64, _ change: (inout UInt32) -> Void
    ) {
        guard let range = books[place]?.range, range.contains(offset) else { return }
        books[place]?.change(Int(offset - range.lowerBound), change)
    }

    private mutating func note(targets: Int, of place: TopicPartition, _ offset: Int64) {
        let targets = UInt32(UInt16(clamping: targets))
        mark(place, offset) { state in
            let known = state >> State.targetsShift
            if known == 0 {
                state |= targets << State.targetsShift
            } else if known != targets {
                state |= State.contradiction
            }
        }
    }

    private mutating func append(_ entry: Entry, to place: TopicPartition, _ offset: Int64) {
        guard let range = books[place]?.range, range.contains(offset) else { return }
        var entry = entry
        entry.slot = UInt32(offset - range.lowerBound)
        books[place]?.entries.append(entry)
    }
}
