// From a route and an event to the words of a push: a JSON object with the members `notification`,
// `data` and one for each gateway, as an event could have brought it itself. What the event brings
// of its own is merged last: a member of it replaces the route's.

public import Base
public import Config
internal import JSON

extension Route {
    /// Who reads a push.
    public struct Reader {
        /// The device's locale.
        public var locale: String?
        /// The device's time zone.
        public var timeZone: String?
        /// Whether something has to be shown whatever the kind is, as on the web.
        public var mustSee: Bool

        /// A reader.
        public init(locale: String? = nil, timeZone: String? = nil, mustSee: Bool = false) {
            self.locale = locale
            self.timeZone = timeZone
            self.mustSee = mustSee
        }

        /// Whether a text has the form of a locale's name.
        public static func isLocale(_ text: String) -> Bool { LocaleTag(text) != nil }
    }

    /// Whether there is something to show where something has to be.
    public var hasFallback: Bool { !fallbackTexts.isEmpty }

    // MARK: Before fan-out

    /// Refuses an event that the route cannot make a push of, for whatever reader: a field is
    /// missing or of a wrong type, an address leads where it must not.
    public func check(
        _ event: borrowing RouteEvent, _ explicit: ExplicitContent,
        in abilities: Configuration.App.Abilities, with renderer: TextRenderer
    ) throws(TemplateError) {
        if kind == .hint, event.cursor == nil { throw TemplateError("cursor", "is missing") }
        if encrypts { try checkClear(explicit) }
        try explicit.checkAddresses(in: abilities)
        if kind == .alert {
            if !explicit.overrides("title") { try texts.title?.check(event) }
            if !explicit.overrides("subtitle") { try texts.subtitle?.check(event) }
            if !explicit.overrides("body") { try texts.body?.check(event) }
            // What a summary needs is found missing now, not when a burst is over.
            for text in summaryTexts { try text.check(event) }
            try checkBadge(event, explicit)
            if !explicit.overrides("actions") {
                for action in actions {
                    try action.title.check(event)
                    try check(action.link, "actions", event, abilities, with: renderer)
                }
            }
            if !explicit.overrides("link") {
                try check(link, "link", event, abilities, with: renderer)
            }
            if !explicit.overrides("image") { try checkImage(event, abilities, with: renderer) }
            for reference in plainReferences { try reference.check(event) }
        }
        for text in fallbackTexts { try text.check(event) }
        try checkData(event, explicit)
        for override in allOverrides { try override.check(event) }
    }

    /// What an event brings must not leave in clear where the route promises otherwise.
    private func checkClear(_ explicit: ExplicitContent) throws(TemplateError) {
        for (field, value) in [
            ("apns", explicit.apns), ("fcm", explicit.fcm), ("webpush", explicit.webpush),
            ("expo", explicit.expo),
        ] where value != nil {
            throw TemplateError(field, "would go out in clear, and the route encrypts")
        }
        if kind != .alert, explicit.notification != nil {
            throw TemplateError(
                "notification", "would be shown in clear, and the route has no general text")
        }
    }

    private func checkBadge(
        _ event: borrowing RouteEvent, _ explicit: ExplicitContent
    ) throws(TemplateError) {
        guard case .field(let reference, _) = badge, !explicit.overrides("badge") else { return }
        switch reference.value(in: event) {
        case .missing:
            guard reference.fallback != nil else {
                throw TemplateError(reference.path.text, "is missing")
            }
        case .integer(let number) where number >= 0: break
        case .json(let value) where value.int64.map { $0 >= 0 } ?? false: break
        default: throw TemplateError(reference.path.text, "is not a whole number from 0 up")
        }
    }

    private func checkData(
        _ event: borrowing RouteEvent, _ explicit: ExplicitContent
    ) throws(TemplateError) {
        guard case .object(let members)? = data else { return }
        for member in members where explicit.data?[member.name] == nil {
            try member.value.check(event)
        }
    }

    private func check(
        _ link: Template?, _ setting: String, _ event: borrowing RouteEvent,
        _ abilities: Configuration.App.Abilities, with renderer: TextRenderer
    ) throws(TemplateError) {
        guard let link, try writeAddress(link, event, with: renderer) else { return }
        try abilities.checkLink(renderer.text.bytes, setting)
    }

    private func checkImage(
        _ event: borrowing RouteEvent, _ abilities: Configuration.App.Abilities,
        with renderer: TextRenderer
    ) throws(TemplateError) {
        guard let image, try writeAddress(image, event, with: renderer) else { return }
        try abilities.checkImage(renderer.text.bytes, "image")
    }

