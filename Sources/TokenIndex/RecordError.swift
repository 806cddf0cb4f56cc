// Why a record of the index' topics is not applied. Such a record costs itself: it is reported
// and skipped.

public import JSON

/// What is wrong with a record. Names fields, never their values.
public enum RecordError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The record has no key.
    case noKey
    /// The key is not an address id.
    case badKey
    /// The key is not the id that the fields of the value form.
    case keyMismatch
    /// The key is not a user's.
    case badUserKey
    /// The key is not the one that app and user_id form.
    case userKeyMismatch
    /// The record is larger than is read.
    case tooLarge(limit: Int)
    /// The value is not JSON.
    case notJSON(JSONError)
    /// The value is not an object.
    case notAnObject
    /// A required field is absent.
    case missing(field: String)
    /// A field has the wrong type or a value that is not allowed.
    case invalid(field: String, expected: String)
    /// A field names something this version does not know, e.g. a new gateway.
    case unknown(field: String)
    /// The whole table was emptied; the record does not say which addresses are gone.
    case truncated
    /// A row was deleted and neither it nor its key says which address it was.
    case deletedRowUnknown

    /// One line of text.
    public var description: String {
        switch self {
        case .noKey: "the record has no key; the key is the address id"
        case .badKey: "the key is not <app>/<install_id>[/<kind>[/<instance>]]"
        case .keyMismatch: "the key is not the address id of app, install_id, kind and instance"
        case .badUserKey: "the key is not <app>/<user_id>"
        case .userKeyMismatch: "the key is not <app>/<user_id> of app and user_id"
        case .tooLarge(let limit): "the record is larger than \(limit) bytes"
        case .notJSON(let error): "the value is not JSON: \(error)"
        case .notAnObject: "the value is not a JSON object"
        case .missing(let field): "the field \"\(field)\" is missing"
        case .invalid(let field, let expected): "the field \"\(field)\" is not \(expected)"
        case .unknown(let field): "the value of \"\(field)\" is not known to this version"
        case .truncated: "a TRUNCATE does not say which addresses are gone; use DELETE"
        case .deletedRowUnknown:
            "the deleted row does not say which address is gone; the table needs REPLICA IDENTITY "
                + "FULL, or the address' columns in the record's key"
        }
    }
}
