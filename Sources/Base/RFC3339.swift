// RFC 3339 timestamps, the one textual time format of the records.

/// Reading and writing of RFC 3339 timestamps.
public enum RFC3339 {
    /// Parses a timestamp such as `2025-01-01T00:00:00.5Z` or `…+01:00`; fractions are cut to the
    /// millisecond. nil for anything else, impossible dates included.
    public static func parse(_ text: UnsafeRawBufferPointer) -> UnixMillis? {
        var reader = Reader(text: text)
        guard let year = reader.number(digits: 4), reader.skip(0x2D),
            let month = reader.number(digits: 2), reader.skip(0x2D),
            let day = reader.number(digits: 2), reader.skip(0x54, 0x74, 0x20),
            let hour = reader.number(digits: 2), reader.skip(0x3A),
            let minute = reader.number(digits: 2), reader.skip(0x3A),
            let second = reader.number(digits: 2)
        else { return nil }
        guard (1...12).contains(month), day >= 1, day <= daysIn(month: month, of: year),
            hour < 24, minute < 60, second <= 60,
            let fraction = reader.fractionMillis(), let offset = reader.offsetMinutes(),
            reader.isAtEnd
        else { return nil }
        let days = daysSinceEpoch(year: year, month: month, day: day)
        let seconds = Int64(days) * 86_400 + Int64((hour * 60 + minute - offset) * 60 + second)
        return UnixMillis(seconds * 1000 + Int64(fraction))
    }

    /// Parses the UTF-8 of a string.
    public static func parse(_ text: String) -> UnixMillis? {
        var text = text
        return text.withUTF8 { parse(UnsafeRawBufferPointer($0)) }
    }

    /// Writes a time in UTC with milliseconds, for example `2025-01-01T00:00:00.000Z`.
    public static func text(_ time: UnixMillis) -> String {
        // Some hundred million years each way: what a calendar can be asked for.
        let time = UnixMillis(min(max(time.value, -(1 << 62)), 1 << 62))
        let days = time.seconds >= 0 ? time.seconds / 86_400 : (time.seconds - 86_399) / 86_400
        let (year, month, day) = civil(daysSinceEpoch: Int(days))
        let second = Int(time.seconds - days * 86_400)
        let millis = Int(time.value - time.seconds * 1000)
        func padded(_ value: Int, _ width: Int) -> String {
            let digits = String(value)
            return String(repeating: "0", count: max(0, width - digits.count)) + digits
        }
        return
            "\(padded(year, 4))-\(padded(month, 2))-\(padded(day, 2))T\(padded(second / 3600, 2))"
            + ":\(padded(second / 60 % 60, 2)):\(padded(second % 60, 2)).\(padded(millis, 3))Z"
    }

    private static func daysIn(month: Int, of year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Days from 1970-01-01 in the proleptic Gregorian calendar; years start in March here, so
    /// that the leap day is the last of its year.
    private static func daysSinceEpoch(year: Int, month: Int, day: Int) -> Int {
        let shifted = month <= 2 ? year - 1 : year
        let era = (shifted >= 0 ? shifted : shifted - 399) / 400
        let yearOfEra = shifted - era * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
            - 719_468
    }

    private static func civil(daysSinceEpoch days: Int) -> (year: Int, month: Int, day: Int) {
        let shifted = days + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra =
            (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        let year = yearOfEra + era * 400 + (month >= 10 ? 1 : 0)
        return (year, month < 10 ? month + 3 : month - 9, dayOfYear - (153 * month + 2) / 5 + 1)
    }

    private struct Reader {
        let text: UnsafeRawBufferPointer
        var position = 0

        var isAtEnd: Bool { position == text.count }

        mutating func number(digits: Int) -> Int? {
            guard position + digits <= text.count else { return nil }
            var value = 0
            for _ in 0..<digits {
                let digit = text[position]
                guard digit >= 0x30 && digit <= 0x39 else { return nil }
                value = value * 10 + Int(digit - 0x30)
                position += 1
            }
            return value
        }

        mutating func skip(_ choices: UInt8...) -> Bool {
            guard position < text.count, choices.contains(text[position]) else { return false }
            position += 1
            return true
        }

        mutating func fractionMillis() -> Int? {
            guard position < text.count, text[position] == 0x2E else { return 0 }
            position += 1
            var (millis, weight, digits) = (0, 100, 0)
            while let digit = number(digits: 1) {
                millis += digit * weight
                weight /= 10
                digits += 1
            }
            return digits > 0 ? millis : nil
        }

        mutating func offsetMinutes() -> Int? {
            guard position < text.count else { return nil }
            let sign = text[position]
            position += 1
            if sign == 0x5A || sign == 0x7A { return 0 }
            guard sign == 0x2B || sign == 0x2D, let hours = number(digits: 2), skip(0x3A),
                let minutes = number(digits: 2), hours < 24, minutes < 60
            else { return nil }
            return (sign == 0x2D ? -1 : 1) * (hours * 60 + minutes)
        }
    }
}
