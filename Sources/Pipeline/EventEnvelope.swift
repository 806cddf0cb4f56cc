// An event as a publisher states it: who, what, until when, and the content. Values still point
// into the record's parsed JSON, which lives as long as the event is in flight.

internal import Base
internal import Gateways
internal import JSON

/// One decoded event: an object, because every stage looks at it and copying its many texts would
/// cost more than the stages' own work.
internal final class EventEnvelope {
    /// The publisher's id, or topic-partition-offset when there is none.
    let id: String
    /// Whether the publisher gave the id; only then can repeats be recognised.
    let hasOwnID: Bool
    let type: String
    /// The user, or for a broadcast a name that no user can have.
    let userID: String
    /// Set when the gateway itself fans the event out, and no user is looked up.
    let to: BroadcastTarget?
    /// Whether `to` is set; asked for every target.
    let isBroadcast: Bool
    /// The app named by the event; nil means the only configured one.
    let app: String?
    /// Who sent it; empty when not stated.
    let source: String
    let labels: JSONValue?
    let time: UnixMillis
    /// Set by the route when the event does not say.
    var expiresAt: UnixMillis
    /// Whether the event itself says how long it is worth something.
    let hasOwnExpiry: Bool
    /// `ttl` 0: one attempt, nothing stored by any gateway.
    var isOneAttempt: Bool
    let notBefore: UnixMillis?
    /// The event's, or the one that the route's importance stands for.
    var priority: EventPriority
    /// Whether the event itself states a priority.
    let hasOwnPriority: Bool
    /// The event's, or the route's.
    var collapseKey: String?
    /// Completed by routing.
    var content: EventContent
    /// The event's, or the furthest one of those folded into it.
    var cursor: EventCursor?
    /// The user's unread total, which becomes the badge.
    var unread: Int64?
    let only: AddressFilter?
    let except: AddressFilter?
    /// `mode: validate`: nothing reaches a device.
    let isValidation: Bool

    init(
        id: String, hasOwnID: Bool, type: String, userID: String, to: BroadcastTarget?,
        app: String?, source: String,
        labels: JSONValue?, time: UnixMillis, expiresAt: UnixMillis, hasOwnExpiry: Bool,
        isOneAttempt: Bool, notBefore: UnixMillis?, priority: EventPriority,
        hasOwnPriority: Bool, collapseKey: String?,
        content: EventContent, cursor: EventCursor?, unread: Int64?, only: AddressFilter?,
        except: AddressFilter?, isValidation: Bool
    ) {
        self.id = id
        self.hasOwnID = hasOwnID
        self.type = type
        self.userID = userID
        self.to = to
        isBroadcast = to != nil
        self.app = app
        self.source = source
        self.labels = labels
        self.time = time
        self.expiresAt = expiresAt
        self.hasOwnExpiry = hasOwnExpiry
        self.isOneAttempt = isOneAttempt
        self.notBefore = notBefore
        self.priority = priority
        self.hasOwnPriority = hasOwnPriority
        self.collapseKey = collapseKey
        self.content = content
        self.cursor = cursor
        self.unread = unread
        self.only = only
        self.except = except
        self.isValidation = isValidation
    }
}

extension EventEnvelope {
    /// The user as results and explanations name it; nil for a broadcast.
    var resultUserID: String? { isBroadcast ? nil : userID }

    /// What stands in for the user of a broadcast: windows, marks and notes are kept under it. The
    /// control character in front keeps it apart from every user.
    static func standIn(for to: BroadcastTarget) -> String {
        "\u{1}\(to.kind.rawValue)/\(to.environment.rawValue)/\(to.name)"
    }

    /// How long an event with `ttl` 0 may take from publication to its attempt, in seconds: one
    /// that must not be stored is not expired on arrival.
    static let oneAttemptSeconds: Int64 = 30
}

/// What the event says, in the publisher's words.
internal struct EventContent {
    var payload: JSONValue?
    var notification: JSONValue?
    var data: JSONValue?
    var apns: JSONValue?
    var fcm: JSONValue?
    var webpush: JSONValue?
    var expo: JSONValue?

    /// Whether there is something to send without a route.
    var isExplicit: Bool {
        notification != nil || data != nil || apns != nil || fcm != nil || webpush != nil
            || expo != nil
    }
}

/// A position in one of the publisher's logs, for hints.
internal struct EventCursor: Equatable {
    var log: String
    var sequence: Int64
}

/// Restricts an event to some of the user's addresses, or keeps it from some. A list that is not
/// given says nothing; one that is given and empty names nobody.
internal struct AddressFilter {
    var installIDs: Set<String>?
    var platforms: Set<String>?
    var gateways: Set<String>?

    /// The lists in a fixed order.
    var lists: [Set<String>?] { [installIDs, platforms, gateways] }

    /// Whether every list that is given names the address: `only`, where each list narrows.
    func isNamedByAll(installID: String, platform: String, gateway: Gateway) -> Bool {
        (installIDs?.contains(installID) ?? true) && (platforms?.contains(platform) ?? true)
            && (gateways?.contains(gateway.rawValue) ?? true)
    }

    /// Whether any list names the address: `except`, where each list takes more away.
    func isNamedByAny(installID: String, platform: String, gateway: Gateway) -> Bool {
        (installIDs?.contains(installID) ?? false) || (platforms?.contains(platform) ?? false)
            || (gateways?.contains(gateway.rawValue) ?? false)
    }
}
