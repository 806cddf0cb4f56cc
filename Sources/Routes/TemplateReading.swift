// Reads templates, texts with plural forms, and JSON with templates out of a section.

internal import Base
internal import Config

extension ConfigurationSection {
    /// A template; nil when nothing is given, or it has a mistake, which is reported.
    ///
    /// One that is not local is for machines: its text must not depend on who reads it.
    mutating func template(_ key: String, isLocal: Bool = true) -> Template? {
        guard let node = node(key) else { return nil }
        let template = compile(node, path(of: key))
        if let template, !isLocal, template.isLocal {
            reader.report(
                node.line, path(of: key),
                "a format that depends on the reader's language has no place here")
            return nil
        }
        return template
    }

    /// A template of an address.
    mutating func address(_ key: String) -> Template? { template(key, isLocal: false) }

    /// A text in one language: a template, or one for each plural form.
    mutating func form(_ key: String) -> TextForm? {
        guard let node = node(key) else { return nil }
        guard case .mapping = node.content else {
            return compile(node, path(of: key)).map { .plain($0) }
        }
        return ConfigurationSection(node, path: path(of: key), reader: reader)?.pluralForms()
    }

    /// `plural: payload.count`, then a template for each category and for certain numbers.
    private func pluralForms() -> TextForm? {
        var section = self
        if !section.has("plural") {
            section.report("plural", "missing; name the field with the number")
        }
        let number = section.path("plural")
        var categories: [PluralCategory: Template] = [:]
        for category in PluralCategory.allCases where category != .other {
            categories[category] = section.template(category.rawValue)
        }
        var exact: [Int64: Template] = [:]
        for entry in section.members where entry.key.hasPrefix("=") {
            guard let value = Int64(entry.key.dropFirst()) else { continue }
            exact[value] = section.template(entry.key)
        }
        if !section.has("other") { section.report("other", "missing; every language has it") }
        let other = section.template("other")
        section.finish()
        guard let number, let other else { return nil }
        return .plural(
            PluralForms(number: number, exact: exact, categories: categories, other: other))
    }

    /// A path into the event.
    private mutating func path(_ key: String) -> FieldPath? {
        guard let text = text(key) else { return nil }
        do throws(TemplateSyntaxError) {
            return try FieldPath(text)
        } catch {
            report(key, error.message)
            return nil
        }
    }

    /// JSON with templates in its strings.
    mutating func json(_ key: String) -> JSONTemplate? {
        node(key).flatMap { json($0, path(of: key)) }
    }

    private func json(_ node: YAMLNode, _ key: String) -> JSONTemplate? {
        switch node.content {
        case .scalar(let text, let plain):
            if node.isNull { return .literal(Array("null".utf8)) }
            if plain, JSONTemplate.isJSON(text) { return .literal(Array(text.utf8)) }
            guard let template = compile(node, key) else { return nil }
            return template.wholeValue.map { .value($0) } ?? .text(template)
        case .sequence(let elements):
            return .list(elements.compactMap { json($0, key) })
        case .mapping(let entries):
            return .object(
                entries.compactMap { entry in
                    json(entry.value, "\(key).\(entry.key)").map {
                        JSONTemplate.Member(name: entry.key, value: $0)
                    }
                })
        }
    }

    private func compile(_ node: YAMLNode, _ key: String) -> Template? {
        guard let text = reader.text(node, key) else { return nil }
        do throws(TemplateSyntaxError) {
            return try Template(text)
        } catch {
            reader.report(node.line, key, error.message)
            return nil
        }
    }
}

extension JSONTemplate {
    /// Whether a plain scalar of YAML is a number or a truth value in JSON; everything else is
    /// text, leading zeros included.
    fileprivate static func isJSON(_ text: String) -> Bool {
        if text == "true" || text == "false" { return true }
        var rest = Array(text.utf8)[...]
        if rest.first == 0x2D { rest = rest.dropFirst() }
        let whole = rest.prefix { (0x30...0x39).contains($0) }
        guard !whole.isEmpty, whole.count == 1 || whole.first != 0x30 else { return false }
        rest = rest[whole.endIndex...]
        guard rest.first == 0x2E else { return rest.isEmpty }
        let fraction = rest.dropFirst()
        return !fraction.isEmpty && fraction.allSatisfy { (0x30...0x39).contains($0) }
    }
}

/// Reads `when:`.
///
///     when:
///       payload.country: AT                 # this value
///       payload.state: [paid, shipped]      # one of these
///       payload.total: {above: 100}         # also at_least, below, at_most
///       payload.gift: {exists: true}
///       payload.channel: {not: email}
internal enum ConditionReader {
    static func readAll(_ section: ConfigurationSection) -> [Condition] {
        section.members.flatMap { entry -> [Condition] in
            let key = section.path(of: entry.key)
            do throws(TemplateSyntaxError) {
                let path = try FieldPath(entry.key)
                return tests(entry.value, key, section.reader).map {
                    Condition(path: path, test: $0)
                }
            } catch {
                section.reader.report(entry.line, key, error.message)
                return []
            }
        }
    }

    private static func tests(
        _ node: YAMLNode, _ key: String, _ reader: ConfigurationReader
    ) -> [Condition.Test] {
        guard case .mapping = node.content else {
            return [.isOneOf(operands(node, key, reader))]
        }
        guard var section = ConfigurationSection(node, path: key, reader: reader) else { return [] }
        var tests: [Condition.Test] = []
        if section.has("exists") { tests.append(.exists(section.bool("exists", default: true))) }
        if let node = section.node("not") {
            tests.append(.isNoneOf(operands(node, "\(key).not", reader)))
        }
        if let bound = section.bound("above") { tests.append(.above(bound)) }
        if let bound = section.bound("at_least") { tests.append(.atLeast(bound)) }
        if let bound = section.bound("below") { tests.append(.below(bound)) }
        if let bound = section.bound("at_most") { tests.append(.atMost(bound)) }
        _ = section.node("exists")
        section.finish()
        if tests.isEmpty { reader.report(node.line, key, "no test; see the documentation") }
        return tests
    }

    private static func operands(
        _ node: YAMLNode, _ key: String, _ reader: ConfigurationReader
    ) -> [Condition.Operand] {
        let elements: [YAMLNode]
        if case .sequence(let list) = node.content { elements = list } else { elements = [node] }
        return elements.compactMap { element in
            guard case .scalar(_, let plain) = element.content, !element.isNull,
                let text = reader.text(element, key)
            else {
                reader.report(
                    element.line, key,
                    "expected a value, a list of values, or a test such as"
                        + " {exists: false}")
                return nil
            }
            guard plain else { return .text(text) }
            if let truth = Bool(text) { return .bool(truth) }
            return JSONTemplate.isJSON(text) ? Decimal(text).map { .number($0) } : .text(text)
        }
    }
}

extension ConfigurationSection {
    fileprivate mutating func bound(_ key: String) -> Decimal? {
        value(key, default: nil, "a number") { text in Decimal(text).map { .some($0) } }
    }
}
