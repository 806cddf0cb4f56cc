// A span of the day in which nobody wants to be disturbed, as minutes of a clock on a wall.

/// From one minute of the day up to, not including, another; it may pass midnight.
public struct QuietHours: Equatable, Hashable, Sendable {
    /// Minutes of a day.
    public static let dayMinutes = 24 * 60

    /// The first quiet minute of the day, 0 to 1,439.
    public let from: Int
    /// The first minute that is not quiet any more, 0 to 1,439.
    public let to: Int

    /// Quiet from one minute of the day to another. Nil when there is no such minute, or both are
    /// the same: a day without end or without any quiet cannot be told apart.
    public init?(from: Int, to: Int) {
        let day = 0..<Self.dayMinutes
        guard day.contains(from), day.contains(to), from != to else { return nil }
        self.from = from
        self.to = to
    }

    /// Reads two times of day such as `22:00` and `07:30`; nil when one is not one.
    public init?(from: String, to: String) {
        guard let from = Self.minute(from), let to = Self.minute(to) else { return nil }
        self.init(from: from, to: to)
    }

    /// Whether a minute of the day is quiet.
    public func contains(_ minute: Int) -> Bool {
        from < to ? (from..<to).contains(minute) : minute >= from || minute < to
    }

    /// How many minutes of the day are quiet.
    public var minutes: Int { from < to ? to - from : to - from + Self.dayMinutes }

    /// `22:00-07:30`.
    public var text: String { "\(Self.text(from))-\(Self.text(to))" }

    /// The minute of the day that `HH:MM` names.
    public static func minute(_ text: String) -> Int? {
        let bytes = Array(text.utf8)
        guard bytes.count == 5, bytes[2] == 0x3A else { return nil }
        let digits = [bytes[0], bytes[1], bytes[3], bytes[4]].map { Int($0) - 0x30 }
        guard digits.allSatisfy((0...9).contains) else { return nil }
        let hour = digits[0] * 10 + digits[1]
        let minute = digits[2] * 10 + digits[3]
        guard hour < 24, minute < 60 else { return nil }
        return hour * 60 + minute
    }

    /// `HH:MM` of a minute of the day.
    public static func text(_ minute: Int) -> String {
        func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return "\(two(minute / 60)):\(two(minute % 60))"
    }
}
