// The form of a message to Expo: the fields of its documents, each with its type.

internal import JSON

/// Checks messages. What is wrong with one makes Expo refuse the whole request.
enum ExpoMessageCheck {
    private enum Form {
        case text, flag, whole, number, object, sound
        case one(of: [String])
    }

    private static let forms: [String: Form] = [
        "title": .text, "subtitle": .text, "body": .text, "data": .object, "ttl": .number,
        "expiration": .number, "priority": .one(of: ["default", "normal", "high"]),
        "sound": .sound, "badge": .whole,
        "interruptionLevel": .one(of: ["active", "critical", "passive", "time-sensitive"]),
        "targetContentId": .text, "relevanceScore": .number, "filterCriteria": .text,
        "threadId": .text, "contentAvailable": .flag, "mutableContent": .flag,
        "categoryId": .text, "collapseId": .text, "tag": .text, "channelId": .text, "icon": .text,
        "richContent": .object,
    ]

    /// Whom a message is for, each a recipient of its own; nil when it does not say.
    static func recipients(of message: JSONValue) -> [String]? {
        guard let to = message["to"] else { return nil }
        if let token = to.string { return [token] }
        guard to.isArray, to.count > 0 else { return nil }
        var tokens: [String] = []
        to.forEachElement { if let token = $0.string { tokens.append(token) } }
        return tokens.count == to.count ? tokens : nil
    }

    static func check(_ message: JSONValue) throws(ExpoFault) {
        guard message.isObject, recipients(of: message) != nil else {
            throw ExpoFault(code: "VALIDATION_ERROR", message: "to is required")
        }
        try message.forEachMember { (name, value) throws(ExpoFault) in
            let name = name.text
            guard name != "to" else { return }
            guard let form = forms[name] else {
                throw ExpoFault(code: "VALIDATION_ERROR", message: "\(name) is not allowed")
            }
            if let type = fault(of: value, as: form, name) {
                throw ExpoFault(code: "VALIDATION_ERROR", message: "\(name) must be \(type)")
            }
        }
    }

    private static func fault(of value: JSONValue, as form: Form, _ name: String) -> String? {
        switch form {
        case .text: value.stringBytes == nil ? "a string" : nil
        case .flag: value.bool == nil ? "a boolean" : nil
        case .whole: value.int64.map { $0 >= 0 } ?? false ? nil : "a number"
        case .number:
            name == "relevanceScore"
                ? value.double.map { (0...1).contains($0) } ?? false ? nil : "from 0 to 1"
                : value.int64.map { $0 >= 0 } ?? false ? nil : "a number"
        case .object: value.isObject ? nil : "an object"
        case .sound:
            value.isNull || value.stringBytes != nil || isSound(value)
                ? nil : "a string, null, or an object with a boolean critical, name and volume"
        case .one(let values):
            values.contains(value.string ?? "")
                ? nil : "one of \(values.joined(separator: ", "))"
        }
    }

    /// `{critical?: boolean, name?: string | null, volume?: number}`, as in the types of Expo's
    /// library.
    private static func isSound(_ value: JSONValue) -> Bool {
        var isSound = value.isObject
        value.forEachMember { name, value in
            let fits =
                switch name.text {
                case "critical": value.bool != nil
                case "name": value.isNull || value.stringBytes != nil
                case "volume": value.double != nil
                default: false
                }
            isSound = isSound && fits
        }
        return isSound
    }

    /// The payload's bytes ("at most 4096 bytes"): texts, data, the image's address, and what the
    /// gateways behind Expo need around them.
    static func size(of message: JSONValue) -> Int {
        var bytes = Limits.expoEnvelope + (message["data"]?.source.count ?? 0)
        for text: StaticString in ["title", "subtitle", "body"] {
            bytes += message[text]?.stringBytes?.count ?? 0
        }
        if let image = message["richContent"]?["image"]?.stringBytes { bytes += image.count }
        return bytes
    }
}
