// Builds a lane: pools for each origin and credential, bulkheads for each app, gateway and
// environment. Apps that share an APNs team and key share connections, as Apple binds a
// connection to them.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Telemetry
internal import TokenIndex

internal final class LaneBuilder {
    private struct PoolKey: Hashable {
        let origin: Origin
        let authorities: TLSAuthorities
        /// The credential that connections are bound to; empty where they are not.
        let credential: String
    }

    let plan: LanePlan
    private let loop: EventLoop
    private var pools: [PoolKey: PoolPace] = [:]
    private var tokens: [AccessTokens] = []
    /// Pools that one app has for itself.
    private var ownPools: [PoolPace] = []
    /// The push services of each app under one name.
    private var serviceObservers: [PoolObserver] = []

    /// How often somebody was served; nil when nobody counts.
    private let usage: (any UsageCounters)?

    init(_ plan: LanePlan, loop: EventLoop) {
        self.plan = plan
        self.loop = loop
        usage = plan.makeUsage(loop)
    }

    /// The permits of a rate that other processes take from too; nil when none do.
    private func permits(_ rate: SharedRate) -> Permits? {
        guard let usage, usage.isShared else { return nil }
        return Permits(rate, usage, on: loop)
    }

    func build(_ pulse: LanePulse) throws(LaneBuildError) -> Lane {
        var apps: [LaneApp] = []
        for app in plan.apps {
            let laneApp = LaneApp(name: app.name)
            if let apns = APNsParts(app) { try add(apns, to: laneApp) }
            if let fcm = app.fcm { try add(fcm, to: laneApp) }
            if let webPush = app.webPush { try add(webPush, to: laneApp) }
            if let expo = app.expo { try add(expo, to: laneApp) }
            apps.append(laneApp)
        }
        let pools = Array(pools.values) + ownPools
        let observers = pools.compactMap { observer(of: $0, apps) } + serviceObservers
        let parts = LaneParts(
            settings: plan.settings, loop: loop, committer: plan.committer,
            index: plan.makeIndex(loop),
            metrics: LaneMetrics(plan.registry, misrouted: plan.misrouted),
            alarms: plan.alarms, apps: apps, accessTokens: tokens, pools: pools,
            pulse: pulse,
            poolObservers: observers, marks: plan.makeMarks(loop), usage: usage, builder: self)
        do throws(SystemError) {
            return try Lane(parts)
        } catch {
            throw LaneBuildError(text: "a lane: \(error)")
        }
    }

    /// Shows a pool as the gateway's and the app's that it serves.
    private func observer(of pace: PoolPace, _ apps: [LaneApp]) -> PoolObserver? {
        let users = apps.flatMap(\.bulkheads).filter { $0.pace === pace }
        guard let gateway = users.first?.gateway else { return nil }
        return PoolObserver(pace.pool, apps: Set(users.map(\.app)), gateway, plan.registry)
    }

    /// How an app sends to APNs.
    struct APNsParts {
        let topic: String
        let places: [(environment: GatewayEnvironment, endpoint: GatewayEndpoint)]
        /// nil with a certificate: it is shown in the handshake.
        let credential: APNsCredential?
        let identity: TLSContext.Identity?
        /// Names the credential in verdicts and fuses, and what connections are bound to.
        let name: String
        let poolName: String

        /// nil for an app without APNs.
        init?(_ app: PushApp) {
            if let apns = app.certificateAPNs {
                topic = apns.topic
                places = [(.production, apns.production), (.sandbox, apns.sandbox)]
                credential = nil
                identity = apns.identity
                name = apns.name
                poolName = apns.name
            } else if let apns = app.apns {
                topic = apns.topic
                places = [(.production, apns.production), (.sandbox, apns.sandbox)]
                credential = apns.credential
                identity = nil
                name = apns.credential.name
                poolName = apns.credential.poolName
            } else {
                return nil
            }
        }

        func sender(_ renderer: APNsRenderer) -> Bulkhead.Sender {
            credential.map { .apns(renderer, $0) } ?? .certificateAPNs(renderer)
        }
    }

    private func add(_ apns: APNsParts, to app: LaneApp) throws(LaneBuildError) {
        let renderer = APNsRenderer(
            APNsSettings(
                topic: apns.topic, productionAuthority: Origin(apns.places[0].endpoint).authority,
                sandboxAuthority: Origin(apns.places[1].endpoint).authority))
        for (environment, endpoint) in apns.places {
            let pool = try pool(of: apns, for: endpoint)
            app.add(bulkhead(app, .apns, environment, apns.name, pool, apns.sender(renderer)))
        }
    }

