// An event in a window: as little of it as is needed to send it, and, when another one is sent for
// it, to say so. One piece of memory holds the result's part and the record.

internal import Base
internal import EventLoop
internal import Kafka
internal import Routes

/// An event that waits in a window. Lane-confined.
internal final class HeldEvent: WindowMember {
    /// Nil only for events that were put in by hand.
    let partition: AssignedPartition?
    let offset: Int64
    let numbering: UInt32
    let position: RecordPosition
    let timestamp: UnixMillis
    let consumedAt: UnixMillis
    let expiresAt: UnixMillis
    let eventClass: EventClass
    /// The route it was matched with: a reload changes nothing for it.
    let match: RouteTable.Match
    let id: String
    let cursor: EventCursor?
    let windowUntil: UnixMillis?
    let trace: TraceContext?
    /// Its type, of those whose trace is recorded; else empty.
    let tracedType: String
    /// Boxed, since few have one.
    let reentry: [Reentry]
    /// The members that its result shares with others of its event, then the record as received.
    private var bytes: [UInt8]
    private let resultEnd: Int

    /// What it takes beside `bytes`: the object, and its array.
    private static let fixedBytes = 376

    var home: Epoch { partition?.assignment.epoch ?? Epoch(0) }
    var byteCount: Int { Self.fixedBytes + bytes.count }

    func isBefore(_ other: HeldEvent) -> Bool {
        OrderedEvent(position: position, moment: timestamp, id: "").isBefore(
            OrderedEvent(position: other.position, moment: other.timestamp, id: ""))
    }

    /// Keeps of an event what a window needs. `result` begins its result, `scratch` is overwritten.
    init?(_ event: EventInFlight, result: UnsafeRawBufferPointer, scratch: ByteWriter) {
        guard let envelope = event.envelope, let routed = event.routed else { return nil }
        partition = event.partition
        offset = event.offset
        numbering = event.numbering
        position = event.position
        timestamp = event.timestamp
        consumedAt = event.consumedAt
        expiresAt = envelope.expiresAt
        eventClass = event.eventClass
        match = routed.match
        id = envelope.id
        cursor = envelope.cursor
        windowUntil = event.windowUntil
        trace = event.trace
        tracedType = event.trace?.isRecorded == true ? envelope.type : ""
        reentry = event.reentry.map { [$0] } ?? []
        scratch.removeAll()
        scratch.append(result)
        resultEnd = scratch.count
        event.source.write(to: scratch)
        bytes = scratch.array
    }

    /// The beginning of its result; the members of the outcome follow.
    func withResult(_ body: (UnsafeRawBufferPointer) -> Void) {
        bytes.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[..<resultEnd])) }
    }

    /// Lends the record as it was received.
    func withRecord(_ body: (InputRecord) -> Void) {
        bytes.withUnsafeBytes {
            SourceRecord.read(
                UnsafeRawBufferPointer(rebasing: $0[resultEnd...]), position, timestamp, body)
        }
    }

    func fold() { bytes = Array(bytes[..<resultEnd]) }
}

extension SourceRecord {
    /// Appends the record: key, value, then names and values of the headers, each behind its
    /// length, which is -1 for null.
    func write(to writer: ByteWriter) {
        func append(_ bytes: UnsafeRawBufferPointer?) {
            withUnsafeBytes(of: Int32(bytes?.count ?? -1)) { writer.append($0) }
            if let bytes { writer.append(bytes) }
        }
        forEachPart(append)
    }

    /// Reads what `write` has written.
    static func read(
        _ bytes: UnsafeRawBufferPointer, _ position: RecordPosition, _ timestamp: UnixMillis,
        _ body: (InputRecord) -> Void
    ) {
        var rest = bytes
        func next() -> UnsafeRawBufferPointer? {
            let count = Int(rest.loadUnaligned(as: Int32.self))
            rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(4))
            guard count >= 0 else { return nil }
            defer { rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count)) }
            return UnsafeRawBufferPointer(rebasing: rest.prefix(count))
        }
        let key = next()
        let value = next()
        var headers: [InputHeader] = []
        while !rest.isEmpty {
            let name = next().map { String(decoding: $0, as: UTF8.self) } ?? ""
            headers.append(InputHeader(name: name, value: next()))
        }
        body(
            InputRecord(
                position: position, timestamp: timestamp, key: key, value: value, headers: headers))
    }
}
