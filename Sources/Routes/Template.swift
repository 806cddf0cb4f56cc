// Templates: text with placeholders, compiled when the configuration is read.
//
//     Hello {{payload.name:truncate(20)|friend}}, your parcel comes {{payload.at:date(EEEEjmm)}}
//
// A placeholder is a path, then formats behind colons, then a default behind a bar. The default
// stands in when the field is missing, null or an empty text; without one a missing field is an
// error of the event. `\{{` is a literal `{{`. There is nothing else: no loops, no code.

internal import Base
internal import JSON

/// A compiled template.
internal struct Template: Sendable, Hashable {
    /// A placeholder.
    struct Reference: Sendable, Hashable {
        let path: FieldPath
        let formats: [TemplateFormat]
        /// Stands in for a missing value; nil makes that an error.
        let fallback: [UInt8]?
    }

    enum Part: Sendable, Hashable {
        case literal([UInt8])
        case reference(Reference)
    }

    /// Texts of a route are no longer than this, in bytes.
    static let bytesMax = 16 << 10

    /// In the order of the text; literals are not empty.
    let parts: [Part]
    /// The placeholders among the parts.
    let references: [Reference]

    /// Compiles a text.
    init(_ text: String) throws(TemplateSyntaxError) {
        guard text.utf8.count <= Self.bytesMax else {
            throw TemplateSyntaxError("longer than \(Self.bytesMax) bytes")
        }
        var parts: [Part] = []
        var literal: [UInt8] = []
        var rest = text[...]
        func close() {
            if !literal.isEmpty { parts.append(.literal(literal)) }
            literal = []
        }
        while let open = rest.range(of: "{{") {
            literal += rest[..<open].utf8
            rest = rest.from(open, plus: 2)
            if literal.last == 0x5C {
                literal[literal.count - 1] = 0x7B
                literal.append(0x7B)
                continue
            }
            guard let end = rest.range(of: "}}") else {
                throw TemplateSyntaxError("a {{ without its }}")
            }
            close()
            parts.append(.reference(try Reference(rest[..<end])))
            rest = rest.from(end, plus: 2)
        }
        literal += rest.utf8
        close()
        self.parts = parts
        references = parts.compactMap { part in
            guard case .reference(let reference) = part else { return nil }
            return reference
        }
    }

    /// The text when nothing of the event is in it.
    var literal: String? {
        switch parts.count {
        case 0: return ""
        case 1:
            guard case .literal(let bytes) = parts[0] else { return nil }
            return String(decoding: bytes, as: UTF8.self)
        default: return nil
        }
    }

    /// The placeholder when it is all there is and nothing is done to it: then the value itself
    /// can stand in JSON, a number as a number.
    var wholeValue: Reference? {
        guard parts.count == 1, case .reference(let reference) = parts[0],
            reference.formats.isEmpty
        else { return nil }
        return reference
    }

    /// Whether its text differs between readers of one language.
    var isLocal: Bool { references.contains { $0.formats.contains(where: \.isLocal) } }

    /// Whether its text depends on where the reader is.
    var showsTime: Bool {
        references.contains { reference in
            reference.formats.contains { format in
                if case .date = format { true } else { false }
            }
        }
    }

    /// The text in front of the first placeholder.
    var literalStart: String {
        guard case .literal(let bytes)? = parts.first else { return "" }
        return String(decoding: bytes, as: UTF8.self)
    }
}

extension Template.Reference {
    /// The field's value. An empty text is none where a default stands in for it.
    func value(in event: borrowing RouteEvent) -> FieldValue {
        let value = path.value(in: event)
        return fallback != nil && value.isEmptyText ? .missing : value
    }

    /// Refuses an event whose field cannot become a text: asked before anything is sent to
    /// anybody.
    func check(_ event: borrowing RouteEvent) throws(TemplateError) {
        let value = value(in: event)
        if case .missing = value {
            guard fallback != nil else { throw TemplateError(path.text, "is missing") }
            return
        }
        switch formats.first {
        case .number:
            guard TextRenderer.isNumber(value) else {
                throw TemplateError(path.text, "is not a number")
            }
        case .date:
            guard TextRenderer.moment(value) != nil else {
                throw TemplateError(path.text, TextRenderer.noTime)
            }
        default:
            guard case .json(let value) = value else { return }
            if value.isObject { throw TemplateError(path.text, "is an object, not a text") }
            if value.isArray { throw TemplateError(path.text, "is a list, not a text") }
        }
    }

    /// Reads what stands between the braces.
    fileprivate init(_ text: Substring) throws(TemplateSyntaxError) {
        let bar = text.firstIndex(of: "|")
        fallback = bar.map { Array(text[text.index(after: $0)...].trimmed.utf8) }
        let words = Self.split(text[..<(bar ?? text.endIndex)])
        path = try FieldPath(String(words[0]))
        var formats: [TemplateFormat] = []
        for word in words.dropFirst() {
            let format = try TemplateFormat(String(word))
            guard !format.readsValue || formats.isEmpty else {
                throw TemplateSyntaxError("\(word) has to be the first format")
            }
            formats.append(format)
        }
        self.formats = formats
    }

    /// The words between the colons, those in quotes left whole.
    private static func split(_ text: Substring) -> [Substring] {
        var isQuoted = false
        return text.split(omittingEmptySubsequences: false) { character in
            if character == "'" { isQuoted.toggle() }
            return character == ":" && !isQuoted
        }.map { $0.trimmed }
    }
}

extension FieldValue {
    fileprivate var isEmptyText: Bool {
        switch self {
        case .text(let text): text.isEmpty
        case .json(let value): value.stringBytes?.isEmpty ?? false
        case .missing, .integer, .time: false
        }
    }
}

extension Substring {
    fileprivate var trimmed: Substring {
        var text = self
        while text.first?.isWhitespace == true { text.removeFirst() }
        while text.last?.isWhitespace == true { text.removeLast() }
        return text
    }

    /// What follows so many bytes behind an index.
    fileprivate func from(_ index: Index, plus bytes: Int) -> Substring {
        self[utf8.index(index, offsetBy: bytes)...]
    }

    /// Where two characters of ASCII start.
    fileprivate func range(of pair: String) -> Substring.Index? {
        let (first, second) = (pair.utf8.first, pair.utf8.last)
        var index = utf8.startIndex
        while index < utf8.endIndex {
            let next = utf8.index(after: index)
            if next < utf8.endIndex, utf8[index] == first, utf8[next] == second { return index }
            index = next
        }
        return nil
    }
}
