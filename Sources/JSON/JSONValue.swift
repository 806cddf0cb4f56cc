internal import CSimdJSON
internal import Glibc

/// A value inside a parsed document: a handle of two words that keeps the parser alive.
///
/// Valid until its parser's next parse, and traps when it is used after that. The buffers it hands
/// out are plain memory of the parser and live as long.
public struct JSONValue {
    /// What a value is.
    public enum Kind: Sendable {
        case null, bool, number, string, array, object
    }

    private let parser: JSONParser
    internal let index: UInt32
    private let generation: UInt32

    internal init(parser: JSONParser, index: UInt32, generation: UInt32) {
        self.parser = parser
        self.index = index
        self.generation = generation
    }

    internal var nodes: UnsafePointer<csimdjson_node> { parser.nodes(of: generation) }

    private var node: UnsafePointer<csimdjson_node> { nodes + Int(index) }

    internal func sibling(_ index: UInt32) -> JSONValue {
        JSONValue(parser: parser, index: index, generation: generation)
    }

    /// What this value is.
    public var kind: Kind {
        switch csimdjson_kind(node.pointee.kind) {
        case csimdjson_false, csimdjson_true: .bool
        case csimdjson_number: .number
        case csimdjson_string: .string
        case csimdjson_array: .array
        case csimdjson_object: .object
        default: .null
        }
    }

    /// Whether this is `null`.
    public var isNull: Bool { isKind(csimdjson_null) }

    /// Whether this is an object.
    public var isObject: Bool { isKind(csimdjson_object) }

    /// Whether this is an array.
    public var isArray: Bool { isKind(csimdjson_array) }

    /// The boolean, when this is one.
    public var bool: Bool? {
        if isKind(csimdjson_true) { return true }
        return isKind(csimdjson_false) ? false : nil
    }

    /// The unescaped UTF-8, when this is a string.
    public var stringBytes: UnsafeRawBufferPointer? { isKind(csimdjson_string) ? text : nil }

    /// The text, when this is a string.
    public var string: String? { stringBytes.map { String(decoding: $0, as: UTF8.self) } }

    /// The digits as they stand, when this is a number.
    public var numberText: UnsafeRawBufferPointer? { isKind(csimdjson_number) ? text : nil }

    /// The number, when it is written as a whole number, without point or exponent, and fits.
    public var int64: Int64? { numberText.flatMap { Self.int64($0) } }

    internal static func int64(_ digits: UnsafeRawBufferPointer) -> Int64? {
        let negative = digits[0] == 0x2D
        var value: Int64 = 0
        for digit in digits[(negative ? 1 : 0)...] {
            guard digit >= 0x30 && digit <= 0x39 else { return nil }
            let step = Int64(digit - 0x30)
            let (shifted, overflow) = value.multipliedReportingOverflow(by: 10)
            let (sum, carry) =
                negative
                ? shifted.subtractingReportingOverflow(step)
                : shifted.addingReportingOverflow(step)
            if overflow || carry { return nil }
            value = sum
        }
        return value
    }

    /// The number rounded to the nearest double, when this is a number; infinite when too large.
    public var double: Double? {
        // The text is followed by a byte that no number contains, at the latest by the padding.
        guard let start = numberText?.baseAddress else { return nil }
        return strtod(start.assumingMemoryBound(to: CChar.self), nil)
    }

    /// The value as it stands in the document, a string with its quotes.
    public var source: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: node.pointee.source, count: Int(node.pointee.source_length))
    }

    /// The number of elements or members; 0 for everything else. A repeated name counts each time.
    public var count: Int { Int(node.pointee.count) }

    private var text: UnsafeRawBufferPointer { Self.text(of: node) }

    internal static func text(of node: UnsafePointer<csimdjson_node>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: node.pointee.text, count: Int(node.pointee.text_length))
    }

    private func isKind(_ kind: csimdjson_kind) -> Bool { node.pointee.kind == kind.rawValue }
}

extension JSONValue {
    /// The member of that name; nil when there is none or this is no object. Linear in the number
    /// of members; `null` is a value.
    public subscript(key: StaticString) -> JSONValue? {
        member(named: UnsafeRawBufferPointer(start: key.utf8Start, count: key.utf8CodeUnitCount))
    }

    /// The member of that name; nil when there is none or this is no object.
    public subscript(key: String) -> JSONValue? {
        var key = key
        return key.withUTF8 { member(named: UnsafeRawBufferPointer($0)) }
    }

    /// The member with those bytes as its name; nil when there is none or this is no object.
    public func member(named name: UnsafeRawBufferPointer) -> JSONValue? {
        let nodes = nodes
        guard nodes[Int(index)].kind == csimdjson_object.rawValue else { return nil }
        let tag = Self.tag(of: name)
        // No member's value stands at the root.
        var found: UInt32 = 0
        var key = index + 1
        for _ in 0..<nodes[Int(index)].count {
            let node = nodes + Int(key)
            if node.pointee.count == tag, matches(node.pointee.text, name) { found = key + 1 }
            key = node.pointee.next
        }
        return found == 0 ? nil : sibling(found)
    }

    /// What the shim keeps in the nodes of names: most names differ in it, so that few bytes are
    /// compared.
    internal static func tag(of name: UnsafeRawBufferPointer) -> UInt32 {
        guard let first = name.first, let last = name.last else { return 0 }
        return UInt32(truncatingIfNeeded: name.count) << 16 | UInt32(first) << 8 | UInt32(last)
    }

    /// Whether a name with the same tag is the same.
    private func matches(_ text: UnsafePointer<UInt8>?, _ name: UnsafeRawBufferPointer) -> Bool {
        guard let text, let start = name.baseAddress else { return name.isEmpty }
        return memcmp(text, start, name.count) == 0
    }

    /// Calls `body` with the unescaped name and the value of each member, in order.
    public func forEachMember<Failure: Error>(
        _ body: (UnsafeRawBufferPointer, JSONValue) throws(Failure) -> Void
    ) throws(Failure) {
        guard isObject else { return }
        var key = index + 1
        for _ in 0..<node.pointee.count {
            let name = sibling(key)
            try body(name.text, sibling(key + 1))
            key = name.node.pointee.next
        }
    }

    /// Calls `body` with each element of an array, in order.
    public func forEachElement<Failure: Error>(
        _ body: (JSONValue) throws(Failure) -> Void
    ) throws(Failure) {
        guard isArray else { return }
        var element = index + 1
        for _ in 0..<node.pointee.count {
            let value = sibling(element)
            try body(value)
            element = value.node.pointee.next
        }
    }
}
