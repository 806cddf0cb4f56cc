// A record of `push.invalidations`: what a gateway, a sweeper or an operator found out about one
// token. Part of the index' truth: the guard `registered_at <= as_of` makes it irrelevant which
// of the two topics is read first.

public import Base
public import JSON

/// A verdict on the token of an address.
public struct InvalidationRecord: Sendable {
    /// Who pronounced a verdict.
    public enum Origin: String, Sendable, CaseIterable {
        case gateway, receipt, sweeper
        case `operator`
    }

    /// The address; its text is the record's key.
    public var addressID: AddressID
    /// What to do with the token.
    public var verdict: TokenVerdict
    /// The gateway's reason or the operator's.
    public var reason: String
    /// Who says so.
    public var origin: Origin
    /// Registrations up to this moment are meant: the gateway's own time, else that of sending.
    public var asOf: UnixMillis
    /// The user when it was pronounced.
    public var userID: String?
    /// The token's gateway.
    public var gateway: Gateway?
    /// The gateway's environment.
    public var environment: GatewayEnvironment?
    /// The device's platform.
    public var platform: String?
    /// The token. Secret. nil means whatever token the address has.
    public var token: String?
    /// SHA-256 of the token in hex.
    public var tokenHash: String?
    /// The timestamp in the gateway's answer.
    public var gatewayTime: UnixMillis?
    /// The registration that was sent to.
    public var registeredAt: UnixMillis?
    /// The event whose push met the verdict.
    public var eventID: String?
    /// The result record of that push.
    public var resultID: String?
    /// The tripped fuse that made a quarantine of it.
    public var fuseID: String?
    /// The credential that was used; only of a verdict that a wrong one could cause. No secret.
    public var credential: String?
    /// What a quarantine holds back.
    public var held: TokenVerdict?

    /// A verdict on whatever token the address has.
    public init(
        addressID: AddressID, verdict: TokenVerdict, reason: String, origin: Origin,
        asOf: UnixMillis
    ) {
        self.addressID = addressID
        self.verdict = verdict
        self.reason = reason
        self.origin = origin
        self.asOf = asOf
    }

    /// A verdict on the token of an address as it was looked up.
    public init(
        _ address: DeviceAddress, verdict: TokenVerdict, reason: String, origin: Origin,
        asOf: UnixMillis
    ) {
        self.init(
            addressID: address.id, verdict: verdict, reason: reason, origin: origin, asOf: asOf)
        userID = address.userID
        gateway = address.gateway
        environment = address.environment
        platform = address.platform
        token = address.token
        tokenHash = address.tokenHash
        registeredAt = address.registeredAt
    }
}

// MARK: - JSON

extension InvalidationRecord {
    /// Appends the record's value; its key is `addressID.text`.
    public func encode(to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.integer("v", 1)
        object.string("app", addressID.app)
        object.string("install_id", addressID.installID)
        object.string("kind", addressID.kind)
        object.string("instance", orNull: addressID.instance)
        object.string("user_id", orNull: userID)
        object.string("gateway", orNull: gateway?.rawValue)
        object.string("environment", orNull: environment?.rawValue)
        object.string("platform", orNull: platform)
        object.string("token", orNull: token)
        object.string("token_hash", orNull: tokenHash)
        object.string("verdict", verdict.rawValue)
        object.string("reason", reason)
        object.string("origin", origin.rawValue)
        object.integer("gateway_time", orNull: gatewayTime?.value)
        object.integer("registered_at", orNull: registeredAt?.value)
        object.integer("as_of", asOf.value)
        object.string("event_id", orNull: eventID)
        object.string("result_id", orNull: resultID)
        object.string("fuse_id", orNull: fuseID)
        object.string("credential", orNull: credential)
        object.string("held_verdict", orNull: held?.rawValue)
        object.end()
    }

    /// Reads a record; nil for a null value, which compaction leaves behind and which says
    /// nothing.
    public static func decode(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, parser: JSONParser
    ) throws(RecordError) -> InvalidationRecord? {
        guard let key, !key.isEmpty else { throw .noKey }
        guard let value else { return nil }
        let reader = try RecordReader(value, parser)
        try reader.refuseOtherVersion()
        guard let asOf = try reader.time("as_of") else { throw .missing(field: "as_of") }
        var record = InvalidationRecord(
            addressID: try reader.addressID(key: key),
            verdict: try reader.known("verdict", TokenVerdict.self),
            reason: try reader.text("reason") ?? "",
            origin: try reader.text("origin").flatMap(Origin.init(rawValue:)) ?? .gateway,
            asOf: asOf)
        record.userID = try reader.userID("user_id")
        record.gateway = try reader.text("gateway").flatMap(Gateway.init(rawValue:))
        record.environment = try reader.text("environment").flatMap(
            GatewayEnvironment.init(rawValue:))
        record.platform = try reader.text("platform")
        record.token = try reader.text("token")
        record.tokenHash = try reader.text("token_hash", upTo: 64)
        record.gatewayTime = try reader.time("gateway_time")
        record.registeredAt = try reader.time("registered_at")
        record.eventID = try reader.text("event_id")
        record.resultID = try reader.text("result_id")
        record.fuseID = try reader.text("fuse_id", upTo: 256)
        record.credential = try reader.text("credential", upTo: 256)
        record.held = try reader.text("held_verdict").flatMap(TokenVerdict.init(rawValue:))
        return record
    }
}
