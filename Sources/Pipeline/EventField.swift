internal import JSON

/// Every member name that the decoder knows, of native events, of CloudEvents and of the objects
/// inside them.
internal enum EventField: Int, CaseIterable, CustomStringConvertible {
    case v, id, type, eventType, source, specversion, subject, time
    case userID, userIDExtension, userIDs, to, app, labels, mode
    case ttl, expiresAt, expiresAtExtension, notBefore, priority
    case collapseKey, collapseKeyExtension, unread, cursor, only, except
    case payload, notification, data, dataBase64, apns, fcm, webpush, expo
    case log, seq, installIDs, platforms, gateways
    case fcmTopic, fcmCondition, apnsChannel, environment

    /// The name as it stands in events.
    var name: StaticString {
        switch self {
        case .v: "v"
        case .id: "id"
        case .type: "type"
        case .eventType: "event_type"
        case .source: "source"
        case .specversion: "specversion"
        case .subject: "subject"
        case .time: "time"
        case .userID: "user_id"
        case .userIDExtension: "userid"
        case .userIDs: "user_ids"
        case .to: "to"
        case .app: "app"
        case .labels: "labels"
        case .mode: "mode"
        case .ttl: "ttl"
        case .expiresAt: "expires_at"
        case .expiresAtExtension: "expiresat"
        case .notBefore: "not_before"
        case .priority: "priority"
        case .collapseKey: "collapse_key"
        case .collapseKeyExtension: "collapsekey"
        case .unread: "unread"
        case .cursor: "cursor"
        case .only: "only"
        case .except: "except"
        case .payload: "payload"
        case .notification: "notification"
        case .data: "data"
        case .dataBase64: "data_base64"
        case .apns: "apns"
        case .fcm: "fcm"
        case .webpush: "webpush"
        case .expo: "expo"
        case .log: "log"
        case .seq: "seq"
        case .installIDs: "install_ids"
        case .platforms: "platforms"
        case .gateways: "gateways"
        case .fcmTopic: "fcm_topic"
        case .fcmCondition: "fcm_condition"
        case .apnsChannel: "apns_channel"
        case .environment: "environment"
        }
    }

    var description: String { name.description }

    /// All of them, to be looked for together.
    static let names = JSONNames(allCases.map(\.name))
}
