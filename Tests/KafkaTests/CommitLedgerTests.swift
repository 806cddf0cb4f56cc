import Base
import Testing

@testable import Kafka

@Suite struct CommitLedgerTests {
    private let place = TopicPartition("events", 3)

    private func ledger(_ epoch: Epoch, committed: Int64? = nil) -> CommitLedger {
        var ledger = CommitLedger()
        ledger.open(epoch, place, group: 0, committed: committed)
        return ledger
    }

    private func post(
        _ ledger: inout CommitLedger, _ epoch: Epoch, offset: Int64, records: Int32
    ) -> Int32? {
        ledger.post(epoch, offset: offset, records: records)
    }

    @Test func `an offset is due when its records are delivered and not before`() throws {
        let epoch = Epoch(1)
        var ledger = ledger(epoch)
        let postedentry = post(&ledger, epoch, offset: 0, records: 2)
        let entry = try #require(postedentry)
        ledger.raiseFloor(epoch, to: 1)
        #expect(ledger.due(group: 0).map(\.offset) == [0])
        ledger.delivered(entry)
        #expect(ledger.unsettled(epoch) == 1)
        ledger.delivered(entry)
        #expect(ledger.unsettled(epoch) == 0)
        #expect(ledger.due(group: 0).map(\.offset) == [1])
    }

    @Test func `the second event first moves nothing`() throws {
        let epoch = Epoch(1)
        var ledger = ledger(epoch, committed: 0)
        for offset in Int64(1)...9 {
            let postedentry = post(&ledger, epoch, offset: offset, records: 1)
            let entry = try #require(postedentry)
            ledger.raiseFloor(epoch, to: 0)
            ledger.delivered(entry)
        }
        #expect(ledger.due(group: 0).map(\.offset) == [0])
        let postedfirst = post(&ledger, epoch, offset: 0, records: 1)
        let first = try #require(postedfirst)
        ledger.raiseFloor(epoch, to: 10)
        #expect(ledger.due(group: 0).map(\.offset) == [0])
        ledger.delivered(first)
        #expect(ledger.due(group: 0).map(\.offset) == [10])
    }

    @Test func `records that are numbered anew take the commit point back`() throws {
        let epoch = Epoch(1)
        var ledger = ledger(epoch, committed: 1_000)
        let postedFormer = post(&ledger, epoch, offset: 1_001, records: 1)
        let former = try #require(postedFormer)
        ledger.raiseFloor(epoch, to: 1_001)
        let asked = ledger.due(group: 0)[0]
        #expect(asked.offset == 1_001)
        ledger.requested(asked)
        ledger.restart(epoch, at: 0)
        // What is on its way for the former numbering is waited for, and says nothing.
        #expect(ledger.due(group: 0).isEmpty)
        let isOfNow = ledger.answered(asked, committed: true)
        #expect(!isOfNow)
        #expect(ledger.due(group: 0).map(\.offset) == [0])
        let postedPresent = post(&ledger, epoch, offset: 0, records: 1)
        let present = try #require(postedPresent)
        ledger.raiseFloor(epoch, to: 1)
        #expect(ledger.uncommittedPoint(epoch)?.offset == 0)
        ledger.delivered(former)
        #expect(ledger.due(group: 0).map(\.offset) == [0])
        #expect(ledger.due(group: 0)[0].finished.isEmpty)
        ledger.delivered(present)
        #expect(ledger.unsettled(epoch) == 0)
        let point = ledger.due(group: 0)[0]
        #expect(point.offset == 1)
        ledger.requested(point)
        let counts = ledger.answered(point, committed: true)
        #expect(counts)
        #expect(ledger.committed(epoch) == 1)
        // It goes only up again from here.
        ledger.raiseFloor(epoch, to: 0)
        #expect(ledger.due(group: 0).isEmpty)
    }

    @Test func `holes do not hold the commit point`() throws {
        let epoch = Epoch(1)
        var ledger = ledger(epoch, committed: 10)
        var lane = PartitionLedger()
        let offsets: [Int64] = [10, 111, 112, 130]
        for offset in offsets { _ = lane.begin(offset) }
        for offset in offsets.reversed() {
            let postedentry = post(&ledger, epoch, offset: offset, records: 1)
            let entry = try #require(postedentry)
            ledger.raiseFloor(epoch, to: lane.complete(offset).floor)
            ledger.delivered(entry)
        }
        #expect(ledger.due(group: 0).map(\.offset) == [131])
    }

