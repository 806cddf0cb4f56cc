/// A node of a parsed YAML document, with the place where it stands.
public struct YAMLNode: Sendable {
    /// What a node is.
    public enum Content: Sendable {
        /// Text; `plain` when it stands without quotes and outside a block.
        case scalar(String, plain: Bool)
        /// A list.
        case sequence([YAMLNode])
        /// Keys and values in their order, no key twice.
        case mapping([Entry])
    }

    /// A key of a mapping with its value.
    public struct Entry: Sendable {
        /// The key.
        public internal(set) var key: String
        /// The key's line, counted from 1.
        public internal(set) var line: Int
        /// The value.
        public internal(set) var value: YAMLNode
    }

    /// What this is.
    public internal(set) var content: Content
    /// The line, counted from 1.
    public internal(set) var line: Int
    /// The column, counted from 1.
    var column: Int
    /// The number of nodes in this subtree, this one included.
    var size: Int

    /// Whether this is an empty plain scalar, `~` or `null`, which all mean that nothing is given.
    public var isNull: Bool {
        guard case .scalar(let text, plain: true) = content else { return false }
        return text.isEmpty || text == "~" || text == "null"
    }

    /// What this is, for error texts.
    public var kindName: String {
        switch content {
        case .scalar: "a single value"
        case .sequence: "a list"
        case .mapping: "a mapping"
        }
    }
}
