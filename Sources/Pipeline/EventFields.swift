// The typed fields of an event's JSON object: each getter knows its rule and refuses with the
// field's name. `null` means absent everywhere.

internal import Base
internal import JSON

/// Reads fields of one object.
internal struct EventFields {
    private let members: JSONMembers
    private let isCloudEvent: Bool

    init(_ root: JSONValue, isCloudEvent: Bool = false) {
        members = JSONMembers(of: root, named: EventField.names)
        self.isCloudEvent = isCloudEvent
    }

    /// Whether a field is there and not null.
    func has(_ field: EventField) -> Bool {
        members.has(field.rawValue) && !(isCloudEvent && Self.othersInCloudEvents.contains(field))
    }

    /// What native events know, and what in a CloudEvent is some other extension's attribute.
    private static let othersInCloudEvents: Set<EventField> = [
        .userIDs, .to, .labels, .mode, .notBefore, .cursor, .only, .except,
    ]

    private func value(_ field: EventField) -> JSONValue? {
        has(field) ? members[field.rawValue] : nil
    }

    private func stringBytes(_ field: EventField) -> UnsafeRawBufferPointer? {
        members.stringBytes(field.rawValue)
    }

    /// `v`: a record of another version may mean anything.
    func refuseOtherVersion() throws(Refusal) {
        guard has(.v), members.int64(EventField.v.rawValue) != 1 else { return }
        throw Refusal(.invalidField, "v must be 1")
    }

    /// A text of 1 to `limit` bytes without control characters.
    func text(_ name: EventField, upTo limit: Int) throws(Refusal) -> String? {
        guard has(name) else { return nil }
        guard let bytes = stringBytes(name) else {
            throw Refusal(.invalidField, "\(name) must be a string")
        }
        return try Self.checked(bytes, name, limit)
    }

    /// `app`: a slash would part the keys that hold it.
    func app() throws(Refusal) -> String? {
        guard let name = try text(.app, upTo: 128) else { return nil }
        guard !name.utf8.contains(0x2F) else {
            throw Refusal(.invalidField, "app holds a slash")
        }
        return name
    }

    /// Refuses a number where only a text will do.
    func refuseNumber(_ name: EventField) throws(Refusal) {
        guard members.numberText(name.rawValue) != nil else { return }
        throw Refusal(.invalidField, "\(name) must be a string")
    }

    /// A text or a whole number, which is kept digit by digit.
    func identifier(_ name: EventField, upTo limit: Int) throws(Refusal) -> String? {
        guard has(name) else { return nil }
        if let digits = members.numberText(name.rawValue) {
            guard digits.allSatisfy({ $0 == 0x2D || $0 >= 0x30 && $0 <= 0x39 }) else {
                throw Refusal(.invalidField, "\(name) must be a string or a whole number")
            }
            return try Self.checked(digits, name, limit)
        }
        guard let bytes = stringBytes(name) else {
            throw Refusal(.invalidField, "\(name) must be a string or a whole number")
        }
        return try Self.checked(bytes, name, limit)
    }

    private static func checked(
        _ bytes: UnsafeRawBufferPointer, _ name: EventField, _ limit: Int
    ) throws(Refusal) -> String {
        guard bytes.count >= 1 && bytes.count <= limit else {
            throw Refusal(
                .invalidField, "\(name) has \(bytes.count) bytes; 1 to \(limit) are allowed")
        }
        guard !Self.hasControls(bytes) else {
            throw Refusal(.invalidField, "\(name) holds a control character")
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func hasControls(_ bytes: UnsafeRawBufferPointer) -> Bool {
        // Eight bytes at a time: the high bit of a lane is set when its byte is below 0x20 or is
        // 0x7F; a borrow can only mark lanes above a true hit.
        let (ones, highs): (UInt64, UInt64) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080)
        var index = 0
        while index + 8 <= bytes.count {
            let word = bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self).littleEndian
            let deletes = word ^ (ones &* 0x7F)
            let low = (word &- ones &* 0x20) & ~word
            if (low | ((deletes &- ones) & ~deletes)) & highs != 0 { return true }
            index += 8
        }
        return bytes[index...].contains { $0 < 0x20 || $0 == 0x7F }
    }

