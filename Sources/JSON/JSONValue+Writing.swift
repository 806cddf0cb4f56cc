public import Base

extension JSONValue {
    /// Appends the value without white space: numbers verbatim, strings minimally escaped, members
    /// in their order. Recurses as deep as the parser let the document be.
    public func writeCompact(to writer: ByteWriter) {
        switch kind {
        case .object:
            writer.append(0x7B)
            var first = true
            forEachMember { name, value in
                if !first { writer.append(0x2C) }
                first = false
                writer.append(jsonString: name)
                writer.append(0x3A)
                value.writeCompact(to: writer)
            }
            writer.append(0x7D)
        case .array:
            writer.append(0x5B)
            var first = true
            forEachElement { value in
                if !first { writer.append(0x2C) }
                first = false
                value.writeCompact(to: writer)
            }
            writer.append(0x5D)
        case .string:
            writer.append(jsonString: stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0))
        case .null, .bool, .number:
            writer.append(source)
        }
    }
}
