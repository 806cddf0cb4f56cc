// The sheet that one reader's words are written on: the event, the reader's languages, the
// renderer.

internal import Base
internal import JSON

/// One reader's words in the making.
internal struct Page {
    let event: RouteEvent
    let renderer: TextRenderer
    let languages: Languages
    let reader: LocaleTag?
    /// The translations that fit, best first.
    let choices: [Int]
    /// For templates outside the translated texts.
    let own: TextRenderer.Context

    /// Writes the texts that the event does not bring itself; false when none came out.
    @discardableResult
    func write(
        _ texts: Route.Texts, _ explicit: ExplicitContent, into object: inout JSONObjectWriter
    ) throws(TemplateError) -> Bool {
        var shows = false
        if !explicit.overrides("title"), let title = texts.title {
            shows = try write("title", text: title, into: &object) || shows
        }
        if !explicit.overrides("subtitle"), let subtitle = texts.subtitle {
            _ = try write("subtitle", text: subtitle, into: &object)
        }
        if !explicit.overrides("body"), let body = texts.body {
            shows = try write("body", text: body, into: &object) || shows
        }
        return shows
    }

    /// Writes a text as a member; an empty one is left out, which is told.
    func write(
        _ name: StaticString, text: LocalizedText, into object: inout JSONObjectWriter
    ) throws(TemplateError) -> Bool {
        let (number, form) = text.form(for: choices)
        var context = own
        context.locale = languages.formatLocale(of: number, for: reader)
        renderer.text.removeAll()
        try renderer.write(form, of: event, context, to: renderer.text)
        guard renderer.text.count > 0 else { return false }
        object.string(name, renderer.text.bytes)
        return true
    }

    /// Writes an address as a member; an empty one is left out.
    func write(
        _ name: StaticString, address: Template?, into object: inout JSONObjectWriter
    ) throws(TemplateError) {
        var context = own
        context.isAddress = true
        try write(name, template: address, context, into: &object)
    }

    /// Writes a template as a member; an empty text is left out.
    func write(
        _ name: StaticString, template: Template?, into object: inout JSONObjectWriter
    ) throws(TemplateError) {
        try write(name, template: template, own, into: &object)
    }

    private func write(
        _ name: StaticString, template: Template?, _ context: TextRenderer.Context,
        into object: inout JSONObjectWriter
    ) throws(TemplateError) {
        guard let template else { return }
        renderer.text.removeAll()
        try renderer.write(template, of: event, context, to: renderer.text)
        if renderer.text.count > 0 { object.string(name, renderer.text.bytes) }
    }

    /// Writes a route's override with the event's own merged into it. A null of either still
    /// removes a member of the gateway's payload, so nulls are kept.
    func write(
        override template: JSONTemplate?, patchedWith patch: JSONValue?, to writer: ByteWriter
    ) throws(TemplateError) {
        guard let template else {
            patch?.writeCompact(to: writer)
            return
        }
        guard let patch else {
            try template.write(event, own, with: renderer, to: writer)
            return
        }
        let base = ByteWriter()
        try template.write(event, own, with: renderer, to: base)
        // What was written here always parses.
        withExtendedLifetime(base) {
            JSONMerge.write(
                try? JSONParser().parse(base.bytes), patchedWith: patch, keepsNulls: true,
                to: writer)
        }
    }
}
