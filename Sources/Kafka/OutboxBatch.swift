// What a lane hands to the committer: finished events with all the records they leave behind, in
// one object, so that crossing threads costs once per batch. Bytes lie in one arena that the
// producer reads in place; the batch therefore lives until every record of it is delivered.

public import Base

/// A piece of a batch's arena.
public struct ByteRange: Sendable, Equatable {
    let offset: UInt32
    let count: UInt32

    /// A key, value or header that is null.
    public static let null = ByteRange(offset: 0, count: .max)

    var isNull: Bool { count == .max }
}

/// A topic the committer writes to; only `Committer` gives it out.
public struct OutputTopic: Sendable, Hashable {
    let index: Int32
}

/// Finished events and their records, on the way from a lane to the committer.
///
/// `@unchecked Sendable`: it has one owner at a time. A lane fills it and posts it; the committer
/// empties it and returns it to the pool the lane takes the next one from.
public final class OutboxBatch: @unchecked Sendable {
    struct Record {
        enum State: UInt8 { case waiting, queued, delivered }
        var topic: Int32
        var partition: Int32
        var key: ByteRange
        var value: ByteRange
        var firstHeader: Int32
        var headerCount: Int32 = 0
        /// Index into `events`; -1 for a record no offset depends on.
        var event: Int32
        var state = State.waiting
        var attempts: UInt16 = 0
    }

    struct Header {
        enum Name {
            case literal(StaticString)
            case bytes(ByteRange)
        }
        var name: Name
        var value: ByteRange
    }

    struct Event {
        var epoch: Epoch
        var offset: Int64
        /// The lowest offset of the hole below it, see `PartitionLedger.Completion`.
        var first: Int64
        var records: Int32
        /// The committer's handle for the event; -1 when no offset waits for it.
        var entry: Int32 = -1
    }

    // Not checked for exclusivity at run time: several accesses for each record, each of them one
    // statement, by one owner.
    @exclusivity(unchecked) private(set) var headers: [Header] = []
    @exclusivity(unchecked) var records: [Record] = []
    @exclusivity(unchecked) var events: [Event] = []
    @exclusivity(unchecked) private(set) var floors: [(epoch: Epoch, floor: Int64)] = []
    /// Assignments whose records are numbered anew from an offset on; before all events.
    @exclusivity(unchecked) private(set) var restarts: [(epoch: Epoch, offset: Int64)] = []
    /// Records not delivered yet; the committer counts it down.
    @exclusivity(unchecked) var undelivered = 0
    @exclusivity(unchecked) private var firstOpenRecord = 0

    /// The arena. Append to it inside `bytes(_:)` only.
    private let arena: ByteWriter

    /// An empty batch.
    public init() { arena = ByteWriter(capacity: 4096) }

    /// Records so far.
    public var recordCount: Int { records.count }
    /// Finished events so far.
    public var eventCount: Int { events.count }
    /// Bytes in the arena.
    public var byteCount: Int { arena.count }
    /// True while nothing was added.
    public var isEmpty: Bool { records.isEmpty && events.isEmpty && restarts.isEmpty }

    /// Appends what `fill` writes to the arena and returns where it lies. A range may be used by
    /// any number of records of this batch, e.g. one key for all results of an event.
    public func bytes(_ fill: (ByteWriter) -> Void) -> ByteRange {
        let start = arena.count
        fill(arena)
        precondition(arena.count < Int(UInt32.max), "a batch holds less than 4 GiB")
        return ByteRange(offset: UInt32(start), count: UInt32(arena.count - start))
    }

    /// Copies bytes into the arena; nil gives the null range.
    public func bytes(copying source: UnsafeRawBufferPointer?) -> ByteRange {
        guard let source else { return .null }
        return bytes { $0.append(source) }
    }

    /// Adds a record. It belongs to the event that is completed next. `partition` nil lets the key
    /// decide, as Java's producer would.
    public func addRecord(
        to topic: OutputTopic, partition: Int32? = nil, key: ByteRange, value: ByteRange
    ) {
        precondition(records.count < 1 << Limits.batchRecordBits, "too many records in a batch")
        records.append(
            Record(
                topic: topic.index, partition: partition ?? -1, key: key, value: value,
                firstHeader: Int32(headers.count), event: Int32(events.count)))
    }

    /// Adds a header to the record added last.
    public func addHeader(_ name: StaticString, _ value: ByteRange) {
        addHeader(Header(name: .literal(name), value: value))
    }

    /// Adds a header whose name lies in the arena to the record added last.
    public func addHeader(name: ByteRange, _ value: ByteRange) {
        addHeader(Header(name: .bytes(name), value: value))
    }

    private func addHeader(_ header: Header) {
        precondition(!records.isEmpty, "a header follows its record")
        headers.append(header)
        records[records.count - 1].headerCount += 1
    }

    /// Closes an event: every record added since the last one belongs to it, and its offset counts
    /// as done when all of them are delivered. An event may have no record at all.
    public func completeEvent(epoch: Epoch, _ completion: PartitionLedger.Completion) {
        events.append(
            Event(
                epoch: epoch, offset: completion.offset, first: completion.first,
                records: Int32(records.count - firstOpenRecord)))
        firstOpenRecord = records.count
        raiseFloor(of: epoch, to: completion.floor)
    }

    /// Says that the records of an assignment are numbered anew, from `offset` on: the log that it
    /// reads was replaced or cut. What the group has committed goes back to there. Only as the first
    /// word of a batch: all events of the assignment that come after it are of the new numbering.
    public func restart(_ epoch: Epoch, at offset: Int64) {
        precondition(events.isEmpty && records.isEmpty, "a restart comes before all events")
        restarts.append((epoch, offset))
    }

    /// Says that no offset depends on the records added since the last event.
    public func detachRecords() {
        for index in firstOpenRecord..<records.count { records[index].event = -1 }
        firstOpenRecord = records.count
    }

    /// A lane touches few partitions in a row, and mostly the last one again.
    private func raiseFloor(of epoch: Epoch, to floor: Int64) {
        var index = floors.count - 1
        while index >= 0 {
            if floors[index].epoch == epoch {
                floors[index].floor = max(floors[index].floor, floor)
                return
            }
            index -= 1
        }
        floors.append((epoch, floor))
    }

    /// True when every record belongs to an event or to none on purpose.
    var isSealed: Bool { firstOpenRecord == records.count }

    /// The memory of a range; nil for null. Valid while the batch is not reset.
    func memory(of range: ByteRange) -> UnsafeRawBufferPointer? {
        guard !range.isNull else { return nil }
        return UnsafeRawBufferPointer(
            rebasing: arena.bytes[Int(range.offset)..<Int(range.offset) + Int(range.count)])
    }

    /// Empties the batch and keeps its memory.
    func reset() {
        arena.removeAll()
        headers.removeAll(keepingCapacity: true)
        records.removeAll(keepingCapacity: true)
        events.removeAll(keepingCapacity: true)
        floors.removeAll(keepingCapacity: true)
        restarts.removeAll(keepingCapacity: true)
        undelivered = 0
        firstOpenRecord = 0
    }
}
