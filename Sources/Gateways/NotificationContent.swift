// What a person sees, in words that belong to no gateway. One table says where each word goes in
// the requests of each gateway, so that a new word is one row.

public import JSON

/// A content that has a wrong type somewhere; the event cannot be sent to anybody.
public struct ContentError: Error, Equatable, CustomStringConvertible {
    /// The field, such as `notification.title`.
    public let field: String
    /// What is wrong.
    public let problem: String

    /// A content that cannot be sent.
    public init(field: String, problem: String) {
        self.field = field
        self.problem = problem
    }

    /// One line.
    public var description: String { "\(field) \(problem)" }
}

/// The members of an event's `notification` that are known here: read once for all targets.
public final class NotificationContent {
    /// What a word's value may be.
    internal enum Form {
        case string, strings, bool, actions
        /// What APNs and FCM demand of the word that becomes one of theirs.
        case count, share, level, sound, color
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
        let name: StaticString
        let form: Form
        let apns: APNsPlace
        let fcm: FCMPlace
        var role = Role.none
    }

    /// What a word means besides its place.
    internal enum Role {
        case none, badge, sound, image, asksForExtension, link, actions, pointer
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
        Word(name: "badge", form: .count, apns: .aps("badge"), fcm: .nowhere, role: .badge),
        Word(
            name: "sound", form: .sound, apns: .aps("sound"), fcm: .android("sound"),
            role: .sound),
        Word(name: "thread_id", form: .string, apns: .aps("thread-id"), fcm: .nowhere),
        Word(name: "category", form: .string, apns: .aps("category"), fcm: .nowhere),
        Word(
            name: "interruption_level", form: .level, apns: .aps("interruption-level"),
            fcm: .nowhere),
        Word(
            name: "relevance_score", form: .share, apns: .aps("relevance-score"), fcm: .nowhere),
        Word(
            name: "target_content_id", form: .string, apns: .aps("target-content-id"),
            fcm: .nowhere),
        Word(
            name: "filter_criteria", form: .string, apns: .aps("filter-criteria"), fcm: .nowhere),
        Word(name: "image", form: .string, apns: .image, fcm: .notification("image"), role: .image),
        Word(
            name: "mutable_content", form: .bool, apns: .flag("mutable-content"), fcm: .nowhere,
            role: .asksForExtension),
        Word(
            name: "content_available", form: .bool, apns: .flag("content-available"),
            fcm: .nowhere),
        Word(name: "channel_id", form: .string, apns: .nowhere, fcm: .android("channel_id")),
        Word(name: "link", form: .string, apns: .nowhere, fcm: .nowhere, role: .link),
        Word(name: "actions", form: .actions, apns: .nowhere, fcm: .nowhere, role: .actions),
        Word(name: "pointer", form: .string, apns: .nowhere, fcm: .nowhere, role: .pointer),
        Word(name: "icon", form: .string, apns: .nowhere, fcm: .android("icon")),
        Word(name: "color", form: .color, apns: .nowhere, fcm: .android("color")),
        Word(name: "ticker", form: .string, apns: .nowhere, fcm: .android("ticker")),
        Word(name: "click_action", form: .string, apns: .nowhere, fcm: .android("click_action")),
    ]

    /// A word that is there.
    internal struct Entry {
        fileprivate let row: Int
        let value: JSONValue

        var name: StaticString { NotificationContent.words[row].name }
        var apns: APNsPlace { NotificationContent.words[row].apns }
        var fcm: FCMPlace { NotificationContent.words[row].fcm }
    }

    /// The words that are there, in the event's order.
    internal let entries: [Entry]
    /// The badge, when the notification sets it.
    internal let badge: Int64?
    /// The image's address.
    internal let image: JSONValue?
    /// Where a tap leads.
    internal let link: JSONValue?
    /// Buttons: objects with `id`, `title` and perhaps `link`.
    internal let actions: JSONValue?
    /// What the app fetches before it shows anything.
    internal let pointer: JSONValue?
    /// Whether Apple's interruption level is given by name.
    internal let hasInterruptionLevel: Bool
    /// Whether the app's extension is asked for by name.
    internal let asksForExtension: Bool
    /// Whether a person sees or hears anything of it on Apple's devices, where a sound or a badge
    /// are enough.
    public let isVisible: Bool
    /// Whether Android shows anything: a text, or one that the app has under a key. Without it a
    /// notification there is an empty line.
    public let isVisibleOnAndroid: Bool
    /// Whether it has a title or a body.
    internal let hasText: Bool
    /// Whether `aps.alert` has anything to hold.
    internal let hasAlert: Bool
    /// The bytes of the texts in FCM's `notification`; nil when it has none.
    internal let fcmTextBytes: Int?

