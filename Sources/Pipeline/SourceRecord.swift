// A record's bytes for as long as its event is in flight: what a retry topic gets is the record as
// it was received.

internal import Base
internal import Kafka

/// A copy of one record's key, value and headers. Lane-confined; reused.
internal final class SourceRecord {
    private var bytes = ByteWriter(capacity: 512)
    private var key: Range<Int>?
    private var value: Range<Int>?
    private var headers: [(name: String, value: Range<Int>?)] = []

    /// A rare large record must not pin its memory for good, in bytes.
    private static let keptBytes = 16 << 10

    /// Copies a record.
    func take(_ record: InputRecord) {
        key = copy(record.key)
        value = copy(record.value)
        for header in record.headers
        where !header.name.hasPrefix(Reentry.prefix) || header.name == Reentry.replayHeader {
            headers.append((header.name, copy(header.value)))
        }
    }

    private func copy(_ source: UnsafeRawBufferPointer?) -> Range<Int>? {
        guard let source else { return nil }
        let start = bytes.count
        bytes.append(source)
        return start..<bytes.count
    }

    /// Lets go of the record.
    func forget() {
        if bytes.count > Self.keptBytes { bytes = ByteWriter(capacity: 512) }
        bytes.removeAll()
        if !headers.isEmpty { headers.removeAll() }
    }

    /// Bytes of the value.
    var valueBytes: Int { value?.count ?? 0 }

    /// Adds the record to a batch, to that topic and partition; nil lets the key decide. A value
    /// that is longer than `limit` is cut.
    func add(
        to outbox: OutboxBatch, _ topic: OutputTopic, partition: Int32?, limit: Int = .max
    ) {
        outbox.addRecord(
            to: topic, partition: partition, key: outbox.bytes(copying: bytes(of: key)),
            value: outbox.bytes(copying: bytes(of: value?.prefix(limit))))
        for header in headers {
            outbox.addHeader(
                name: outbox.bytes(copying: header.name),
                outbox.bytes(copying: bytes(of: header.value)))
        }
    }

    /// Calls `body` with the key, the value, and each header's name and value in turn.
    func forEachPart(_ body: (UnsafeRawBufferPointer?) -> Void) {
        body(bytes(of: key))
        body(bytes(of: value))
        for header in headers {
            var name = header.name
            name.withUTF8 { body(UnsafeRawBufferPointer($0)) }
            body(bytes(of: header.value))
        }
    }

    private func bytes(of range: Range<Int>?) -> UnsafeRawBufferPointer? {
        range.map { UnsafeRawBufferPointer(rebasing: bytes.bytes[$0]) }
    }
}
