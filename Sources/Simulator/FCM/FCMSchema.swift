internal import JSON

/// The fields of a message that FCM knows, and the checks of their values. Names may be written in
/// snake_case or lowerCamelCase, as protobuf's JSON mapping allows.
enum FCMSchema {
    static let request: Set<String> = ["message", "validate_only"]

    static let message: Set<String> = [
        "name", "data", "notification", "android", "android_v2", "webpush", "apns", "fcm_options",
        "token", "fid", "topic", "condition",
    ]

    static let notification: Set<String> = ["title", "body", "image"]

    static let android: Set<String> = [
        "collapse_key", "priority", "ttl", "restricted_package_name", "data", "notification",
        "fcm_options", "direct_boot_ok", "bandwidth_constrained_ok", "restricted_satellite_ok",
    ]

    /// The preview `AndroidConfigV2`, whose kind says how urgent it is.
    static let androidSecond = android.subtracting(["priority", "notification"])
        .union(["remote_notification", "background_sync"])

    static let webpush: Set<String> = ["headers", "data", "notification", "fcm_options"]

    static let apns: Set<String> = ["headers", "payload", "live_activity_token", "fcm_options"]

    /// The snake_case form of a name.
    static func snake(_ name: UnsafeRawBufferPointer) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(name.count + 4)
        for byte in name {
            if (0x41...0x5A).contains(byte) {
                bytes.append(UInt8(ascii: "_"))
                bytes.append(byte | 0x20)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Checks that an object has known fields only.
    static func checkFields(
        of value: JSONValue, _ known: Set<String>, at path: String
    ) throws(FCMFault) {
        guard value.isObject else {
            throw .badRequest(
                "Invalid value at '\(path)' (type.googleapis.com/google.protobuf.Message)",
                field: path)
        }
        var spellings: [String: String] = [:]
        try value.forEachMember { (name, _) throws(FCMFault) in
            let field = snake(name)
            if let other = spellings.updateValue(name.text, forKey: field), other != name.text {
                throw .badRequest(
                    "Invalid JSON payload received. Field '\(field)' is set by two names",
                    field: path)
            }
            guard known.contains(field) else {
                let place = path.isEmpty ? "" : " at '\(path)'"
                throw .badRequest(
                    "Invalid JSON payload received. Unknown name \"\(name.text)\"\(place): "
                        + "Cannot find field.", field: path)
            }
        }
    }

    /// Checks that an object maps strings to strings.
    static func checkStringMap(_ value: JSONValue, at path: String) throws(FCMFault) {
        guard value.isObject else {
            throw .badRequest("Invalid value at '\(path)' (Map)", field: path)
        }
        var index = 0
        try value.forEachMember { (_, value) throws(FCMFault) in
            if value.stringBytes == nil {
                let field = "\(path)[\(index)].value"
                throw .badRequest(
                    "Invalid value at '\(field)' (TYPE_STRING), \(value.source.text)",
                    field: field)
            }
            index += 1
        }
    }

    /// Checks that a field, if it is there, is a string.
    static func checkString(
        _ value: JSONValue?, at path: String
    ) throws(FCMFault) {
        guard let value, !value.isNull, value.stringBytes == nil else { return }
        throw .badRequest(
            "Invalid value at '\(path)' (TYPE_STRING), \(value.source.text)", field: path)
    }

    /// Checks that a field, if it is there, is a boolean.
    static func checkBool(_ value: JSONValue?, at path: String) throws(FCMFault) {
        guard let value, !value.isNull, value.bool == nil else { return }
        throw .badRequest(
            "Invalid value at '\(path)' (TYPE_BOOL), \(value.source.text)", field: path)
    }

    /// A member by its snake_case or its lowerCamelCase name.
    static func member(_ value: JSONValue, _ snake: StaticString, _ camel: StaticString)
        -> JSONValue?
    {
        value[snake] ?? value[camel]
    }
}
