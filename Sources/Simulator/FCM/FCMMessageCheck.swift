// Whether a message is one that FCM accepts, whoever it is for.

internal import JSON

/// Where a message goes.
enum FCMTarget {
    case token(String)
    case installation(String)
    case topic(String)
    case condition(String)

    var text: String {
        switch self {
        case .token(let text), .installation(let text), .topic(let text), .condition(let text):
            text
        }
    }
}

/// Checks a message's form.
enum FCMMessageCheck {
    static func target(of message: JSONValue) throws(FCMFault) -> FCMTarget {
        var found: [FCMTarget] = []
        for (name, make): (StaticString, (String) -> FCMTarget) in [
            ("token", { .token($0) }), ("fid", { .installation($0) }), ("topic", { .topic($0) }),
            ("condition", { .condition($0) }),
        ] {
            guard let value = message[name], !value.isNull else { continue }
            try FCMSchema.checkString(value, at: "message.\(name)")
            if !found.isEmpty {
                throw .badRequest(
                    "Invalid value at 'message' (oneof), oneof field 'target' is already set. "
                        + "Cannot set '\(name)'", field: "message")
            }
            found.append(make(value.string ?? ""))
        }
        guard let target = found.first, !target.text.isEmpty else {
            throw .invalidArgument("Recipient of the message is not set.", field: "message")
        }
        try check(target)
        return target
    }

    static func check(_ message: JSONValue, for target: FCMTarget) throws(FCMFault) {
        try FCMSchema.checkFields(of: message, FCMSchema.message, at: "message")
        var payloadBytes = 0
        if let data = message["data"] {
            try checkData(data, at: "message.data", &payloadBytes)
        }
        if let notification = message["notification"] {
            try FCMSchema.checkFields(
                of: notification, FCMSchema.notification, at: "message.notification")
            try notification.forEachMember { (name, value) throws(FCMFault) in
                try FCMSchema.checkString(value, at: "message.notification.\(name.text)")
                payloadBytes += value.stringBytes?.count ?? 0
            }
        }
        if let android = message["android"] {
            try checkAndroid(android, FCMSchema.android, at: "message.android")
        }
        if let android = FCMSchema.member(message, "android_v2", "androidV2") {
            let path = "message.android_v2"
            try checkAndroid(android, FCMSchema.androidSecond, at: path)
            try FCMNotificationCheck.checkSecond(android, at: path)
        }
        if let apns = message["apns"] {
            try checkAPNs(apns)
            if message["notification"] == nil { try checkSilence(apns) }
        }
        if let webpush = message["webpush"] { try checkWebPush(webpush) }
        if let options = FCMSchema.member(message, "fcm_options", "fcmOptions") {
            try checkLabel(options, at: "message.fcm_options")
        }
        let limit =
            switch target {
            case .token, .installation: Limits.fcmPayloadBytes
            case .topic, .condition: Limits.fcmTopicPayloadBytes
            }
        if payloadBytes > limit { throw .invalidArgument("Message is too big", field: "message") }
    }

    private static func check(_ target: FCMTarget) throws(FCMFault) {
        switch target {
        case .token, .installation: return
        case .topic(let topic):
            guard topic.utf8.allSatisfy(isLabel) else {
                throw .invalidArgument("Invalid topic name", field: "message.topic")
            }
        case .condition(let condition):
            guard isCondition(condition) else {
                throw .invalidArgument(
                    "Invalid condition expression provided.", field: "message.condition")
            }
        }
    }

    /// Balanced parentheses, and one to five topics in single quotes, each followed by `in topics`.
    private static func isCondition(_ text: String) -> Bool {
        let parts = text.split(separator: "'", omittingEmptySubsequences: false)
        guard parts.count % 2 == 1, parts.count >= 3,
            parts.count / 2 <= Limits.fcmConditionTopics
        else { return false }
        var depth = 0
        for (index, part) in parts.enumerated() {
            if index % 2 == 1 {
                guard !part.isEmpty, part.utf8.allSatisfy(isLabel) else { return false }
                continue
            }
            if index > 0 {
                let words = part.split(separator: " ", omittingEmptySubsequences: true)
                guard words.first == "in", words.count > 1, words[1].hasPrefix("topics") else {
                    return false
                }
            }
            for byte in part.utf8 {
                if byte == UInt8(ascii: "(") { depth += 1 }
                if byte == UInt8(ascii: ")") { depth -= 1 }
                if depth < 0 { return false }
            }
        }
        return depth == 0
    }

