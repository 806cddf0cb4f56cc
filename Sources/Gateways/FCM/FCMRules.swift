// What FCM demands of a message's fields, as a table: asked of messages that an event's own `fcm`
// had a hand in, before a request is spent. Names may be in snake case or in lower camel case, as
// protobuf's JSON mapping allows. Fields that the table does not name are sent as they are: FCM
// gets new ones.
//
// Rules: the discovery document of HTTP v1 (`Message`, `AndroidConfig`, `AndroidNotification`,
// `WebpushConfig`, `ApnsConfig`, `FcmOptions`) and FCM's page on error codes.

internal import Base
internal import JSON

/// What one field of a message has to be.
internal struct FCMFieldRule {
    enum Form {
        case text, flag, whole, object, texts, textMap, data, seconds, durations, color, label, link
        case time, lights
        case one(of: [String])
    }

    /// The field's way from the message, in snake case.
    let path: String
    let form: Form

    /// Every field that is looked at.
    static let all: [FCMFieldRule] = {
        var rules = [
            FCMFieldRule(path: "notification.title", form: .text),
            FCMFieldRule(path: "notification.body", form: .text),
            FCMFieldRule(path: "notification.image", form: .text),
            FCMFieldRule(path: "fcm_options.analytics_label", form: .label),
            FCMFieldRule(
                path: "android.priority", form: .one(of: ["NORMAL", "HIGH", "normal", "high"])),
            FCMFieldRule(path: "webpush.headers", form: .textMap),
            FCMFieldRule(path: "webpush.data", form: .data),
            FCMFieldRule(path: "webpush.notification", form: .object),
            FCMFieldRule(path: "webpush.fcm_options.link", form: .link),
            FCMFieldRule(path: "webpush.fcm_options.analytics_label", form: .label),
            FCMFieldRule(path: "apns.headers", form: .textMap),
            FCMFieldRule(path: "apns.payload", form: .object),
            FCMFieldRule(path: "apns.live_activity_token", form: .text),
            FCMFieldRule(path: "apns.fcm_options.analytics_label", form: .label),
            FCMFieldRule(path: "apns.fcm_options.image", form: .text),
            FCMFieldRule(path: "android_v2.background_sync", form: .object),
            FCMFieldRule(path: "android_v2.remote_notification.notification", form: .object),
        ]
        for android in ["android", "android_v2"] {
            rules += [
                FCMFieldRule(path: "\(android).collapse_key", form: .text),
                FCMFieldRule(path: "\(android).ttl", form: .seconds),
                FCMFieldRule(path: "\(android).restricted_package_name", form: .text),
                FCMFieldRule(path: "\(android).data", form: .data),
                FCMFieldRule(path: "\(android).fcm_options.analytics_label", form: .label),
                FCMFieldRule(path: "\(android).direct_boot_ok", form: .flag),
                FCMFieldRule(path: "\(android).bandwidth_constrained_ok", form: .flag),
                FCMFieldRule(path: "\(android).restricted_satellite_ok", form: .flag),
            ]
        }
        for place in ["android.notification", "android_v2.remote_notification.notification"] {
            rules += notification.map { FCMFieldRule(path: "\(place).\($0.path)", form: $0.form) }
        }
        return rules
    }()

    private static let notification: [FCMFieldRule] = [
        FCMFieldRule(path: "title", form: .text), FCMFieldRule(path: "body", form: .text),
        FCMFieldRule(path: "icon", form: .text), FCMFieldRule(path: "color", form: .color),
        FCMFieldRule(path: "sound", form: .text), FCMFieldRule(path: "tag", form: .text),
        FCMFieldRule(path: "click_action", form: .text),
        FCMFieldRule(path: "body_loc_key", form: .text),
        FCMFieldRule(path: "body_loc_args", form: .texts),
        FCMFieldRule(path: "title_loc_key", form: .text),
        FCMFieldRule(path: "title_loc_args", form: .texts),
        FCMFieldRule(path: "channel_id", form: .text), FCMFieldRule(path: "ticker", form: .text),
        FCMFieldRule(path: "sticky", form: .flag), FCMFieldRule(path: "event_time", form: .time),
        FCMFieldRule(path: "local_only", form: .flag),
        FCMFieldRule(
            path: "notification_priority",
            form: .one(of: [
                "PRIORITY_UNSPECIFIED", "PRIORITY_MIN", "PRIORITY_LOW", "PRIORITY_DEFAULT",
                "PRIORITY_HIGH", "PRIORITY_MAX",
            ])),
        FCMFieldRule(path: "default_sound", form: .flag),
        FCMFieldRule(path: "default_vibrate_timings", form: .flag),
        FCMFieldRule(path: "default_light_settings", form: .flag),
        FCMFieldRule(path: "vibrate_timings", form: .durations),
        FCMFieldRule(
            path: "visibility",
            form: .one(of: ["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"])),
        FCMFieldRule(path: "notification_count", form: .whole),
        FCMFieldRule(path: "light_settings", form: .lights),
        FCMFieldRule(path: "image", form: .text),
        FCMFieldRule(path: "bypass_proxy_notification", form: .flag),
        FCMFieldRule(
            path: "proxy",
            form: .one(of: ["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"])),
    ]

    /// The first rule that a message breaks, in words; nil when it breaks none.
    static func problem(with message: JSONValue) -> String? {
        for rule in all {
            guard let value = rule.value(in: message), !value.isNull else { continue }
            if let fault = rule.fault(of: value) {
                return "rule fcm.\(rule.path): message.\(rule.path) \(fault)"
            }
        }
        if message.field("android") != nil, message.field("android_v2") != nil {
            return "rule fcm.one-android: android and android_v2 exclude each other"
        }
        return silentApplePriority(message)
    }

