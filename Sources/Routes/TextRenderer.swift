// Writes templates. Values are read where they lie in the event's JSON and go into the writer as
// bytes; only case and length of text outside ASCII take the road over String.

internal import Base
internal import JSON

/// What rendering needs and keeps. Confined to one thread.
public final class TextRenderer {
    internal let formats = LocalFormats()
    /// For a text before it is quoted.
    internal let text = ByteWriter(capacity: 512)
    private let scratch = ByteWriter(capacity: 256)

    /// Nothing is kept yet.
    public init() {}

    /// For whom, and where, a template is written.
    internal struct Context {
        /// By which numbers, dates and letters go.
        var locale: String
        var timeZone: String
        /// Whether values are percent-encoded, as in an address behind its first character.
        var isAddress = false
    }

    /// Appends a template's text.
    internal func write(
        _ template: Template, of event: borrowing RouteEvent, _ context: Context,
        to writer: ByteWriter
    ) throws(TemplateError) {
        for (index, part) in template.parts.enumerated() {
            switch part {
            case .literal(let bytes): writer.append(bytes)
            case .reference(let reference):
                let start = writer.count
                try write(reference, of: event, context, to: writer)
                if context.isAddress && index > 0 { percentEncode(from: start, in: writer) }
            }
        }
    }

    /// Appends the form of a text that a reader gets.
    internal func write(
        _ form: TextForm, of event: borrowing RouteEvent, _ context: Context, to writer: ByteWriter
    ) throws(TemplateError) {
        switch form {
        case .plain(let template): try write(template, of: event, context, to: writer)
        case .plural(let forms):
            let (number, whole) = try Self.number(forms.number, in: event)
            let template =
                whole.flatMap { forms.exact[$0] }
                ?? forms.categories[formats.category(of: number, locale: context.locale)]
                ?? forms.other
            try write(template, of: event, context, to: writer)
        }
    }

    /// The number that a plural goes by.
    internal static func number(
        _ path: FieldPath, in event: borrowing RouteEvent
    ) throws(TemplateError) -> (Double, whole: Int64?) {
        switch path.value(in: event) {
        case .missing: throw TemplateError(path.text, "is missing")
        case .integer(let value): return (Double(value), value)
        case .json(let value):
            if let whole = value.int64 { return (Double(whole), whole) }
            if let number = value.double { return (number, nil) }
            throw TemplateError(path.text, "is not a number")
        case .text, .time: throw TemplateError(path.text, "is not a number")
        }
    }

    // MARK: Values

    private func write(
        _ reference: Template.Reference, of event: borrowing RouteEvent, _ context: Context,
        to writer: ByteWriter
    ) throws(TemplateError) {
        let value = reference.value(in: event)
        let start = writer.count
        switch reference.formats.first {
        case .number(let digits) where !value.isMissing:
            try write(number: value, digits, reference.path, context, to: writer)
        case .date(let form) where !value.isMissing:
            try write(date: value, form, reference.path, context, to: writer)
        default:
            try write(plain: value, reference, to: writer)
        }
        if writer.count == start, let fallback = reference.fallback {
            writer.append(fallback)
            return
        }
        for format in reference.formats { apply(format, from: start, context, in: writer) }
    }

    private func write(
        plain value: FieldValue, _ reference: Template.Reference, to writer: ByteWriter
    ) throws(TemplateError) {
        switch value {
        case .missing:
            guard reference.fallback != nil else {
                throw TemplateError(reference.path.text, "is missing")
            }
        case .text(let text): writer.append(text)
        case .integer(let number): writer.append(decimal: number)
        case .time(let time): writer.append(RFC3339.text(time))
        case .json(let value):
            switch value.kind {
            case .object: throw TemplateError(reference.path.text, "is an object, not a text")
            case .array: throw TemplateError(reference.path.text, "is a list, not a text")
            default: writer.append(value.stringBytes ?? value.source)
            }
        }
    }

    private func write(
        number value: FieldValue, _ digits: Int?, _ path: FieldPath, _ context: Context,
        to writer: ByteWriter
    ) throws(TemplateError) {
        scratch.removeAll()
        switch value {
        case .integer(let number): scratch.append(decimal: number)
        case .json(let value): scratch.append(value.numberText ?? value.stringBytes ?? value.source)
        default: break
        }
        guard Self.isNumber(value) else { throw TemplateError(path.text, "is not a number") }
        guard
            formats.write(
                number: scratch.bytes, fractionDigits: digits, locale: context.locale, to: writer)
        else { throw TemplateError(path.text, "is not a number of a reasonable length") }
    }