    private static func isLabel(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte)
            || (0x61...0x7A).contains(byte) || "-_.~%".utf8.contains(byte)
    }

    private static func checkData(
        _ data: JSONValue, at path: String, _ payloadBytes: inout Int
    ) throws(FCMFault) {
        try FCMSchema.checkStringMap(data, at: path)
        var bytes = 0
        try data.forEachMember { (name, value) throws(FCMFault) in
            let key = name.text
            if key == "from" || key == "message_type" || key.hasPrefix("google")
                || key.hasPrefix("gcm")
            {
                throw .invalidArgument("Invalid data payload key: \(key)", field: path)
            }
            bytes += name.count + (value.stringBytes?.count ?? 0)
        }
        payloadBytes += bytes
    }

    private static func checkAndroid(
        _ android: JSONValue, _ known: Set<String>, at path: String
    ) throws(FCMFault) {
        try FCMSchema.checkFields(of: android, known, at: path)
        try FCMSchema.checkString(
            FCMSchema.member(android, "collapse_key", "collapseKey"), at: path + ".collapse_key")
        if let priority = android["priority"] {
            let isKnown = ["NORMAL", "HIGH"].contains(priority.string?.uppercased() ?? "")
            if !isKnown {
                throw .badRequest(
                    "Invalid value at '\(path).priority' (type.googleapis.com/google.firebase.fcm."
                        + "v1.AndroidMessagePriority), \(priority.source.text)",
                    field: path + ".priority")
            }
        }
        if let ttl = android["ttl"] { try checkDuration(ttl, at: path + ".ttl") }
        var ignored = 0
        if let data = android["data"] { try checkData(data, at: path + ".data", &ignored) }
        if let notification = android["notification"] {
            try FCMNotificationCheck.check(notification, at: path + ".notification")
        }
        try FCMSchema.checkString(
            FCMSchema.member(android, "restricted_package_name", "restrictedPackageName"),
            at: path + ".restricted_package_name")
        for (snake, camel): (StaticString, StaticString) in [
            ("direct_boot_ok", "directBootOk"),
            ("bandwidth_constrained_ok", "bandwidthConstrainedOk"),
            ("restricted_satellite_ok", "restrictedSatelliteOk"),
        ] {
            try FCMSchema.checkBool(
                FCMSchema.member(android, snake, camel), at: "\(path).\(snake)")
        }
        if let options = FCMSchema.member(android, "fcm_options", "fcmOptions") {
            try checkLabel(options, at: path + ".fcm_options")
        }
    }

    private static func checkDuration(_ value: JSONValue, at path: String) throws(FCMFault) {
        let text = value.string ?? ""
        let digits = text.dropLast().split(separator: ".", omittingEmptySubsequences: false)
        let isDuration =
            text.hasSuffix("s") && (1...2).contains(digits.count)
            && digits.allSatisfy { part in
                (1...12).contains(part.utf8.count)
                    && part.utf8.allSatisfy { (0x30...0x39).contains($0) }
            }
        guard isDuration, let seconds = digits.first.flatMap({ Int64($0) }) else {
            throw .badRequest(
                "Invalid value at '\(path)' (type.googleapis.com/google.protobuf.Duration), "
                    + value.source.text, field: path)
        }
        if seconds > Limits.fcmTimeToLiveSeconds {
            throw .invalidArgument("Invalid time to live duration", field: path)
        }
    }

    private static func checkAPNs(_ apns: JSONValue) throws(FCMFault) {
        let path = "message.apns"
        try FCMSchema.checkFields(of: apns, FCMSchema.apns, at: path)
        if let headers = apns["headers"] {
            try FCMSchema.checkStringMap(headers, at: path + ".headers")
        }
        if let payload = apns["payload"], !payload.isObject {
            throw .badRequest(
                "Invalid value at '\(path).payload' (type.googleapis.com/google.protobuf.Struct)",
                field: path + ".payload")
        }
        try FCMSchema.checkString(
            FCMSchema.member(apns, "live_activity_token", "liveActivityToken"),
            at: path + ".live_activity_token")
        if let options = FCMSchema.member(apns, "fcm_options", "fcmOptions") {
            let place = path + ".fcm_options"
            try FCMSchema.checkFields(of: options, ["analytics_label", "image"], at: place)
            try FCMSchema.checkString(options["image"], at: place + ".image")
            try checkLabel(options, at: place)
        }
    }

    /// Data alone goes to Apple devices with priority 5 ("projects.messages", field `data`).
    private static func checkSilence(_ apns: JSONValue) throws(FCMFault) {
        guard let aps = apns["payload"]?["aps"], aps["content-available"]?.int64 == 1,
            aps["alert"] == nil, aps["sound"] == nil, aps["badge"] == nil,
            let priority = apns["headers"]?["apns-priority"]?.string, priority != "5"
        else { return }
        throw .invalidArgument(
            "Data messages to Apple devices must have apns-priority 5.",
            field: "message.apns.headers")
    }

    private static func checkWebPush(_ webpush: JSONValue) throws(FCMFault) {
        let path = "message.webpush"
        try FCMSchema.checkFields(of: webpush, FCMSchema.webpush, at: path)
        if let headers = webpush["headers"] {
            try FCMSchema.checkStringMap(headers, at: path + ".headers")
        }
        var ignored = 0
        if let data = webpush["data"] { try checkData(data, at: path + ".data", &ignored) }
        if let notification = webpush["notification"], !notification.isObject {
            throw .badRequest(
                "Invalid value at '\(path).notification' "
                    + "(type.googleapis.com/google.protobuf.Struct)", field: path + ".notification")
        }
        if let options = FCMSchema.member(webpush, "fcm_options", "fcmOptions") {
            let place = path + ".fcm_options"
            try FCMSchema.checkFields(of: options, ["link", "analytics_label"], at: place)
            if let link = options["link"], link.string?.hasPrefix("https://") != true {
                throw .invalidArgument(
                    "The link must be an https URL", field: place + ".link")
            }
            try checkLabel(options, at: place)
        }
    }

    private static func checkLabel(_ options: JSONValue, at path: String) throws(FCMFault) {
        guard let value = FCMSchema.member(options, "analytics_label", "analyticsLabel") else {
            return
        }
        let label = value.string ?? ""
        guard (1...50).contains(label.utf8.count), label.utf8.allSatisfy(isLabel) else {
            throw .invalidArgument("Invalid analytics label", field: path + ".analytics_label")
        }
    }
}
