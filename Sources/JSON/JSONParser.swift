// Reading JSON. simdjson finds the structure; the shim behind `CSimdJSON` lays the document out
// as a flat table of nodes in document order. A `JSONValue` is an index into that table, so a
// reader pays neither for objects nor for calls into C.

internal import CSimdJSON

/// A reusable parser: it keeps its buffers, so that after warm-up a parse allocates nothing.
///
/// Confined to one thread. Accepts exactly RFC 8259 in UTF-8 without a byte order mark, except
/// that escapes must not form lone surrogates. Where an object repeats a name the last one wins.
public final class JSONParser {
    /// What a parser accepts.
    public enum Limits {
        /// The largest document, in bytes.
        public static let documentBytes = 4 << 20
        /// The largest value that `documentBytes` can be raised to.
        public static let documentBytesMax = 1 << 30
        /// The deepest nesting of arrays and objects.
        public static let depth = 64
        /// The largest value that `depth` can be raised to; the walk recurses that deep.
        public static let depthMax = 1024
    }

    private let parser: OpaquePointer
    private let maximumBytes: Int
    private let maximumDepth: Int
    /// The table of the newest document, owned by the C side.
    // Exclusivity is not checked at run time for these two: every look at a value reads both, and
    // no access to them lasts longer than the statement it stands in.
    @exclusivity(unchecked) private var nodes: UnsafePointer<csimdjson_node>?
    /// Counts parses, so that a value of an older document is recognised.
    @exclusivity(unchecked) private var generation: UInt32 = 0

    /// A parser that refuses larger or deeper documents than given.
    public init(maximumBytes: Int = Limits.documentBytes, maximumDepth: Int = Limits.depth) {
        precondition(maximumBytes > 0 && maximumBytes <= Limits.documentBytesMax)
        precondition(maximumDepth > 0 && maximumDepth <= Limits.depthMax)
        guard let parser = csimdjson_create(maximumBytes, UInt32(maximumDepth)) else {
            preconditionFailure("no memory for a JSON parser")
        }
        self.parser = parser
        self.maximumBytes = maximumBytes
        self.maximumDepth = maximumDepth
    }

    deinit { csimdjson_destroy(parser) }

    /// Parses a document. The value and all that is taken from it are valid until the next
    /// parse; the given bytes are copied and may go.
    public func parse(_ bytes: UnsafeRawBufferPointer) throws(JSONError) -> JSONValue {
        let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        generation &+= 1
        let result = csimdjson_parse(parser, start, bytes.count)
        nodes = result.nodes
        if result.status == csimdjson_ok.rawValue {
            return JSONValue(parser: self, index: 0, generation: generation)
        }
        throw error(csimdjson_status(UInt32(result.status)), at: Int(result.offset))
    }

    internal func nodes(of generation: UInt32) -> UnsafePointer<csimdjson_node> {
        guard generation == self.generation, let nodes else {
            preconditionFailure("a JSON value was used after its parser's next parse")
        }
        return nodes
    }

    private func error(_ status: csimdjson_status, at offset: Int) -> JSONError {
        let known = offset < 0 ? nil : offset
        return switch status {
        case csimdjson_empty: .empty
        case csimdjson_too_large: .tooLarge(limit: maximumBytes)
        case csimdjson_too_deep: .tooDeep(limit: maximumDepth, offset: offset)
        case csimdjson_bad_utf8: .notUTF8
        case csimdjson_bad_number: .badNumber(offset: offset)
        case csimdjson_bad_string: .badString(offset: known)
        case csimdjson_trailing: .trailingBytes(offset: offset)
        case csimdjson_out_of_memory: .outOfMemory
        default: .notJSON(offset: known)
        }
    }
}

extension JSONParser {
    /// Parses the UTF-8 of an array.
    public func parse(_ bytes: [UInt8]) throws(JSONError) -> JSONValue {
        // The parser copies before it returns, so the pointer need not outlive the closure.
        let result = bytes.withUnsafeBytes { source -> Result<JSONValue, JSONError> in
            do throws(JSONError) { return .success(try parse(source)) } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// Parses the UTF-8 of a string.
    public func parse(_ text: String) throws(JSONError) -> JSONValue {
        try parse(Array(text.utf8))
    }
}
