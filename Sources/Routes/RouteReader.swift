// Reads one route: its keys in the order of the documentation. Faults go to the configuration's
// reader with their place, and reading goes on.

internal import Base
internal import Config

/// Reads the settings of a route.
internal struct RouteReader {
    private var section: ConfigurationSection
    private var translations: [TranslationReader]
    private let languages: Languages
    private let defaults: RouteDefaults
    private let apps: [Configuration.App]

    init(_ section: ConfigurationSection, _ defaults: RouteDefaults, apps: [Configuration.App]) {
        var section = section
        let translations = TranslationReader.readAll(section.section("translations"))
        languages = Languages(own: defaults.language, translations: translations.map(\.tag))
        self.section = section
        self.translations = translations
        self.defaults = defaults
        self.apps = apps
    }

    mutating func read() -> RouteSettings {
        var route = RouteSettings(languages: languages, timeZone: defaults.timeZone)
        readMatching(&route)
        readManner(&route)
        route.texts = texts()
        route.image = section.address("image")
        route.link = section.address("link")
        route.actions = actions()
        route.fallback = sectionTexts("fallback", [("title", \.title), ("body", \.body)])
        route.coalescing = coalescing()
        readAppearance(&route)
        readData(&route)
        section.finish()
        for translation in translations { translation.section.finish() }
        check(route)
        return route
    }

    private mutating func readMatching(_ route: inout RouteSettings) {
        route.kind = section.choice("kind", default: .alert)
        let known = apps.map(\.name)
        let apps = section.texts("apps", default: [String](), "names out of apps") {
            known.contains($0) ? $0 : nil
        }
        route.apps = section.has("apps") ? Set(apps) : nil
        if section.has("class") {
            route.eventClass = section.choice("class", default: .transactional)
        } else {
            _ = section.node("class")
        }
        route.conditions = ConditionReader.readAll(section.section("when"))
    }

    private mutating func readManner(_ route: inout RouteSettings) {
        route.importance = section.choice("importance", default: .normal)
        if section.has("ttl") {
            route.ttl = section.span("ttl", default: .zero, in: .zero ... .hours(28 * 24))
        } else {
            _ = section.node("ttl")
        }
        route.collapse = section.template("collapse", isLocal: false)
        route.fcmCollapseKey = section.value("fcm_collapse", default: nil, "1 to 64 bytes") {
            (1...64).contains($0.utf8.count) ? .some($0) : nil
        }
        route.preference = section.text("preference")
        route.quiet = quietHours()
        route.avoidsDuplicates = section.value(
            "duplicates", default: false, "one of allow, avoid"
        ) { ["allow": false, "avoid": true][$0] }
        route.keepsDeadLetters = section.bool("dead_letter", default: false)
        let kinds = section.texts(
            "addresses", default: [String](),
            "kinds of addresses: alert, voip, complication, controls, fileprovider, liveactivity,"
                + " location, mdm, pushtotalk, widgets"
        ) { Self.addressKinds.contains($0) ? $0 : nil }
        route.addressKinds = section.has("addresses") ? Set(kinds) : nil
        route.shrinksBody = section.bool("shrink_body", default: true)
        route.encrypts = section.bool("encrypt", default: false)
    }

    /// One word, or a mapping with hours of the route's own.
    private mutating func quietHours() -> Route.Quiet? {
        guard let node = section.node("quiet_hours") else { return nil }
        if case .scalar = node.content {
            let manner: Route.Quiet.Manner = section.choice("quiet_hours", default: .hold)
            return quiet(manner, highPasses: false, defaults.quietHours)
        }
        var own = section.section("quiet_hours")
        let manner: Route.Quiet.Manner = own.choice("then", default: .hold)
        let highPasses = own.bool("high_passes", default: false)
        let hours = own.quietHours() ?? defaults.quietHours
        own.finish()
        return quiet(manner, highPasses: highPasses, hours)
    }

    private func quiet(
        _ manner: Route.Quiet.Manner, highPasses: Bool, _ hours: QuietHours?
    ) -> Route.Quiet {
        Route.Quiet(
            suppresses: manner == .suppress, highPasses: highPasses, hours: hours,
            timeZone: defaults.timeZone)
    }

    private static let addressKinds: Set<String> = [
        "alert", "voip", "complication", "controls", "fileprovider", "liveactivity", "location",
        "mdm", "pushtotalk", "widgets",
    ]

