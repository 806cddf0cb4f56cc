// Numbers, dates and plural rules of locales: ICU's, whose data is Unicode's. Opening a format
// takes a hundred microseconds and more, so they are kept.

internal import Base
internal import CICUShims

/// Writes decimal numbers as a locale does.
private final class NumberFormat {
    private let format: OpaquePointer

    init?(locale: String, fractionDigits: Int?) {
        guard let format = cicu_number_open(locale, Int32(fractionDigits ?? -1)) else { return nil }
        self.format = format
    }

    deinit { cicu_number_close(format) }

    /// False when the text is no number, or has far too many digits.
    func write(_ decimal: UnsafeRawBufferPointer, to writer: ByteWriter) -> Bool {
        var length: Int32 = -1
        writer.appendUninitialized(LocalFormats.textBytes) { buffer in
            length = cicu_number_format(
                format, decimal.baseAddress?.assumingMemoryBound(to: CChar.self),
                Int32(decimal.count), buffer.baseAddress?.assumingMemoryBound(to: CChar.self),
                Int32(buffer.count))
            return max(Int(length), 0)
        }
        return length >= 0
    }
}

/// Writes points in time as a locale does.
private final class DateFormat {
    private let format: OpaquePointer

    init?(locale: String, zone: String, _ form: DateForm) {
        let format: OpaquePointer?
        switch form {
        case .lengths(let date, let time):
            format = cicu_date_open(locale, zone, Self.length(date), Self.length(time), nil)
        case .skeleton(let letters):
            format = cicu_date_open(
                locale, zone, Int32(cicu_none), Int32(cicu_none), letters)
        }
        guard let format else { return nil }
        self.format = format
    }

    deinit { cicu_date_close(format) }

    private static func length(_ length: DateForm.Length?) -> Int32 {
        switch length {
        case .full: Int32(cicu_full)
        case .long: Int32(cicu_long)
        case .medium: Int32(cicu_medium)
        case .short: Int32(cicu_short)
        case nil: Int32(cicu_none)
        }
    }

    func write(_ time: UnixMillis, to writer: ByteWriter) -> Bool {
        var length: Int32 = -1
        writer.appendUninitialized(LocalFormats.textBytes) { buffer in
            length = cicu_date_format(
                format, Double(time.value),
                buffer.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(buffer.count))
            return max(Int(length), 0)
        }
        return length >= 0
    }
}

/// Says which form of a text goes with a number.
private final class PluralRules {
    private let rules: OpaquePointer

    init?(locale: String) {
        guard let rules = cicu_plural_open(locale) else { return nil }
        self.rules = rules
    }

    deinit { cicu_plural_close(rules) }

    func category(of number: Double) -> PluralCategory {
        var name: [CChar] = Array(repeating: 0, count: 16)
        let length = cicu_plural_select(rules, number, &name, Int32(name.count))
        guard length > 0 else { return .other }
        let text = String(
            decoding: name[..<Int(length)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return PluralCategory(rawValue: text) ?? .other
    }
}

/// The plural categories of Unicode.
internal enum PluralCategory: String, Sendable, CaseIterable {
    case zero, one, two, few, many, other
}

/// The formats in use. Confined to one thread.
internal final class LocalFormats {
    /// The longest formatted number or date, in bytes.
    static let textBytes = 768
    /// How many formats of a kind are kept; beyond that all are dropped. Locales and zones come
    /// from devices, so their number has no other bound.
    private static let kept = 256

    private struct NumberKey: Hashable {
        let locale: String
        let fractionDigits: Int?
    }

    private struct DateKey: Hashable {
        let locale: String
        let zone: String
        let form: DateForm
    }

    private var numbers: [NumberKey: NumberFormat] = [:]
    private var dates: [DateKey: DateFormat] = [:]
    private var plurals: [String: PluralRules] = [:]
    private var zones: [String: Bool] = [:]

    /// Appends a number of a locale; false when the text is no number.
    func write(
        number: UnsafeRawBufferPointer, fractionDigits: Int?, locale: String, to writer: ByteWriter
    ) -> Bool {
        let key = NumberKey(locale: locale, fractionDigits: fractionDigits)
        let format = Self.kept(key, in: &numbers) {
            NumberFormat(locale: locale, fractionDigits: fractionDigits)
        }
        return format?.write(number, to: writer) ?? false
    }

    /// Appends a point in time of a locale and a zone; false when ICU refuses.
    func write(
        time: UnixMillis, form: DateForm, locale: String, zone: String, to writer: ByteWriter
    ) -> Bool {
        let key = DateKey(locale: locale, zone: zone, form: form)
        let format = Self.kept(key, in: &dates) {
            DateFormat(locale: locale, zone: zone, form)
        }
        return format?.write(time, to: writer) ?? false
    }

    /// The plural category of a number.
    func category(of number: Double, locale: String) -> PluralCategory {
        Self.kept(locale, in: &plurals) { PluralRules(locale: locale) }?.category(of: number)
            ?? .other
    }

    /// Whether a time zone is known.
    func isZone(_ name: String) -> Bool {
        Self.kept(name, in: &zones) { cicu_is_time_zone(name) } ?? false
    }

    /// Appends UTF-8 in upper or lower case.
    static func write(
        _ text: UnsafeRawBufferPointer, isUpper: Bool, locale: String, to writer: ByteWriter
    ) {
        // Few characters become more than three times as long.
        var room = text.count * 3 + 16
        var needed = room
        repeat {
            room = needed
            writer.appendUninitialized(room) { buffer in
                needed = Int(
                    cicu_map_case(
                        locale, isUpper, text.baseAddress?.assumingMemoryBound(to: CChar.self),
                        Int32(text.count),
                        buffer.baseAddress?.assumingMemoryBound(to: CChar.self),
                        Int32(buffer.count)))
                return needed <= room ? max(needed, 0) : 0
            }
        } while needed > room
    }

    private static func kept<Key: Hashable, Value>(
        _ key: Key, in values: inout [Key: Value], _ make: () -> Value?
    ) -> Value? {
        if let value = values[key] { return value }
        guard let value = make() else { return nil }
        if values.count >= kept { values.removeAll() }
        values[key] = value
        return value
    }
}
