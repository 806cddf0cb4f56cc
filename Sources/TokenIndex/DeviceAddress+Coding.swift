// The stored form of an address. It is written once per registration and read for every event,
// so reading is a table of lengths and no search:
//
//     0   1  layout version
//     1   3  gateway, environment, permission
//     4  32  SHA-256 of the token
//    36  32  version, registered_at, last_seen_at, expires_at: 8 bytes each, little-endian
//    68   2  length of each text field, little-endian, 0xFFFF when absent
//            the text fields in the same order
//
// The address id is not part of it: it is the name of the hash field that holds the bytes.

public import Base
internal import Crypto

/// The text fields, in the order they are stored. Part of the stored layout: append only.
internal enum DeviceField: Int, CaseIterable {
    case userID, platform, token, apnsTopic, vapidKeyID, p256dh, auth, locale, timeZone, appVersion
    case mutedChannels, subscriptions, optOuts, capabilities, publicKeys

    static let count = 15

    var bit: UInt32 { 1 << UInt32(rawValue) }
}

internal enum DeviceLayout {
    static let layoutVersion: UInt8 = 1
    static let gateway = 1
    static let environment = 2
    static let permission = 3
    static let tokenHash = 4
    static let version = 36
    static let registeredAt = 44
    static let lastSeenAt = 52
    static let expiresAt = 60
    static let lengths = 68
    static let headerBytes = lengths + 2 * DeviceField.count
    static let absentLength: UInt16 = 0xFFFF
    static let absentTime = Int64.min
}

/// The fields of an address, to build one from.
public struct DeviceFields: Sendable {
    /// The address id.
    public var id: AddressID
    /// The user, or nil when nobody is logged in.
    public var userID: String?
    /// For example `ios`.
    public var platform: String
    /// The gateway.
    public var gateway: Gateway
    /// The gateway's environment.
    public var environment: GatewayEnvironment
    /// The token or endpoint in its canonical spelling.
    public var token: String
    /// The APNs topic.
    public var apnsTopic: String?
    /// The VAPID key's id.
    public var vapidKeyID: String?
    /// The subscription's public key.
    public var p256dh: String?
    /// The subscription's secret.
    public var auth: String?
    /// The client's counter of uploads.
    public var version: Int64 = 0
    /// The last upload of this token.
    public var registeredAt: UnixMillis
    /// The last sign of life.
    public var lastSeenAt: UnixMillis?
    /// When the address ends by itself.
    public var expiresAt: UnixMillis?
    /// What the user allowed.
    public var permission = DevicePermission.unknown
    /// The device's locale.
    public var locale: String?
    /// The device's time zone.
    public var timeZone: String?
    /// The app's version.
    public var appVersion: String?
    /// Muted channels.
    public var mutedChannels: [String] = []
    /// Subscriptions.
    public var subscriptions: [String] = []
    /// Opt-outs.
    public var optOuts: [String] = []
    /// The client's capabilities.
    public var capabilities: [String] = []
    /// The client's public keys as JSON.
    public var publicKeys: String?

    /// The fields that every address has.
    public init(
        id: AddressID, userID: String?, platform: String, gateway: Gateway,
        environment: GatewayEnvironment, token: String, registeredAt: UnixMillis
    ) {
        self.id = id
        self.userID = userID
        self.platform = platform
        self.gateway = gateway
        self.environment = environment
        self.token = token
        self.registeredAt = registeredAt
    }

    internal func text(_ field: DeviceField) -> String? {
        func joined(_ list: [String]) -> String? {
            list.isEmpty ? nil : list.joined(separator: "\0")
        }
        return switch field {
        case .userID: userID
        case .platform: platform
        case .token: token
        case .apnsTopic: apnsTopic
        case .vapidKeyID: vapidKeyID
        case .p256dh: p256dh
        case .auth: auth
        case .locale: locale
        case .timeZone: timeZone
        case .appVersion: appVersion
        case .mutedChannels: joined(mutedChannels)
        case .subscriptions: joined(subscriptions)
        case .optOuts: joined(optOuts)
        case .capabilities: joined(capabilities)
        case .publicKeys: publicKeys
        }
    }
}

extension DeviceAddress {
    /// An address with the given fields; texts longer than a stored length can say are cut off
    /// by the readers of records, and a precondition here.
    public convenience init(_ fields: DeviceFields) {
        let writer = ByteWriter(capacity: 512)
        writer.append(fields.id.text)
        let base = writer.count
        Self.write(fields, to: writer)
        guard let address = DeviceAddress(storage: writer.array, base: base) else {
            preconditionFailure("an address that was just written can be read")
        }
        self.init(copying: address)
    }

    /// Reads the stored form; nil when it is not one.
    internal convenience init?(
        id: UnsafeRawBufferPointer, stored: UnsafeRawBufferPointer, isQuarantined: Bool = false
    ) {
        let storage = [UInt8](unsafeUninitializedCapacity: id.count + stored.count) {
            target, used in
            let raw = UnsafeMutableRawBufferPointer(target)
            raw.copyMemory(from: id)
            UnsafeMutableRawBufferPointer(rebasing: raw[id.count...]).copyMemory(from: stored)
            used = id.count + stored.count
        }
        self.init(storage: storage, base: id.count, isQuarantined: isQuarantined)
    }

    /// The same address, not to be sent to.
    internal var quarantined: DeviceAddress {
        DeviceAddress(
            storage: storage, base: base, ends: ends, present: present, gateway: gateway,
            environment: environment, permission: permission, isQuarantined: true)
    }