    func pool(
        of apns: APNsParts, for endpoint: GatewayEndpoint
    ) throws(LaneBuildError) -> PoolPace {
        let policy = PoolPolicy.apns(
            connectionsMin: share(plan.dispatcher.apnsConnections.lowerBound),
            connectionsMax: share(plan.dispatcher.apnsConnections.upperBound))
        return try pool(
            for: endpoint, credential: apns.poolName, policy, identity: apns.identity)
    }

    private func add(_ fcm: PushApp.FCM, to app: LaneApp) throws(LaneBuildError) {
        let renderer = FCMRenderer(
            FCMSettings(
                projectID: fcm.projectID, authority: Origin(fcm.endpoint).authority))
        let accessTokens = try makeAccessTokens(fcm)
        tokens.append(accessTokens)
        let pool = try pool(of: fcm)
        let account = fcm.tokens.credential.account.clientEmail
        let fcmBulkhead = bulkhead(app, .fcm, .none, account, pool, .fcm(renderer, accessTokens))
        let rate = plan.dispatcher.fcmPermitsPerSecond
        fcmBulkhead.permits = permits(
            SharedRate(
                "fcm/\(fcm.projectID)", perSecond: rate, burst: rate, ramp: fcm.ramp))
        app.add(fcmBulkhead)
    }

    func pool(of fcm: PushApp.FCM) throws(LaneBuildError) -> PoolPace {
        let policy = PoolPolicy.fcm(
            connectionsMin: share(plan.dispatcher.fcmConnections.lowerBound),
            connectionsMax: share(plan.dispatcher.fcmConnections.upperBound))
        return try pool(for: fcm.endpoint, credential: "", policy)
    }

    func makeAccessTokens(_ fcm: PushApp.FCM) throws(LaneBuildError) -> AccessTokens {
        let endpoint = fcm.tokens.credential.account.tokenEndpoint
        let pool = makePool(
            Origin(host: endpoint.host, port: endpoint.port),
            try tls(trusting: fcm.endpoint.authorities), .fcm())
        let accessTokens = AccessTokens(fcm.tokens, loop: loop, pool: pool)
        let handle = loop.handle
        let confined = LaneConfinedTokens(accessTokens)
        fcm.tokens.subscribe(accessTokens) { handle.submit { confined.tokens.onChange?() } }
        return accessTokens
    }

    private func add(_ expo: PushApp.Expo, to app: LaneApp) throws(LaneBuildError) {
        // A pool of its own: the answers to requests of many messages go another way.
        let tls = try tls(trusting: expo.endpoint.authorities)
        let pace = PoolPace(makePool(Origin(expo.endpoint), tls, .expo()))
        let renderer = ExpoRenderer(
            expo.credential, authority: Origin(expo.endpoint).authority)
        let gateway = ExpoGateway(
            renderer, pace: pace, loop: loop, lanes: plan.dispatcher.lanes,
            receipts: ExpoReceipts(app: app.name, loop: loop, plan.registry))
        gateway.authorities = expo.endpoint.authorities
        gateway.permits = permits(
            SharedRate(
                "expo/\(app.name)", perSecond: ExpoLimits.permitsPerSecond,
                burst: ExpoLimits.messagesPerRequest))
        app.expo = gateway
        ownPools.append(pace)
        app.add(bulkhead(app, .expo, .none, app.name, pace, .expo(gateway)))
    }

