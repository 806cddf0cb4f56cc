// Subscriptions, decoded once: the endpoint taken apart and the curve's point checked. What is kept
// are public values and the subscription's own secret; nothing of a message.

public import Base
public import Crypto

/// Why a subscription is not sent to.
public enum WebPushSubscriptionError: Error, Equatable, Sendable {
    /// The endpoint.
    case endpoint(WebPushEndpointError)
    /// The keys; the text says what is wrong with them.
    case keys(String)
}

/// A subscription that can be sent to.
public final class WebPushSubscription: Sendable {
    /// Where requests go.
    public let endpoint: WebPushEndpoint
    /// What messages are encrypted for.
    public let keys: SubscriptionKeys

    /// A subscription out of its parts.
    public init(endpoint: WebPushEndpoint, keys: SubscriptionKeys) {
        self.endpoint = endpoint
        self.keys = keys
    }
}

/// The subscriptions that were used last, up to twice `WebPushLimits.subscriptionsKept`: when one
/// half is full, the other is forgotten and filled again. Loop-confined.
public final class WebPushSubscriptions {
    private struct Entry {
        let p256dh: String
        let auth: String
        let subscription: WebPushSubscription
    }

    private let hosts: WebPushHosts
    private let kept: Int
    private var young: [UUIDBytes: Entry] = [:]
    private var old: [UUIDBytes: Entry] = [:]
    /// How many were decoded.
    public private(set) var decodings = 0

    /// Nothing decoded yet.
    public init(hosts: WebPushHosts, kept: Int = WebPushLimits.subscriptionsKept) {
        self.hosts = hosts
        self.kept = kept
    }

    /// The subscription of an address. `name` is the first half of its endpoint's SHA-256.
    public func subscription(
        named name: UUIDBytes, endpoint: @autoclosure () -> [UInt8], p256dh: String?, auth: String?
    ) throws(WebPushSubscriptionError) -> WebPushSubscription {
        guard let p256dh, let auth else { throw .keys("the subscription has no keys") }
        // Keys may be replaced under an endpoint that stays.
        if let entry = young[name] ?? old[name], entry.p256dh == p256dh, entry.auth == auth {
            if young[name] == nil { keep(entry, name) }
            return entry.subscription
        }
        decodings += 1
        let subscription = try decode(endpoint(), p256dh, auth)
        keep(Entry(p256dh: p256dh, auth: auth, subscription: subscription), name)
        return subscription
    }

    private func keep(_ entry: Entry, _ name: UUIDBytes) {
        if young.count >= kept {
            old = young
            young = [:]
        }
        young[name] = entry
    }

    private func decode(
        _ text: [UInt8], _ p256dh: String, _ auth: String
    ) throws(WebPushSubscriptionError) -> WebPushSubscription {
        let endpoint: WebPushEndpoint
        do throws(WebPushEndpointError) {
            endpoint = try WebPushEndpoint(text)
            try hosts.check(endpoint)
        } catch { throw .endpoint(error) }
        do throws(SubscriptionKeyError) {
            return WebPushSubscription(
                endpoint: endpoint, keys: try SubscriptionKeys(p256dh: p256dh, auth: auth))
        } catch { throw .keys(error.description) }
    }
}
