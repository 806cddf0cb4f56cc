/// A node of a parsed YAML document, with the place where it stands.
internal struct YAMLNode {
    enum Content {
        /// Text; `plain` when it stands without quotes and outside a block.
        case scalar(String, plain: Bool)
        case sequence([YAMLNode])
        case mapping([Entry])
    }

    struct Entry {
        var key: String
        var line: Int
        var value: YAMLNode
    }

    var content: Content
    /// The line, counted from 1.
    var line: Int
    /// The column, counted from 1.
    var column: Int
    /// The number of nodes in this subtree, this one included.
    var size: Int

    /// Whether this is an empty plain scalar, `~` or `null`, which all mean that nothing is given.
    var isNull: Bool {
        guard case .scalar(let text, plain: true) = content else { return false }
        return text.isEmpty || text == "~" || text == "null"
    }

    /// What this is, for error texts.
    var kindName: String {
        switch content {
        case .scalar: "a single value"
        case .sequence: "a list"
        case .mapping: "a mapping"
        }
    }
}
