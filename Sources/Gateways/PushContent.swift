// What an event says, in words that belong to no gateway. It borrows the event's JSON: build it
// after the parse, render from it, and let it go before the parser's next document.

public import Base
public import JSON

/// The content of one event, to be rendered for each of its targets: an object, because it is
/// handed about for every one of them and its many texts would be counted each time.
///
/// Loop-confined. Not checked for exclusivity at run time: each access is one statement.
public final class PushContent {
    /// How far the truth has advanced.
    public struct Cursor: Sendable {
        /// The log's name.
        public var log: String
        /// The position in it.
        public var seq: Int64

        /// A position in a log.
        public init(log: String, seq: Int64) {
            self.log = log
            self.seq = seq
        }
    }

    /// The message's identity: one for each target, the same for every attempt.
    @exclusivity(unchecked) public var messageID: UUIDBytes
    /// The wall clock; set anew before every attempt.
    @exclusivity(unchecked) public var now: UnixMillis
    /// What happened, such as `order.shipped`.
    @exclusivity(unchecked) public var eventType: String
    /// The event's identity, the same for all its targets: what a push collapses under when the
    /// event names no key.
    @exclusivity(unchecked) public var eventIdentity: UUIDBytes
    /// By which a client drops a push that is not for its current user.
    @exclusivity(unchecked) public var audience: String?
    /// When the push is worth nothing any more.
    @exclusivity(unchecked) public var expiresAt: UnixMillis?
    /// Whether the event itself says when.
    @exclusivity(unchecked) public var hasOwnExpiry = false
    /// Whether there is one attempt only and nothing is stored anywhere.
    @exclusivity(unchecked) public var storesNothing: Bool
    /// How urgent the push is.
    @exclusivity(unchecked) public var priority: EventPriority
    /// What a newer push replaces an older one by.
    @exclusivity(unchecked) public var collapseKey: String?
    /// The user's unread total.
    @exclusivity(unchecked) public var unread: Int64?
    /// How far the truth has advanced.
    @exclusivity(unchecked) public var cursor: Cursor?
    /// What kind of push it is; nil when the words themselves say it.
    @exclusivity(unchecked) public var kind: PushKind?
    /// How much attention it asks for; nil leaves that to the systems.
    @exclusivity(unchecked) public var importance: Importance?
    /// Whether the app itself shows it on Android.
    @exclusivity(unchecked) public var isShownByAndroidApp = false
    /// FCM's `collapse_key`, one of few; nil for messages that do not replace each other.
    @exclusivity(unchecked) public var fcmCollapseKey: String?
    /// Whether the gateway is asked to check only.
    @exclusivity(unchecked) public var validateOnly: Bool
    /// What only the device can read, encrypted for the target at hand; nil when nothing is.
    @exclusivity(unchecked) public var sealed: ByteWriter?

    /// Where renderers keep what all targets of the event share; nil makes them write each request
    /// anew. It is given when the content is complete: later changes of anything but the message's
    /// id and the clock would not be seen.
    @exclusivity(unchecked) public var shared: SharedRequest?

    /// What a person sees.
    @exclusivity(unchecked) public private(set) var notification: NotificationContent?
    /// What the app gets beside that.
    @exclusivity(unchecked) public private(set) var data: JSONValue?
    /// What is merged into APNs payloads last.
    @exclusivity(unchecked) public private(set) var apns: JSONValue?
    /// What is merged into FCM messages last.
    @exclusivity(unchecked) public private(set) var fcm: JSONValue?
    /// What is merged into web push payloads last.
    @exclusivity(unchecked) public private(set) var webpush: JSONValue?
    /// What is merged into Expo messages last.
    @exclusivity(unchecked) public private(set) var expo: JSONValue?

    /// A content without words.
    public init(
        messageID: UUIDBytes, eventType: String, eventIdentity: UUIDBytes, now: UnixMillis,
        audience: String? = nil, expiresAt: UnixMillis? = nil, storesNothing: Bool = false,
        priority: EventPriority = .normal, collapseKey: String? = nil, unread: Int64? = nil,
        cursor: Cursor? = nil, validateOnly: Bool = false, shared: SharedRequest? = nil
    ) {
        self.messageID = messageID
        self.eventType = eventType
        self.eventIdentity = eventIdentity
        self.now = now
        self.audience = audience
        self.expiresAt = expiresAt
        self.storesNothing = storesNothing
        self.priority = priority
        self.collapseKey = collapseKey
        self.unread = unread
        self.cursor = cursor
        self.validateOnly = validateOnly
        self.shared = shared
    }

    /// Turns to another target, or to another attempt.
    public func turn(to messageID: UUIDBytes, at now: UnixMillis) {
        self.messageID = messageID
        self.now = now
    }

    /// Takes the event's words; null counts as absent.
    public func take(
        notification: JSONValue?, data: JSONValue?, apns: JSONValue? = nil, fcm: JSONValue? = nil,
        webpush: JSONValue? = nil, expo: JSONValue? = nil
    ) throws(ContentError) {
        self.notification =
            if let notification, !notification.isNull { try NotificationContent(notification) } else
            {
                nil
            }
        self.data = try Self.object(data, "data")
        self.apns = try Self.object(apns, "apns")
        self.fcm = try Self.object(fcm, "fcm")
        self.webpush = try Self.object(webpush, "webpush")
        self.expo = try Self.object(expo, "expo")
        if let aps = self.apns?["aps"], !aps.isObject {
            throw ContentError(field: "apns.aps", problem: "must be an object")
        }
        if let headers = self.apns?["headers"], !headers.isObject {
            throw ContentError(field: "apns.headers", problem: "must be an object")
        }
        if let data = self.fcm?["data"], !data.isObject {
            throw ContentError(field: "fcm.data", problem: "must be an object")
        }
        if let headers = self.webpush?["headers"], !headers.isObject {
            throw ContentError(field: "webpush.headers", problem: "must be an object")
        }
    }

    private static func object(
        _ value: JSONValue?, _ field: String
    ) throws(ContentError) -> JSONValue? {
        guard let value, !value.isNull else { return nil }
        guard value.isObject else {
            throw ContentError(field: field, problem: "must be an object")
        }
        return value
    }

    /// Whether the push is worth nothing any more.
    internal var isOver: Bool { expiresAt.map { $0 <= now && !storesNothing } ?? false }

    /// Whether a person sees or hears anything of it on Apple's devices.
    internal var isVisible: Bool { notification?.isVisible ?? false }

    /// Whether Android shows anything of it.
    internal var isVisibleOnAndroid: Bool { notification?.isVisibleOnAndroid ?? false }

    /// The expiry, no later than a gateway stores; nil when the event names none.
    internal func expiry(
        within storage: TimeSpan, _ notes: inout RenderingNotes
    ) -> UnixMillis? {
        guard let expiresAt else { return nil }
        let latest = now + storage
        if expiresAt > latest { notes.insert(.shortenedExpiry) }
        return min(expiresAt, latest)
    }
}
