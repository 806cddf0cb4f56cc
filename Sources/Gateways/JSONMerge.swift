internal import Base
internal import JSON

/// Merging an override into a generated document (RFC 7396): objects merge member by member,
/// anything else replaces, and null removes.
internal enum JSONMerge {
    /// Writes `base` with `patch` merged into it; the patch's own members in `except` are ignored.
    static func write(
        _ base: JSONValue?, patchedWith patch: JSONValue, except: [StaticString] = [],
        to writer: ByteWriter
    ) {
        guard patch.isObject else {
            patch.writeCompact(to: writer)
            return
        }
        var comma: StaticString = ""
        func name(_ name: UnsafeRawBufferPointer) {
            writer.append(comma)
            comma = ","
            writer.append(jsonString: name)
            writer.append(0x3A)
        }
        writer.append(0x7B)
        base?.forEachMember { key, value in
            guard let change = patch.member(named: key), !isNamed(key, in: except) else {
                name(key)
                value.writeCompact(to: writer)
                return
            }
            guard !change.isNull else { return }
            name(key)
            write(value, patchedWith: change, to: writer)
        }
        patch.forEachMember { key, change in
            guard !change.isNull, base?.member(named: key) == nil, !isNamed(key, in: except),
                change.isLast(named: key, in: patch)
            else { return }
            name(key)
            write(nil, patchedWith: change, to: writer)
        }
        writer.append(0x7D)
    }

    private static func isNamed(_ key: UnsafeRawBufferPointer, in names: [StaticString]) -> Bool {
        names.contains { key.spells($0) }
    }
}

extension JSONValue {
    /// Whether this is the value that counts for a name: of a repeated one, the last.
    internal func isLast(named name: UnsafeRawBufferPointer, in object: JSONValue) -> Bool {
        object.member(named: name)?.source.baseAddress == source.baseAddress
    }
}

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
