// What APNs demands of a push's fields and payload, as tables: a rule for each combination that it
// would refuse, drop or show wrongly, caught here before a request is spent, and named in the
// result. Asked of what an event's own `apns` had a hand in; what is generated fits by itself.
//
// Rules: Apple, "Sending notification requests to APNs", "Generating a remote notification",
// "Starting and updating Live Activities with ActivityKit push notifications", "Sending broadcast
// push notification requests to APNs", and WidgetKit's pages on controls and widgets.

internal import Base
internal import JSON

/// What the rules look at.
internal struct APNsPush {
    var type: APNsPushType
    var priority: APNsPriority
    /// `apns-expiration`; nil when the field is left out.
    var expiration: Int64?
    /// The topic that the registration or the app names, without what the type adds.
    var topic: String
    /// Whether it goes to a channel.
    var isBroadcast = false
    /// Whether a client certificate stands in for a provider token.
    var usesCertificate = false
    var payload: JSONValue

    var aps: JSONValue? { payload["aps"].flatMap { $0.isObject ? $0 : nil } }

    func has(_ name: StaticString) -> Bool { aps?[name].map { !$0.isNull } ?? false }

    func text(_ name: StaticString) -> String? { aps?[name]?.string }

    fileprivate var isVisible: Bool { has("alert") || has("sound") || has("badge") }

    fileprivate var event: String? { text("event") }
}

/// One rule: whom it concerns, and when it is broken.
internal struct APNsRule {
    /// How results name it.
    let name: String
    /// What it demands.
    let text: String
    /// The push types that it concerns; empty means all.
    let types: Set<APNsPushType>
    let isBroken: (APNsPush) -> Bool

    init(
        _ name: String, _ text: String, _ types: Set<APNsPushType> = [],
        when isBroken: @escaping (APNsPush) -> Bool
    ) {
        self.name = name
        self.text = text
        self.types = types
        self.isBroken = isBroken
    }

    /// The first rule that a push breaks, in words; nil when it breaks none.
    static func problem(with push: APNsPush) -> String? {
        for rule in table.rules
        where rule.types.isEmpty || rule.types.contains(push.type) {
            if rule.isBroken(push) { return rule.sentence }
        }
        return APNsKeyRule.problem(with: push)
    }

    private var sentence: String { "rule \(name): \(text)" }

    /// What a push that breaks a rule of the table is told.
    static func text(of name: String) -> String {
        guard let rule = table.rules.first(where: { $0.name == name }) else {
            preconditionFailure("the table of rules has no \(name)")
        }
        return rule.sentence
    }

    /// Types whose payload is nothing without `aps`.
    private static let withAPS: Set<APNsPushType> = [
        .alert, .background, .liveactivity, .controls, .widgets,
    ]

    /// Held by one place, so that the closures are made once.
    private struct Table: @unchecked Sendable {
        let rules: [APNsRule]
    }

    /// The rules, for the tests that go through all of them.
    static var all: [APNsRule] { table.rules }

