internal import Base
internal import JSON

/// What an event's `webpush` override says about the request itself: its member `headers`.
/// Everything else in it is merged into the payload.
internal struct WebPushOverride {
    private(set) var ttl: Int64?
    private(set) var urgency: String?
    private(set) var topic: String?

    /// Reads an override; a field that is unknown or has a wrong value is a fault of the event.
    init(_ override: JSONValue) throws(ContentError) {
        try override["headers"]?.forEachMember { (name, value) throws(ContentError) in
            try read(String(decoding: name, as: UTF8.self), value)
        }
    }

    private mutating func read(_ name: String, _ value: JSONValue) throws(ContentError) {
        let text = value.string ?? value.int64.map { String($0) } ?? ""
        let fits: Bool
        switch name.lowercased() {
        case "ttl":
            ttl = Int64(text)
            fits = ttl.map { $0 >= 0 } ?? false
        case "urgency":
            urgency = text
            fits = ["very-low", "low", "normal", "high"].contains(text)
        case "topic":
            topic = text
            fits = !text.isEmpty
        default:
            throw ContentError(
                field: "webpush.headers",
                problem: "has a member that cannot be set; TTL, Urgency and Topic can")
        }
        guard fits else {
            throw ContentError(field: "webpush.headers.\(name)", problem: "has no possible value")
        }
    }
}