    /// Writes an address into the renderer's text; false when it comes out empty.
    private func writeAddress(
        _ template: Template, _ event: borrowing RouteEvent, with renderer: TextRenderer
    ) throws(TemplateError) -> Bool {
        for reference in template.references { try reference.check(event) }
        renderer.text.removeAll()
        try renderer.write(template, of: event, addressContext, to: renderer.text)
        return renderer.text.count > 0
    }

    private var addressContext: TextRenderer.Context {
        TextRenderer.Context(
            locale: languages.tags[0].name, timeZone: timeZone, isAddress: true)
    }

    private var ownContext: TextRenderer.Context {
        TextRenderer.Context(locale: languages.tags[0].name, timeZone: timeZone)
    }

    /// What a newer push replaces an older one by; nil when the route says nothing.
    public func collapseKey(
        of event: borrowing RouteEvent, with renderer: TextRenderer
    ) throws(TemplateError) -> String? {
        if kind == .call { return nil }
        if kind == .hint, let cursor = event.cursor { return "hint/\(cursor.log)" }
        guard let collapse else { return nil }
        renderer.text.removeAll()
        try renderer.write(collapse, of: event, ownContext, to: renderer.text)
        return renderer.text.count > 0 ? renderer.text.text : nil
    }

    // MARK: For a reader

    /// Appends the words for a reader as a JSON object.
    public func write(
        _ event: borrowing RouteEvent, _ explicit: ExplicitContent, for reader: Reader,
        in abilities: Configuration.App.Abilities, with renderer: TextRenderer,
        to writer: ByteWriter
    ) throws(TemplateError) {
        let tag = reader.locale.flatMap { LocaleTag($0) }
        var own = ownContext
        if let zone = reader.timeZone, renderer.formats.isZone(zone) { own.timeZone = zone }
        own.locale = languages.formatLocale(of: 0, for: tag)
        var page = Page(
            event: copy event, renderer: renderer, languages: languages, reader: tag,
            choices: languages.choices(for: tag), own: own)
        writer.append(0x7B)
        var isFirst = true
        func open(_ name: StaticString) {
            writer.append(jsonName: name, isFirst: isFirst)
            isFirst = false
        }
        let showsFallback = kind != .alert && reader.mustSee
        if kind == .alert || showsFallback && hasFallback || explicit.notification != nil {
            open("notification")
            var object = JSONObjectWriter(writer)
            if kind == .alert {
                try writeNotification(&page, explicit, abilities, into: &object)
            } else if showsFallback {
                try page.write(fallback, explicit, into: &object)
            }
            Self.add(explicit.notification, to: &object)
            object.end()
        }
        if encrypts, kind == .alert {
            open("fallback")
            var object = JSONObjectWriter(writer)
            guard try page.write(fallback, ExplicitContent(), into: &object) else {
                throw TemplateError("fallback", "has neither a title nor a body for this reader")
            }
            object.end()
        }
        if kind != .hint, data != nil || explicit.data != nil {
            open("data")
            try writeData(&page, explicit.data, to: writer)
        }
        func writeOverride(
            _ name: StaticString, _ template: JSONTemplate?, _ patch: JSONValue?
        ) throws(TemplateError) {
            guard template != nil || patch != nil else { return }
            open(name)
            try page.write(override: template, patchedWith: patch, to: writer)
        }
        try writeOverride("apns", overrides.apns, explicit.apns)
        try writeOverride("fcm", overrides.fcm, explicit.fcm)
        try writeOverride("webpush", overrides.webpush, explicit.webpush)
        try writeOverride("expo", overrides.expo, explicit.expo)
        writer.append(0x7D)
    }

    private func writeNotification(
        _ page: inout Page, _ explicit: ExplicitContent, _ abilities: Configuration.App.Abilities,
        into object: inout JSONObjectWriter
    ) throws(TemplateError) {
        let shown = try page.write(
            page.event.count > 1 ? burstTexts : texts, explicit, into: &object)
        let bringsText = explicit.overrides("title") || explicit.overrides("body")
        guard shown || bringsText else {
            throw TemplateError("notification", "has neither a title nor a body for this reader")
        }
        if !explicit.overrides("image") { try page.write("image", address: image, into: &object) }
        if !explicit.overrides("link") { try page.write("link", address: link, into: &object) }
        if !explicit.overrides("sound") { writeSound(into: &object) }
        if !explicit.overrides("badge") { writeBadge(page, into: &object) }
        if !explicit.overrides("thread_id") {
            try page.write("thread_id", template: thread, into: &object)
        }
        if !explicit.overrides("pointer"), pointer != nil {
            try page.write("pointer", template: pointer, into: &object)
            if !explicit.overrides("mutable_content") { object.bool("mutable_content", true) }
        }
        if let category, !explicit.overrides("category") { object.string("category", category) }
        if let channel = channel(in: abilities), !explicit.overrides("channel_id") {
            object.string("channel_id", channel)
        }
        if !actions.isEmpty, !explicit.overrides("actions") {
            object.name("actions")
            try writeActions(&page, to: object.bytes)
        }
    }

