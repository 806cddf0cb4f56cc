// A text that people read: the route's own, and the ones of its translations, each with the forms
// that its language's plurals need.

internal import Base

/// One language's form of a text.
internal enum TextForm: Sendable, Hashable {
    case plain(Template)
    case plural(PluralForms)

    /// All templates of the form.
    var templates: [Template] {
        switch self {
        case .plain(let template): [template]
        case .plural(let forms): forms.templates
        }
    }
}

/// The forms of a text by a number.
internal struct PluralForms: Sendable, Hashable {
    /// The field that has the number.
    let number: FieldPath
    /// For certain numbers, before any category.
    let exact: [Int64: Template]
    let categories: [PluralCategory: Template]
    let other: Template

    var templates: [Template] { Array(exact.values) + Array(categories.values) + [other] }
}

/// A text with its translations.
internal struct LocalizedText: Sendable {
    /// By the number of the translation; 0 is the route's own and always there.
    let forms: [TextForm?]
    /// All placeholders in all languages, each once.
    let references: [Template.Reference]
    /// The numbers that plurals go by.
    let numbers: [FieldPath]

    init(forms: [TextForm?]) {
        self.forms = forms
        references = Array(
            Set(forms.compactMap { $0 }.flatMap(\.templates).flatMap(\.references)))
        numbers = Array(
            Set(
                forms.compactMap { form in
                    if case .plural(let forms)? = form { forms.number } else { nil }
                }))
    }

    /// Refuses an event of which not every reader could get a text.
    func check(_ event: borrowing RouteEvent) throws(TemplateError) {
        for reference in references { try reference.check(event) }
        for number in numbers { _ = try TextRenderer.number(number, in: event) }
    }

    /// The form for a reader, and the number of the translation it belongs to; `choices` are the
    /// translations that fit the reader, best first.
    func form(for choices: [Int]) -> (number: Int, form: TextForm) {
        for number in choices {
            if let form = forms[number] { return (number, form) }
        }
        guard let own = forms[0] else { preconditionFailure("a text without its own form") }
        return (0, own)
    }

    /// All templates in all languages.
    var templates: [Template] { forms.compactMap { $0 }.flatMap(\.templates) }

    /// Whether readers of one language may read different texts.
    var isLocal: Bool {
        templates.contains(where: \.isLocal)
    }
}

/// The languages that a route's texts are in.
internal struct Languages: Sendable {
    /// By the number of the translation; 0 is the language of the route's own texts.
    let tags: [LocaleTag]
    private let numbers: [String: Int]

    init(own: LocaleTag, translations: [LocaleTag]) {
        tags = [own] + translations
        var numbers: [String: Int] = [:]
        for (index, tag) in translations.enumerated() { numbers[tag.name] = index + 1 }
        self.numbers = numbers
    }

    /// The translations that fit a reader, best first: `de-AT`, then `de`.
    func choices(for reader: LocaleTag?) -> [Int] {
        guard let reader, !numbers.isEmpty else { return [] }
        var choices = reader.lineage.compactMap { numbers[$0] }
        // A more exact name of the route's own language beats nothing but its own texts, and the
        // route's own texts beat translations into the same language that fit less well.
        if let own = reader.lineage.firstIndex(of: tags[0].name) {
            let better = Set(reader.lineage[..<own])
            choices.removeAll { !better.contains(tags[$0].name) }
        }
        return choices
    }

    /// The locale by which numbers and dates in a translation are written: the reader's own when
    /// it is of the same language, so that no French date stands in an English sentence.
    func formatLocale(of number: Int, for reader: LocaleTag?) -> String {
        guard let reader, reader.language == tags[number].language else { return tags[number].name }
        return reader.name
    }
}
