// An event as a publisher states it: who, what, until when, and the content. Values still point
// into the record's parsed JSON, which lives as long as the event is in flight.

internal import Base
internal import JSON

/// One decoded event.
internal struct EventEnvelope {
    /// The publisher's id, or topic-partition-offset when there is none.
    var id: String
    /// Whether the publisher gave the id; only then can repeats be recognised.
    var hasOwnID: Bool
    var type: String
    var userID: String
    /// The app named by the event; nil means the only configured one.
    var app: String?
    /// Who sent it; empty when not stated.
    var source: String
    var labels: JSONValue?
    var time: UnixMillis
    var expiresAt: UnixMillis
    /// `ttl` 0: one attempt, nothing stored by any gateway.
    var isOneAttempt: Bool
    var notBefore: UnixMillis?
    var priority: EventPriority
    var collapseKey: String?
    var content: EventContent
    var cursor: EventCursor?
    /// The user's unread total, which becomes the badge.
    var unread: Int64?
    var only: AddressFilter?
    var except: AddressFilter?
    /// `mode: validate`: nothing reaches a device.
    var isValidation: Bool
}

/// What the event says, in the publisher's words.
internal struct EventContent {
    var payload: JSONValue?
    var notification: JSONValue?
    var data: JSONValue?
    var apns: JSONValue?
    var fcm: JSONValue?

    /// Whether there is something to send without a route.
    var isExplicit: Bool { notification != nil || data != nil || apns != nil || fcm != nil }
}

/// A position in one of the publisher's logs, for hints.
internal struct EventCursor {
    var log: String
    var sequence: Int64
}

/// Restricts an event to some of the user's addresses, or keeps it from some.
internal struct AddressFilter {
    var installIDs: Set<String> = []
    var platforms: Set<String> = []
    var gateways: Set<String> = []

    /// Whether an address is named by any of the lists.
    func names(installID: String, platform: String, gateway: Gateway) -> Bool {
        installIDs.contains(installID) || platforms.contains(platform)
            || gateways.contains(gateway.rawValue)
    }
}