    @Test func `a partition waits for the answer and repeats the newest point after a refusal`() {
        let epoch = Epoch(1)
        var ledger = ledger(epoch, committed: 0)
        ledger.raiseFloor(epoch, to: 5)
        let point = ledger.due(group: 0)[0]
        ledger.requested(point)
        ledger.raiseFloor(epoch, to: 8)
        #expect(ledger.due(group: 0).isEmpty)
        ledger.answered(point, committed: false)
        #expect(ledger.due(group: 0).map(\.offset) == [8])
        #expect(ledger.committed(epoch) == 0)
    }

    @Test func `an assignment that is over never commits, whatever arrives for it`() throws {
        let old = Epoch(1)
        let new = Epoch(2)
        var ledger = ledger(old, committed: 0)
        let postedentry = post(&ledger, old, offset: 4, records: 1)
        let entry = try #require(postedentry)
        ledger.raiseFloor(old, to: 5)
        ledger.close(old)
        ledger.open(new, place, group: 0, committed: 2)
        ledger.delivered(entry)
        ledger.raiseFloor(old, to: 9)
        let stale = post(&ledger, old, offset: 9, records: 1)
        #expect(stale == nil)
        #expect(ledger.due(group: 0).isEmpty)
        #expect(ledger.unsettled(new) == 0)
        ledger.raiseFloor(new, to: 3)
        #expect(ledger.due(group: 0).map(\.offset) == [3])
    }

    @Test func `an answer to an old assignment does not count for the new one`() {
        var ledger = ledger(Epoch(1), committed: 0)
        ledger.raiseFloor(Epoch(1), to: 5)
        let point = ledger.due(group: 0)[0]
        ledger.requested(point)
        ledger.close(Epoch(1))
        ledger.open(Epoch(2), place, group: 0, committed: 2)
        ledger.answered(point, committed: true)
        #expect(ledger.committed(Epoch(2)) == 2)
    }

    @Test func `groups are due apart`() {
        var ledger = CommitLedger()
        ledger.open(Epoch(1), TopicPartition("a", 0), group: 0, committed: nil)
        ledger.open(Epoch(2), TopicPartition("b", 0), group: 1, committed: nil)
        ledger.raiseFloor(Epoch(1), to: 1)
        ledger.raiseFloor(Epoch(2), to: 2)
        #expect(ledger.due(group: 0).map(\.epoch) == [Epoch(1)])
        #expect(ledger.due(group: 1).map(\.epoch) == [Epoch(2)])
    }

    @Test func `what is settled above an open offset is committed beside it`() throws {
        let epoch = Epoch(1)
        var ledger = ledger(epoch, committed: 0)
        for offset in Int64(1)...9 where offset != 4 {
            let posted = ledger.post(epoch, offset: offset, records: 1)
            ledger.raiseFloor(epoch, to: 0)
            if let posted { ledger.delivered(posted) }
        }
        let due = ledger.due(group: 0)
        let point = try #require(due.first)
        #expect(point.offset == 0)
        #expect((0..<12).filter { point.finished.contains($0) } == [1, 2, 3, 5, 6, 7, 8, 9])
        ledger.requested(point)
        ledger.answered(point, committed: true)
        #expect(ledger.due(group: 0).isEmpty)
        #expect(ledger.post(epoch, offset: 4, records: 0) == nil)
        #expect(ledger.due(group: 0).map(\.finished.count) == [9])
    }

    /// Random lanes, deliveries, commits, refusals, revocations and losses against a model that
    /// only knows which offsets are finished and delivered.
    @Test(arguments: UInt64(1)...30)
    func `what is committed is always finished, delivered, and never less than before`(
        seed: UInt64
    ) {
        var world = CommitWorld(seed: seed)
        for _ in 0..<2_000 { world.step() }
        world.finish()
        #expect(world.fault == nil, "seed \(seed)")
    }
}

/// A cluster of one partition, a lane, and the ledger under test.
private struct CommitWorld: ~Copyable {
    private var random: SeededRandom
    private var ledger = CommitLedger()
    private var lane = PartitionLedger()
    private var epoch = Epoch(1)
    private var position: Int64 = 0
    private var open: [Int64] = []
    private var inFlight: [(entry: Int32, epoch: Epoch, offset: Int64)] = []
    private var remaining: [Int64: Int32] = [:]
    private var requested: CommitLedger.Point?
    /// Offsets that this assignment has begun.
    private var begun: Set<Int64> = []
    /// Offsets whose records the broker has, as far as this assignment may know.
    private var delivered: Set<Int64> = []
    /// What the group has committed; -1 while it has nothing.
    private var broker: Int64 = -1
    private var brokerFinished = OffsetRuns()
    /// What an earlier assignment finished, as the new one was told.
    private var finishedBefore = OffsetRuns()
    private(set) var fault: String?

    init(seed: UInt64) {
        random = SeededRandom(seed: seed)
        ledger.open(epoch, TopicPartition("t", 0), group: 0, committed: nil)
    }

