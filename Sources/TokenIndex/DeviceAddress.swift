// One address of one install: everything that sending to it needs, in one block of bytes that is
// read field by field on demand. Lists of them are made for every event, most fields are never
// looked at, and so nothing is turned into a String before somebody asks.

public import Base
internal import Glibc

/// A device address as `push.devices` describes it.
public final class DeviceAddress: Sendable {
    /// The address id, then the encoded fields; `DeviceAddress+Coding.swift` has the layout.
    internal let storage: [UInt8]
    /// Where in `storage` the encoded fields start.
    internal let base: Int
    /// Where each text field ends in `storage`; equal to the end of the one before when empty.
    internal let ends: [15 of UInt32]
    /// A bit per text field that is present.
    internal let present: UInt32

    /// The gateway that takes its notifications.
    public let gateway: Gateway
    /// The gateway's environment.
    public let environment: GatewayEnvironment
    /// What the user allowed on the device.
    public let permission: DevicePermission
    /// Whether a tripped fuse holds a verdict on its token back: it must not be sent to.
    public let isQuarantined: Bool

    internal init(
        storage: [UInt8], base: Int, ends: [15 of UInt32], present: UInt32,
        gateway: Gateway, environment: GatewayEnvironment, permission: DevicePermission,
        isQuarantined: Bool
    ) {
        self.storage = storage
        self.base = base
        self.ends = ends
        self.present = present
        self.gateway = gateway
        self.environment = environment
        self.permission = permission
        self.isQuarantined = isQuarantined
    }
}

extension DeviceAddress {
    /// The address id, the key of its records.
    public var addressID: String { String(decoding: storage[..<base], as: UTF8.self) }

    /// The address id in parts.
    public var id: AddressID {
        guard let id = AddressID(addressID) else { preconditionFailure("built from a valid id") }
        return id
    }

    /// The configured app.
    public var app: String { idPart(0) ?? "" }
    /// The client's stable id of this app on this device.
    public var installID: String { idPart(1) ?? "" }
    /// What the token is for; `alert` unless the record says otherwise.
    public var kind: String { idPart(2) ?? "alert" }
    /// Tells several addresses of one kind apart.
    public var instance: String? { idPart(3) }
    /// Whether there may be others of its kind on the install.
    public var isInstance: Bool { idRange(3) != nil }

    /// The user that the install belongs to; nil when nobody is logged in.
    public var userID: String? { text(.userID) }
    /// For example `ios` or `android`.
    public var platform: String { text(.platform) ?? "" }
    /// The token, or the endpoint of a web push subscription. Secret.
    public var token: String { text(.token) ?? "" }
    /// The APNs topic, normally the bundle id.
    public var apnsTopic: String? { text(.apnsTopic) }
    /// The VAPID key that the subscription was made with.
    public var vapidKeyID: String? { text(.vapidKeyID) }
    /// The subscription's public key, base64url.
    public var p256dh: String? { text(.p256dh) }
    /// The subscription's secret, base64url.
    public var auth: String? { text(.auth) }
    /// The device's locale.
    public var locale: String? { text(.locale) }
    /// The device's time zone.
    public var timeZone: String? { text(.timeZone) }
    /// The app's version on the device.
    public var appVersion: String? { text(.appVersion) }
    /// Channels muted on the device.
    public var mutedChannels: [String] { list(.mutedChannels) }
    /// Subscriptions of the device.
    public var subscriptions: [String] { list(.subscriptions) }
    /// What the device opted out of.
    public var optOuts: [String] { list(.optOuts) }
    /// What the client can do.
    public var capabilities: [String] { list(.capabilities) }
    /// The client's public keys as the JSON of the record.
    public var publicKeys: String? { text(.publicKeys) }

    /// The client's counter of uploads.
    public var version: Int64 { number(at: DeviceLayout.version) }
    /// The last upload of this token.
    public var registeredAt: UnixMillis { UnixMillis(number(at: DeviceLayout.registeredAt)) }
    /// The last sign of life.
    public var lastSeenAt: UnixMillis? { time(at: DeviceLayout.lastSeenAt) }
    /// When a web push subscription ends.
    public var expiresAt: UnixMillis? { time(at: DeviceLayout.expiresAt) }

