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

    // Not checked for exclusivity at run time: each access is one statement.
    @exclusivity(unchecked) private var places: UnsafeMutablePointer<Field>
    @exclusivity(unchecked) private var placeCount = 0
    @exclusivity(unchecked) private var placeCapacity = 16

    /// The header fields in order, pseudo-header fields first; valid until the next mutation.
    public var fields: UnsafeBufferPointer<Field> {
        UnsafeBufferPointer(start: places, count: placeCount)
    }

    /// The bytes of all field values.
    public let fieldBytes = ByteWriter(capacity: 1024)

    /// The body.
    public let body = ByteWriter(capacity: 1024)

    /// An empty request.
    public init() { places = .allocate(capacity: placeCapacity) }

    deinit { places.deallocate() }

    /// Empties the request and keeps its memory.
    public func reset() {
        placeCount = 0
        fieldBytes.removeAll()
        body.removeAll()
    }

    /// Makes this a copy of another request.
    public func copy(_ other: OutboundRequest) {
        if other.placeCount > placeCapacity { grow(to: other.placeCapacity) }
        UnsafeMutableRawPointer(places).copyMemory(
            from: other.places, byteCount: other.placeCount * MemoryLayout<Field>.stride)
        placeCount = other.placeCount
        fieldBytes.removeAll()
        fieldBytes.append(other.fieldBytes.bytes)
        body.removeAll()
        body.append(other.body.bytes)
    }

    private func grow(to capacity: Int) {
        let larger = UnsafeMutablePointer<Field>.allocate(capacity: capacity)
        larger.moveInitialize(from: places, count: placeCount)
        places.deallocate()
        places = larger
        placeCapacity = capacity
    }

    /// Adds a field with a literal value.
    public func add(
        _ name: StaticString, _ value: StaticString, _ indexing: FieldIndexing = .indexable
    ) {
        let offset = fieldBytes.count
        fieldBytes.append(value)
        add(name, from: offset, indexing)
    }

    /// Adds a field with a text value.
    public func add(_ name: StaticString, _ value: String, _ indexing: FieldIndexing = .indexable) {
        let offset = fieldBytes.count
        fieldBytes.append(value)
        add(name, from: offset, indexing)
    }

    /// Adds a field whose value is what was appended to `fieldBytes` from `offset` on.
    public func add(_ name: StaticString, from offset: Int, _ indexing: FieldIndexing) {
        precondition(offset >= 0 && offset <= fieldBytes.count)
        if placeCount == placeCapacity { grow(to: placeCapacity * 2) }
        (places + placeCount).initialize(
            to: Field(
                name: name, offset: offset, length: fieldBytes.count - offset, indexing: indexing))
        placeCount += 1
    }

    /// Gives a field the value that was appended to `fieldBytes` from `offset` on.
    public func replace(_ field: Int, from offset: Int) {
        precondition(field >= 0 && field < placeCount)
        precondition(offset >= 0 && offset <= fieldBytes.count)
        let former = places[field]
        places[field] = Field(
            name: former.name, offset: offset, length: fieldBytes.count - offset,
            indexing: former.indexing)
    }

    /// Adds a field whose value `write` appends.
    public func add(
        _ name: StaticString, _ indexing: FieldIndexing = .indexable, write: (ByteWriter) -> Void
    ) {
        let offset = fieldBytes.count
        write(fieldBytes)
        add(name, from: offset, indexing)
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
