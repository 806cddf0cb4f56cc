// An event as routes see it. It borrows the event's JSON, and lives no longer.

public import Base
public import JSON

/// What templates and conditions can refer to.
public struct RouteEvent {
    /// What happened, such as `order.shipped`.
    public var type: String
    /// The event's id.
    public var id: String
    /// The user it is for.
    public var userID: String
    /// The app it is for.
    public var app: String
    /// Who sent it; empty when not stated.
    public var source: String
    /// When it happened.
    public var time: UnixMillis
    /// The user's unread total.
    public var unread: Int64?
    /// The log of the event's cursor, and the position in it.
    public var cursor: (log: String, seq: Int64)?
    /// How many events of a burst it speaks for, itself included; 1 for an event by itself.
    public var count: Int64 = 1
    /// The event's labels.
    public var labels: JSONValue?
    /// The business data.
    public var payload: JSONValue?

    /// An event without payload, labels and cursor.
    public init(
        type: String, id: String, userID: String, app: String, source: String, time: UnixMillis
    ) {
        self.type = type
        self.id = id
        self.userID = userID
        self.app = app
        self.source = source
        self.time = time
    }
}

/// What an event brings of its own. It is merged last: a member of it replaces the route's.
public struct ExplicitContent {
    /// What a person sees.
    public var notification: JSONValue?
    /// What the app gets.
    public var data: JSONValue?
    /// Overrides by gateway.
    public var apns: JSONValue?
    /// Overrides by gateway.
    public var fcm: JSONValue?
    /// Overrides by gateway.
    public var webpush: JSONValue?
    /// Overrides by gateway.
    public var expo: JSONValue?

    /// Nothing.
    public init() {}

    /// Whether the event itself says what becomes of a word of the notification.
    internal func overrides(_ word: StaticString) -> Bool { notification?[word] != nil }
}
