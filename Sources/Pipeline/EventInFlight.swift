// An event between its consumption and the moment its results are handed to the committer. The
// event is the unit of commit: it is complete when each of its targets is.

internal import Base
internal import EventLoop
internal import Gateways
internal import JSON
internal import Kafka
internal import TokenIndex

/// A partition of an events topic while it is assigned to this lane. Loop-confined, and not checked
/// for exclusivity at run time: each access is one statement.
internal final class AssignedPartition {
    let assignment: PartitionAssignment
    let queue: PartitionQueue
    let eventClass: EventClass
    /// What the results of all its events have in common.
    @exclusivity(unchecked) private(set) var resultMembers: ByteWriter
    /// Names the configuration in force.
    private var configurationHash: String
    /// By which road its events come.
    let road: Road
    /// The event at its head that is not due, or that its gateway does not take; nothing is read
    /// behind it.
    @exclusivity(unchecked) var head: EventInFlight?
    /// The members of `resultMembers` for events that were first read from another topic.
    @exclusivity(unchecked) private var otherMembers: [String: ByteWriter] = [:]
    private let settings: LaneSettings
    @exclusivity(unchecked) var ledger = PartitionLedger()
    /// What an earlier owner finished and this one has not come to yet.
    @exclusivity(unchecked) private var finishedBefore: OffsetRuns
    /// Nothing below is read in this numbering of the partition's records.
    @exclusivity(unchecked) private var startOffset: Int64?
    /// How often the partition's records were numbered anew: completions of an earlier numbering
    /// say nothing of the present one.
    @exclusivity(unchecked) private(set) var numbering: UInt32 = 0
    /// Since when there are records that are not read yet, as far as is known.
    private(set) var behindSince: UnixMillis?
    /// Where the partition ended then.
    private var endWhenBehind: Int64 = 0
    /// The lowest offset that is not complete, as far as this lane knows.
    var commitPoint: Int64? { ledger.floor ?? startOffset }
    /// Everything below was read, or cannot be: the ends of transactions, and what was aborted.
    /// Nil before anything is known.
    var position: Int64? {
        guard let floor = commitPoint ?? readTo else { return nil }
        return max(floor, ledger.newest + 1, readTo ?? floor)
    }
    /// Up to where the partition was read when its end was reached last.
    @exclusivity(unchecked) private var readTo: Int64?
    /// Records behind the newest that was read.
    var unread: Int64 {
        guard let end = queue.end, let position else { return 0 }
        return max(end - position, 0)
    }
    /// Records that are not complete; nil before the end of the partition is known.
    var lag: Int64? {
        guard let end = queue.end, let position, let floor = commitPoint ?? readTo else {
            return nil
        }
        return max(end - (openEvents == 0 ? position : floor), 0)
    }
    /// Why the partition cannot be read, until it can again.
    @exclusivity(unchecked) var unreadable: String?
    /// Whether its end was unknown since then, as it is while the broker refuses it.
    @exclusivity(unchecked) var lostItsEnd = false
    /// Events read and not completed.
    @exclusivity(unchecked) var openEvents = 0
    /// Those of them that wait in windows.
    @exclusivity(unchecked) var heldEvents = 0
    /// Whether new records are read; false from the first word of a revocation.
    @exclusivity(unchecked) var isReading = true
    /// Whether another process owns it by now: completions are dropped.
    @exclusivity(unchecked) var isLost = false
    /// Runs while it leaves; see `Lane.handOver`.
    @exclusivity(unchecked) var handOverTimer: LoopTimer?
    /// Whether events of its users may wait in a retry or parking topic, or may have to be done
    /// again behind newer ones: then lines ask for their notes. See `Lane.observeOrder`.
    @exclusivity(unchecked) var mayHaveWaiting = true
    /// When an event of its users was put off last, or the assignment began.
    @exclusivity(unchecked) var putOffAt = MonotonicTime(nanos: 0)
    /// Of a parking topic: when the newest event that was read was put off first.
    @exclusivity(unchecked) var parkedAt = UnixMillis(0)
    /// Of a parking topic: since when its gateway has had no room for what is at its head.
    @exclusivity(unchecked) var stillSince: MonotonicTime?
    /// Told once when the last open event is complete.
    @exclusivity(unchecked) var whenDrained: (() -> Void)?

    init(
        _ assignment: PartitionAssignment, eventClass: EventClass, configurationHash: String,
        _ settings: LaneSettings
    ) {
        self.assignment = assignment
        self.queue = assignment.queue
        self.eventClass = eventClass
        finishedBefore = assignment.finished
        startOffset = assignment.startOffset
        self.settings = settings
        road = settings.waitingTopics.roads[assignment.place.topic] ?? .events
        self.configurationHash = configurationHash
        resultMembers = Self.members(
            of: assignment.place.topic, assignment, eventClass, configurationHash, settings)
    }

    /// Results that are written from now on name another configuration.
    func use(configurationHash hash: String) {
        configurationHash = hash
        resultMembers = Self.members(
            of: assignment.place.topic, assignment, eventClass, hash, settings)
        otherMembers = [:]
    }