    /// A message that shows nothing may only ask APNs for priority 5.
    private static func silentApplePriority(_ message: JSONValue) -> String? {
        guard let apns = message.field("apns"), message.field("notification") == nil,
            let aps = apns.field("payload")?["aps"], aps["content-available"]?.int64 == 1,
            aps["alert"] == nil, aps["sound"] == nil, aps["badge"] == nil,
            let priority = apns.field("headers")?["apns-priority"]?.string, priority != "5"
        else { return nil }
        return "rule fcm.silent-priority: data alone goes to Apple devices with apns-priority 5"
    }

    private func value(in message: JSONValue) -> JSONValue? {
        var value: JSONValue? = message
        for name in path.split(separator: ".") {
            guard let parent = value, parent.isObject else { return nil }
            value = parent.field(String(name))
        }
        return value
    }

    private func fault(of value: JSONValue) -> String? {
        switch form {
        case .text: value.string == nil ? "is a string" : nil
        case .flag: value.bool == nil ? "is true or false" : nil
        case .whole: value.int64 == nil ? "is a whole number" : nil
        case .object: value.isObject ? nil : "is an object"
        case .texts: value.areStrings ? nil : "is a list of strings"
        case .textMap: value.isStringMap ? nil : "maps strings to strings"
        case .data: Self.faultOfData(value)
        case .seconds: Self.faultOfLife(value)
        case .durations:
            value.isArray && value.elementsAll { Self.seconds($0) != nil }
                ? nil : "is a list of durations such as 0.5s"
        case .color: Self.isColor(value) ? nil : "is a colour such as #1a2b3c"
        case .label: Self.isLabel(value) ? nil : "matches [a-zA-Z0-9-_.~%]{1,50}"
        case .link:
            value.stringBytes?.starts(with: "https://") == true ? nil : "is an https address"
        case .time:
            value.stringBytes.flatMap { RFC3339.parse($0) } == nil
                ? "is an RFC 3339 timestamp" : nil
        case .lights:
            Self.areLights(value) ? nil : "has color, light_on_duration and light_off_duration"
        case .one(let values):
            values.contains(value.string ?? "")
                ? nil
                : "is one of \(values.filter { $0 == $0.uppercased() }.joined(separator: ", "))"
        }
    }

    private static func faultOfData(_ value: JSONValue) -> String? {
        guard value.isStringMap else { return "maps strings to strings" }
        var reserved: String?
        value.forEachMember { name, _ in
            if FCMData.isReserved(name), !name.spells(PayloadBlock.key) {
                reserved = String(decoding: name, as: UTF8.self)
            }
        }
        return reserved.map { "has no reserved name such as \($0.prefix(40))" }
    }

    private static func faultOfLife(_ value: JSONValue) -> String? {
        let limit = FCMLimits.storage.millis / 1000
        guard let seconds = seconds(value), seconds <= limit else {
            return "is a duration from 0s to \(limit)s"
        }
        return nil
    }

    /// The whole seconds of a duration such as `3.5s`.
    private static func seconds(_ value: JSONValue) -> Int64? {
        guard let text = value.string, text.utf8.count <= 24, text.hasSuffix("s") else {
            return nil
        }
        let parts = text.dropLast().split(separator: ".", omittingEmptySubsequences: false)
        let areDigits = parts.allSatisfy {
            !$0.isEmpty && $0.utf8.allSatisfy { (0x30...0x39).contains($0) }
        }
        guard areDigits, (1...2).contains(parts.count) else { return nil }
        return Int64(parts[0])
    }

    /// Whether it is a colour as FCM takes it.
    static func isColor(_ value: JSONValue) -> Bool {
        guard let text = value.string, text.utf8.count == 7, text.hasPrefix("#") else {
            return false
        }
        return text.utf8.dropFirst().allSatisfy { Hex.value($0) != nil }
    }

    private static func isLabel(_ value: JSONValue) -> Bool {
        guard let text = value.string else { return false }
        return (1...50).contains(text.utf8.count) && text.utf8.allSatisfy(FCMTopicName.isAllowed)
    }

    private static func areLights(_ value: JSONValue) -> Bool {
        guard value.isObject, value.field("color")?.isObject == true else { return false }
        return ["light_on_duration", "light_off_duration"].allSatisfy {
            value.field($0).flatMap { seconds($0) } != nil
        }
    }
}

extension JSONValue {
    /// A member by its name in snake case or in lower camel case.
    fileprivate func field(_ snake: String) -> JSONValue? {
        if let value = member(snake) { return value }
        let camel = FCMFieldNames.camel(snake)
        return camel == snake ? nil : member(camel)
    }

    private func member(_ name: String) -> JSONValue? {
        var name = name
        let found = name.withUTF8 { member(named: UnsafeRawBufferPointer($0)) }
        return found.flatMap { $0.isNull ? nil : $0 }
    }

    fileprivate var isStringMap: Bool {
        guard isObject else { return false }
        var areStrings = true
        forEachMember { _, value in areStrings = areStrings && value.stringBytes != nil }
        return areStrings
    }

    fileprivate var areStrings: Bool { isArray && elementsAll { $0.stringBytes != nil } }

    fileprivate func elementsAll(_ holds: (JSONValue) -> Bool) -> Bool {
        var all = true
        forEachElement { all = all && holds($0) }
        return all
    }
}
