public import Base

/// Writes one JSON object into a `ByteWriter`: commas and quoting, no allocation, no checks for
/// repeated names.
///
/// Names are literals in plain ASCII that need no escaping. Call `end()` exactly once; nested
/// objects are written by a writer of their own between `name(_:)` and the next member.
public struct JSONObjectWriter {
    /// Where the object goes.
    public let bytes: ByteWriter
    private var isFirst = true

    /// Opens an object at the end of `bytes`.
    public init(_ bytes: ByteWriter) {
        self.bytes = bytes
        bytes.append(0x7B)
    }

    /// Goes on with an object that is open at the end of `bytes` and has a member already.
    public init(continuing bytes: ByteWriter) {
        self.bytes = bytes
        isFirst = false
    }

    /// Closes the object.
    public mutating func end() { bytes.append(0x7D) }

    /// Writes a name; the caller appends its value to `bytes`.
    public mutating func name(_ name: StaticString) {
        bytes.append(jsonName: name, isFirst: isFirst)
        isFirst = false
    }

    /// Writes a string member.
    public mutating func string(_ name: StaticString, _ value: String) {
        self.name(name)
        bytes.append(jsonString: value)
    }

    /// Writes a string member from UTF-8.
    public mutating func string(_ name: StaticString, _ value: UnsafeRawBufferPointer) {
        self.name(name)
        bytes.append(jsonString: value)
    }

    /// Writes a string member, or `null`.
    public mutating func string(_ name: StaticString, orNull value: String?) {
        if let value { string(name, value) } else { null(name) }
    }

    /// Writes a string member from a literal that needs no escaping.
    public mutating func literal(_ name: StaticString, _ value: StaticString) {
        self.name(name)
        bytes.append(0x22)
        bytes.append(value)
        bytes.append(0x22)
    }

    /// Writes bytes as a string member of lower-case hex.
    public mutating func hex(_ name: StaticString, _ value: UnsafeRawBufferPointer) {
        self.name(name)
        bytes.append(0x22)
        bytes.append(hex: value)
        bytes.append(0x22)
    }

    /// Writes members that are JSON already, with commas between them.
    public mutating func members(_ json: UnsafeRawBufferPointer) {
        if !isFirst { bytes.append(0x2C) }
        isFirst = false
        bytes.append(json)
    }

    /// Writes members that are JSON already, with commas between them.
    public mutating func members(_ json: StaticString) {
        members(UnsafeRawBufferPointer(start: json.utf8Start, count: json.utf8CodeUnitCount))
    }

    /// Writes a UUID as a string member.
    public mutating func uuid(_ name: StaticString, _ value: UUIDBytes) {
        self.name(name)
        bytes.append(0x22)
        bytes.append(uuid: value)
        bytes.append(0x22)
    }

    /// Writes a whole number.
    public mutating func integer(_ name: StaticString, _ value: Int64) {
        self.name(name)
        bytes.append(decimal: value)
    }

    /// Writes a whole number, or `null`.
    public mutating func integer(_ name: StaticString, orNull value: Int64?) {
        if let value { integer(name, value) } else { null(name) }
    }

    /// Writes a boolean.
    public mutating func bool(_ name: StaticString, _ value: Bool) {
        self.name(name)
        bytes.append(value ? "true" as StaticString : "false")
    }

    /// Writes `null`.
    public mutating func null(_ name: StaticString) {
        self.name(name)
        bytes.append("null" as StaticString)
    }

    /// Writes a member whose value is JSON already.
    public mutating func raw(_ name: StaticString, _ json: UnsafeRawBufferPointer) {
        self.name(name)
        bytes.append(json)
    }

    /// Writes a value out of a parsed document, without white space.
    public mutating func value(_ name: StaticString, _ value: JSONValue) {
        self.name(name)
        value.writeCompact(to: bytes)
    }
}
