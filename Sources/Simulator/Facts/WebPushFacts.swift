internal import Crypto

/// What a push service knows about a subscription.
public enum SubscriptionState: Sendable, Hashable {
    /// It takes messages.
    case live
    /// 410: it has expired, or its user unsubscribed.
    case gone
    /// It leads to a phone over another service, which takes a message in base64: what has over 4,096
    /// characters then is refused, although it is no larger than every push service has to take.
    case bridged
}

/// A subscription as its push service, and its browser, know it.
struct WebPushSubscription: Sendable {
    /// The browser's keys, by which the journal tells what a message says; nil when nobody knows.
    var keys: SubscriberKeys?
    /// The `applicationServerKey` that it was made with, base64url; nil for any.
    var vapidKey: String?
    var state: SubscriptionState
}