    /// Whether a value is a number, or a text that could be one.
    internal static func isNumber(_ value: FieldValue) -> Bool {
        switch value {
        case .integer: true
        case .json(let value):
            // A large exponent would be written out digit by digit, for minutes.
            value.double.map(\.isFinite) ?? value.stringBytes.map(isDecimal) ?? false
        default: false
        }
    }

    /// Whether a text is a plain decimal number: money often comes as one.
    private static func isDecimal(_ text: UnsafeRawBufferPointer) -> Bool {
        var rest = text[...]
        if rest.first == 0x2D { rest = rest.dropFirst() }
        let isDigit: (UInt8) -> Bool = { (0x30...0x39).contains($0) }
        let whole = rest.prefix(while: isDigit)
        rest = rest[whole.endIndex...]
        if rest.first == 0x2E {
            let fraction = rest.dropFirst().prefix(while: isDigit)
            if fraction.isEmpty { return false }
            rest = rest[fraction.endIndex...]
        }
        return !whole.isEmpty && rest.isEmpty && text.count <= 64
    }

    private func write(
        date value: FieldValue, _ form: DateForm, _ path: FieldPath, _ context: Context,
        to writer: ByteWriter
    ) throws(TemplateError) {
        guard let moment = Self.moment(value) else {
            throw TemplateError(path.text, Self.noTime)
        }
        guard
            formats.write(
                time: moment.time, form: form, locale: context.locale,
                zone: moment.isWholeDay ? "UTC" : context.timeZone, to: writer)
        else { throw TemplateError(path.text, "is not a time that can be written") }
    }

    internal static let noTime = "is not a time: RFC 3339, a date, or milliseconds since the epoch"

    /// The point in time that a value names. A date without a time is the same day everywhere.
    internal static func moment(_ value: FieldValue) -> (time: UnixMillis, isWholeDay: Bool)? {
        switch value {
        case .time(let time): return (time, false)
        case .json(let value):
            if let text = value.stringBytes {
                if let time = RFC3339.parse(text) { return (time, false) }
                guard text.count == 10 else { return nil }
                let noon = String(decoding: text, as: UTF8.self) + "T12:00:00Z"
                return RFC3339.parse(noon).map { ($0, true) }
            }
            // Seconds by mistake would lie in January 1970.
            guard let millis = value.int64, (100_000_000_000..<100_000_000_000_000).contains(millis)
            else { return nil }
            return (UnixMillis(millis), false)
        default: return nil
        }
    }

    // MARK: Formats of text

    private func apply(
        _ format: TemplateFormat, from start: Int, _ context: Context, in writer: ByteWriter
    ) {
        switch format {
        case .number, .date: break
        case .upper, .lower: changeCase(isUpper: format == .upper, from: start, context, in: writer)
        case .truncate(let count): truncate(to: count, from: start, in: writer)
        }
    }

    private func tail(of writer: ByteWriter, from start: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: writer.bytes[start...])
    }

    private func changeCase(
        isUpper: Bool, from start: Int, _ context: Context, in writer: ByteWriter
    ) {
        scratch.removeAll()
        scratch.append(tail(of: writer, from: start))
        writer.truncate(to: start)
        LocalFormats.write(scratch.bytes, isUpper: isUpper, locale: context.locale, to: writer)
    }

    private func truncate(to count: Int, from start: Int, in writer: ByteWriter) {
        let bytes = tail(of: writer, from: start)
        // No character has less than one byte.
        guard bytes.count > count else { return }
        let text = String(decoding: bytes, as: UTF8.self)
        guard let cut = text.index(text.startIndex, offsetBy: count, limitedBy: text.endIndex),
            cut < text.endIndex
        else { return }
        var kept = text[..<text.index(before: cut)]
        while kept.last?.isWhitespace == true { kept.removeLast() }
        writer.truncate(to: start)
        writer.append(String(kept))
        writer.append("…")
    }

    /// Replaces what stands at the end by its percent-encoding (RFC 3986, unreserved characters
    /// stay), so that a value cannot become another part of an address.
    private func percentEncode(from start: Int, in writer: ByteWriter) {
        scratch.removeAll()
        scratch.append(tail(of: writer, from: start))
        writer.truncate(to: start)
        for byte in scratch.bytes {
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: writer.append(byte)
            default:
                writer.append(0x25)
                writer.append(Self.hexDigits[Int(byte >> 4)])
                writer.append(Self.hexDigits[Int(byte & 15)])
            }
        }
    }

    private static let hexDigits = Array("0123456789ABCDEF".utf8)
}

extension FieldValue {
    fileprivate var isMissing: Bool {
        if case .missing = self { true } else { false }
    }
}
