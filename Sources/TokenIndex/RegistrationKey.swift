// The key of a record of `push.devices`: the address id as text, or the row's key columns as a
// connector writes them.

internal import JSON

internal enum RegistrationKey {
    /// The address id, as producers of native records write it.
    case text(UnsafeRawBufferPointer)
    /// The key columns of a row.
    case columns(JSONValue)

    /// Reads a key; what it holds is valid until the parser's next parse.
    init(_ key: UnsafeRawBufferPointer?, _ parser: JSONParser) throws(RecordError) {
        guard let key, !key.isEmpty else { throw .noKey }
        let bytes = RecordFraming.stripped(key)
        guard let first = bytes.first, first == 0x7B || first == 0x22 else {
            self = .text(key)
            return
        }
        guard bytes.count <= IndexLimits.recordBytes, let document = try? parser.parse(bytes)
        else { throw .badKey }
        let content = RecordFraming.unwrapped(document).content
        if let text = content.stringBytes {
            self = .text(text)
        } else if content.isObject {
            self = .columns(content)
        } else {
            throw .badKey
        }
    }

    /// The address that the key names by itself; nil when its columns do not say it.
    func addressID(
        _ tables: [RegistrationTable], _ nested: JSONParser
    ) throws(RecordError) -> AddressID? {
        switch self {
        case .text(let bytes):
            guard let id = AddressID(String(decoding: bytes, as: UTF8.self)) else { throw .badKey }
            return id
        case .columns(let row):
            for table in [nil] + tables.map(Optional.some) {
                let reader = RecordReader(row, RowDialect(table: table, nested: nested))
                // A key without the column that tells rows apart would name another address.
                let isWhole = table?.columns["instance"].map { row[$0] != nil } ?? true
                if isWhole, let id = try? reader.addressID() { return id }
            }
            return nil
        }
    }
}

/// What connectors put around a document.
internal enum RecordFraming {
    /// Without a schema registry's zero byte and 4-byte id, when JSON follows them.
    static func stripped(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        guard bytes.count > 5, bytes[0] == 0, bytes[5] == 0x7B || bytes[5] == 0x22 else {
            return bytes
        }
        return UnsafeRawBufferPointer(rebasing: bytes[5...])
    }

    /// The document inside `{"schema": ..., "payload": ...}`, and its schema.
    static func unwrapped(_ document: JSONValue) -> (content: JSONValue, schema: JSONValue?) {
        guard document.isObject, document.count == 2, let schema = document["schema"],
            let payload = document["payload"]
        else { return (document, nil) }
        return (payload, schema)
    }
}
