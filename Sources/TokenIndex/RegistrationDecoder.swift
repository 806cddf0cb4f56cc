// Reads what is on `push.devices`, whoever wrote it:
//
// - native records, keyed by the address id, null for an address that is gone;
// - change records of Debezium, with or without their schema around them, of a table whose columns
//   are named as our fields, or of a table that a `RegistrationTable` describes;
// - rows that a transformation took out of a change record.
//
// A change record is about the row, not about its key: an insert, update or snapshot says what the
// address is, a delete that the one in `before` is gone. The null that follows a delete says it
// again where the key's columns name the address, and otherwise nothing.

internal import Base
internal import JSON

/// What one record of `push.devices` says.
public struct DecodedRegistration: Sendable {
    /// What happened, in this order. Empty for a record that says nothing about an address; two
    /// when a row became another address.
    public var records: [RegistrationRecord]
    /// When the registrations were made, in ms since the epoch: it orders records of one install.
    /// For a change record the time of the commit, since a connector that catches up writes hours
    /// of changes within a millisecond; for a row of a snapshot, all of which are read at one
    /// moment, its last change if it says so; else the record's Kafka timestamp.
    public var timestamp: Int64
    /// The user that a change record names in the row before the change.
    public var formerUserID: String?
    /// Whether the record's value is null.
    public var isNull = false
}

/// A decoder with its buffers. Confined to one thread.
public final class RegistrationDecoder {
    private let tables: [RegistrationTable]
    private let parser = JSONParser(maximumBytes: IndexLimits.recordBytes)
    // A key and a document inside a text are read while the value is looked at.
    private let keyParser = JSONParser(maximumBytes: IndexLimits.recordBytes)
    private let nested = JSONParser(maximumBytes: IndexLimits.recordBytes)

    /// A decoder that knows the given tables beside native records and our own columns.
    public init(tables: [RegistrationTable] = []) { self.tables = tables }

    /// Reads a record. `timestamp` is its Kafka timestamp, which stands in for a `registered_at`
    /// that is absent.
    public func decode(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, timestamp: Int64
    ) throws(RecordError) -> DecodedRegistration {
        guard let value else { return try nothing(key, timestamp) }
        let document = try RecordReader.parse(RecordFraming.stripped(value), parser)
        let (content, schema) = RecordFraming.unwrapped(document)
        if content.isNull, schema != nil { return try nothing(key, timestamp) }
        guard content.isObject else { throw .notAnObject }
        if let change = RowChange(content, schema: schema) {
            return try decode(change, key, timestamp)
        }
        let readKey = try RegistrationKey(key, keyParser)
        if case .text(let id) = readKey, schema == nil {
            let reader = RecordReader(content)
            try reader.refuseOtherVersion()
            let record = try RegistrationRecord.registered(
                reader, id: try reader.addressID(key: id), timestamp)
            return DecodedRegistration(records: [record], timestamp: timestamp)
        }
        let fields = schema?["fields"]
        return try flatRow(
            RecordReader(content, RowDialect(schema: fields, nested: nested)), timestamp)
    }

    /// A null value.
    private func nothing(
        _ key: UnsafeRawBufferPointer?, _ timestamp: Int64
    ) throws(RecordError) -> DecodedRegistration {
        let id = try RegistrationKey(key, keyParser).addressID(tables, nested)
        return DecodedRegistration(
            records: id.map { [.gone($0)] } ?? [], timestamp: timestamp, isNull: true)
    }

    /// A row without its change record around it.
    private func flatRow(
        _ reader: RecordReader, _ timestamp: Int64
    ) throws(RecordError) -> DecodedRegistration {
        let id = try reader.addressID()
        let deleted = reader.object["__deleted"]
        let isGone = deleted?.bool ?? (deleted?.string == "true")
        let record: RegistrationRecord =
            isGone ? .gone(id) : try .registered(reader, id: id, timestamp)
        return DecodedRegistration(records: [record], timestamp: timestamp)
    }

    // MARK: - Changes

    private func decode(
        _ change: RowChange, _ key: UnsafeRawBufferPointer?, _ timestamp: Int64
    ) throws(RecordError) -> DecodedRegistration {
        let table = tables.first { change.isOf($0) }
        let former = change.before.map {
            RecordReader($0, RowDialect(schema: change.schema, table: table, nested: nested))
        }
        let formerUserID = try? former?.userID("user_id")
        switch change.operation {
        case .truncate: throw .truncated
        case .delete:
            let id = try deleted(former, key)
            return DecodedRegistration(
                records: [.gone(id)], timestamp: timestamp, formerUserID: formerUserID)
        case .write, .snapshot:
            guard let after = change.after else { throw .missing(field: "after") }
            let row = RowDialect(
                before: change.before, schema: change.schema, table: table, nested: nested)
            let reader = RecordReader(after, row)
            let id = try reader.addressID()
            var records: [RegistrationRecord] = []
            if let formerID = try? former?.addressID(), formerID != id {
                records.append(.gone(formerID))
            }
            records.append(
                try reader.isActive() ? .registered(reader, id: id, timestamp) : .gone(id))
            let changed = change.operation == .snapshot ? try reader.changeTime() : nil
            let time = changed ?? change.committedAt
            return DecodedRegistration(
                records: records, timestamp: time ?? timestamp, formerUserID: formerUserID)
        }
    }

    /// The address of a deleted row: the row itself, or its key, says it.
    private func deleted(
        _ row: RecordReader?, _ key: UnsafeRawBufferPointer?
    ) throws(RecordError) -> AddressID {
        if let row, let id = try? row.addressID() { return id }
        if let key = try? RegistrationKey(key, keyParser),
            let id = try? key.addressID(tables, nested)
        {
            return id
        }
        throw .deletedRowUnknown
    }
}

/// A change record's envelope.
internal struct RowChange {
    enum Operation { case write, snapshot, delete, truncate }

    let operation: Operation
    let before: JSONValue?
    let after: JSONValue?
    /// The descriptions of the row's columns.
    let schema: JSONValue?
    private let source: JSONValue?

    /// nil when it is none. Operations that are no change of a row, such as a message, are none
    /// either, and fail as the record that they are not.
    init?(_ content: JSONValue, schema: JSONValue?) {
        guard let code = content["op"]?.stringBytes, code.count == 1 else { return nil }
        switch code[0] {
        case UInt8(ascii: "c"), UInt8(ascii: "u"): operation = .write
        case UInt8(ascii: "r"): operation = .snapshot
        case UInt8(ascii: "d"): operation = .delete
        case UInt8(ascii: "t"): operation = .truncate
        default: return nil
        }
        func row(_ name: StaticString) -> JSONValue? {
            content[name].flatMap { $0.isObject ? $0 : nil }
        }
        before = row("before")
        after = row("after")
        source = row("source")
        var columns: JSONValue?
        schema?["fields"]?.forEachElement { field in
            if field["field"]?.string == "after" { columns = field["fields"] }
        }
        self.schema = columns
    }

    /// When the database committed it; nil when the record does not say.
    var committedAt: Int64? {
        source?["ts_ms"]?.int64.flatMap { $0 > 0 ? $0 : nil }
    }

    func isOf(_ table: RegistrationTable) -> Bool {
        guard let name = source?["table"]?.string else { return false }
        return table.matches(schema: source?["schema"]?.string, table: name)
    }
}
