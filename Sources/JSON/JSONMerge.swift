public import Base

/// Merging an override into a generated document (RFC 7396): objects merge member by member,
/// anything else replaces, and null removes.
public enum JSONMerge {
    /// Writes `base` with `patch` merged into it; the patch's own members in `except` are ignored.
    ///
    /// With `keepsNulls` the result is itself a patch: what is null in `patch` is null in it.
    public static func write(
        _ base: JSONValue?, patchedWith patch: JSONValue, except: [StaticString] = [],
        keepsNulls: Bool = false, to writer: ByteWriter
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
        let (changes, present) = (JSONLookup(patch), base.map { JSONLookup($0) })
        writer.append(0x7B)
        base?.forEachMember { key, value in
            guard let change = changes.member(named: key), !isNamed(key, in: except) else {
                name(key)
                value.writeCompact(to: writer)
                return
            }
            guard keepsNulls || !change.isNull else { return }
            name(key)
            write(value, patchedWith: change, keepsNulls: keepsNulls, to: writer)
        }
        patch.forEachMember { key, change in
            guard keepsNulls || !change.isNull, present?.member(named: key) == nil,
                !isNamed(key, in: except), changes.isLast(change, named: key)
            else { return }
            name(key)
            write(nil, patchedWith: change, keepsNulls: keepsNulls, to: writer)
        }
        writer.append(0x7D)
    }

    private static func isNamed(_ key: UnsafeRawBufferPointer, in names: [StaticString]) -> Bool {
        names.contains { name in
            key.elementsEqual(
                UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
        }
    }
}