    private func writeSound(into object: inout JSONObjectWriter) {
        guard importance == .critical else {
            if let sound { object.string("sound", sound) }
            return
        }
        object.name("sound")
        var critical = JSONObjectWriter(object.bytes)
        critical.integer("critical", 1)
        critical.string("name", sound ?? "default")
        critical.integer("volume", 1)
        critical.end()
    }

    private func writeBadge(_ page: Page, into object: inout JSONObjectWriter) {
        switch badge {
        case .unread, .none: break
        case .number(let number): object.integer("badge", number)
        case .field(let reference, let fallback):
            switch reference.value(in: page.event) {
            case .integer(let number): object.integer("badge", number)
            case .json(let value): object.value("badge", value)
            default: if let fallback { object.integer("badge", fallback) }
            }
        }
    }

    private func writeActions(_ page: inout Page, to writer: ByteWriter) throws(TemplateError) {
        writer.append(0x5B)
        for (index, action) in actions.enumerated() {
            if index > 0 { writer.append(0x2C) }
            var object = JSONObjectWriter(writer)
            object.string("id", action.id)
            _ = try page.write("title", text: action.title, into: &object)
            try page.write("link", address: action.link, into: &object)
            object.end()
        }
        writer.append(0x5D)
    }

    private func writeData(
        _ page: inout Page, _ explicit: JSONValue?, to writer: ByteWriter
    ) throws(TemplateError) {
        writer.append(0x7B)
        var isFirst = true
        func comma() {
            if !isFirst { writer.append(0x2C) }
            isFirst = false
        }
        if case .object(let members)? = data {
            for member in members
            where explicit?[member.name] == nil && !member.value.isLeftOut(page.event) {
                comma()
                writer.append(jsonString: member.name)
                writer.append(0x3A)
                try member.value.write(page.event, page.own, with: page.renderer, to: writer)
            }
        }
        explicit?.forEachMember { name, value in
            comma()
            writer.append(jsonString: name)
            writer.append(0x3A)
            value.writeCompact(to: writer)
        }
        writer.append(0x7D)
    }

    private static func add(_ explicit: JSONValue?, to object: inout JSONObjectWriter) {
        guard let explicit, explicit.count > 0 else { return }
        let members = ByteWriter()
        explicit.writeCompact(to: members)
        withExtendedLifetime(members) {
            object.members(
                UnsafeRawBufferPointer(rebasing: members.bytes.dropFirst().dropLast()))
        }
    }
}

extension ExplicitContent {
    /// Refuses addresses that an event brings itself and that lead where its app does not list,
    /// as far as the app lists anything.
    internal func checkAddresses(
        in abilities: Configuration.App.Abilities
    ) throws(TemplateError) {
        guard let notification, notification.isObject else { return }
        if !abilities.imageHosts.isEmpty, let image = notification["image"]?.stringBytes {
            try abilities.checkImage(image, "notification.image")
        }
        guard abilities.statesLinkSchemes else { return }
        if let link = notification["link"]?.stringBytes {
            try abilities.checkLink(link, "notification.link")
        }
        guard let actions = notification["actions"], actions.isArray else { return }
        try actions.forEachElement { (action) throws(TemplateError) in
            guard action.isObject, let link = action["link"]?.stringBytes else { return }
            try abilities.checkLink(link, "notification.actions")
        }
    }
}

extension Configuration.App.Abilities {
    fileprivate func checkLink(
        _ text: UnsafeRawBufferPointer, _ setting: String
    ) throws(TemplateError) {
        guard let scheme = Address.scheme(of: text) else {
            throw TemplateError(setting, "is no address with a scheme")
        }
        guard linkSchemes.contains(scheme) else {
            throw TemplateError(setting, "has a scheme that is not one of the app's link_schemes")
        }
    }

    fileprivate func checkImage(
        _ text: UnsafeRawBufferPointer, _ setting: String
    ) throws(TemplateError) {
        guard let host = Address.secureHost(of: text) else {
            throw TemplateError(setting, "is no https address")
        }
        guard Address.isListed(host, in: imageHosts) else {
            throw TemplateError(setting, "has a host that is not one of the app's image_hosts")
        }
    }
}
