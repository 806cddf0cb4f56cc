internal import Base
internal import HTTP2

/// The time in an answer (RFC 9110, section 6.6.1), which all gateways but APNs tell. Written anew
/// once a second. Loop-confined.
final class DateField {
    private var field = ServerField("date", "")
    private var second = Int64.min

    private static let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// The field at a time.
    func value(at now: UnixMillis) -> ServerField {
        if now.seconds != second {
            second = now.seconds
            field.value = Self.text(second)
        }
        return field
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`, of a time from 1970 on.
    static func text(_ seconds: Int64) -> String {
        let (day, rest) = seconds.quotientAndRemainder(dividingBy: 86_400)
        // Years run from March, so that the leap day is the last of its year.
        let shifted = day + 719_468
        let (era, dayOfEra) = shifted.quotientAndRemainder(dividingBy: 146_097)
        let year = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * year + year / 4 - year / 100)
        let month = (5 * dayOfYear + 2) / 153
        let number = dayOfYear - (153 * month + 2) / 5 + 1
        let index = Int(month < 10 ? month + 2 : month - 10)
        let full = era * 400 + year + (index < 2 ? 1 : 0)
        func two(_ value: Int64) -> String { value < 10 ? "0\(value)" : "\(value)" }
        return "\(days[Int(day % 7)]), \(two(number)) \(months[index]) \(full) "
            + "\(two(rest / 3600)):\(two(rest % 3600 / 60)):\(two(rest % 60)) GMT"
    }
}
