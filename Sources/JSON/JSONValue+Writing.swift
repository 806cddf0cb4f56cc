public import Base
internal import CSimdJSON

extension JSONValue {
    /// Appends the value without white space: numbers verbatim, strings minimally escaped, members
    /// in their order. Recurses as deep as the parser let the document be.
    public func writeCompact(to writer: ByteWriter) {
        Self.write(nodes, Int(index), to: writer)
    }

    /// Appends the members of an object, a comma before each, without white space. Of a repeated
    /// name only the last member is written, and none for whose name `isLeftOut` says so; the
    /// result is whether there was such a name.
    public func writeMembers(
        to writer: ByteWriter, leavingOut isLeftOut: (UnsafeRawBufferPointer) -> Bool
    ) -> Bool {
        let nodes = nodes
        let start = Int(index)
        guard nodes[start].kind == csimdjson_object.rawValue else { return false }
        var leftOut = false
        var key = start + 1
        for position in 0..<nodes[start].count {
            let name = nodes + key
            let next = Int(name.pointee.next)
            if isLeftOut(Self.text(of: name)) {
                leftOut = true
            } else if !Self.isRepeated(nodes, name, from: next, nodes[start].count - position - 1) {
                writer.append(0x2C)
                Self.writeText(of: name, to: writer)
                writer.append(0x3A)
                Self.write(nodes, key + 1, to: writer)
            }
            key = next
        }
        return leftOut
    }

    /// Whether one of the `count` names from `first` on is the same as `name`.
    private static func isRepeated(
        _ nodes: UnsafePointer<csimdjson_node>, _ name: UnsafePointer<csimdjson_node>,
        from first: Int, _ count: UInt32
    ) -> Bool {
        var key = first
        for _ in 0..<count {
            let other = nodes + key
            if other.pointee.count == name.pointee.count,
                text(of: other).elementsEqual(text(of: name))
            {
                return true
            }
            key = Int(other.pointee.next)
        }
        return false
    }

    private static func write(
        _ nodes: UnsafePointer<csimdjson_node>, _ index: Int, to writer: ByteWriter
    ) {
        let node = nodes + index
        switch csimdjson_kind(node.pointee.kind) {
        case csimdjson_object:
            writer.append(0x7B)
            var name = index + 1
            for position in 0..<node.pointee.count {
                if position > 0 { writer.append(0x2C) }
                writeText(of: nodes + name, to: writer)
                writer.append(0x3A)
                write(nodes, name + 1, to: writer)
                name = Int(nodes[name].next)
            }
            writer.append(0x7D)
        case csimdjson_array:
            writer.append(0x5B)
            var element = index + 1
            for position in 0..<node.pointee.count {
                if position > 0 { writer.append(0x2C) }
                write(nodes, element, to: writer)
                element = Int(nodes[element].next)
            }
            writer.append(0x5D)
        case csimdjson_string: writeText(of: node, to: writer)
        default: writer.append(source(of: node))
        }
    }

    /// A string or name: as it stands when nothing in it is escaped, which its length tells.
    private static func writeText(of node: UnsafePointer<csimdjson_node>, to writer: ByteWriter) {
        if node.pointee.source_length == node.pointee.text_length + 2 {
            writer.append(source(of: node))
        } else {
            writer.append(
                jsonString: UnsafeRawBufferPointer(
                    start: node.pointee.text, count: Int(node.pointee.text_length)))
        }
    }

    private static func source(
        of node: UnsafePointer<csimdjson_node>
    ) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(
            start: node.pointee.source, count: Int(node.pointee.source_length))
    }
}
