// A record of `push.devices`: the present state of one address, or that it is gone.

internal import Base
public import JSON

/// What a record of `push.devices` says.
public enum RegistrationRecord: Sendable {
    /// The address is as described.
    case registered(DeviceAddress)
    /// A null value: the address does not exist any more.
    case gone(AddressID)

    /// The address it is about.
    public var addressID: AddressID {
        switch self {
        case .registered(let address): address.id
        case .gone(let id): id
        }
    }

    /// Reads a native record. `timestamp` is the record's Kafka timestamp, which stands in for a
    /// `registered_at` that is absent.
    public static func decode(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, timestamp: Int64,
        parser: JSONParser
    ) throws(RecordError) -> RegistrationRecord {
        guard let key, !key.isEmpty else { throw .noKey }
        guard let value else {
            guard let id = AddressID(String(decoding: key, as: UTF8.self)) else { throw .badKey }
            return .gone(id)
        }
        let reader = try RecordReader(value, parser)
        try reader.refuseOtherVersion()
        return try registered(reader, id: try reader.addressID(key: key), timestamp)
    }

    /// The registration that a record's object or a row describes.
    internal static func registered(
        _ reader: RecordReader, id: AddressID, _ timestamp: Int64
    ) throws(RecordError) -> RegistrationRecord {
        var fields = DeviceFields(
            id: id,
            userID: try reader.userID("user_id"),
            platform: try reader.text("platform", upTo: 64) ?? "",
            gateway: try reader.gateway(),
            environment: .none,
            token: "",
            registeredAt: try reader.time("registered_at") ?? UnixMillis(max(timestamp, 0)))
        try readTarget(reader, into: &fields)
        try readDetails(reader, into: &fields)
        return .registered(DeviceAddress(fields))
    }

    /// Where a notification goes.
    private static func readTarget(
        _ reader: RecordReader, into fields: inout DeviceFields
    ) throws(RecordError) {
        // Only APNs has environments: what a record says of others would lead nowhere.
        if let environment = try reader.environment(of: fields.gateway), fields.gateway == .apns {
            fields.environment = environment
        }
        if fields.gateway == .apns && fields.environment == .none {
            throw .invalid(field: "environment", expected: "production or sandbox, as APNs needs")
        }
        fields.apnsTopic = try reader.text("apns_topic", upTo: 256)
        guard fields.gateway == .webpush else {
            fields.token = CanonicalToken.spell(try reader.required("token"), for: fields.gateway)
            return
        }
        fields.vapidKeyID = try reader.text("vapid_key_id", upTo: 256)
        // Tables often keep what the browser handed out, a whole subscription, as the token.
        if reader.row != nil, let subscription = reader.document("token") {
            try readSubscription(RecordReader(subscription), into: &fields)
        } else {
            try readSubscription(reader, into: &fields)
        }
    }

    private static func readSubscription(
        _ reader: RecordReader, into fields: inout DeviceFields
    ) throws(RecordError) {
        let endpoint = try reader.text("endpoint")
        let target = if let endpoint { endpoint } else { try reader.required("token") }
        fields.token = CanonicalToken.spell(target, for: .webpush)
        if reader.row != nil, reader.member("keys") == nil {
            fields.p256dh = try webPushKey(reader.member("p256dh"), "p256dh", bytes: 65)
            fields.auth = try webPushKey(reader.member("auth"), "auth", bytes: 16)
            return
        }
        guard let keys = reader.document("keys") else { throw .missing(field: "keys") }
        fields.p256dh = try webPushKey(keys["p256dh"], "keys.p256dh", bytes: 65)
        fields.auth = try webPushKey(keys["auth"], "keys.auth", bytes: 16)
    }

    /// Both base64 alphabets are met in the field; stored is the one of the specification.
    private static func webPushKey(
        _ value: JSONValue?, _ name: String, bytes count: Int
    ) throws(RecordError) -> String {
        guard let value, !value.isNull else { throw .missing(field: name) }
        guard let text = value.stringBytes, let bytes = Base64URL.decode(text), bytes.count == count
        else { throw .invalid(field: name, expected: "base64 of \(count) bytes") }
        return Base64URL.encode(bytes)
    }

    private static func readDetails(
        _ reader: RecordReader, into fields: inout DeviceFields
    ) throws(RecordError) {
        fields.version = try reader.integer("version") ?? 0
        fields.lastSeenAt = try reader.anyTime("last_seen_at")
        fields.expiresAt = try reader.anyTime("expires_at")
        fields.permission =
            try reader.text("permission").flatMap(DevicePermission.init(rawValue:)) ?? .unknown
        fields.locale = try reader.text("locale", upTo: 64)
        fields.timeZone = try reader.text("time_zone", upTo: 64)
        fields.appVersion = try reader.text("app_version", upTo: 128)
        fields.mutedChannels = try reader.list("muted_channels")
        fields.subscriptions = try reader.list("subscriptions")
        fields.optOuts = try reader.list("opt_outs")
        fields.capabilities = try reader.list("capabilities")
        if reader.member("public_keys") != nil {
            let keys = reader.document("public_keys")
            let writer = ByteWriter()
            keys?.writeCompact(to: writer)
            guard let keys, keys.isArray, writer.count <= IndexLimits.fieldBytes else {
                throw .invalid(
                    field: "public_keys",
                    expected: "a list of at most \(IndexLimits.fieldBytes) bytes")
            }
            fields.publicKeys = writer.text
        }
    }
}

/// One spelling per token, so that a token is recognised however a client wrote it.
internal enum CanonicalToken {
    static func spell(_ token: String, for gateway: Gateway) -> String {
        let trimmed = trim(token)
        guard gateway == .apns else { return trimmed }
        if trimmed.utf8.allSatisfy({ Hex.value($0) != nil }) { return lowercased(trimmed) }
        // 32 bytes in base64 are 43 characters and a padding.
        if (43...44).contains(trimmed.utf8.count),
            let bytes = Base64URL.decode(trimmed.utf8), bytes.count == 32
        {
            return Hex.encode(bytes)
        }
        return trimmed
    }

    private static func trim(_ text: String) -> String {
        let isSpace = { (byte: UInt8) in byte == 0x20 || (0x09...0x0D).contains(byte) }
        var bytes = Array(text.utf8)[...]
        while let first = bytes.first, isSpace(first) { bytes.removeFirst() }
        while let last = bytes.last, isSpace(last) { bytes.removeLast() }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func lowercased(_ text: String) -> String {
        let bytes = text.utf8.map { (0x41...0x5A).contains($0) ? $0 + 0x20 : $0 }
        return String(decoding: bytes, as: UTF8.self)
    }
}