    /// SHA-256 of the token, in lower-case hex.
    public var tokenHash: String { Hex.encode(storage[hashRange]) }
    /// The first eight hex digits of the hash: how the token is named in logs and errors.
    public var tokenName: String { Hex.encode(storage[hashRange].prefix(4)) }

    /// Lends the token's bytes.
    public func withToken<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        withField(.token, body)
    }

    /// Lends the platform's bytes.
    public func withPlatform<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        withField(.platform, body)
    }

    /// Lends the bytes of the app's version on the device; nil when it is not known.
    public func withAppVersion<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value? {
        guard present & DeviceField.appVersion.bit != 0 else { return nil }
        return withField(.appVersion, body)
    }

    /// Lends the install id's bytes.
    public func withInstallID<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        storage.withUnsafeBytes { bytes in
            let range = idRange(1) ?? 0..<0
            return body(UnsafeRawBufferPointer(rebasing: bytes[range]))
        }
    }

    /// Lends the address id's bytes.
    public func withAddressID<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        storage.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[..<base])) }
    }

    /// Lends the 32 bytes of the token's hash.
    public func withTokenHash<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        storage.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[hashRange])) }
    }

    internal func withField<Value>(
        _ field: DeviceField, _ body: (UnsafeRawBufferPointer) -> Value
    ) -> Value {
        storage.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[range(of: field)])) }
    }
}

extension DeviceAddress {
    /// Whether this is an address of the user.
    internal func belongs(to userID: String) -> Bool {
        var userID = userID
        return userID.withUTF8 { user in
            withField(.userID) { own in
                let length = user.count
                guard own.count == length, let own = own.baseAddress,
                    let user = user.baseAddress
                else { return false }
                return memcmp(own, user, length) == 0
            }
        }
    }

    internal func text(_ field: DeviceField) -> String? {
        guard present & field.bit != 0 else { return nil }
        return withField(field) { String(decoding: $0, as: UTF8.self) }
    }

    private func list(_ field: DeviceField) -> [String] {
        guard present & field.bit != 0 else { return [] }
        return storage[range(of: field)].split(separator: 0, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
    }

    internal func range(of field: DeviceField) -> Range<Int> {
        let index = field.rawValue
        let start = index == 0 ? base + DeviceLayout.headerBytes : Int(ends[index - 1])
        return start..<Int(ends[index])
    }

    private var hashRange: Range<Int> {
        base + DeviceLayout.tokenHash..<base + DeviceLayout.tokenHash + 32
    }

    private func number(at offset: Int) -> Int64 {
        storage.withUnsafeBytes {
            Int64(littleEndian: $0.loadUnaligned(fromByteOffset: base + offset, as: Int64.self))
        }
    }

    private func time(at offset: Int) -> UnixMillis? {
        let value = number(at: offset)
        return value == DeviceLayout.absentTime ? nil : UnixMillis(value)
    }

    /// The bytes of the nth part of the id; the fourth takes what is left.
    private func idRange(_ part: Int) -> Range<Int>? {
        storage.withUnsafeBytes { bytes -> Range<Int>? in
            var start = 0
            for _ in 0..<part {
                guard let slash = slash(in: bytes, from: start) else { return nil }
                start = slash + 1
            }
            return start..<(part == 3 ? base : slash(in: bytes, from: start) ?? base)
        }
    }

    private func slash(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        guard let first = bytes.baseAddress, start < base,
            let found = memchr(first + start, 0x2F, base - start)
        else { return nil }
        return UnsafeRawPointer(found) - first
    }

    private func idPart(_ part: Int) -> String? {
        idRange(part).map { String(decoding: storage[$0], as: UTF8.self) }
    }
}

/// Notifications as the user allowed them on the device.
public enum DevicePermission: String, Sendable, CaseIterable {
    case granted, provisional, denied, unknown
}
