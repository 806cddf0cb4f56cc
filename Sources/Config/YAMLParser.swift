// From text to a tree with libyaml's event parser. libyaml owns the memory of an event until it
// is deleted; everything is copied out before that.

internal import CYAML

internal struct YAMLError: Error {
    var line: Int
    var message: String
}

/// Parses one YAML document.
///
/// A subset on purpose: no tags, no second document, string keys only, no key twice. Aliases are
/// expanded as long as the tree stays small.
internal final class YAMLParser {
    enum Limits {
        /// The largest text, in bytes.
        static let textBytes = Configuration.fileBytesMax
        /// The most nodes of a tree, aliases expanded.
        static let nodes = 20_000
        /// The deepest nesting.
        static let depth = 32
    }

    private let parser: UnsafeMutablePointer<yaml_parser_t>
    private let event: UnsafeMutablePointer<yaml_event_t>
    private let text: [UInt8]
    private var anchors: [String: YAMLNode] = [:]
    private var nodes = 0

    /// The tree of a document; nil when there is none.
    static func parse(_ text: [UInt8]) throws(YAMLError) -> YAMLNode? {
        if text.count > Limits.textBytes {
            throw YAMLError(line: 1, message: "larger than \(Limits.textBytes) bytes")
        }
        return try YAMLParser(text).document()
    }

    private init(_ text: [UInt8]) throws(YAMLError) {
        self.text = text
        parser = .allocate(capacity: 1)
        event = .allocate(capacity: 1)
        event.initialize(to: yaml_event_t())
        guard yaml_parser_initialize(parser) == 1 else {
            parser.initialize(to: yaml_parser_t())
            throw YAMLError(line: 1, message: "no memory to read YAML")
        }
        yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING)
    }

    deinit {
        yaml_event_delete(event)
        yaml_parser_delete(parser)
        parser.deallocate()
        event.deallocate()
    }

    private func document() throws(YAMLError) -> YAMLNode? {
        // libyaml keeps a pointer to its input, so all events are read while it is pinned.
        let text = text
        let parser = parser
        var result: Result<YAMLNode?, YAMLError> = .success(nil)
        text.withUnsafeBufferPointer { bytes in
            yaml_parser_set_input_string(parser, bytes.baseAddress, bytes.count)
            do throws(YAMLError) { result = .success(try pinnedDocument()) } catch {
                result = .failure(error)
            }
        }
        return try result.get()
    }

    private func pinnedDocument() throws(YAMLError) -> YAMLNode? {
        if text.isEmpty { return nil }
        try next()
        try next()
        if event.pointee.type == YAML_STREAM_END_EVENT { return nil }
        try next()
        let root = try node(depth: 0)
        try next()
        try next()
        if event.pointee.type != YAML_STREAM_END_EVENT {
            throw error("a second document; one file holds one configuration")
        }
        return root
    }

    /// Replaces the current event by the next one.
    private func next() throws(YAMLError) {
        yaml_event_delete(event)
        if yaml_parser_parse(parser, event) == 1 { return }
        let line = Int(parser.pointee.problem_mark.line) + 1
        let problem = parser.pointee.problem.map { String(cString: $0) } ?? "unreadable"
        if indentedWithTab(line) {
            throw YAMLError(line: line, message: "a tab cannot indent YAML; use spaces")
        }
        throw YAMLError(line: line, message: "not valid YAML: \(problem)")
    }

    private func indentedWithTab(_ line: Int) -> Bool {
        var current = 1
        var inIndentation = true
        for byte in text {
            if byte == 0x0A {
                if current == line { return false }
                current += 1
                inIndentation = true
            } else if current == line && inIndentation {
                if byte == 0x09 { return true }
                inIndentation = byte == 0x20
            }
        }
        return false
    }

    private func error(_ message: String) -> YAMLError {
        YAMLError(line: Int(event.pointee.start_mark.line) + 1, message: message)
    }

    /// The node that starts with the current event; afterwards its last event is current.
    private func node(depth: Int) throws(YAMLError) -> YAMLNode {
        if depth > Limits.depth { throw error("nested deeper than \(Limits.depth)") }
        let start = event.pointee.start_mark
        let anchor: String?
        let tag: Bool
        var content: YAMLNode.Content
        switch event.pointee.type {
        case YAML_ALIAS_EVENT:
            return try alias()
        case YAML_SCALAR_EVENT:
            let scalar = event.pointee.data.scalar
            anchor = Self.text(scalar.anchor)
            tag = scalar.tag != nil
            let bytes = UnsafeBufferPointer(start: scalar.value, count: scalar.length)
            content = .scalar(
                String(decoding: bytes, as: UTF8.self),
                plain: scalar.style == YAML_PLAIN_SCALAR_STYLE)
        case YAML_SEQUENCE_START_EVENT:
            anchor = Self.text(event.pointee.data.sequence_start.anchor)
            tag = event.pointee.data.sequence_start.tag != nil
            content = .sequence([])
        case YAML_MAPPING_START_EVENT:
            anchor = Self.text(event.pointee.data.mapping_start.anchor)
            tag = event.pointee.data.mapping_start.tag != nil
            content = .mapping([])
        default:
            throw error("not valid YAML: a value is missing")
        }
        if tag { throw error("tags are not supported") }
        try count(1)
        var size = 1
        switch content {
        case .scalar: break
        case .sequence: content = .sequence(try elements(depth, &size))
        case .mapping: content = .mapping(try entries(depth, &size))
        }
        let node = YAMLNode(
            content: content, line: Int(start.line) + 1, column: Int(start.column) + 1, size: size)
        if let anchor { anchors[anchor] = node }
        return node
    }

    private func elements(
        _ depth: Int, _ size: inout Int
    ) throws(YAMLError) -> [YAMLNode] {
        var elements: [YAMLNode] = []
        while true {
            try next()
            if event.pointee.type == YAML_SEQUENCE_END_EVENT { return elements }
            let element = try node(depth: depth + 1)
            size += element.size
            elements.append(element)
        }
    }

    private func entries(
        _ depth: Int, _ size: inout Int
    ) throws(YAMLError) -> [YAMLNode.Entry] {
        var entries: [YAMLNode.Entry] = []
        var lines: [String: Int] = [:]
        while true {
            try next()
            if event.pointee.type == YAML_MAPPING_END_EVENT { return entries }
            let keyNode = try node(depth: depth + 1)
            guard case .scalar(let key, _) = keyNode.content else {
                throw YAMLError(line: keyNode.line, message: "a key must be a single value")
            }
            if let first = lines.updateValue(keyNode.line, forKey: key) {
                throw YAMLError(
                    line: keyNode.line, message: "\(key): given twice, first in line \(first)")
            }
            try next()
            let value = try node(depth: depth + 1)
            size += 1 + value.size
            entries.append(.init(key: key, line: keyNode.line, value: value))
        }
    }

    /// A copy of the anchored node. An anchor is known only behind its node's end, so an alias
    /// cannot contain itself.
    private func alias() throws(YAMLError) -> YAMLNode {
        guard let name = Self.text(event.pointee.data.alias.anchor), let node = anchors[name] else {
            throw error("an alias without an anchor before it")
        }
        try count(node.size)
        return node
    }

    private func count(_ more: Int) throws(YAMLError) {
        nodes += more
        if nodes > Limits.nodes { throw error("more than \(Limits.nodes) values") }
    }

    private static func text(_ bytes: UnsafeMutablePointer<yaml_char_t>?) -> String? {
        bytes.map { String(cString: $0) }
    }
}