    private static func members(
        of topic: String, _ assignment: PartitionAssignment, _ eventClass: EventClass,
        _ configurationHash: String, _ settings: LaneSettings
    ) -> ByteWriter {
        ResultRecord.partitionMembers(
            topic: topic, partition: assignment.place.partition, eventClass: eventClass,
            configurationHash: configurationHash, replica: settings.replica)
    }

    /// Whether an earlier owner finished the event at `offset`. Call it for rising offsets.
    func wasFinished(_ offset: Int64) -> Bool {
        guard let end = finishedBefore.end else { return false }
        if offset >= end { finishedBefore = OffsetRuns() }
        return finishedBefore.contains(offset)
    }

    /// Whether a record at `offset`, or the end of the log, can follow what was read or what the group
    /// has committed.
    ///
    /// One that cannot is of another log, or of one that was cut: an election of a leader that was
    /// behind, restored data, a topic of the same name. librdkafka takes every offset once: what
    /// comes again with a fetch that is repeated, by another leader too, it drops itself, and it
    /// goes back only when the broker says that there is nothing at the place it asks for. Then the
    /// log ended before that place, whatever its end is by the time the records are here. Nothing
    /// tells which of these records were read before, so all of them count as new: a push that is
    /// repeated is better than one that is lost.
    func expects(_ offset: Int64) -> Bool {
        offset > ledger.newest && offset >= startOffset ?? 0
    }

    /// Looks whether records up to `end` are unread. Nobody knows how old one is; at least as old as
    /// this lane knows of it. Once all that was unread then is read, the rest is younger: publishers
    /// with transactions always have one open, which cannot be read before its end.
    func noteUnread(at now: UnixMillis, end: Int64) {
        guard let position, position < end else {
            behindSince = nil
            return
        }
        guard behindSince == nil || position >= endWhenBehind else { return }
        behindSince = now
        endWhenBehind = end
    }

    /// The end of the partition was reached at `offset`.
    func noteEnd(at offset: Int64) { readTo = offset }

    /// The records are numbered anew, from `offset` on.
    func restart(at offset: Int64) {
        numbering &+= 1
        ledger = PartitionLedger()
        finishedBefore = OffsetRuns()
        startOffset = offset
        readTo = nil
    }

    /// Whether an earlier owner finished an event behind `offset`.
    func isBehindFinished(_ offset: Int64) -> Bool {
        finishedBefore.end.map { offset < $0 } ?? false
    }

    /// The shared members of results of events that were first read from a topic.
    func resultMembers(of topic: String) -> ByteWriter {
        if road == .events { return resultMembers }
        if let members = otherMembers[topic] { return members }
        let members = Self.members(
            of: topic, assignment, settings.classes[topic] ?? .transactional, configurationHash,
            settings)
        // Topics are few; a stranger's records must not make them many.
        if otherMembers.count < 64 { otherMembers[topic] = members }
        return members
    }
}

