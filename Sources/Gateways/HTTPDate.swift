internal import Base

/// Dates of HTTP header fields: the preferred form and the two obsolete ones (RFC 9110,
/// section 5.6.7).
internal enum HTTPDate {
    private static let months: [Substring: Int64] = [
        "Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6, "Jul": 7, "Aug": 8, "Sep": 9,
        "Oct": 10, "Nov": 11, "Dec": 12,
    ]

    /// The point in time, or nil for anything that is no such date.
    static func parse(_ text: String) -> UnixMillis? {
        guard text.utf8.count <= 40 else { return nil }
        let words = text.split { $0 == " " || $0 == "," || $0 == "-" }
        switch words.count {
        case 6 where words[5] == "GMT":
            // "Sun, 06 Nov 1994 08:49:37 GMT" or "Sunday, 06-Nov-94 08:49:37 GMT".
            return point(day: words[1], month: words[2], year: words[3], time: words[4])
        case 5:
            // "Sun Nov  6 08:49:37 1994".
            return point(day: words[2], month: words[1], year: words[4], time: words[3])
        default:
            return nil
        }
    }

    private static func point(
        day: Substring, month: Substring, year: Substring, time: Substring
    ) -> UnixMillis? {
        let clock = time.split(separator: ":", omittingEmptySubsequences: false).map(number)
        guard let day = number(day), (1...31).contains(day), let month = months[month],
            var full = number(year), clock.count == 3, let hour = clock[0], hour < 24,
            let minute = clock[1], minute < 60, let second = clock[2], second <= 60
        else { return nil }
        if year.utf8.count == 2 { full += full < 70 ? 2000 : 1900 }
        guard (1970...9999).contains(full) else { return nil }
        let seconds =
            days(year: full, month: month, day: day) * 86_400 + hour * 3600 + minute * 60 + second
        return UnixMillis(seconds * 1000)
    }

    private static func number(_ text: Substring) -> Int64? {
        guard (1...4).contains(text.utf8.count),
            text.utf8.allSatisfy({ (0x30...0x39).contains($0) })
        else { return nil }
        return Int64(text)
    }

    /// Days from 1970-01-01 in the Gregorian calendar. Years run from March, so that the leap day
    /// is the last of its year.
    private static func days(year: Int64, month: Int64, day: Int64) -> Int64 {
        let shifted = month <= 2 ? year - 1 : year
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        return shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + dayOfYear - 719_468
    }
}
