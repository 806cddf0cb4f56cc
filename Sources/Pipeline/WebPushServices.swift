// Web push as one lane sends it. An app's subscriptions lead to many hosts, which clients chose:
// each push service is a bulkhead of its own, made when the first subscription leads there and
// dropped when none has for a while. One that is down or slow has its own connections, budget and
// breaker, so that it takes nothing from the others.

internal import Base
internal import Crypto
internal import Gateways
internal import HTTP2
internal import Telemetry
internal import TokenIndex

/// Builds the web pushes of one app on one lane. Loop-confined.
internal final class WebPushSender {
    let renderer: WebPushRenderer
    let credential: WebPushCredential
    private let subscriptions: WebPushSubscriptions
    /// Handed on to the sender that replaces this one.
    private let counts: VAPIDKeyCounts
    /// By the key that signs, in the order of `credential.keyIDs`: what is left on an old key shows
    /// when it may go.
    private let keys: [VAPIDKeyCounts.Entry]
    /// Of registrations that name no key, those whose push service has refused the first one: by
    /// which key they are tried or were taken. Other keys are forgotten when these are many, and
    /// found again.
    private var keysFound: [UInt64: Int] = [:]

    /// The first sender of an app on a lane.
    convenience init(
        _ webPush: PushApp.WebPush, app: String, _ registry: MetricsRegistry
    ) throws(OpenSSLError) {
        try self.init(webPush, VAPIDKeyCounts(app: app, registry))
    }

    /// One that takes another's place, with other keys.
    convenience init(
        _ webPush: PushApp.WebPush, replacing former: WebPushSender
    ) throws(OpenSSLError) {
        try self.init(webPush, former.counts)
    }

    private init(_ webPush: PushApp.WebPush, _ counts: VAPIDKeyCounts) throws(OpenSSLError) {
        renderer = try WebPushRenderer(webPush.settings)
        credential = webPush.credential
        subscriptions = WebPushSubscriptions(hosts: webPush.hosts)
        self.counts = counts
        keys = counts.take(credential.keyIDs)
    }

    /// The subscription behind an address, decoded.
    func subscription(
        of address: DeviceAddress
    ) throws(WebPushSubscriptionError) -> WebPushSubscription {
        let name = address.withTokenHash { hash in
            UUIDBytes(
                high: hash.loadUnaligned(as: UInt64.self),
                low: hash.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
        return try subscriptions.subscription(
            named: name, endpoint: address.withToken { Array($0) }, p256dh: address.p256dh,
            auth: address.auth)
    }

    /// The place of the key that signs for an address, in the order of `credential.keyIDs`; nil
    /// when its registration names one that is not configured.
    func keyIndex(for address: DeviceAddress) -> Int? {
        guard let id = address.vapidKeyID else {
            return keysFound.isEmpty ? 0 : keysFound[Self.name(of: address)] ?? 0
        }
        return credential.keyIDs.firstIndex(of: id)
    }

    /// Takes note that a subscription, whose registration names no key, was not made with one.
    func mistook(_ index: Int, for address: DeviceAddress) {
        let name = Self.name(of: address)
        keys[index].mistaken(name)
        // Several pushes may have been under way with that key: they take one step together.
        guard keysFound[name] ?? 0 == index else { return }
        if keysFound.count >= KeyUse.subscriptionsMax { keysFound.removeAll() }
        keysFound[name] = (index + 1) % credential.keyIDs.count
    }

    /// Counts a push that was built for an address.
    func built(for address: DeviceAddress, with index: Int, at now: MonotonicTime) {
        keys[index].count(Self.name(of: address), at: now)
    }

    private static func name(of address: DeviceAddress) -> UInt64 {
        address.withTokenHash { $0.loadUnaligned(as: UInt64.self) }
    }
}

/// Whom the connections to an app's push services trust.
internal struct WebPushTrust {
    let authorities: TLSAuthorities
    let tls: TLSContext

    init(_ authorities: TLSAuthorities, _ tls: TLSContext) {
        self.authorities = authorities
        self.tls = tls
    }
}

/// The push services that an app's subscriptions lead to. Loop-confined.
internal final class WebPushServices {
    /// Builds the pushes; another one after the keys were replaced.
    var sender: WebPushSender
    private(set) var trust: WebPushTrust
    /// Makes the bulkhead of a push service.
    private let make: (WebPushSender, Origin, TLSContext, Bulkhead.PushService) -> Bulkhead
    private var services: [Origin: Bulkhead] = [:]
    private let observer: PoolObserver
    /// How many may be open at a time.
    let limit: Int

    init(
        _ sender: WebPushSender, _ trust: WebPushTrust, limit: Int, observer: PoolObserver,
        make: @escaping (WebPushSender, Origin, TLSContext, Bulkhead.PushService) -> Bulkhead
    ) {
        self.sender = sender
        self.trust = trust
        self.observer = observer
        self.limit = limit
        self.make = make
    }

    /// Trusts others from now on, over connections that are made anew.
    func take(_ trust: WebPushTrust) {
        self.trust = trust
        for bulkhead in services.values { bulkhead.pool.replaceConnections(with: trust.tls) }
    }

    /// The bulkhead of the service at an endpoint, if it was used lately.
    func known(_ endpoint: WebPushEndpoint) -> Bulkhead? {
        services[Origin(host: endpoint.host, port: endpoint.port)]
    }

    /// The bulkhead of a service by its origin, if it was used lately.
    func known(origin: String) -> Bulkhead? {
        services.values.first { $0.service?.origin == origin }
    }

    /// Makes the bulkhead of the service at an endpoint; nil when there are as many as may be.
    func add(_ endpoint: WebPushEndpoint) -> Bulkhead? {
        guard services.count < limit else { return nil }
        let origin = Origin(host: endpoint.host, port: endpoint.port)
        let bulkhead = make(
            sender, origin, trust.tls,
            Bulkhead.PushService(origin: endpoint.origin, family: endpoint.service))
        services[origin] = bulkhead
        observer.add(bulkhead.pool)
        return bulkhead
    }

    /// Takes out the services that had no request for so long and have nothing to do.
    func takeIdle(for span: TimeSpan, at now: MonotonicTime) -> [Bulkhead] {
        let idle = services.filter { _, bulkhead in
            now - bulkhead.pace.lastUse > span && bulkhead.budget.inFlight == 0
                && bulkhead.waiting.isEmpty && bulkhead.answersUncounted == 0
        }
        for (origin, bulkhead) in idle {
            services[origin] = nil
            observer.remove(bulkhead.pool)
        }
        return Array(idle.values)
    }
}