    // `@unchecked Sendable`: immutable, and the closures capture nothing.
    private static let table = Table(rules: [
        APNsRule("aps-object", "aps is an object", withAPS) { $0.aps == nil },
        APNsRule("topic-suffix", "the topic has the ending of another push type") { push in
            APNsPushType.allCases.contains { other in
                let suffix = other.topicSuffix.description
                return !suffix.isEmpty && suffix != push.type.topicSuffix.description
                    && push.topic.hasSuffix(suffix)
            }
        },
        APNsRule("background-priority", "push type background has priority 5", [.background]) {
            $0.priority != .considerPower
        },
        APNsRule(
            "background-silent", "push type background has no alert, sound or badge", [.background]
        ) { $0.isVisible },
        APNsRule(
            "background-content-available", "push type background has content-available 1",
            [.background]
        ) { $0.aps?["content-available"]?.int64 != 1 },
        APNsRule("alert-visible", "push type alert has alert, sound or badge", [.alert]) {
            !$0.isVisible
        },
        APNsRule("pushtotalk-priority", "push type pushtotalk has priority 10", [.pushtotalk]) {
            $0.priority != .immediate
        },
        APNsRule(
            "pushtotalk-expiration", "push type pushtotalk has apns-expiration 0", [.pushtotalk]
        ) { $0.expiration != 0 },
        APNsRule(
            "content-changed", "pushes to controls and widgets have content-changed true",
            [.controls, .widgets]
        ) { $0.aps?["content-changed"]?.bool != true },
        APNsRule(
            "fileprovider-container", "push type fileprovider has container-identifier beside aps",
            [.fileprovider]
        ) { $0.payload["container-identifier"]?.string == nil },
        APNsRule("mdm-magic", "push type mdm has the push magic as text in mdm", [.mdm]) {
            $0.payload["mdm"]?.string == nil
        },
        APNsRule("mdm-without-aps", "push type mdm has no aps", [.mdm]) {
            $0.payload["aps"] != nil
        },
        APNsRule(
            "location-token", "push type location needs a provider token, not a certificate",
            [.location]
        ) { $0.usesCertificate },
        APNsRule(
            "liveactivity-event", "push type liveactivity has event start, update or end",
            [.liveactivity]
        ) { !["start", "update", "end"].contains($0.event ?? "") },
        APNsRule(
            "liveactivity-timestamp", "push type liveactivity has timestamp in seconds",
            [.liveactivity]
        ) { $0.aps?["timestamp"]?.int64 == nil },
        APNsRule(
            "liveactivity-priority", "push type liveactivity has priority 5 or 10",
            [.liveactivity]
        ) { $0.priority == .powerFirst },
        APNsRule(
            "liveactivity-content-state", "events start and update have content-state",
            [.liveactivity]
        ) { $0.event != "end" && $0.aps?["content-state"]?.isObject != true },
        APNsRule(
            "liveactivity-start-attributes", "event start has attributes-type and attributes",
            [.liveactivity]
        ) { $0.event == "start" && !($0.has("attributes-type") && $0.has("attributes")) },
        APNsRule("liveactivity-start-alert", "event start has an alert", [.liveactivity]) {
            $0.event == "start" && !$0.has("alert")
        },
        APNsRule(
            "liveactivity-only-start",
            "attributes, input-push-token and input-push-channel go with event start alone",
            [.liveactivity]
        ) { push in
            push.event != "start"
                && (push.has("attributes-type") || push.has("attributes")
                    || push.has("input-push-token") || push.has("input-push-channel"))
        },
        APNsRule(
            "liveactivity-one-input", "input-push-token and input-push-channel exclude each other",
            [.liveactivity]
        ) { $0.has("input-push-token") && $0.has("input-push-channel") },
        APNsRule(
            "liveactivity-only-end", "dismissal-date goes with event end alone", [.liveactivity]
        ) { $0.event != "end" && $0.has("dismissal-date") },
        APNsRule("broadcast-type", "a channel takes push type liveactivity alone") {
            $0.isBroadcast && $0.type != .liveactivity
        },
        APNsRule("broadcast-event", "a channel takes the events update and end, no start") {
            $0.isBroadcast && $0.event != "update" && $0.event != "end"
        },
    ])
}

/// What a member of `aps` has to be.
internal struct APNsKeyRule {
    enum Form: String {
        case text = "a string"
        case number = "a number"
        case count = "a whole number from 0"
        case bit = "the number 1, or 0"
        case flag = "true or false"
        case object = "an object"
        case share = "a number from 0 to 1"
        case texts = "a list of strings"
        case level = "passive, active, time-sensitive or critical"
        case alert = "a string or an object of the documented members"
        case sound = "a string, or an object with critical 1, name and volume from 0 to 1"
    }

    let key: StaticString
    let form: Form