    private mutating func readAppearance(_ route: inout RouteSettings) {
        route.channel = section.text("android_channel")
        if section.has("android_display") {
            route.androidDisplay = section.choice("android_display", default: .system)
        } else {
            _ = section.node("android_display")
        }
        route.sound = section.text("sound")
        route.badge = badge()
        route.thread = section.template("thread", isLocal: false)
        route.category = section.text("category")
        route.pointer = section.template("pointer", isLocal: false)
    }

    private mutating func badge() -> Route.Badge {
        guard let text = section.text("badge") else { return .unread }
        switch text {
        case "unread": return .unread
        case "none": return .none
        default:
            if let number = Self.badge(text) { return .number(number) }
            guard let reference = section.template("badge", isLocal: false)?.wholeValue else {
                section.report(
                    "badge",
                    "expected unread, none, a number, or one field such as {{payload.count}}")
                return .unread
            }
            let words = String(decoding: reference.fallback ?? [], as: UTF8.self)
            let fallback = Self.badge(words)
            if fallback == nil, !words.isEmpty {
                section.report("badge", "the default has to be a whole number from 0 up, or empty")
            }
            return .field(reference, otherwise: fallback)
        }
    }

    private static func badge(_ text: String) -> Int64? {
        Int64(text).flatMap { $0 >= 0 ? $0 : nil }
    }

    private mutating func readData(_ route: inout RouteSettings) {
        route.data = section.json("data")
        route.overrides.apns = section.json("apns")
        route.overrides.fcm = section.json("fcm")
        route.overrides.webpush = section.json("webpush")
        route.overrides.expo = section.json("expo")
        route.sensitive = Set(
            section.texts("sensitive", default: [], "paths such as payload.iban") {
                try? FieldPath($0)
            })
    }

    // MARK: Texts

    private mutating func texts() -> Route.Texts {
        Route.Texts(title: text("title"), subtitle: text("subtitle"), body: text("body"))
    }

    private mutating func text(_ key: String) -> LocalizedText? {
        let own = section.form(key)
        let others = translations.indices.map { translations[$0].section.form(key) }
        return localized(own, others, key)
    }

    private mutating func localized(
        _ own: TextForm?, _ others: [TextForm?], _ key: String
    ) -> LocalizedText? {
        if own == nil {
            if others.contains(where: { $0 != nil }) {
                section.report(
                    "translations", "\(key): translated, but the route itself has no \(key)")
            }
            return nil
        }
        return LocalizedText(forms: [own] + others)
    }

    /// The texts of a section of the route, which its translations have too.
    private mutating func sectionTexts(
        _ name: String, _ keys: [(String, WritableKeyPath<Route.Texts, LocalizedText?>)]
    ) -> Route.Texts {
        var own = section.section(name)
        return sectionTexts(name, &own, keys)
    }

    private mutating func sectionTexts(
        _ name: String, _ own: inout ConfigurationSection,
        _ keys: [(String, WritableKeyPath<Route.Texts, LocalizedText?>)]
    ) -> Route.Texts {
        var others = translations.indices.map { translations[$0].section.section(name) }
        var texts = Route.Texts()
        for (key, place) in keys {
            let form = own.form(key)
            let forms = others.indices.map { others[$0].form(key) }
            texts[keyPath: place] = localized(form, forms, "\(name).\(key)")
        }
        own.finish()
        for other in others { other.finish() }
        return texts
    }

    private mutating func coalescing() -> Route.Coalescing? {
        let isWanted = section.has("coalesce")
        var own = section.section("coalesce")
        let window = own.span(
            "window", default: .seconds(10), in: Self.windowMin...Self.windowMax)
        let first: Route.First = own.choice("first", default: .send)
        var summary = own.section("summary")
        let texts = sectionTexts(
            "summary", &summary,
            [("title", \.title), ("subtitle", \.subtitle), ("body", \.body)])
        own.finish()
        guard isWanted else { return nil }
        return Route.Coalescing(window: window, sendsFirst: first == .send, summary: texts)
    }

    /// A shorter window gathers nothing, a longer one would outlive what its pushes are worth.
    private static let windowMin = TimeSpan.milliseconds(100)
    private static let windowMax = TimeSpan.hours(24)

    private mutating func actions() -> [Route.Action] {
        guard let node = section.node("actions") else { return [] }
        let path = section.path(of: "actions")
        guard case .sequence(let elements) = node.content else {
            section.report("actions", "expected a list of actions with id and title")
            return []
        }
        if elements.count > Self.actionsMax {
            section.report("actions", "more than \(Self.actionsMax); no system shows so many")
        }
        var others = translations.indices.map { translations[$0].section.section("actions") }
        let actions = elements.enumerated().compactMap { number, node -> Route.Action? in
            let path = "\(path)[\(number)]"
            guard
                var action = ConfigurationSection(node, path: path, reader: section.reader)
            else { return nil }
            let id = action.requiredText("id")
            let own = action.form("title")
            if own == nil { action.reportMissing("title") }
            let forms = others.indices.map { others[$0].form(id) }
            let link = action.address("link")
            action.finish()
            return own.map {
                Route.Action(id: id, title: LocalizedText(forms: [$0] + forms), link: link)
            }
        }
        for other in others { other.finish() }
        return actions
    }