    /// One bulkhead for web push as such, by which events know that the app has it, and one for
    /// each push service that its subscriptions lead to.
    private func add(_ webPush: PushApp.WebPush, to app: LaneApp) throws(LaneBuildError) {
        let sender: WebPushSender
        do throws(OpenSSLError) {
            sender = try WebPushSender(webPush, app: app.name, plan.registry)
        } catch {
            throw LaneBuildError(text: "web push of \(app.name): \(error)")
        }
        let trust = try WebPushTrust(webPush.authorities, tls(trustedBy: webPush))
        let metrics = BulkheadMetrics(
            plan.registry, app: app.name, gateway: .webpush, environment: .none)
        let policy = PoolPolicy.webPush(
            connectionsMax: share(4),
            reach: webPush.hosts.allowsLoopback ? .publicOrLoopback : .publicOnly)
        let make = {
            [self, unowned app]
            (
                sender: WebPushSender, origin: Origin, tls: TLSContext,
                service: Bulkhead.PushService?
            ) in
            bulkhead(
                app, .webpush, .none, sender.credential.name,
                PoolPace(makePool(origin, tls, policy)),
                .webpush(sender), service, metrics)
        }
        app.add(make(sender, Origin(host: "webpush.invalid"), trust.tls, nil))
        let observer = PoolObserver(app: app.name, .webpush, host: "webpush", plan.registry)
        serviceObservers.append(observer)
        app.webPush = WebPushServices(
            sender, trust, limit: plan.dispatcher.servicesMax, observer: observer
        ) { make($0, $1, $2, $3) }
    }

    func tls(trustedBy webPush: PushApp.WebPush) throws(LaneBuildError) -> TLSContext {
        try tls(trusting: webPush.authorities, alpn: ["h2", "http/1.1"])
    }

    private func bulkhead(
        _ app: LaneApp, _ gateway: Gateway, _ environment: GatewayEnvironment,
        _ credential: String, _ pool: PoolPace, _ sender: Bulkhead.Sender,
        _ service: Bulkhead.PushService? = nil, _ metrics: BulkheadMetrics? = nil
    ) -> Bulkhead {
        Bulkhead(
            app: app.name, gateway: gateway, environment: environment, credential: credential,
            pace: pool, sender: sender, service: service,
            metrics: metrics
                ?? BulkheadMetrics(
                    plan.registry, app: app.name, gateway: gateway, environment: environment),
            inFlightMax: share(plan.dispatcher.inFlightPerBulkhead),
            breaker: Breaker(divisor: plan.dispatcher.retryDivisor))
    }

    /// A lane's part of a bound that belongs to the process; at least one connection each.
    private func share(_ total: Int) -> Int {
        let lanes = plan.dispatcher.lanes
        return max((total + lanes - 1) / lanes, 1)
    }

    private func pool(
        for endpoint: GatewayEndpoint, credential: String, _ policy: PoolPolicy,
        identity: TLSContext.Identity? = nil
    ) throws(LaneBuildError) -> PoolPace {
        let key = PoolKey(
            origin: Origin(endpoint), authorities: endpoint.authorities, credential: credential)
        if let pool = pools[key] { return pool }
        let tls = try tls(trusting: endpoint.authorities, identity: identity)
        let pace = PoolPace(makePool(key.origin, tls, policy))
        pools[key] = pace
        return pace
    }

    private func makePool(
        _ origin: Origin, _ tls: TLSContext, _ policy: PoolPolicy
    ) -> HTTP2Pool {
        var policy = policy
        policy.egress = plan.dispatcher.access.egress
        return HTTP2Pool(loop: loop, origin: origin, tls: tls, policy: policy)
    }

    /// Forgets a pool that is retired, so that nobody is given it any more.
    func forget(_ pace: PoolPace) {
        if let key = pools.first(where: { $0.value === pace })?.key { pools[key] = nil }
    }

    func tls(
        trusting authorities: TLSAuthorities, alpn: [String] = ["h2"],
        identity: TLSContext.Identity? = nil
    ) throws(LaneBuildError) -> TLSContext {
        do throws(TLSError) {
            return try TLSContext.client(trusting: authorities, alpn: alpn, identity: identity)
        } catch {
            throw LaneBuildError(text: error.description)
        }
    }
}

extension APNsCredential {
    /// Names the credential in verdicts and fuses.
    internal var name: String { "\(teamID).\(keyID)" }
    /// What connections are bound to: the key itself.
    internal var poolName: String { "\(name).\(fingerprint)" }
}

extension WebPushCredential {
    /// Names the credential in verdicts and fuses.
    internal var name: String { keyIDs.joined(separator: ",") }
}

extension Origin {
    internal init(_ endpoint: GatewayEndpoint) {
        self.init(host: endpoint.host, port: endpoint.port)
    }
}

/// Carries a lane's tokens through the announcement of another lane.
///
/// `@unchecked Sendable`: the object is used on its own lane's thread only; other threads pass the
/// reference to that lane's job queue.
private struct LaneConfinedTokens: @unchecked Sendable {
    let tokens: AccessTokens
    init(_ tokens: AccessTokens) { self.tokens = tokens }
}
