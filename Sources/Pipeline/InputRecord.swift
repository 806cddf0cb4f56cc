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

    /// Bytes of key and headers, without those that Bugle adds to copies: they tell of as many targets
    /// as a user has.
    var bytesBesideValue: Int {
        var count = key?.count ?? 0
        for header in headers where !header.name.hasPrefix(Reentry.prefix) {
            count += header.name.utf8.count + (header.value?.count ?? 0)
        }
        return count
    }

    /// More of them are refused: with what Bugle adds, a copy of the record has to fit into a topic
    /// with Kafka's usual limit of a megabyte, and one that does not would stop all commits.
    static let bytesBesideValueMax = 64 << 10

    /// The last value of a header, as Kafka's own clients read it.
    func header(_ name: String) -> UnsafeRawBufferPointer? {
        headers.last { $0.name == name }?.value
    }
}
