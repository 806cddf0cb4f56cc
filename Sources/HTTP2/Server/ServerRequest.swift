// A request as a server connection received it: every header field with the form it had on the
// wire, and the body. One object per stream that is open, recycled, so that a busy server allocates
// nothing per request.

public import Base

/// One request received by a `ServerConnection`.
///
/// Loop-confined. It is lent to the delegate for the length of one call; whoever needs it longer
/// copies what matters.
public final class ServerRequest {
    /// A header field's place inside `fieldBytes`.
    public struct Field: Sendable {
        /// Where the name starts.
        public let nameOffset: Int
        /// The length of the name.
        public let nameLength: Int
        /// Where the value starts.
        public let valueOffset: Int
        /// The length of the value.
        public let valueLength: Int
        /// Whether the sender wrote it as a literal that is never indexed (RFC 7541, 6.2.3).
        public let neverIndexed: Bool
    }

    /// The stream that carried it.
    public internal(set) var stream: Int32 = 0

    /// The header fields in the order received, pseudo-header fields included.
    public internal(set) var fields: [Field] = []

    /// The bytes of all names and values.
    public let fieldBytes = ByteWriter(capacity: 1024)

    /// The body, up to `ServerLimits.bodyBytes`.
    public let body = ByteWriter(capacity: 512)

    /// The length of the body that was sent, however much of it was kept.
    public internal(set) var bodyLength = 0

    /// Whether an answer was submitted or the stream was reset.
    public internal(set) var isSettled = false

    internal let answer = ByteWriter(capacity: 64)
    internal var answerSent = 0

    internal init() { fields.reserveCapacity(16) }

    internal func reset(stream: Int32) {
        self.stream = stream
        fields.removeAll(keepingCapacity: true)
        fieldBytes.removeAll()
        body.removeAll()
        bodyLength = 0
        isSettled = false
        answer.removeAll()
        answerSent = 0
    }

    internal func append(
        name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer, neverIndexed: Bool
    ) {
        guard fieldBytes.count + name.count + value.count <= ServerLimits.fieldBytes else { return }
        let nameOffset = fieldBytes.count
        fieldBytes.append(name)
        let valueOffset = fieldBytes.count
        fieldBytes.append(value)
        fields.append(
            Field(
                nameOffset: nameOffset, nameLength: name.count, valueOffset: valueOffset,
                valueLength: value.count, neverIndexed: neverIndexed))
    }

    internal func append(body chunk: UnsafeRawBufferPointer) {
        bodyLength += chunk.count
        let room = ServerLimits.bodyBytes - body.count
        if room > 0 { body.append(UnsafeRawBufferPointer(rebasing: chunk.prefix(room))) }
    }
}

extension ServerRequest {
    /// The name of a field; valid until the request is recycled.
    public func name(of field: Field) -> UnsafeRawBufferPointer {
        slice(field.nameOffset, field.nameLength)
    }

    /// The value of a field; valid until the request is recycled.
    public func value(of field: Field) -> UnsafeRawBufferPointer {
        slice(field.valueOffset, field.valueLength)
    }

    /// The first field with a lower-case name.
    public func field(_ name: StaticString) -> Field? {
        let wanted = UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        return fields.first { self.name(of: $0).elementsEqual(wanted) }
    }

    /// The value of the first field with a lower-case name; valid until the request is recycled.
    public func value(_ name: StaticString) -> UnsafeRawBufferPointer? {
        field(name).map { value(of: $0) }
    }

    /// The value of the first field with a lower-case name, as text.
    public func text(_ name: StaticString) -> String? {
        value(name).map { String(decoding: $0, as: UTF8.self) }
    }

    private func slice(_ offset: Int, _ length: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: fieldBytes.bytes[offset..<offset + length])
    }
}