    mutating func step() {
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<35: begin()
        case 35..<60: complete()
        case 60..<85: deliver()
        case 85..<92: request()
        case 92..<99: answer(committed: Int.random(in: 0..<4, using: &random) > 0)
        default: reassign()
        }
    }

    mutating func finish() {
        while !open.isEmpty { complete() }
        while !inFlight.isEmpty { deliver() }
        answer(committed: true)
        request()
        answer(committed: true)
        let expected = (begun.max() ?? -1) + 1
        if lane.newest >= 0, broker != expected { fault = "ended at \(broker), not \(expected)" }
        let beyond = finishedBefore.end ?? 0
        if beyond <= broker, !brokerFinished.isEmpty { fault = "a map without an open offset" }
    }

    private mutating func begin() {
        guard open.count < 50 else { return }
        guard lane.begin(position) else {
            fault = "begin refused \(position)"
            return
        }
        begun.insert(position)
        if finishedBefore.contains(position) {
            let completion = lane.complete(position)
            _ = ledger.post(epoch, offset: position, first: completion.first, records: 0)
            ledger.raiseFloor(epoch, to: completion.floor)
        } else {
            open.append(position)
        }
        position = record(from: position + 1)
    }

    /// The first record from `offset` on. Holes are a property of the log: the same for every
    /// reader.
    private func record(from offset: Int64) -> Int64 {
        let place = offset % 13
        return place < 8 ? offset : offset + 13 - place
    }

    private mutating func complete() {
        guard !open.isEmpty else { return }
        let offset = open.remove(at: Int.random(in: 0..<open.count, using: &random))
        let records = Int32.random(in: 0...3, using: &random)
        let completion = lane.complete(offset)
        let posted = ledger.post(
            epoch, offset: offset, first: completion.first, records: records)
        if let entry = posted {
            for _ in 0..<records { inFlight.append((entry, epoch, offset)) }
            remaining[offset] = records
        } else {
            delivered.insert(offset)
        }
        ledger.raiseFloor(epoch, to: completion.floor)
    }

    private mutating func deliver() {
        guard !inFlight.isEmpty else { return }
        let index = Int.random(in: 0..<inFlight.count, using: &random)
        let record = inFlight.remove(at: index)
        ledger.delivered(record.entry)
        guard record.epoch == epoch else { return }
        remaining[record.offset, default: 0] -= 1
        if remaining[record.offset] == 0 { delivered.insert(record.offset) }
    }

    private mutating func request() {
        for point in ledger.due(group: 0) {
            if requested != nil { fault = "two requests at once" }
            if point.epoch != epoch { fault = "a stale epoch is due" }
            if point.offset < broker { fault = "backwards" }
            if point.offset == broker, point.finished == brokerFinished { fault = "nothing new" }
            let missing = begun.filter { $0 < point.offset && !delivered.contains($0) }
            if !missing.isEmpty { fault = "\(point.offset) is due over \(missing)" }
            check(point)
            ledger.requested(point)
            requested = point
        }
    }

    /// The map says of every offset that exists exactly what is so.
    private mutating func check(_ point: CommitLedger.Point) {
        for offset in begun where offset >= point.offset {
            if point.finished.contains(offset) != delivered.contains(offset) {
                fault = "the map is wrong about \(offset)"
            }
        }
        // What is known of offsets not come to yet stays known.
        let end = max(finishedBefore.end ?? 0, lane.newest + 1)
        for offset in lane.newest + 1..<end
        where finishedBefore.contains(offset) && !point.finished.contains(offset) {
            fault = "forgot that \(offset) is finished"
        }
    }

    private mutating func answer(committed: Bool) {
        guard let point = requested else { return }
        requested = nil
        ledger.answered(point, committed: committed)
        guard committed, point.epoch == epoch else { return }
        let note = CommitNote(finished: point.finished, name: "test").text(at: point.offset)
        broker = point.offset
        brokerFinished = CommitNote(note, at: broker)?.finished ?? OffsetRuns()
        if brokerFinished != point.finished { fault = "the note lost something" }
    }

    /// The partition leaves with work open and comes back: reading starts at what is committed.
    private mutating func reassign() {
        answer(committed: Bool.random(using: &random))
        ledger.close(epoch)
        epoch = Epoch(epoch.number + 1)
        finishedBefore = brokerFinished
        ledger.open(
            epoch, TopicPartition("t", 0), group: 0, committed: broker >= 0 ? broker : nil,
            floor: broker >= 0 ? broker : nil, finished: finishedBefore)
        lane = PartitionLedger()
        open = []
        remaining = [:]
        position = record(from: max(broker, 0))
        begun = begun.filter { $0 < broker }
        delivered = delivered.filter { $0 < broker || finishedBefore.contains($0) }
    }
}