    /// Reads an event's `notification`; unknown members are ignored, as is null.
    public init(_ value: JSONValue) throws(ContentError) {
        guard value.isObject else {
            throw ContentError(field: "notification", problem: "must be an object")
        }
        var entries: [Entry] = []
        entries.reserveCapacity(value.count)
        try value.forEachMember { (name, value) throws(ContentError) in
            guard !value.isNull, let row = Self.row(named: name) else { return }
            if let problem = Self.problem(with: value, as: Self.words[row].form) {
                throw ContentError(
                    field: "notification.\(Self.words[row].name)", problem: problem)
            }
            // A repeated name counts as its last value.
            if entries.contains(where: { $0.row == row }) { entries.removeAll { $0.row == row } }
            entries.append(Entry(row: row, value: value))
        }
        var badge: Int64?
        var image: JSONValue?
        var (link, actions, pointer): (JSONValue?, JSONValue?, JSONValue?)
        var asksForExtension = false
        var hasAlert = false
        var hasSound = false
        var fcmTextBytes: Int?
        for index in entries.indices {
            let word = Self.words[entries[index].row]
            if case .alert = word.apns { hasAlert = true }
            if case .notification = word.fcm {
                fcmTextBytes = (fcmTextBytes ?? 0) + (entries[index].value.stringBytes?.count ?? 0)
            }
            switch word.role {
            case .none: break
            case .badge: badge = entries[index].value.int64
            case .sound: hasSound = true
            case .image: image = entries[index].value
            case .link: link = entries[index].value
            case .actions: actions = entries[index].value
            case .pointer: pointer = entries[index].value
            case .asksForExtension: asksForExtension = entries[index].value.bool ?? false
            }
        }
        self.entries = entries
        self.badge = badge
        self.image = image
        self.link = link
        self.actions = actions
        self.pointer = pointer
        hasInterruptionLevel = entries.contains {
            Self.words[$0.row].name.spells("interruption_level")
        }
        self.asksForExtension = asksForExtension
        self.hasAlert = hasAlert
        self.isVisible = hasAlert || hasSound || badge != nil
        self.fcmTextBytes = fcmTextBytes
        let rows = entries.map(\.row)
        hasText = rows.contains(where: Self.textRows.contains)
        isVisibleOnAndroid = hasText || rows.contains(where: Self.keyRows.contains)
    }

    private static let textRows = rows(["title", "body"])
    private static let keyRows = rows(["title_loc_key", "body_loc_key"])

    private static func rows(_ names: [StaticString]) -> [Int] {
        names.compactMap { name in words.firstIndex { $0.name.spells(name) } }
    }

    private static func row(named name: UnsafeRawBufferPointer) -> Int? {
        guard let place = names.place(of: name) else { return nil }
        return place < words.count ? place : appleRows[place - words.count]
    }

    /// What the members of a `notification` may be called; others are ignored.
    public static let memberNames: [String] =
        words.map { $0.name.description } + ["loc_key", "loc_args"]

    /// The words, and behind them Apple's own names for the words of the body.
    private static let names = JSONNames(words.map(\.name) + ["loc_key", "loc_args"])
    private static let appleRows = ["body_loc_key", "body_loc_args"].map { (name: StaticString) in
        words.firstIndex { $0.name.spells(name) }
    }

    private static func problem(with value: JSONValue, as form: Form) -> String? {
        switch form {
        case .string: return value.kind == .string ? nil : "must be a string"
        case .bool: return value.kind == .bool ? nil : "must be true or false"
        case .count:
            return value.int64.map { $0 >= 0 } ?? false ? nil : "must be a whole number from 0"
        case .share:
            let share = value.kind == .number ? value.double : nil
            return share.map { $0 >= 0 && $0 <= 1 } ?? false ? nil : "must be a number from 0 to 1"
        case .level:
            return APNsKeyRule.isLevel(value)
                ? nil : "must be \(APNsKeyRule.Form.level.rawValue)"
        case .sound:
            return value.kind == .string || APNsKeyRule.isCriticalSound(value)
                ? nil : "must be \(APNsKeyRule.Form.sound.rawValue)"
        case .color: return FCMFieldRule.isColor(value) ? nil : "must be a colour such as #1a2b3c"
        case .strings:
            var fits = value.isArray
            value.forEachElement { fits = fits && $0.kind == .string }
            return fits ? nil : "must be a list of strings"
        case .actions:
            var fits = value.isArray
            value.forEachElement { action in
                let link = action["link"]
                fits =
                    fits && action["id"]?.string != nil && action["title"]?.string != nil
                    && (link == nil || link?.string != nil)
            }
            return fits ? nil : "must be a list of objects with id and title"
        }
    }
}