    /// Actions of one notification; systems show two to ten.
    private static let actionsMax = 10

    // MARK: What does not go together

    private func check(_ route: RouteSettings) {
        switch route.kind {
        case .alert:
            if !section.has("title") && !section.has("body") {
                report("title", "an alert needs a title or a body")
            }
            if route.encrypts {
                if route.fallback.all.isEmpty {
                    report(
                        "encrypt",
                        "needs fallback: the general text that is shown until the app has"
                            + " decrypted the true one")
                }
            } else if !route.fallback.all.isEmpty {
                report("fallback", "an alert shows its own texts; fallback is for the other kinds")
            }
        case .hint:
            for key in ["data", "apns", "fcm", "webpush", "expo", "collapse"] where section.has(key)
            {
                report(key, "a hint carries only the event's cursor, and is collapsed by its log")
            }
            refuseAppearance()
        case .call:
            for key in ["collapse", "fcm_collapse", "ttl"] where section.has(key) {
                report(key, "a call is never stored and never replaces another one")
            }
            refuseAppearance()
        case .silent: refuseAppearance()
        case .raw:
            if route.overrides.all.isEmpty && route.data == nil {
                report("kind", "a raw push needs one of apns, fcm, webpush, expo or data")
            }
            refuseAppearance()
        }
        checkCoalescing(route)
        checkEncryption(route)
        if route.quiet != nil, route.kind != .alert, route.kind != .raw {
            report("quiet_hours", "only what may be shown disturbs anybody: an alert, or raw")
        }
        if let data = route.data, case .object = data {
        } else if route.data != nil {
            report("data", "expected a mapping")
        }
        for (key, override) in [
            ("apns", route.overrides.apns), ("fcm", route.overrides.fcm),
            ("webpush", route.overrides.webpush), ("expo", route.overrides.expo),
        ] {
            guard let override else { continue }
            if case .object = override { continue }
            report(key, "expected a mapping")
        }
    }

    private func checkCoalescing(_ route: RouteSettings) {
        guard let coalescing = route.coalescing else { return }
        if route.kind == .call {
            report("coalesce", "a call is never held back and never replaces another one")
        } else if route.kind != .hint, route.collapse == nil {
            report("coalesce", "needs collapse: a burst is what has the same collapse key")
        }
        if route.kind != .alert, !coalescing.summary.all.isEmpty {
            report("coalesce", "summary: only an alert is shown")
        }
    }

    private func checkEncryption(_ route: RouteSettings) {
        guard route.encrypts else { return }
        if route.kind == .hint || route.kind == .raw {
            report("encrypt", "a \(route.kind.rawValue) push has nothing that can be encrypted")
        }
        for (key, override) in [
            ("apns", route.overrides.apns), ("fcm", route.overrides.fcm),
            ("webpush", route.overrides.webpush), ("expo", route.overrides.expo),
        ] where override.map({ !$0.references.isEmpty }) ?? false {
            report(
                key, "goes out in clear, and so it must not hold fields of the event with encrypt")
        }
    }

    private func refuseAppearance() {
        for key in [
            "title", "subtitle", "body", "image", "link", "actions", "android_channel", "sound",
            "badge", "thread", "category", "pointer",
        ] where section.has(key) {
            report(key, "only an alert is shown; see kind, and fallback for the web")
        }
    }

    private func report(_ key: String, _ message: String) { section.report(key, message) }
}

/// One language of a route's `translations`.
internal struct TranslationReader {
    let tag: LocaleTag
    var section: ConfigurationSection

    static func readAll(_ section: ConfigurationSection) -> [TranslationReader] {
        var seen: Set<LocaleTag> = []
        return section.members.compactMap { entry in
            let path = section.path(of: entry.key)
            guard let tag = LocaleTag(entry.key) else {
                section.reader.report(entry.line, path, "expected a locale such as de or de-AT")
                return nil
            }
            guard seen.insert(tag).inserted else {
                section.reader.report(entry.line, path, "this locale was given before")
                return nil
            }
            return ConfigurationSection(entry.value, path: path, reader: section.reader).map {
                TranslationReader(tag: tag, section: $0)
            }
        }
    }
}
