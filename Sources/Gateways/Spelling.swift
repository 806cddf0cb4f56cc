// Comparing names in JSON with literals, byte by byte.

extension UnsafeRawBufferPointer {
    /// Whether the bytes are those of a literal.
    internal func spells(_ literal: StaticString) -> Bool {
        count == literal.utf8CodeUnitCount && starts(with: literal)
    }

    /// Whether the bytes begin with those of a literal.
    internal func starts(with literal: StaticString) -> Bool {
        let length = literal.utf8CodeUnitCount
        guard count >= length else { return false }
        let start = literal.utf8Start
        for index in 0..<length where self[index] != start[index] { return false }
        return true
    }
}

extension StaticString {
    /// Whether two literals have the same bytes.
    internal func spells(_ other: StaticString) -> Bool {
        UnsafeRawBufferPointer(start: utf8Start, count: utf8CodeUnitCount).spells(other)
    }
}
