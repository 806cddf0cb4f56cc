// How a row of a database looks in a change record: times in the units of the column's type,
// documents as texts, a placeholder where the database did not send a large value, and in a table
// of somebody else's other names.

internal import Base
internal import JSON

internal struct RowDialect {
    /// The row before the change, as far as the database sent it.
    var before: JSONValue?
    /// The descriptions of the columns, when the record carries its schema.
    var schema: JSONValue?
    /// The table, unless its columns have the names of our fields.
    var table: RegistrationTable?
    /// For documents inside texts. What it returns is valid until it is used again.
    let nested: JSONParser

    /// The column that holds a field; nil when there is none.
    func column(of field: StaticString) -> String? {
        guard let table else { return field.description }
        return table.columns[field.description]
    }

    /// A field's value; nil when the table does not have it. `null` is a value.
    func member(_ field: StaticString, of row: JSONValue) -> JSONValue? {
        guard let column = column(of: field), let value = row[column] else { return nil }
        guard Self.isUnavailable(value) else { return value }
        // The database sends a large value only when it changed; what it was is in the row before.
        guard let former = before?[column], !Self.isUnavailable(former) else { return nil }
        return former
    }

    private static func isUnavailable(_ value: JSONValue) -> Bool {
        value.stringBytes.map { bytes in
            bytes.count == placeholder.utf8.count && bytes.elementsEqual(placeholder.utf8)
        } ?? false
    }

    private static let placeholder = "__debezium_unavailable_value"

    /// A document that stands in a text, or as it is.
    func document(_ value: JSONValue) -> JSONValue? {
        guard let text = value.stringBytes else { return value }
        guard let first = text.first, first == 0x7B || first == 0x5B else { return nil }
        return try? nested.parse(text)
    }
}

// MARK: - Times

extension RowDialect {
    /// A time in any of the encodings of a column; nil when it is none.
    func time(_ value: JSONValue, of field: StaticString) -> UnixMillis? {
        if let text = value.stringBytes { return RFC3339.parse(text) }
        guard let number = value.int64, number >= 0 else { return nil }
        return UnixMillis(number / ticksPerMilli(number, of: field))
    }

    /// The unit of a column's numbers. Without a schema their size tells: as milliseconds, numbers
    /// of the next unit would be times after the year 5138, and as that unit before 1973.
    private func ticksPerMilli(_ number: Int64, of field: StaticString) -> Int64 {
        switch typeName(of: field) {
        case "io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp": 1
        case "io.debezium.time.MicroTimestamp": 1_000
        case "io.debezium.time.NanoTimestamp": 1_000_000
        default:
            number < 100_000_000_000_000 ? 1 : number < 100_000_000_000_000_000 ? 1_000 : 1_000_000
        }
    }

    private func typeName(of field: StaticString) -> String? {
        guard let schema, let column = column(of: field) else { return nil }
        var name: String?
        schema.forEachElement { description in
            if description["field"]?.string == column { name = description["name"]?.string }
        }
        return name
    }
}
