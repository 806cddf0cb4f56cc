/// Why some bytes are not a JSON document that is accepted here.
///
/// The description names the fault and where it is, and never quotes the document.
public enum JSONError: Error, Equatable, Sendable, CustomStringConvertible {
    /// There is nothing but white space.
    case empty
    /// The document is larger than the parser accepts.
    case tooLarge(limit: Int)
    /// Arrays and objects are nested deeper than the parser accepts.
    case tooDeep(limit: Int, offset: Int)
    /// The bytes are not UTF-8.
    case notUTF8
    /// A number does not follow the grammar of RFC 8259, as `01`, `+1` and `NaN` do not.
    case badNumber(offset: Int)
    /// A string is open at the end, holds a control character, or has an escape that stands for
    /// no character; the offset is unknown for the first two.
    case badString(offset: Int?)
    /// The structure is broken at the value or name that starts here, or directly behind it.
    case notJSON(offset: Int?)
    /// Something stands behind the document.
    case trailingBytes(offset: Int)
    /// The system gave no memory.
    case outOfMemory

    /// One line of text.
    public var description: String {
        switch self {
        case .empty: "empty: no JSON value"
        case .tooLarge(let limit): "larger than \(limit) bytes"
        case .tooDeep(let limit, let offset): "nested deeper than \(limit) at byte \(offset)"
        case .notUTF8: "not UTF-8"
        case .badNumber(let offset): "not a JSON number at byte \(offset)"
        case .badString(let offset): "not a JSON string" + Self.place(offset)
        case .notJSON(let offset): "not JSON" + Self.place(offset)
        case .trailingBytes(let offset): "unexpected bytes after the JSON value at byte \(offset)"
        case .outOfMemory: "no memory for the document"
        }
    }

    private static func place(_ offset: Int?) -> String {
        offset.map { " at byte \($0)" } ?? ""
    }
}