/// One event in flight. Loop-confined; reused.
///
/// Its fields are not checked for exclusivity at run time: every stage touches several of them,
/// each access is one statement.
internal final class EventInFlight: SlabResident {
    @exclusivity(unchecked) var slot = -1
    /// Owns the memory that the envelope's JSON values point into.
    @exclusivity(unchecked) private(set) var parser = JSONParser()
    @exclusivity(unchecked) var envelope: EventEnvelope?
    @exclusivity(unchecked) var app: LaneApp?
    @exclusivity(unchecked) var partition: AssignedPartition?
    /// Where it was read first: results and ids are those of this place on every road.
    @exclusivity(unchecked) var position = RecordPosition(topic: "", partition: 0, offset: 0)
    /// The record's timestamp there.
    @exclusivity(unchecked) var timestamp = UnixMillis(0)
    /// Its offset in the partition that it was read from now, and in which numbering.
    @exclusivity(unchecked) var offset: Int64 = 0
    @exclusivity(unchecked) var numbering: UInt32 = 0
    /// How it is treated when room is short: a matter of the topic it was published to.
    @exclusivity(unchecked) var eventClass = EventClass.transactional
    /// What came with it from a retry topic.
    @exclusivity(unchecked) var reentry: Reentry?
    /// What it is instead of an event: a ticket that waits for its receipt.
    @exclusivity(unchecked) var ticket: TicketRecord?
    /// Of what is held: since when, by the clock of the lane that set it aside.
    @exclusivity(unchecked) var waitsSince = UnixMillis(0)
    /// When the retry topic that it comes from lets it go.
    @exclusivity(unchecked) var dueAt: UnixMillis?
    /// Until when it waits for others of its burst, when that is longer than a lane keeps it.
    @exclusivity(unchecked) var windowUntil: UnixMillis?
    /// Set when it has been in a window: what it stands for.
    @exclusivity(unchecked) var burst: Burst?
    /// The cursor of an event that was folded into this one, where it is what is sent. The record
    /// does not have it, so it travels through the retry topics beside it.
    @exclusivity(unchecked) private(set) var carriedCursor: EventCursor?
    /// The record as received.
    let source = SourceRecord()
    @exclusivity(unchecked) var consumedAt = UnixMillis(0)
    @exclusivity(unchecked) var fannedOutAt: UnixMillis?
    /// Its trace, when it has one.
    @exclusivity(unchecked) var trace: TraceContext?
    /// When its addresses were asked for; known of traced events only.
    @exclusivity(unchecked) var askedAt: UnixMillis?
    /// The fixed set of targets, in the order of their address ids.
    @exclusivity(unchecked) var targets: [TargetInFlight] = []
    @exclusivity(unchecked) var openTargets = 0
    /// How many targets leave through a retry topic.
    @exclusivity(unchecked) var postponedTargets = 0
    /// The same for all targets: what a push collapses under when the event names no key.
    @exclusivity(unchecked) var identity = UUIDBytes(high: 0, low: 0)
    /// Its route, and what the route makes of it; nil when the event says everything itself.
    @exclusivity(unchecked) var routed: RoutedEvent?
    /// What the event says, as the renderers take it; read when the first target is rendered.
    @exclusivity(unchecked) var content: PushContent?
    /// What its targets' requests have in common.
    let shared = SharedRequest()
    /// What its user said for all devices, as of the last look-up.
    @exclusivity(unchecked) var user: UserRecord?
    /// What it counts for, while that is asked and once it does.
    @exclusivity(unchecked) var claim: UsageClaim?
    /// Whether it was counted for its source.
    @exclusivity(unchecked) var isCounted = false
    /// Waits for `not_before`, or to repeat a look-up.
    @exclusivity(unchecked) var holdTimer: LoopTimer?
    /// Which dead letter it replays, as its header says.
    @exclusivity(unchecked) var replayOf: String?
    /// The question about its mark; 0 while none was asked. See `DuplicateWatch`.
    @exclusivity(unchecked) var markQuestion: UInt32 = 0
    /// That question is not answered yet.
    @exclusivity(unchecked) var awaitsMark = false
    /// A copy of it was pushed.
    @exclusivity(unchecked) var isDuplicate = false
    /// Its line, when it has a collapse key; and its place in it. See `PushOrder`.
    @exclusivity(unchecked) var line: OrderLine<TargetInFlight>?
    @exclusivity(unchecked) var ordered: OrderedEvent?
    /// The line's note was asked for and is not known yet.
    @exclusivity(unchecked) var awaitsOrder = false
    /// How it is put off as a whole once the note is known.
    @exclusivity(unchecked) var awaitedPostponement: Postponement?
    /// What it came to is written, with retry records of what was open; see `Lane.handOver`.
    @exclusivity(unchecked) var isHandedOver = false
    /// It is not over when it leaves: it waits as a whole, or is done again.
    @exclusivity(unchecked) var comesBack = false
    /// What the look-up said while the mark or the note was awaited.
    @exclusivity(unchecked) var heldLookUp: HeldLookUp?
    /// Bytes of the record, for the lane's account of memory.
    @exclusivity(unchecked) var recordBytes = 0

    /// How many targets the event has on all its roads, at least one.
    var targetCount: Int { max(reentry?.targets ?? targets.count, 1) }

    /// Whether nothing may be sent for it any more: its partition is another's, or it was handed over.
    var isOver: Bool { isHandedOver || partition?.isLost == true }

    func recycle() {
        envelope = nil
        isHandedOver = false
        reentry = nil
        windowUntil = nil
        burst = nil
        carriedCursor = nil
        ticket = nil
        source.forget()
        postponedTargets = 0
        app = nil
        partition = nil
        numbering = 0
        fannedOutAt = nil
        trace = nil
        askedAt = nil
        routed = nil
        content = nil
        shared.forget()
        user = nil
        claim = nil
        isCounted = false
        holdTimer = nil
        replayOf = nil
        markQuestion = 0
        awaitsMark = false
        isDuplicate = false
        heldLookUp = nil
        awaitedPostponement = nil
        comesBack = false
        targets.removeAll(keepingCapacity: true)
        openTargets = 0
        // A rare large record must not pin its parser's memory for good.
        if recordBytes > Limits.keptParserBytes { parser = JSONParser() }
        recordBytes = 0
    }

    /// Takes the cursor of an event that is folded into this one; true when another is sent now.
    ///
    /// A push has room for one cursor: of one log the furthest goes, an event without one takes it,
    /// and one with a cursor of another log keeps its own.
    @discardableResult
    func carry(_ other: EventCursor?) -> Bool {
        guard let envelope, let other else { return false }
        if let own = envelope.cursor, own.log != other.log || own.sequence >= other.sequence {
            return false
        }
        envelope.cursor = other
        carriedCursor = other
        return true
    }

    private enum Limits {
        /// Records up to this size leave their parser's buffers in place, in bytes.
        static let keptParserBytes = 16 << 10
    }
}
