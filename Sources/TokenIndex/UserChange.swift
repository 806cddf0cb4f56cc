// A record of `push.users`: what is known of a person beside the devices. The newest record of a
// user counts, a null forgets it.

internal import Base
public import JSON
internal import Redis

/// A record of `push.users`.
public struct UserChange: Sendable {
    /// The app.
    public var app: String
    /// The user.
    public var userID: String
    /// What the record says; nil when it takes everything back.
    public var record: UserRecord?

    /// What a user's record says from now on; nil when there is none any more.
    public init(app: String, userID: String, record: UserRecord?) {
        self.app = app
        self.userID = userID
        self.record = record
    }

    /// The record's key: `<app>/<user_id>`.
    public var key: String { "\(app)/\(userID)" }
}

// MARK: - JSON

extension UserChange {
    /// Reads a record; a null value is a user who is forgotten.
    public static func decode(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, parser: JSONParser
    ) throws(RecordError) -> UserChange {
        guard let key, !key.isEmpty else { throw .noKey }
        guard let value else { return try gone(key) }
        let reader = try RecordReader(RecordFraming.stripped(value), parser)
        try reader.refuseOtherVersion()
        let app = try reader.required("app", upTo: 128)
        guard let userID = try reader.userID("user_id") else { throw .missing(field: "user_id") }
        guard !app.utf8.contains(0x2F) else {
            throw .invalid(field: "app", expected: "free of slashes, which part the key")
        }
        let record = UserRecord(
            optOuts: try reader.list("opt_outs"), quietHours: try quietHours(reader),
            timeZone: try reader.text("time_zone", upTo: 64),
            locale: try reader.text("locale", upTo: 64), unread: try reader.integer("unread"))
        let change = UserChange(app: app, userID: userID, record: record)
        guard change.key.utf8.elementsEqual(key) else { throw .userKeyMismatch }
        return change
    }

    /// A null value.
    private static func gone(_ key: UnsafeRawBufferPointer) throws(RecordError) -> UserChange {
        let text = String(decoding: key, as: UTF8.self)
        guard let slash = text.firstIndex(of: "/"), slash > text.startIndex else {
            throw .badUserKey
        }
        let userID = String(text[text.index(after: slash)...])
        guard (1...256).contains(userID.utf8.count), text.utf8.elementsEqual(key) else {
            throw .badUserKey
        }
        return UserChange(app: String(text[..<slash]), userID: userID, record: nil)
    }

    private static func quietHours(_ reader: RecordReader) throws(RecordError) -> QuietHours? {
        guard let span = reader.member("quiet_hours") else { return nil }
        guard let from = span["from"]?.string.flatMap({ QuietHours.minute($0) }),
            let to = span["to"]?.string.flatMap({ QuietHours.minute($0) })
        else {
            throw .invalid(
                field: "quiet_hours", expected: #"an object such as {"from":"22:00","to":"07:30"}"#)
        }
        return QuietHours(from: from, to: to)
    }
}

// MARK: - Redis

/// A user's record among the user's addresses: `<partition>:<offset>:<timestamp>:<bytes of the
/// app's name>:<record>` in the field `@`, which no address is called by. Where it was taken back,
/// the position stays for a while in a key of its own.
internal enum StoredUser {
    static let field = "@"

    /// KEYS: user, position of a record that was taken back. ARGV: partition, offset, timestamp,
    /// how long a position is remembered, what the field is to hold or nothing.
    static let change = RedisScript(
        """
        local p, f, q = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
        local held = redis.call('HGET', KEYS[1], '@') or redis.call('GET', KEYS[2])
        if held then
          local hp, hf, hq = held:match('^(%d+):(%d+):(-?%d+)')
          hp, hf, hq = tonumber(hp), tonumber(hf), tonumber(hq)
          if hp == p and f < hf or hp ~= p and q < hq then return 0 end
        end
        if ARGV[5] ~= '' then
          redis.call('HSET', KEYS[1], '@', ARGV[5])
          redis.call('DEL', KEYS[2])
        else
          redis.call('HDEL', KEYS[1], '@')
          redis.call('SET', KEYS[2], ARGV[1] .. ':' .. ARGV[2] .. ':' .. ARGV[3], 'PX', ARGV[4])
        end
        return 1
        """)

    static func encode(_ change: UserChange, at position: TopicPosition) -> [UInt8] {
        guard let record = change.record else { return [] }
        let head =
            "\(position.partition):\(position.offset):\(position.timestamp):"
            + "\(change.app.utf8.count):"
        return Array(head.utf8) + record.stored
    }

    /// The record in a field; nil when it is damaged.
    static func decode(_ value: UnsafeRawBufferPointer) -> UserRecord? {
        rest(of: value).flatMap { UserRecord(stored: $0.record) }
    }

    /// How long the name of the app is that the record is of.
    static func appLength(_ value: UnsafeRawBufferPointer) -> Int? { rest(of: value)?.appLength }

    private static func rest(
        of value: UnsafeRawBufferPointer
    ) -> (appLength: Int, record: UnsafeRawBufferPointer)? {
        var colons = 0
        var length = 0
        for (index, byte) in value.enumerated() {
            if byte == 0x3A {
                colons += 1
                if colons == 4 {
                    return (length, UnsafeRawBufferPointer(rebasing: value[(index + 1)...]))
                }
            } else if colons == 3 {
                guard (0x30...0x39).contains(byte), length < 1_000 else { return nil }
                length = length * 10 + Int(byte - 0x30)
            }
        }
        return nil
    }
}
