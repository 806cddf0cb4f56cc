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
        var leftOut = false
        forEachLastMember { name, value in
            guard !isLeftOut(name) else {
                leftOut = true
                return
            }
            writer.append(0x2C)
            // A member's value stands right behind its name.
            Self.writeText(of: nodes + Int(value.index) - 1, to: writer)
            writer.append(0x3A)
            value.writeCompact(to: writer)
        }
        return leftOut
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
