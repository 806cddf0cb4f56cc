// Why a record cannot become a push, ever: a closed list, so that operators can count and filter
// it, with a text that names the field and never quotes the record.

/// The codes in the header `bugle-error-code` of `push.events-dlt`.
public enum DeadLetterCode: String, Sendable, CaseIterable {
    /// A null value: nothing to send.
    case nullValue = "null_value"
    /// The record is larger than the configured limit.
    case tooLarge = "too_large"
    /// The value is not JSON.
    case notJSON = "not_json"
    /// The value is in another serialisation: Avro, Protobuf, or compressed by the publisher.
    case foreignFraming = "foreign_framing"
    /// A field is missing that every event needs.
    case missingField = "missing_field"
    /// A field has the wrong type or a value out of range.
    case invalidField = "invalid_field"
    /// Nobody to send to.
    case noUser = "no_user"
    /// The app is not configured.
    case unknownApp = "unknown_app"
    /// Neither content nor a route that makes some.
    case noRoute = "no_route"
    /// The route needs a field that the event lacks, or has in another type or too large.
    case contentError = "content_error"
    /// The event asks for something this version does not do.
    case unsupported
    /// A copy: retries of one of its targets are used up, and its route wants it kept.
    case failed
    /// A copy: its time was over, and its route wants it kept.
    case expired
}

/// Why one record is refused, with what could be read of it.
internal struct Refusal: Error {
    let code: DeadLetterCode
    /// One line for a person; names fields and limits, quotes nothing.
    let reason: String
    var userID: String?
    var eventID: String?
    var eventType: String?

    init(_ code: DeadLetterCode, _ reason: String) {
        self.code = code
        self.reason = reason
    }
}
