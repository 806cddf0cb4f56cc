// What would become of an event, told in full and without secrets: the answer of `explain`.

public import Base
public import Gateways

/// What an event becomes.
public struct Explanation: Sendable {
    /// A request as it would leave, its secrets masked.
    public struct Request: Sendable {
        /// Field names and values in their order, pseudo-fields first.
        public let fields: [(name: String, value: String)]
        /// The body for people, the token masked: with a note in the place of what is encrypted in
        /// it; of a web push, which is encrypted as a whole, what the browser reads.
        public let body: String
        /// The body as it would leave, encrypted for the device as if it were sent now; a token in
        /// it is masked.
        public let sentBody: [UInt8]
        /// What stands encrypted in the body, as the device reads it; nil when nothing does.
        public let secret: String?
        /// The size of the true body, in bytes.
        public let bodyBytes: Int
        /// What was changed about the content; empty when nothing was.
        public let notes: String
        /// What the body seems to hold and should not, such as `a card number`.
        public let doubts: [String]
    }

    /// What an address gets.
    public enum Answer: Sendable {
        /// A request.
        case request(Request)
        /// Nothing, because somebody does not want it.
        case suppressed(reason: String)
        /// Nothing, because the gateway would refuse it.
        case rejected(reason: String, detail: String)
        /// Nothing, because the event's time is over.
        case expired
    }

    /// One address.
    public struct Target: Sendable {
        /// Its id.
        public let addressID: String
        /// Who delivers.
        public let gateway: Gateway
        /// Where.
        public let environment: GatewayEnvironment
        /// The device's system.
        public let platform: String
        /// The device's locale.
        public let locale: String?
        /// The first eight hex digits of its token's hash.
        public let tokenName: String
        /// What it gets.
        public let answer: Answer
    }

    /// The kind of event.
    public let type: String
    /// The user; nil for a broadcast.
    public let userID: String?
    /// Where the gateway fans it out; nil when it is for a user.
    public let to: BroadcastTarget?
    /// The app.
    public let app: String
    /// The route; nil when the event brings its own content.
    public let route: String?
    /// Where the route stands, and why it is the one.
    public let choice: String
    /// What keeps the event from being sent now, such as quiet hours; empty when nothing does.
    public let obstacles: [String]
    /// What is sent, when a route says so.
    public let kind: PushKind?
    /// How urgent it is.
    public let priority: EventPriority
    /// What it replaces an older push by.
    public let collapseKey: String?
    /// What other events of the user do to it.
    public let folding: Folding
    /// When it is worth nothing any more.
    public let expiresAt: UnixMillis
    /// The addresses that it is for.
    public let targets: [Target]
    /// Addresses that it would be for, were the install not reached through another one, which
    /// stands beside each.
    public let notPreferred: [(addressID: String, reachedThrough: String)]
    /// Addresses of the user that it is not for.
    public let passedOver: [String]
}
