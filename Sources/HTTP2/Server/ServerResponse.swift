/// A header field of an answer.
public struct ServerField: Sendable, Hashable {
    /// The lower-case name.
    public var name: String
    /// The value.
    public var value: String

    /// A field with a name and a value.
    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// An answer: status, header fields and body.
public struct ServerResponse: Sendable, Hashable {
    /// The status code, three digits.
    public var status: Int
    /// The header fields after `:status`.
    public var fields: [ServerField]
    /// The body; empty means that the header block ends the stream.
    public var body: [UInt8]

    /// An answer with a status, fields and a body.
    public init(status: Int, fields: [ServerField] = [], body: [UInt8] = []) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// An answer with a status, fields and a body given as text.
    public init(status: Int, fields: [ServerField] = [], text: String) {
        self.init(status: status, fields: fields, body: Array(text.utf8))
    }
}
