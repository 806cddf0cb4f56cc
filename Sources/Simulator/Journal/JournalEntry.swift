public import Base

/// What became of a request.
public enum RequestFate: Sendable, Hashable {
    /// It was processed and answered.
    case answered
    /// It was processed, but the answer was kept back: by a cut, a reset or silence.
    case unanswered
    /// It was turned away before any processing.
    case notProcessed
}

/// One request as a service received it.
public struct JournalEntry: Sendable {
    /// The service that received it.
    public let service: SimulatedService
    /// The device or registration token, topic or condition it was for, or the last part of a
    /// subscription's endpoint; empty for token requests.
    public let token: String
    /// The sender's message id from the payload's `bugle` block.
    public let messageID: String?
    /// The `apns-id`.
    public let apnsID: String?
    /// The `apns-collapse-id`, FCM's `collapse_key` or web push's `topic`.
    public let collapseID: String?
    /// `apns-priority`, FCM's Android priority or web push's `urgency`.
    public let priority: String?
    /// `apns-expiration`, FCM's Android `ttl` or web push's `ttl`.
    public let expiration: String?
    /// The `apns-topic`, the FCM project or the push service's host.
    public let topic: String?
    /// The first half of the SHA-256 of the `authorization` value, in hex.
    public let authorization: String
    /// Names of the fields that the sender wrote as never indexed.
    public let neverIndexed: [String]
    /// The connection's number within its service.
    public let connection: Int
    /// The stream.
    public let stream: Int32
    /// When it arrived.
    public let at: UnixMillis
    /// The status that was or would have been answered; 0 when it was not processed.
    public let status: Int
    /// The reason that was or would have been answered; empty for success.
    public let reason: String
    /// What became of it.
    public let fate: RequestFate
    /// The body, if the journal keeps bodies.
    public let body: [UInt8]

    /// Whether the gateway took the message, answered or not.
    public var isAccepted: Bool {
        fate != .notProcessed && (200..<300).contains(status) && reason.isEmpty
    }
}

/// A status and reason of one service, to count answers by.
public struct JournalAnswer: Sendable, Hashable {
    /// The service.
    public let service: SimulatedService
    /// The status.
    public let status: Int
    /// The reason; empty for success.
    public let reason: String

    /// An answer of a service.
    public init(_ service: SimulatedService, _ status: Int, _ reason: String = "") {
        self.service = service
        self.status = status
        self.reason = reason
    }
}

/// Counts since the journal was started or cleared.
public struct JournalCounters: Sendable {
    /// Pushes received, whatever became of them.
    public internal(set) var pushes = 0
    /// Pushes that a gateway took, answered or not.
    public internal(set) var accepted = 0
    /// Pushes that were processed and not answered.
    public internal(set) var unanswered = 0
    /// Pushes turned away before processing.
    public internal(set) var notProcessed = 0
    /// Requests to the token endpoint.
    public internal(set) var tokenRequests = 0
    /// Questions for receipts of Expo.
    public internal(set) var receiptRequests = 0
    /// Answers, those kept back included, by service, status and reason.
    public internal(set) var answers: [JournalAnswer: Int] = [:]
    /// Connections accepted, whether TLS came about or not.
    public internal(set) var connectionsAccepted: [SimulatedService: Int] = [:]
    /// Connections on which HTTP/2 came about.
    public internal(set) var connectionsOpened: [SimulatedService: Int] = [:]
    /// Connections that ended.
    public internal(set) var connectionsClosed: [SimulatedService: Int] = [:]
    /// Breaches of the protocol, in words.
    public internal(set) var violations: [String: Int] = [:]
    /// What the real gateways accept but do not do as asked, in words.
    public internal(set) var advisories: [String: Int] = [:]
    /// PING frames received.
    public internal(set) var pings: [SimulatedService: Int] = [:]
}
