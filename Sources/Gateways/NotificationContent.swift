// What a person sees, in words that belong to no gateway. One table says where each word goes in
// the requests of each gateway, so that a new word is one row.

public import JSON

/// A content that has a wrong type somewhere; the event cannot be sent to anybody.
public struct ContentError: Error, Equatable, CustomStringConvertible {
    /// The field, such as `notification.title`.
    public let field: String
    /// What is wrong.
    public let problem: String

    /// One line.
    public var description: String { "\(field) \(problem)" }
}

/// The members of an event's `notification` that are known here.
public struct NotificationContent {
    /// What a word's value may be.
    internal enum Form {
        case string, strings, integer, number, bool, stringOrObject
    }

    /// Where a word goes in an APNs payload.
    internal enum APNsPlace {
        /// Into `aps.alert`.
        case alert(StaticString)
        /// Into `aps`.
        case aps(StaticString)
        /// Into `aps`, as 1 when true.
        case flag(StaticString)
        /// An image: fetched by the app's extension, which has to run for that.
        case image
        case nowhere
    }

    /// Where a word goes in an FCM message.
    internal enum FCMPlace {
        /// Into `notification`.
        case notification(StaticString)
        /// Into `android.notification`.
        case android(StaticString)
        case nowhere
    }

    /// One row of the table.
    internal struct Word {
        let name: String
        let form: Form
        let apns: APNsPlace
        let fcm: FCMPlace
    }

    internal static let words: [Word] = [
        Word(name: "title", form: .string, apns: .alert("title"), fcm: .notification("title")),
        Word(name: "subtitle", form: .string, apns: .alert("subtitle"), fcm: .nowhere),
        Word(name: "body", form: .string, apns: .alert("body"), fcm: .notification("body")),
        Word(
            name: "title_loc_key", form: .string, apns: .alert("title-loc-key"),
            fcm: .android("title_loc_key")),
        Word(
            name: "title_loc_args", form: .strings, apns: .alert("title-loc-args"),
            fcm: .android("title_loc_args")),
        Word(
            name: "subtitle_loc_key", form: .string, apns: .alert("subtitle-loc-key"),
            fcm: .nowhere),
        Word(
            name: "subtitle_loc_args", form: .strings, apns: .alert("subtitle-loc-args"),
            fcm: .nowhere),
        Word(
            name: "body_loc_key", form: .string, apns: .alert("loc-key"),
            fcm: .android("body_loc_key")),
        Word(
            name: "body_loc_args", form: .strings, apns: .alert("loc-args"),
            fcm: .android("body_loc_args")),
        Word(name: "launch_image", form: .string, apns: .alert("launch-image"), fcm: .nowhere),
        Word(name: "badge", form: .integer, apns: .aps("badge"), fcm: .nowhere),
        Word(name: "sound", form: .stringOrObject, apns: .aps("sound"), fcm: .android("sound")),
        Word(name: "thread_id", form: .string, apns: .aps("thread-id"), fcm: .nowhere),
        Word(name: "category", form: .string, apns: .aps("category"), fcm: .nowhere),
        Word(
            name: "interruption_level", form: .string, apns: .aps("interruption-level"),
            fcm: .nowhere),
        Word(
            name: "relevance_score", form: .number, apns: .aps("relevance-score"), fcm: .nowhere),
        Word(
            name: "target_content_id", form: .string, apns: .aps("target-content-id"),
            fcm: .nowhere),
        Word(
            name: "filter_criteria", form: .string, apns: .aps("filter-criteria"), fcm: .nowhere),
        Word(name: "image", form: .string, apns: .image, fcm: .notification("image")),
        Word(
            name: "mutable_content", form: .bool, apns: .flag("mutable-content"), fcm: .nowhere),
        Word(
            name: "content_available", form: .bool, apns: .flag("content-available"),
            fcm: .nowhere),
        Word(name: "channel_id", form: .string, apns: .nowhere, fcm: .android("channel_id")),
        Word(name: "icon", form: .string, apns: .nowhere, fcm: .android("icon")),
        Word(name: "color", form: .string, apns: .nowhere, fcm: .android("color")),
        Word(name: "ticker", form: .string, apns: .nowhere, fcm: .android("ticker")),
        Word(name: "click_action", form: .string, apns: .nowhere, fcm: .android("click_action")),
    ]

    private static let aliases = ["loc_key": "body_loc_key", "loc_args": "body_loc_args"]

    /// The words that are there, in the event's order.
    internal private(set) var entries: [(word: Word, value: JSONValue)] = []
    /// The badge, when the notification sets it.
    internal private(set) var badge: Int64?
    /// The image's address.
    internal private(set) var image: JSONValue?
    /// Whether the app's extension is asked for by name.
    internal private(set) var asksForExtension = false
    /// Whether a person sees or hears anything of it.
    internal private(set) var isVisible = false
    /// Whether `aps.alert` has anything to hold.
    internal private(set) var hasAlert = false
    /// Whether FCM's `notification` has anything to hold.
    internal private(set) var hasText = false

    /// Reads an event's `notification`; unknown members are ignored, as is null.
    public init(_ value: JSONValue) throws(ContentError) {
        guard value.isObject else {
            throw ContentError(field: "notification", problem: "must be an object")
        }
        try value.forEachMember { (name, value) throws(ContentError) in
            if !value.isNull { try read(String(decoding: name, as: UTF8.self), value) }
        }
    }

    private mutating func read(_ name: String, _ value: JSONValue) throws(ContentError) {
        let name = Self.aliases[name] ?? name
        guard let word = Self.words.first(where: { $0.name == name }) else { return }
        if let problem = Self.problem(with: value, as: word.form) {
            throw ContentError(field: "notification.\(name)", problem: problem)
        }
        // A repeated name counts as its last value.
        entries.removeAll { $0.word.name == name }
        entries.append((word, value))
        switch word.apns {
        case .alert:
            hasAlert = true
            isVisible = true
        case .aps("badge"):
            badge = value.int64
            isVisible = true
        case .aps("sound"): isVisible = true
        case .flag("mutable-content"): asksForExtension = value.bool ?? false
        case .image: image = value
        default: break
        }
        if case .notification = word.fcm { hasText = true }
    }

    private static func problem(with value: JSONValue, as form: Form) -> String? {
        switch form {
        case .string: return value.kind == .string ? nil : "must be a string"
        case .integer: return value.int64 == nil ? "must be a whole number" : nil
        case .number: return value.kind == .number ? nil : "must be a number"
        case .bool: return value.kind == .bool ? nil : "must be true or false"
        case .stringOrObject:
            return value.kind == .string || value.isObject ? nil : "must be a string or an object"
        case .strings:
            var fits = value.isArray
            value.forEachElement { fits = fits && $0.kind == .string }
            return fits ? nil : "must be a list of strings"
        }
    }
}

/// Literals are few and short, so that a pattern may name one.
private func ~= (pattern: String, value: StaticString) -> Bool {
    value.description == pattern
}
