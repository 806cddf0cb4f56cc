internal import Base
internal import JSON

/// What an event's `apns` override says about the request itself: its member `headers`, and
/// whether its payload is visible. Everything else in it is merged into the payload.
internal struct APNsOverride {
    private(set) var type: APNsPushType?
    private(set) var priority: APNsPriority?
    private(set) var collapseKey: String?
    private(set) var expiration: Int64?
    /// Whether the override's `aps` has something to see or hear.
    private(set) var isVisible = false

    /// The header fields that can be set; the rest is identity, addressing and authorization.
    private static let headers =
        "apns-push-type, apns-priority, apns-collapse-id and apns-expiration"

    /// What the fields may say, for a refusal.
    private static let values = [
        "apns-push-type": "must be one of "
            + APNsPushType.allCases.map(\.rawValue).joined(separator: ", "),
        "apns-priority": "must be 1, 5 or 10",
        "apns-collapse-id": "must have a text of at least one byte",
        "apns-expiration": "must be seconds since 1970, or 0",
    ]

    /// Reads an override; nil with a problem when a header field is unknown or has a wrong value.
    init(_ override: JSONValue) throws(ContentError) {
        if let aps = override["aps"] {
            isVisible = ["alert", "sound", "badge"].contains { (name: StaticString) in
                aps[name].map { !$0.isNull } ?? false
            }
        }
        try override["headers"]?.forEachMember { (name, value) throws(ContentError) in
            try read(String(decoding: name, as: UTF8.self), value)
        }
    }

    private mutating func read(_ name: String, _ value: JSONValue) throws(ContentError) {
        let text = value.string ?? value.int64.map { String($0) } ?? ""
        var fits: Bool
        switch name {
        case "apns-push-type":
            type = APNsPushType(rawValue: text)
            fits = type != nil
        case "apns-priority":
            priority = APNsPriority(rawValue: text)
            fits = priority != nil
        case "apns-collapse-id":
            collapseKey = text
            fits = !text.isEmpty
        case "apns-expiration":
            expiration = Int64(text)
            fits = expiration.map { $0 >= 0 } ?? false
        default:
            throw ContentError(
                field: "apns.headers",
                problem: "has a member that cannot be set; \(Self.headers) can")
        }
        guard fits else {
            throw ContentError(
                field: "apns.headers.\(name)", problem: Self.values[name] ?? "has no possible value"
            )
        }
    }
}
