// A record of an events topic as the stages see it: borrowed bytes, valid while it is decoded.

internal import Base

/// Where a record stood.
internal struct RecordPosition: Hashable, Sendable {
    let topic: String
    let partition: Int32
    let offset: Int64
}

/// A record's header, borrowed.
internal struct InputHeader {
    let name: String
    let value: UnsafeRawBufferPointer?
}

/// A record as received, borrowed from the consumer for the length of one call.
internal struct InputRecord {
    var position: RecordPosition
    /// The record's timestamp; the event's time when it states none.
    var timestamp: UnixMillis
    let key: UnsafeRawBufferPointer?
    /// nil for a tombstone.
    let value: UnsafeRawBufferPointer?
    let headers: [InputHeader]

    /// The last value of a header, as Kafka's own clients read it.
    func header(_ name: String) -> UnsafeRawBufferPointer? {
        headers.last { $0.name == name }?.value
    }
}
