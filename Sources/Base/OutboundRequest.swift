// A request as gateways build it and a transport writes it: header fields and body in one
// reusable buffer, no object per header. It knows nothing of any HTTP version.

/// Whether a header field may enter the peer's compression table (RFC 7541, section 6.2).
public enum FieldIndexing: Sendable {
    /// The encoder decides.
    case indexable
    /// The value is secret or unique: never indexed, here or by any intermediary.
    case neverIndexed
}

/// One POST request: path, header fields and body.
///
/// Loop-confined and reusable: `reset()` keeps the memory. Field values are copied in; names must
/// be lower-case literals (RFC 9113, section 8.2).
public final class OutboundRequest {
    /// A header field's place inside the request's buffer.
    public struct Field {
        /// The lower-case name.
        public let name: StaticString
        /// Where the value starts in `fieldBytes`.
        public let offset: Int
        /// The value's length in bytes.
        public let length: Int
        /// Whether compression may remember it.
        public let indexing: FieldIndexing
    }

    /// The header fields in order, pseudo-header fields first.
    @exclusivity(unchecked) public private(set) var fields: [Field] = []

    /// The bytes of all field values.
    public let fieldBytes = ByteWriter(capacity: 1024)

    /// The body.
    public let body = ByteWriter(capacity: 1024)

    /// An empty request.
    public init() { fields.reserveCapacity(16) }

    /// Empties the request and keeps its memory.
    public func reset() {
        fields.removeAll(keepingCapacity: true)
        fieldBytes.removeAll()
        body.removeAll()
    }

    /// Adds a field with a literal value.
    public func add(
        _ name: StaticString, _ value: StaticString, _ indexing: FieldIndexing = .indexable
    ) {
        add(name, indexing) { $0.append(value) }
    }

    /// Adds a field with a text value.
    public func add(_ name: StaticString, _ value: String, _ indexing: FieldIndexing = .indexable) {
        add(name, indexing) { $0.append(value) }
    }

    /// Adds a field whose value `write` appends.
    public func add(
        _ name: StaticString, _ indexing: FieldIndexing = .indexable, write: (ByteWriter) -> Void
    ) {
        let offset = fieldBytes.count
        write(fieldBytes)
        fields.append(
            Field(
                name: name, offset: offset, length: fieldBytes.count - offset, indexing: indexing))
    }

    /// The value of a field; valid until the next mutation.
    public func value(of field: Field) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(
            rebasing: fieldBytes.bytes[field.offset..<field.offset + field.length])
    }

    /// The first value of a named field as text, for tests and diagnostics.
    public func text(_ name: String) -> String? {
        fields.first { $0.name.description == name }
            .map { String(decoding: value(of: $0), as: UTF8.self) }
    }
}