    /// The same address under another user.
    internal func with(userID: String?) -> DeviceAddress {
        // By bytes, as everywhere: texts that look alike may be two users.
        if let userID, let own = self.userID, userID.utf8.elementsEqual(own.utf8) { return self }
        if userID == nil, self.userID == nil { return self }
        let writer = ByteWriter(capacity: storage.count + 256)
        storage.withUnsafeBytes { bytes in
            writer.append(
                UnsafeRawBufferPointer(rebasing: bytes[..<(base + DeviceLayout.lengths)]))
            Self.append(length: userID?.utf8.count, to: writer)
            let rest = base + DeviceLayout.lengths + 2..<base + DeviceLayout.headerBytes
            writer.append(UnsafeRawBufferPointer(rebasing: bytes[rest]))
            if let userID { writer.append(userID) }
            writer.append(UnsafeRawBufferPointer(rebasing: bytes[Int(ends[0])...]))
        }
        guard let address = DeviceAddress(storage: writer.array, base: base) else {
            preconditionFailure("an address that was just written can be read")
        }
        return address
    }

    /// Lends the stored form, which does not hold the id.
    internal func withStored<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        storage.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[base...])) }
    }

    private convenience init(copying other: DeviceAddress) {
        self.init(
            storage: other.storage, base: other.base, ends: other.ends, present: other.present,
            gateway: other.gateway, environment: other.environment, permission: other.permission,
            isQuarantined: other.isQuarantined)
    }

    private convenience init?(storage: [UInt8], base: Int, isQuarantined: Bool = false) {
        let header = storage.withUnsafeBytes { DeviceHeader($0, base: base) }
        guard let header else { return nil }
        self.init(
            storage: storage, base: base, ends: header.ends, present: header.present,
            gateway: header.gateway, environment: header.environment,
            permission: header.permission, isQuarantined: isQuarantined)
    }

    private static func write(_ fields: DeviceFields, to writer: ByteWriter) {
        writer.append(DeviceLayout.layoutVersion)
        writer.append(fields.gateway.code)
        writer.append(fields.environment.code)
        writer.append(fields.permission.code)
        SHA256Digest(of: fields.token).withUnsafeBytes { writer.append($0) }
        append(fields.version, to: writer)
        append(fields.registeredAt.value, to: writer)
        append(fields.lastSeenAt?.value ?? DeviceLayout.absentTime, to: writer)
        append(fields.expiresAt?.value ?? DeviceLayout.absentTime, to: writer)
        for field in DeviceField.allCases {
            append(length: fields.text(field)?.utf8.count, to: writer)
        }
        for field in DeviceField.allCases {
            if let text = fields.text(field) { writer.append(text) }
        }
    }

    private static func append(length: Int?, to writer: ByteWriter) {
        precondition((length ?? 0) < Int(DeviceLayout.absentLength), "a field that is too long")
        let value = length.map { UInt16($0) } ?? DeviceLayout.absentLength
        withUnsafeBytes(of: value.littleEndian) { writer.append($0) }
    }

    private static func append(_ number: Int64, to writer: ByteWriter) {
        withUnsafeBytes(of: number.littleEndian) { writer.append($0) }
    }
}

/// What reading the fixed part yields.
private struct DeviceHeader {
    var gateway: Gateway
    var environment: GatewayEnvironment
    var permission: DevicePermission
    var ends = [15 of UInt32](repeating: 0)
    var present: UInt32 = 0

    init?(_ bytes: UnsafeRawBufferPointer, base: Int) {
        guard bytes.count >= base + DeviceLayout.headerBytes,
            bytes[base] == DeviceLayout.layoutVersion,
            let gateway = Gateway(code: bytes[base + DeviceLayout.gateway]),
            let environment = GatewayEnvironment(code: bytes[base + DeviceLayout.environment])
        else { return nil }
        self.gateway = gateway
        self.environment = environment
        permission = DevicePermission(code: bytes[base + DeviceLayout.permission])
        var end = UInt32(base + DeviceLayout.headerBytes)
        for index in 0..<DeviceField.count {
            let place = base + DeviceLayout.lengths + 2 * index
            let length = UInt16(
                littleEndian: bytes.loadUnaligned(fromByteOffset: place, as: UInt16.self))
            if length != DeviceLayout.absentLength {
                present |= 1 << UInt32(index)
                end += UInt32(length)
            }
            ends[index] = end
        }
        guard Int(end) == bytes.count else { return nil }
    }
}

// The stored codes. Part of the stored layout: never reused.

extension Gateway {
    fileprivate var code: UInt8 {
        switch self {
        case .apns: 1
        case .fcm: 2
        case .webpush: 3
        case .expo: 4
        }
    }

    fileprivate init?(code: UInt8) {
        switch code {
        case 1: self = .apns
        case 2: self = .fcm
        case 3: self = .webpush
        case 4: self = .expo
        default: return nil
        }
    }
}

extension GatewayEnvironment {
    fileprivate var code: UInt8 {
        switch self {
        case .none: 0
        case .production: 1
        case .sandbox: 2
        }
    }

    fileprivate init?(code: UInt8) {
        switch code {
        case 0: self = .none
        case 1: self = .production
        case 2: self = .sandbox
        default: return nil
        }
    }
}

extension DevicePermission {
    fileprivate var code: UInt8 {
        switch self {
        case .unknown: 0
        case .granted: 1
        case .provisional: 2
        case .denied: 3
        }
    }

    fileprivate init(code: UInt8) {
        switch code {
        case 1: self = .granted
        case 2: self = .provisional
        case 3: self = .denied
        default: self = .unknown
        }
    }
}
