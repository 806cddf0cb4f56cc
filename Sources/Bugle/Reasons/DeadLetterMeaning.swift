// Why each code of a dead letter arises, in a sentence or two. A code without words does not
// compile.

internal import Pipeline

extension DeadLetterCode {
    /// Why a record became a dead letter with this code, and what helps.
    var meaning: String {
        switch self {
        case .nullValue: "The record has no value; an event needs a JSON object."
        case .tooLarge:
            "The value is over `limits.event_bytes`. Publish less, or a reference to it; the dead "
                + "letter holds the record cut."
        case .notJSON:
            "The value is no JSON object; `bugle validate` tells line and column."
        case .foreignFraming:
            "The value is Avro, Protobuf, or compressed by the publisher's own code: publish JSON, "
                + "and leave compression to the Kafka client."
        case .missingField:
            "A field is missing that every event needs, such as `type`; `bugle validate` names it."
        case .invalidField:
            "A field has the wrong type, or a value out of range; `bugle validate` names the rule."
        case .noUser:
            "Neither `user_id` (of CloudEvents `userid`) nor `to`: there is nobody to send to."
        case .unknownApp:
            "The event names an app that is not configured, or none where several are. Correct the "
                + "producer, or add the app, then `bugle dlt replay`."
        case .noRoute:
            "The event brings no content, and no route is for its type. Add a route, or correct "
                + "the type, then `bugle dlt replay`."
        case .contentError:
            "The event's route needs a field that the event lacks, or has in another type or too "
                + "large. Give the field a default in the route, or correct the producer."
        case .unsupported: "The event asks for something that this version does not do."
        case .failed:
            "A copy: a target of the event used up its retries, and its route keeps such events."
        case .expired:
            "A copy: the event's time was over before it was sent, and its route keeps such events."
        }
    }
}
