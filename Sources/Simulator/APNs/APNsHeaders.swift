internal import HTTP2

/// The header fields of a push, found in one pass.
struct APNsHeaders {
    var method: ServerRequest.Field?
    var path: ServerRequest.Field?
    var authorization: ServerRequest.Field?
    var pushType: ServerRequest.Field?
    var topic: ServerRequest.Field?
    var priority: ServerRequest.Field?
    var expiration: ServerRequest.Field?
    var collapseID: ServerRequest.Field?
    var requestID: ServerRequest.Field?
    var channelID: ServerRequest.Field?
    /// `apns-request-id`, which broadcasts and channels have in place of `apns-id`.
    var broadcastID: ServerRequest.Field?
    private(set) var hasDuplicates = false

    /// No fields at all.
    init() {}

    init(_ request: ServerRequest) {
        for field in request.fields {
            let name = request.name(of: field)
            if name.spells(":method") {
                method = field
            } else if name.spells(":path") {
                path = field
            } else if name.spells("authorization") {
                set(\.authorization, field)
            } else if name.spells("apns-push-type") {
                set(\.pushType, field)
            } else if name.spells("apns-topic") {
                set(\.topic, field)
            } else if name.spells("apns-priority") {
                set(\.priority, field)
            } else if name.spells("apns-expiration") {
                set(\.expiration, field)
            } else if name.spells("apns-collapse-id") {
                set(\.collapseID, field)
            } else if name.spells("apns-id") {
                set(\.requestID, field)
            } else if name.spells("apns-channel-id") {
                set(\.channelID, field)
            } else if name.spells("apns-request-id") {
                set(\.broadcastID, field)
            }
        }
    }

    private mutating func set(
        _ place: WritableKeyPath<APNsHeaders, ServerRequest.Field?>, _ field: ServerRequest.Field
    ) {
        if self[keyPath: place] != nil { hasDuplicates = true }
        self[keyPath: place] = field
    }
}
