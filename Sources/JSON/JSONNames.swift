internal import CSimdJSON
internal import Glibc

/// A fixed list of member names that are looked for together: one pass over an object finds them
/// all, however many there are.
public final class JSONNames: Sendable {
    /// The longest list.
    public static let countMax = 48

    /// The names in their order.
    public let names: [StaticString]
    /// For each slot of the table the place of a name plus one; zero when the slot is empty.
    private let slots: [UInt8]
    /// The tags of the names, in their order.
    private let tags: [UInt32]

    private static let slotCount = 256

    /// A list of different names, at most `countMax`.
    public init(_ names: [StaticString]) {
        precondition(names.count <= Self.countMax, "too many names in one list")
        var slots = [UInt8](repeating: 0, count: Self.slotCount)
        var tags: [UInt32] = []
        for (place, name) in names.enumerated() {
            let tag = JSONValue.tag(of: Self.bytes(of: name))
            tags.append(tag)
            var slot = Self.slot(of: tag)
            while slots[slot] != 0 { slot = (slot + 1) % Self.slotCount }
            slots[slot] = UInt8(place + 1)
        }
        self.names = names
        self.slots = slots
        self.tags = tags
    }

    /// The place of a name in the list.
    public func place(of name: UnsafeRawBufferPointer) -> Int? {
        place(tag: JSONValue.tag(of: name), text: name)
    }

    fileprivate func place(tag: UInt32, text: UnsafeRawBufferPointer) -> Int? {
        var slot = Self.slot(of: tag)
        while slots[slot] != 0 {
            let place = Int(slots[slot]) - 1
            if tags[place] == tag, Self.bytes(of: names[place]).spells(text) { return place }
            slot = (slot + 1) % Self.slotCount
        }
        return nil
    }

    private static func slot(of tag: UInt32) -> Int { Int((tag &* 0x9E37_79B1) >> 24) }

    private static func bytes(of name: StaticString) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
    }
}

extension UnsafeRawBufferPointer {
    /// Whether two buffers have the same bytes.
    fileprivate func spells(_ other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count else { return false }
        guard let start = baseAddress, let end = other.baseAddress else { return true }
        return memcmp(start, end, count) == 0
    }
}

/// The members of one object that have names of a list. As valid as the object's own value.
public struct JSONMembers {
    /// The object, or whatever stands in its place.
    public let object: JSONValue
    /// The nodes of the members' values, by the place of their name, as many as `countMax`; zero
    /// where there is none.
    private var found = [48 of UInt32](repeating: 0)

    /// Finds the members of an object. Where a name is repeated the last one counts; a value that
    /// is no object has none.
    public init(of object: JSONValue, named list: JSONNames) {
        self.object = object
        let nodes = object.nodes
        let start = Int(object.index)
        guard nodes[start].kind == csimdjson_object.rawValue else { return }
        var key = start + 1
        for _ in 0..<nodes[start].count {
            let node = nodes + key
            if let place = list.place(tag: node.pointee.count, text: JSONValue.text(of: node)) {
                found[place] = UInt32(key + 1)
            }
            key = Int(node.pointee.next)
        }
    }

    /// The member for the name in that place of the list.
    public subscript(place: Int) -> JSONValue? {
        found[place] == 0 ? nil : object.sibling(found[place])
    }

    /// Whether there is a member for the name, and it is not `null`.
    public func has(_ place: Int) -> Bool {
        guard let node = node(place) else { return false }
        return node.pointee.kind != csimdjson_null.rawValue
    }

    /// The unescaped UTF-8 of the member for the name, when it is a string.
    public func stringBytes(_ place: Int) -> UnsafeRawBufferPointer? {
        text(place, csimdjson_string)
    }

    /// The digits of the member for the name, when it is a number.
    public func numberText(_ place: Int) -> UnsafeRawBufferPointer? {
        text(place, csimdjson_number)
    }

    /// The member for the name, when it is a whole number without point or exponent that fits.
    public func int64(_ place: Int) -> Int64? { numberText(place).flatMap { JSONValue.int64($0) } }

    private func text(_ place: Int, _ kind: csimdjson_kind) -> UnsafeRawBufferPointer? {
        guard let node = node(place), node.pointee.kind == kind.rawValue else { return nil }
        return JSONValue.text(of: node)
    }

    private func node(_ place: Int) -> UnsafePointer<csimdjson_node>? {
        found[place] == 0 ? nil : object.nodes + Int(found[place])
    }
}
