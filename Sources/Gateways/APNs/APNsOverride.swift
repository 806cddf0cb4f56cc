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
            throw ContentError(field: "apns.headers.\(name)", problem: "has no possible value")
        }
    }
}

/// Whether a payload fits its push type, as APNs would judge: asked of payloads that an override
/// had a hand in.
internal enum APNsPayloadCheck {
    /// What is wrong, or nil.
    static func problem(
        with payload: JSONValue, as type: APNsPushType, _ priority: APNsPriority
    ) -> String? {
        if type == .background, priority != .considerPower {
            return "push type background needs priority 5"
        }
        guard type != .mdm else { return nil }
        guard let aps = payload["aps"], aps.isObject else { return "the payload has no aps object" }
        switch type {
        case .background:
            if aps["alert"] != nil || aps["sound"] != nil || aps["badge"] != nil {
                return "push type background cannot have alert, sound or badge"
            }
            return aps["content-available"] == nil
                ? "push type background needs content-available" : nil
        case .liveactivity:
            guard let event = aps["event"]?.string, aps["timestamp"]?.int64 != nil else {
                return "push type liveactivity needs event and timestamp in aps"
            }
            if event != "end", aps["content-state"]?.isObject != true {
                return "push type liveactivity needs content-state in aps"
            }
            let startsWhole =
                aps["attributes-type"] != nil && aps["attributes"] != nil && aps["alert"] != nil
            return event == "start" && !startsWhole
                ? "a live activity starts with attributes-type, attributes and alert" : nil
        case .alert:
            return aps["alert"] == nil && aps["sound"] == nil && aps["badge"] == nil
                ? "push type alert needs alert, sound or badge" : nil
        default:
            return nil
        }
    }
}
