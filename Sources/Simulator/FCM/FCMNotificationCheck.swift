// The fields of `AndroidNotification` and of the preview `AndroidConfigV2`, as the discovery document
// types them.

internal import Base
internal import JSON

/// Checks what Android shows.
enum FCMNotificationCheck {
    private enum Form {
        case text, texts, flag, whole, color, time, duration, durations, lights
        case one(of: [String])
    }

    private static let forms: [String: Form] = [
        "title": .text, "body": .text, "icon": .text, "color": .color, "sound": .text,
        "tag": .text, "click_action": .text, "body_loc_key": .text, "body_loc_args": .texts,
        "title_loc_key": .text, "title_loc_args": .texts, "channel_id": .text, "ticker": .text,
        "sticky": .flag, "event_time": .time, "local_only": .flag,
        "notification_priority": .one(of: [
            "PRIORITY_UNSPECIFIED", "PRIORITY_MIN", "PRIORITY_LOW", "PRIORITY_DEFAULT",
            "PRIORITY_HIGH", "PRIORITY_MAX",
        ]),
        "default_sound": .flag, "default_vibrate_timings": .flag, "default_light_settings": .flag,
        "vibrate_timings": .durations,
        "visibility": .one(of: ["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"]),
        "notification_count": .whole, "light_settings": .lights, "image": .text,
        "bypass_proxy_notification": .flag,
        "proxy": .one(of: ["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"]),
        "id": .whole,
    ]

    /// What the second version of notifications has no more.
    private static let onlyInFirst: Set<String> = ["proxy", "bypass_proxy_notification"]

    /// Checks the notification at `path`, of `AndroidConfigV2` or of `AndroidConfig`.
    static func check(
        _ notification: JSONValue, at path: String, isSecond: Bool = false
    ) throws(FCMFault) {
        var known = Set(forms.keys)
        if isSecond { known.subtract(onlyInFirst) } else { known.remove("id") }
        try FCMSchema.checkFields(of: notification, known, at: path)
        try notification.forEachMember { (name, value) throws(FCMFault) in
            let name = FCMSchema.snake(name)
            guard let form = forms[name], !value.isNull else { return }
            guard let type = fault(of: value, as: form) else { return }
            throw .badRequest(
                "Invalid value at '\(path).\(name)' (\(type)), \(value.source.text)",
                field: "\(path).\(name)")
        }
    }

    /// Exactly one of both kinds of message, and its form.
    static func checkSecond(_ android: JSONValue, at path: String) throws(FCMFault) {
        let remote = FCMSchema.member(android, "remote_notification", "remoteNotification")
        let sync = FCMSchema.member(android, "background_sync", "backgroundSync")
        guard (remote == nil) != (sync == nil) else {
            throw .invalidArgument(
                "Exactly one of remote_notification and background_sync must be set.", field: path)
        }
        if let sync { try FCMSchema.checkFields(of: sync, [], at: path + ".background_sync") }
        guard let remote else { return }
        let place = path + ".remote_notification"
        try FCMSchema.checkFields(
            of: remote, ["notification", "mutable_content", "use_as_v1_data_message"], at: place)
        for (snake, camel): (StaticString, StaticString) in [
            ("mutable_content", "mutableContent"),
            ("use_as_v1_data_message", "useAsV1DataMessage"),
        ] {
            try FCMSchema.checkBool(
                FCMSchema.member(remote, snake, camel), at: "\(place).\(snake)")
        }
        guard let notification = remote["notification"] else {
            throw .invalidArgument("notification is required.", field: place + ".notification")
        }
        try check(notification, at: place + ".notification", isSecond: true)
    }

    /// The type that a value should have and has not; nil when it has.
    private static func fault(of value: JSONValue, as form: Form) -> String? {
        switch form {
        case .text: value.stringBytes == nil ? "TYPE_STRING" : nil
        case .texts: allElements(of: value, { $0.stringBytes != nil }) ? nil : "TYPE_STRING"
        case .flag: value.bool == nil ? "TYPE_BOOL" : nil
        case .whole: value.int64.flatMap { Int32(exactly: $0) } == nil ? "TYPE_INT32" : nil
        case .color: isColor(value.string ?? "") ? nil : "color in #rrggbb format"
        case .time: RFC3339.parse(bytes(value)) == nil ? "google.protobuf.Timestamp" : nil
        case .duration: isDuration(value) ? nil : "google.protobuf.Duration"
        case .durations: allElements(of: value, isDuration) ? nil : "google.protobuf.Duration"
        case .lights: areLights(value) ? nil : "LightSettings"
        case .one(let values): values.contains(value.string ?? "") ? nil : "TYPE_ENUM"
        }
    }

    private static func bytes(_ value: JSONValue) -> UnsafeRawBufferPointer {
        value.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0)
    }

    private static func allElements(
        of value: JSONValue, _ holds: (JSONValue) -> Bool
    ) -> Bool {
        guard value.isArray else { return false }
        var all = true
        value.forEachElement { all = all && holds($0) }
        return all
    }

    private static func isColor(_ text: String) -> Bool {
        text.utf8.count == 7 && text.hasPrefix("#")
            && text.utf8.dropFirst().allSatisfy { Hex.value($0) != nil }
    }

    private static func isDuration(_ value: JSONValue) -> Bool {
        guard let text = value.string, text.hasSuffix("s"), text.utf8.count <= 24 else {
            return false
        }
        let parts = text.dropLast().split(separator: ".", omittingEmptySubsequences: false)
        return (1...2).contains(parts.count)
            && parts.allSatisfy { part in
                !part.isEmpty && part.utf8.allSatisfy { (0x30...0x39).contains($0) }
            }
    }

    /// A colour of four parts from 0 to 1, and both durations: all are required.
    private static func areLights(_ value: JSONValue) -> Bool {
        guard let color = value["color"], color.isObject else { return false }
        let parts: [StaticString] = ["red", "green", "blue", "alpha"]
        let isColor = parts.allSatisfy { name in
            guard let part = color[name] else { return true }
            return part.double.map { (0...1).contains($0) } ?? false
        }
        return isColor
            && [
                FCMSchema.member(value, "light_on_duration", "lightOnDuration"),
                FCMSchema.member(value, "light_off_duration", "lightOffDuration"),
            ].allSatisfy { $0.map(isDuration) ?? false }
    }
}