    /// A whole number in a range.
    func integer(
        _ name: EventField, in range: ClosedRange<Int64>
    ) throws(Refusal) -> Int64? {
        guard has(name) else { return nil }
        guard let number = members.int64(name.rawValue), range.contains(number) else {
            throw Refusal(
                .invalidField,
                "\(name) must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    /// An RFC 3339 timestamp, or milliseconds since the epoch.
    func time(_ name: EventField) throws(Refusal) -> UnixMillis? {
        guard has(name) else { return nil }
        if let bytes = stringBytes(name), let time = RFC3339.parse(bytes) { return time }
        // Seconds by mistake would lie in January 1970: refused rather than expired at once.
        if let millis = members.int64(name.rawValue), millis >= 100_000_000_000,
            millis < 100_000_000_000_000
        {
            return UnixMillis(millis)
        }
        throw Refusal(
            .invalidField,
            "\(name) must be an RFC 3339 timestamp or milliseconds since the epoch")
    }

    /// An object.
    func object(_ name: EventField) throws(Refusal) -> JSONValue? {
        guard let value = value(name) else { return nil }
        guard value.isObject else {
            throw Refusal(.invalidField, "\(name) must be an object")
        }
        return value
    }

    /// An object that becomes a part of payloads.
    func content(_ name: EventField) throws(Refusal) -> JSONValue? {
        guard let value = try object(name) else { return nil }
        try Self.refuseLarge(value, "\(name)")
        return value
    }

    /// Content is written and merged for each device, and no gateway takes a sixth of what is let in
    /// here.
    static func refuseLarge(_ content: JSONValue, _ name: String) throws(Refusal) {
        guard content.source.count > contentBytesMax else { return }
        throw Refusal(
            .tooLarge,
            "\(name) has \(content.source.count) bytes; the limit is \(contentBytesMax), "
                + "and no gateway takes more than 5120")
    }

    /// Bytes of one such object.
    private static let contentBytesMax = 32 << 10

    /// One of a closed list of names.
    func choice<Choice: RawRepresentable & CaseIterable>(
        _ name: EventField
    ) throws(Refusal) -> Choice? where Choice.RawValue == String {
        guard has(name) else { return nil }
        let text = stringBytes(name).map { String(decoding: $0, as: UTF8.self) }
        guard let choice = text.flatMap({ Choice(rawValue: $0) }) else {
            let names = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw Refusal(.invalidField, "\(name) must be one of \(names)")
        }
        return choice
    }

    /// `mode`: whether the event is a rehearsal.
    func mode() throws(Refusal) -> Bool {
        guard let mode = try text(.mode, upTo: 16) else { return false }
        switch mode {
        case "live": return false
        case "validate": return true
        default: throw Refusal(.invalidField, "mode must be live or validate")
        }
    }

    /// Up to 8 short labels.
    func labels() throws(Refusal) -> JSONValue? {
        guard let labels = try object(.labels) else { return nil }
        guard labels.count <= 8 else {
            throw Refusal(.invalidField, "labels has \(labels.count) members; 8 are allowed")
        }
        try labels.forEachMember { (name, value) throws(Refusal) in
            guard name.count <= 64, let text = value.stringBytes, text.count <= 128 else {
                throw Refusal(
                    .invalidField, "labels must have names up to 64 bytes and strings up to 128")
            }
        }
        return labels
    }

    /// A log and a position in it.
    func cursor() throws(Refusal) -> EventCursor? {
        guard let cursor = try object(.cursor) else { return nil }
        let fields = EventFields(cursor)
        guard let log = try fields.text(.log, upTo: 128),
            let sequence = try fields.integer(.seq, in: 0...Int64.max)
        else { throw Refusal(.invalidField, "cursor needs log and seq") }
        return EventCursor(log: log, sequence: sequence)
    }

    /// Lists of install ids, platforms and gateways; nil when none is given.
    func filter(_ name: EventField) throws(Refusal) -> AddressFilter? {
        guard let lists = try object(name) else { return nil }
        let fields = EventFields(lists)
        let filter = AddressFilter(
            installIDs: try fields.names(.installIDs), platforms: try fields.names(.platforms),
            gateways: try fields.names(.gateways))
        return filter.lists.contains { $0 != nil } ? filter : nil
    }

    private func names(_ name: EventField) throws(Refusal) -> Set<String>? {
        guard let list = value(name) else { return nil }
        guard list.isArray, list.count <= 1000 else {
            throw Refusal(.invalidField, "\(name) must be a list of at most 1000 strings")
        }
        var names: Set<String> = []
        try list.forEachElement { (element) throws(Refusal) in
            guard let text = element.string else {
                throw Refusal(.invalidField, "\(name) must be a list of strings")
            }
            names.insert(text)
        }
        return names
    }
}
