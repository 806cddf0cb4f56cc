internal import JSON

// Events as their publishers write them, for commands that read topics: with a schema registry's
// frame in front, perhaps, and with numbers for ids.

extension JSONParser {
    /// The event of a record's value; nil when there is none to be read.
    internal func event(in value: UnsafeRawBufferPointer) -> JSONValue? {
        // A zero byte and a four-byte id.
        let isFramed = value.count > 5 && value[0] == 0 && value[5] == 0x7B
        let json = isFramed ? UnsafeRawBufferPointer(rebasing: value[5...]) : value
        guard let root = try? parse(json), root.isObject else { return nil }
        return root
    }
}

extension JSONValue {
    /// A text, or a number as it is written.
    internal var identifier: String? {
        string ?? numberText.map { String(decoding: $0, as: UTF8.self) }
    }
}
