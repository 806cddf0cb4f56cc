// JSON with templates in its strings: a route's `data` and its overrides for a gateway. Names and
// structure are the author's; an event can only fill strings and whole values.

internal import Base
internal import JSON

/// A compiled JSON value.
internal indirect enum JSONTemplate: Sendable {
    /// A member's name, quoted, with its value.
    struct Member: Sendable {
        let name: String
        let value: JSONTemplate
    }

    /// The most bytes of a whole value: as much as an event may bring as content of its own, for
    /// it is written and merged for each device.
    private static let valueBytesMax = 32 << 10

    /// JSON as it is.
    case literal([UInt8])
    /// A text with placeholders.
    case text(Template)
    /// A field of the event as it is: a number stays a number, a list a list. Left out when its
    /// default stands in and is empty.
    case value(Template.Reference)
    case list([JSONTemplate])
    case object([Member])

    /// All placeholders with the texts they stand in.
    var templates: [Template] {
        switch self {
        case .literal, .value: []
        case .text(let template): [template]
        case .list(let elements): elements.flatMap(\.templates)
        case .object(let members): members.flatMap(\.value.templates)
        }
    }

    /// All placeholders.
    var references: [Template.Reference] {
        switch self {
        case .literal: []
        case .value(let reference): [reference]
        case .text(let template): template.references
        case .list(let elements): elements.flatMap(\.references)
        case .object(let members): members.flatMap(\.value.references)
        }
    }

    /// Refuses an event that cannot fill it.
    func check(_ event: borrowing RouteEvent) throws(TemplateError) {
        switch self {
        case .literal: break
        case .value(let reference):
            switch reference.value(in: event) {
            case .missing:
                guard reference.fallback != nil else {
                    throw TemplateError(reference.path.text, "is missing")
                }
            case .json(let value):
                guard value.source.count <= Self.valueBytesMax else {
                    throw TemplateError(
                        reference.path.text,
                        "has \(value.source.count) bytes; the limit is \(Self.valueBytesMax), "
                            + "and no gateway takes more than 5120")
                }
            case .text, .integer, .time: break
            }
        case .text(let template):
            for reference in template.references { try reference.check(event) }
        case .list(let elements): for element in elements { try element.check(event) }
        case .object(let members): for member in members { try member.value.check(event) }
        }
    }

    /// Appends the value as JSON.
    func write(
        _ event: borrowing RouteEvent, _ context: TextRenderer.Context, with renderer: TextRenderer,
        to writer: ByteWriter
    ) throws(TemplateError) {
        switch self {
        case .literal(let bytes): writer.append(bytes)
        case .text(let template):
            renderer.text.removeAll()
            try renderer.write(template, of: event, context, to: renderer.text)
            writer.append(jsonString: renderer.text.bytes)
        case .value(let reference): try reference.writeValue(event, to: writer)
        case .list(let elements):
            writer.append(0x5B)
            var isFirst = true
            for element in elements where !element.isLeftOut(event) {
                if !isFirst { writer.append(0x2C) }
                isFirst = false
                try element.write(event, context, with: renderer, to: writer)
            }
            writer.append(0x5D)
        case .object(let members):
            writer.append(0x7B)
            var isFirst = true
            for member in members where !member.value.isLeftOut(event) {
                if !isFirst { writer.append(0x2C) }
                isFirst = false
                writer.append(jsonString: member.name)
                writer.append(0x3A)
                try member.value.write(event, context, with: renderer, to: writer)
            }
            writer.append(0x7D)
        }
    }

    /// Whether an event makes nothing of it.
    func isLeftOut(_ event: borrowing RouteEvent) -> Bool {
        guard case .value(let reference) = self, reference.fallback?.isEmpty == true else {
            return false
        }
        if case .missing = reference.value(in: event) { return true }
        return false
    }
}

extension Template.Reference {
    fileprivate func writeValue(
        _ event: borrowing RouteEvent, to writer: ByteWriter
    ) throws(TemplateError) {
        switch value(in: event) {
        case .missing:
            guard let fallback else { throw TemplateError(path.text, "is missing") }
            fallback.withUnsafeBytes { writer.append(jsonString: $0) }
        case .text(let text): writer.append(jsonString: text)
        case .integer(let number): writer.append(decimal: number)
        case .time(let time): writer.append(jsonString: RFC3339.text(time))
        case .json(let value): value.writeCompact(to: writer)
        }
    }
}
