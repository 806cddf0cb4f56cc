// Reading the fields of a JSON record with errors that name the field.

internal import Base
internal import JSON

/// A record's object and the rules its fields follow.
internal struct RecordReader {
    let object: JSONValue

    /// Parses a record's value.
    init(_ value: UnsafeRawBufferPointer, _ parser: JSONParser) throws(RecordError) {
        guard value.count <= IndexLimits.recordBytes else {
            throw .tooLarge(limit: IndexLimits.recordBytes)
        }
        do throws(JSONError) {
            object = try parser.parse(value)
        } catch {
            throw .notJSON(error)
        }
        guard object.isObject else { throw .notAnObject }
    }

    /// The member, unless it is absent or null.
    func member(_ name: StaticString) -> JSONValue? {
        guard let value = object[name], !value.isNull else { return nil }
        return value
    }

    /// A text; an empty one counts as absent.
    func text(
        _ name: StaticString, upTo limit: Int = IndexLimits.fieldBytes
    ) throws(RecordError) -> String? {
        guard let value = member(name) else { return nil }
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
        if let number = member(name)?.int64 { return String(number) }
        return try text(name, upTo: 256)
    }

    func integer(_ name: StaticString) throws(RecordError) -> Int64? {
        guard let value = member(name) else { return nil }
        guard let number = value.int64, number >= 0 else {
            throw .invalid(field: name.description, expected: "a whole number from 0")
        }
        return number
    }

    func time(_ name: StaticString) throws(RecordError) -> UnixMillis? {
        try integer(name).map { UnixMillis($0) }
    }

    func list(_ name: StaticString) throws(RecordError) -> [String] {
        guard let value = member(name) else { return [] }
        let fault = RecordError.invalid(
            field: name.description,
            expected: "a list of at most \(IndexLimits.listElements) texts of 1 to 256 bytes")
        guard value.isArray, value.count <= IndexLimits.listElements else { throw fault }
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

    /// The address id that the fields form; it has to be the record's key.
    func addressID(key: UnsafeRawBufferPointer) throws(RecordError) -> AddressID {
        let fields = AddressID(
            app: try required("app", upTo: 128), installID: try required("install_id", upTo: 256),
            kind: try text("kind", upTo: 64) ?? "alert",
            instance: try text("instance", upTo: 256))
        guard let fields else {
            throw .invalid(
                field: "app, install_id or kind", expected: "free of slashes, which part the key")
        }
        guard fields.text.utf8.elementsEqual(key) else { throw .keyMismatch }
        return fields
    }
}
