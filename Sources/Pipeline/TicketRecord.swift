// A record of the topic in which Expo's tickets wait for their receipts, schema
// `topics/push.expo-tickets.schema.json`: what the receipt's records have to tell of the message.

internal import Base
internal import JSON
internal import TokenIndex

/// A ticket and the message that it was given for.
internal final class TicketRecord {
    /// By which Expo knows the receipt.
    let id: String
    let app: String
    /// When the message was sent: what its receipt says is true as of then.
    let sentAt: UnixMillis
    let resultID: String
    let messageID: String
    let userID: String?
    private let eventID: String?
    private let addressID: AddressID
    private let platform: String?
    private let token: String
    private let tokenHash: String?
    private let registeredAt: UnixMillis?

    /// Reads a record; refuses what Bugle has not written.
    init(_ record: InputRecord, parser: JSONParser) throws(Refusal) {
        guard let value = record.value, let root = try? parser.parse(value), root.isObject else {
            throw Refusal(.notJSON, "a ticket is a JSON object")
        }
        func text(_ name: StaticString) throws(Refusal) -> String {
            guard let text = root[name]?.string, !text.isEmpty else {
                throw Refusal(.invalidField, "\(name) of a ticket is missing")
            }
            return text
        }
        id = try text("ticket")
        app = try text("app")
        resultID = try text("result_id")
        messageID = try text("message_id")
        token = try text("token")
        guard let sentAt = root["sent_at"]?.int64 else {
            throw Refusal(.invalidField, "sent_at of a ticket is missing")
        }
        self.sentAt = UnixMillis(sentAt)
        guard
            let addressID = AddressID(
                app: app, installID: try text("install_id"), kind: try text("kind"),
                instance: root["instance"]?.string)
        else { throw Refusal(.invalidField, "a ticket names no address") }
        self.addressID = addressID
        userID = root["user_id"]?.string
        eventID = root["event_id"]?.string
        platform = root["platform"]?.string
        tokenHash = root["token_hash"]?.string
        registeredAt = root["registered_at"]?.int64.map { UnixMillis($0) }
    }

    /// Writes the record of a target that Expo took.
    static func write(
        _ ticket: String, of target: TargetInFlight, to address: DeviceAddress, app: String,
        eventID: String, sentAt: UnixMillis, to bytes: ByteWriter
    ) {
        let id = address.id
        var object = JSONObjectWriter(bytes)
        object.integer("v", 1)
        object.string("ticket", ticket)
        object.integer("sent_at", sentAt.value)
        object.uuid("result_id", target.resultID)
        object.uuid("message_id", target.messageID)
        object.string("event_id", eventID)
        object.string("app", app)
        object.string("install_id", id.installID)
        object.string("kind", id.kind)
        object.string("instance", orNull: id.instance)
        object.string("user_id", orNull: address.userID)
        object.string("platform", address.platform)
        object.string("token", address.token)
        object.string("token_hash", address.tokenHash)
        object.integer("registered_at", address.registeredAt.value)
        object.end()
    }

    /// The verdict of a receipt on the token that was sent to.
    func invalidation(reason: String, asOf: UnixMillis) -> InvalidationRecord {
        var record = InvalidationRecord(
            addressID: addressID, verdict: .invalidate, reason: reason, origin: .receipt,
            asOf: asOf)
        record.userID = userID
        record.gateway = .expo
        record.environment = GatewayEnvironment.none
        record.platform = platform
        record.token = token
        record.tokenHash = tokenHash
        record.registeredAt = registeredAt
        record.eventID = eventID
        record.resultID = resultID
        return record
    }
}
