// Reading the fields of a JSON record with errors that name the field.

internal import Base
internal import JSON

/// A record's object and the rules its fields follow.
internal struct RecordReader {
    let object: JSONValue
    /// Set when the object is a row of a database.
    let row: RowDialect?

    /// Reads an object, which may be a row of a database.
    init(_ object: JSONValue, _ row: RowDialect? = nil) {
        self.object = object
        self.row = row
    }

    /// Parses a record's value.
    init(_ value: UnsafeRawBufferPointer, _ parser: JSONParser) throws(RecordError) {
        self.init(try Self.parse(value, parser))
        guard object.isObject else { throw .notAnObject }
    }

    static func parse(
        _ value: UnsafeRawBufferPointer, _ parser: JSONParser
    ) throws(RecordError) -> JSONValue {
        guard value.count <= IndexLimits.recordBytes else {
            throw .tooLarge(limit: IndexLimits.recordBytes)
        }
        do throws(JSONError) {
            return try parser.parse(value)
        } catch {
            throw .notJSON(error)
        }
    }

    /// A record of another version may mean anything; without `v` it has version 1. A table's
    /// column of that name says nothing about the record.
    func refuseOtherVersion() throws(RecordError) {
        guard row == nil, let version = member("v"), version.int64 != 1 else { return }
        throw .unknown(field: "v")
    }

    /// The member, unless it is absent or null.
    func member(_ name: StaticString) -> JSONValue? {
        let value = if let row { row.member(name, of: object) } else { object[name] }
        guard let value, !value.isNull else { return nil }
        return value
    }

    /// A member that is a document; in a row it may stand in a text.
    func document(_ name: StaticString) -> JSONValue? {
        guard let value = member(name) else { return nil }
        guard let row else { return value }
        return row.document(value)
    }

    /// A text; an empty one counts as absent.
    func text(
        _ name: StaticString, upTo limit: Int = IndexLimits.fieldBytes
    ) throws(RecordError) -> String? {
        guard let value = member(name) else { return nil }
        if row != nil, let number = value.int64 { return String(number) }
        guard let text = value.string, text.utf8.count <= limit, !text.utf8.contains(0) else {
            throw .invalid(
                field: name.description,
                expected: "a text of at most \(limit) bytes, none of them 0")
        }
        return text.isEmpty ? nil : text
    }

    func required(
        _ name: StaticString, upTo limit: Int = IndexLimits.fieldBytes
    ) throws(RecordError) -> String {
        guard let text = try text(name, upTo: limit) else {
            throw .missing(field: name.description)
        }
        return text
    }

    /// A user id: a text, or a whole number taken as its digits.
    func userID(_ name: StaticString) throws(RecordError) -> String? {
        // Digit by digit, as events have it: it may be larger than any integer here.
        if let digits = member(name)?.numberText, digits.count <= 256,
            digits.allSatisfy({ $0 == 0x2D || $0 >= 0x30 && $0 <= 0x39 })
        {
            return String(decoding: digits, as: UTF8.self)
        }
        return try text(name, upTo: 256)
    }

    func integer(_ name: StaticString) throws(RecordError) -> Int64? {
        guard let value = member(name) else { return nil }
        guard let number = value.int64, number >= 0 else {
            throw .invalid(field: name.description, expected: "a whole number from 0")
        }
        return number
    }

    /// A time that nothing is compared with but the clock: one that is too late to be read is as good
    /// as the last one. "Never" is often written as a day of the year 9999.
    func anyTime(_ name: StaticString) throws(RecordError) -> UnixMillis? {
        try time(name, before: .max).map { min($0, UnixMillis(IndexLimits.timeEnd - 1)) }
    }

    static let timeExpected = "a time in milliseconds, from 1970 to the year 5138"

    func time(
        _ name: StaticString, before end: Int64 = IndexLimits.timeEnd
    ) throws(RecordError) -> UnixMillis? {
        let time: UnixMillis?
        if let row {
            guard let value = member(name) else { return nil }
            time = row.time(value, of: name)
        } else {
            guard let millis = try integer(name) else { return nil }
            time = UnixMillis(millis)
        }
        // Microseconds by mistake would be newer than all that comes after them.
        guard let time, time.value >= 0, time.value < end else {
            throw .invalid(field: name.description, expected: Self.timeExpected)
        }
        return time
    }

    func list(_ name: StaticString) throws(RecordError) -> [String] {
        guard member(name) != nil else { return [] }
        let fault = RecordError.invalid(
            field: name.description,
            expected: "a list of at most \(IndexLimits.listElements) texts of 1 to 256 bytes")
        guard let value = document(name), value.isArray, value.count <= IndexLimits.listElements
        else { throw fault }
        var texts: [String] = []
        try value.forEachElement { element throws(RecordError) in
            guard let text = element.string, !text.isEmpty, text.utf8.count <= 256,
                !text.utf8.contains(0)
            else { throw fault }
            texts.append(text)
        }
        return texts
    }

    func known<Value: RawRepresentable<String>>(
        _ name: StaticString, _ type: Value.Type
    ) throws(RecordError) -> Value {
        guard let value = Value(rawValue: try required(name)) else {
            throw .unknown(field: name.description)
        }
        return value
    }

    /// The address id that the fields form.
    func addressID() throws(RecordError) -> AddressID {
        let app = if let text = try text("app", upTo: 128) { text } else { row?.table?.app }
        guard let app else { throw .missing(field: "app") }
        let fields = AddressID(
            app: app, installID: try required("install_id", upTo: 256),
            kind: try text("kind", upTo: 64) ?? "alert",
            instance: try text("instance", upTo: 256))
        guard let fields else {
            throw .invalid(
                field: "app, install_id or kind", expected: "free of slashes, which part the key")
        }
        return fields
    }

    /// The address id that the fields form; it has to be the record's key.
    func addressID(key: UnsafeRawBufferPointer) throws(RecordError) -> AddressID {
        let fields = try addressID()
        guard fields.text.utf8.elementsEqual(key) else { throw .keyMismatch }
        return fields
    }
}

// MARK: - What a table says in its own way

extension RecordReader {
    /// The gateway, which a table may leave to the platform.
    func gateway() throws(RecordError) -> Gateway {
        guard let table = row?.table, member("gateway") == nil else {
            return try known("gateway", Gateway.self)
        }
        guard let gateway = table.gateways[try required("platform", upTo: 64)] else {
            throw .unknown(field: "platform")
        }
        return gateway
    }

    /// The environment; nil when neither record nor table says it.
    func environment(of gateway: Gateway) throws(RecordError) -> GatewayEnvironment? {
        if member("environment") != nil {
            return try known("environment", GatewayEnvironment.self)
        }
        return gateway == .apns ? row?.table?.environment : nil
    }

    /// Whether the row stands for an address that may be sent to.
    func isActive() throws(RecordError) -> Bool {
        guard let value = member("active"), row?.table != nil else { return true }
        if let flag = value.bool { return flag }
        switch value.int64 {
        case 0: return false
        case 1: return true
        default: throw .invalid(field: "active", expected: "true or false")
        }
    }

    /// When the row was changed last, as far as it says so.
    func changeTime() throws(RecordError) -> Int64? {
        guard row?.table != nil else { return nil }
        if let time = try time("changed_at") { return time.value }
        return try time("registered_at")?.value
    }
}
