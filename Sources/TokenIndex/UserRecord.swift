// What a person said once for all devices: a record of `push.users`. It is read with every look-up
// of its user and rarely asked for more than one thing, so it stays the bytes that the store has.

public import Base

/// A user as `push.users` describes one.
public struct UserRecord: Sendable, Equatable {
    /// Fields between zero bytes: unread, quiet hours as two minutes of the day, time zone, locale,
    /// then a field for each opt-out. Part of the stored layout. Texts hold no zero bytes.
    internal let stored: [UInt8]

    /// Reads what is stored; nil when it is nothing that was written here.
    internal init?(stored: UnsafeRawBufferPointer) {
        guard stored.count(where: { $0 == 0 }) >= Field.fixed - 1 else { return nil }
        self.stored = Array(stored)
    }

    /// A record; texts are free of zero bytes.
    public init(
        optOuts: [String] = [], quietHours: QuietHours? = nil, timeZone: String? = nil,
        locale: String? = nil, unread: Int64? = nil
    ) {
        let hours = quietHours.map { "\($0.from)-\($0.to)" } ?? ""
        let fields =
            [unread.map { String($0) } ?? "", hours, timeZone ?? "", locale ?? ""] + optOuts
        stored = Array(fields.joined(separator: "\0").utf8)
    }

    /// What the person has declined everywhere.
    public var optOuts: [String] {
        fields.dropFirst(Field.fixed).map { String(decoding: $0, as: UTF8.self) }
    }

    /// When the person is not to be disturbed.
    public var quietHours: QuietHours? {
        let minutes = (text(.quietHours) ?? "").split(separator: "-").compactMap { Int($0) }
        return minutes.count == 2 ? QuietHours(from: minutes[0], to: minutes[1]) : nil
    }

    /// IANA's name of the person's time zone.
    public var timeZone: String? { text(.timeZone) }
    /// The person's locale.
    public var locale: String? { text(.locale) }
    /// The person's unread total.
    public var unread: Int64? { text(.unread).flatMap { Int64($0) } }

    /// Whether the person has declined a preference.
    public func declines(_ preference: String) -> Bool {
        var preference = preference
        return preference.withUTF8 { preference in
            fields.dropFirst(Field.fixed).contains { $0.elementsEqual(preference) }
        }
    }

    private enum Field: Int {
        case unread, quietHours, timeZone, locale
        /// How many fields stand in front of the opt-outs.
        static let fixed = 4
    }

    private var fields: [ArraySlice<UInt8>] {
        stored.split(separator: 0, omittingEmptySubsequences: false)
    }

    private func text(_ field: Field) -> String? {
        let bytes = fields[field.rawValue]
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
}
