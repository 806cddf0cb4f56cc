internal import Base
internal import JSON

/// Writes the `data` of an FCM message: a map of strings.
///
/// Scalars become their JSON text with every digit as it stood, objects and arrays become compact
/// JSON text, null is left out. Names that FCM reserves are left out, always.
internal struct FCMData {
    /// The bytes of all names and values, as FCM counts a payload.
    private(set) var payloadBytes = 0
    private(set) var notes = RenderingNotes()
    private var isFirst = true
    private let writer: ByteWriter
    private let scratch: ByteWriter

    /// Opens the map at the end of `writer`; `scratch` is overwritten.
    init(to writer: ByteWriter, scratch: ByteWriter) {
        self.writer = writer
        self.scratch = scratch
        writer.append(0x7B)
    }

    /// Closes the map.
    func end() { writer.append(0x7D) }

    /// Whether FCM refuses or swallows the name.
    static func isReserved(_ name: UnsafeRawBufferPointer) -> Bool {
        name.spells("from") || name.spells("message_type") || name.starts(with: "google")
            || name.starts(with: "gcm") || name.spells(PayloadBlock.key)
    }

    /// Writes the members of an object, without those that `override` has too.
    mutating func write(_ object: JSONValue, overriddenBy override: JSONValue?) {
        let overridden = override.map { JSONLookup($0) }
        object.forEachLastMember { name, value in
            if overridden?.member(named: name) == nil { write(name, value) }
        }
    }

    private mutating func write(_ name: UnsafeRawBufferPointer, _ value: JSONValue) {
        guard !Self.isReserved(name) else {
            notes.insert(.droppedReservedKeys)
            return
        }
        switch value.kind {
        case .null: notes.insert(.droppedNulls)
        case .string:
            write(name, text: value.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0))
        case .bool, .number: write(name, text: value.source)
        case .object, .array:
            scratch.removeAll()
            value.writeCompact(to: scratch)
            write(name, text: scratch.bytes)
        }
    }

    /// Writes our block.
    mutating func writeBlock(
        _ content: borrowing PushContent, showing isShownByApp: Bool = false
    ) {
        scratch.removeAll()
        PayloadBlock.write(content, image: nil, showing: isShownByApp, to: scratch)
        let key = PayloadBlock.key
        write(
            UnsafeRawBufferPointer(start: key.utf8Start, count: key.utf8CodeUnitCount),
            text: scratch.bytes)
    }

    private mutating func write(_ name: UnsafeRawBufferPointer, text: UnsafeRawBufferPointer) {
        if !isFirst { writer.append(0x2C) }
        isFirst = false
        writer.append(jsonString: name)
        writer.append(0x3A)
        writer.append(jsonString: text)
        payloadBytes += name.count + text.count
    }
}