    static let all: [APNsKeyRule] = [
        APNsKeyRule(key: "alert", form: .alert),
        APNsKeyRule(key: "badge", form: .count),
        APNsKeyRule(key: "sound", form: .sound),
        APNsKeyRule(key: "thread-id", form: .text),
        APNsKeyRule(key: "category", form: .text),
        APNsKeyRule(key: "content-available", form: .bit),
        APNsKeyRule(key: "mutable-content", form: .bit),
        APNsKeyRule(key: "target-content-id", form: .text),
        APNsKeyRule(key: "interruption-level", form: .level),
        APNsKeyRule(key: "relevance-score", form: .share),
        APNsKeyRule(key: "filter-criteria", form: .text),
        APNsKeyRule(key: "stale-date", form: .number),
        APNsKeyRule(key: "content-state", form: .object),
        APNsKeyRule(key: "timestamp", form: .number),
        APNsKeyRule(key: "event", form: .text),
        APNsKeyRule(key: "dismissal-date", form: .number),
        APNsKeyRule(key: "attributes-type", form: .text),
        APNsKeyRule(key: "attributes", form: .object),
        APNsKeyRule(key: "input-push-token", form: .bit),
        APNsKeyRule(key: "input-push-channel", form: .text),
        APNsKeyRule(key: "content-changed", form: .flag),
        APNsKeyRule(key: "url-args", form: .texts),
    ]

    /// Members of `alert` and what they are. A Live Activity's title and body may be objects with
    /// `loc-key` and `loc-args`, and its sound stands inside.
    static let alert: [APNsKeyRule] = [
        APNsKeyRule(key: "title", form: .text), APNsKeyRule(key: "subtitle", form: .text),
        APNsKeyRule(key: "body", form: .text), APNsKeyRule(key: "launch-image", form: .text),
        APNsKeyRule(key: "title-loc-key", form: .text),
        APNsKeyRule(key: "title-loc-args", form: .texts),
        APNsKeyRule(key: "subtitle-loc-key", form: .text),
        APNsKeyRule(key: "subtitle-loc-args", form: .texts),
        APNsKeyRule(key: "loc-key", form: .text), APNsKeyRule(key: "loc-args", form: .texts),
    ]

    /// The first member with another form than it must have.
    static func problem(with push: APNsPush) -> String? {
        guard let aps = push.aps else { return nil }
        for rule in all {
            guard let value = aps[rule.key], !value.isNull else { continue }
            if !rule.fits(value, in: push) { return rule.problem(at: "aps") }
        }
        guard let alert = aps["alert"], alert.isObject else { return nil }
        for rule in Self.alert {
            guard let value = alert[rule.key], !value.isNull else { continue }
            let isLocalised = push.type == .liveactivity && value["loc-key"]?.string != nil
            if !rule.fits(value, in: push), !isLocalised { return rule.problem(at: "aps.alert") }
        }
        return nil
    }

    private func problem(at place: String) -> String {
        "rule \(place).\(key): \(place).\(key) is \(form.rawValue)"
    }

    private func fits(_ value: JSONValue, in push: APNsPush) -> Bool {
        switch form {
        case .text: value.string != nil
        case .number: value.kind == .number
        case .count: value.int64.map { $0 >= 0 } ?? false
        case .bit: value.int64 == 1 || value.int64 == 0
        case .flag: value.bool != nil
        case .object: value.isObject
        case .share:
            value.kind == .number
                && (push.type == .liveactivity || value.double.map { $0 >= 0 && $0 <= 1 } ?? false)
        case .texts: Self.areTexts(value)
        case .level: Self.isLevel(value)
        case .alert: value.string != nil || value.isObject
        case .sound: value.string != nil || Self.isCriticalSound(value)
        }
    }

    private static func areTexts(_ value: JSONValue) -> Bool {
        guard value.isArray else { return false }
        var areTexts = true
        value.forEachElement { areTexts = areTexts && $0.string != nil }
        return areTexts
    }

    /// Whether it is one of Apple's interruption levels.
    static func isLevel(_ value: JSONValue) -> Bool {
        ["passive", "active", "time-sensitive", "critical"].contains(value.string ?? "")
    }

    /// Whether it is a sound in Apple's long form.
    static func isCriticalSound(_ value: JSONValue) -> Bool {
        guard value.isObject else { return false }
        if let critical = value["critical"], critical.int64 != 1, critical.int64 != 0 {
            return false
        }
        if let name = value["name"], name.string == nil { return false }
        if let volume = value["volume"] {
            guard let share = volume.double, share >= 0, share <= 1 else { return false }
        }
        return true
    }
}
