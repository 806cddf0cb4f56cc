internal import CSimdJSON

/// The members of one object by name, for whoever asks for many of them, such as once for each
/// member of another object: of a large one a table is made first, so that all questions together
/// take time that grows with the members and not with their square. As valid as the object's own
/// value.
public struct JSONLookup {
    /// A pass over so few members is as fast as a table, and allocates nothing.
    private static let scannedMax = 64

    private let object: JSONValue
    /// The nodes of names, of a repeated one the last, behind the hash of their bytes; zero where
    /// there is none. Empty when the members are scanned.
    private var slots: [UInt32] = []

    /// Looks in an object; a value that is none has no members.
    public init(_ object: JSONValue) {
        self.object = object
        guard object.isObject, object.count > Self.scannedMax else { return }
        var power = 1
        while power < 2 * object.count { power *= 2 }
        slots = [UInt32](repeating: 0, count: power)
        let nodes = object.nodes
        var key = object.index + 1
        for _ in 0..<object.count {
            slots[slot(of: JSONValue.text(of: nodes + Int(key)), nodes)] = key
            key = nodes[Int(key)].next
        }
    }

    /// The member with those bytes as its name; nil when there is none.
    public func member(named name: UnsafeRawBufferPointer) -> JSONValue? {
        guard !slots.isEmpty else { return object.member(named: name) }
        let key = slots[slot(of: name, object.nodes)]
        return key == 0 ? nil : object.sibling(key + 1)
    }

    /// Whether this is the value that counts for a name: of a repeated one, the last.
    internal func isLast(_ value: JSONValue, named name: UnsafeRawBufferPointer) -> Bool {
        member(named: name)?.index == value.index
    }

    /// Where a name is, or would be.
    private func slot(
        of name: UnsafeRawBufferPointer, _ nodes: UnsafePointer<csimdjson_node>
    ) -> Int {
        // Seeded for each process: nobody can choose names that all fall on one slot.
        var hasher = Hasher()
        hasher.combine(bytes: name)
        var slot = hasher.finalize() & (slots.count - 1)
        while slots[slot] != 0 {
            if JSONValue.text(of: nodes + Int(slots[slot])).elementsEqual(name) { break }
            slot = (slot + 1) & (slots.count - 1)
        }
        return slot
    }
}

extension JSONValue {
    /// Calls `body` with the unescaped name and the value of each member that counts, in order: of
    /// a repeated name the last one.
    public func forEachLastMember<Failure: Error>(
        _ body: (UnsafeRawBufferPointer, JSONValue) throws(Failure) -> Void
    ) throws(Failure) {
        let lookup = JSONLookup(self)
        try forEachMember { (name, value) throws(Failure) in
            if lookup.isLast(value, named: name) { try body(name, value) }
        }
    }
}
