// Another credential for an app at a gateway, while pushes are under way: what is built from now on
// carries it, what was built before ends as it is. Connections of APNs are bound to a team and key,
// so new ones are opened and the former ones closed when their last answer is in.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2

extension Lane {
    /// Takes an app's credential at a gateway into use.
    func replaceCredential(of app: PushApp, at gateway: Gateway) throws(LaneBuildError) {
        guard let laneApp = apps.first(where: { $0.name == app.name }) else { return }
        switch gateway {
        case .apns: if let apns = app.apns { try replace(apns, laneApp) }
        case .fcm: if let fcm = app.fcm { try replace(fcm, laneApp) }
        case .webpush: if let webPush = app.webPush { try replace(webPush, laneApp) }
        case .expo: if let expo = app.expo { replace(expo, laneApp) }
        }
        flushAtEndOfTurn()
    }

    private func replace(_ apns: PushApp.APNs, _ app: LaneApp) throws(LaneBuildError) {
        for (environment, endpoint) in [
            (GatewayEnvironment.production, apns.production), (.sandbox, apns.sandbox),
        ] {
            guard let bulkhead = app.bulkhead(.apns, environment),
                case .apns(let renderer, _) = bulkhead.sender
            else { continue }
            let former = bulkhead.pace
            let pace = try builder.pool(
                for: endpoint, credential: apns.credential.poolName, builder.apnsPolicy,
                alpn: ["h2"])
            keep(pace, instead: former)
            bulkhead.take(
                .apns(renderer, apns.credential), credential: apns.credential.name, pace: pace)
            // Apps with the same key share connections.
            guard former !== pace, !isInUse(former) else { continue }
            former.retire()
            builder.forget(former)
        }
    }

    private func replace(_ fcm: PushApp.FCM, _ app: LaneApp) throws(LaneBuildError) {
        guard let bulkhead = app.bulkhead(.fcm, .none),
            case .fcm(let renderer, let former) = bulkhead.sender
        else { return }
        let tokens = try builder.makeAccessTokens(fcm)
        tokens.onChange = { [unowned self] in resumeAwaitingToken() }
        accessTokens.append(tokens)
        bulkhead.take(
            .fcm(renderer, tokens), credential: fcm.tokens.credential.account.clientEmail)
        former.retire()
        resumeAwaitingToken()
    }

    private func replace(_ webPush: PushApp.WebPush, _ app: LaneApp) throws(LaneBuildError) {
        guard let services = app.webPush else { return }
        let sender: WebPushSender
        do throws(OpenSSLError) {
            sender = try WebPushSender(webPush, app: app.name, builder.plan.registry)
        } catch {
            throw LaneBuildError(text: "web push of \(app.name): \(error)")
        }
        services.sender = sender
        for bulkhead in app.bulkheads where bulkhead.gateway == .webpush {
            bulkhead.take(.webpush(sender), credential: sender.credential.name)
        }
    }

    private func replace(_ expo: PushApp.Expo, _ app: LaneApp) {
        guard let gateway = app.expo, let bulkhead = app.bulkhead(.expo, .none) else { return }
        gateway.renderer = ExpoRenderer(
            expo.credential, authority: Origin(expo.endpoint).authority)
        bulkhead.take(.expo(gateway), credential: app.name)
    }

    /// Counts a pool among the lane's, under the name of the one that it replaces.
    private func keep(_ pace: PoolPace, instead former: PoolPace) {
        guard !pools.contains(where: { $0 === pace }) else { return }
        pools.append(pace)
        pace.pool.delegate = self
        poolObservers.first { $0.observes(former.pool) }?.add(pace.pool)
    }

    private func isInUse(_ pace: PoolPace) -> Bool {
        apps.contains { app in app.bulkheads.contains { $0.pace === pace } }
    }

    /// Lets go of what was replaced and has nothing under way any more.
    func dropRetired() {
        for pace in pools where pace.isRetired && pace.pool.inFlight + pace.pool.queued == 0 {
            pools.removeAll { $0 === pace }
            poolObservers.first { $0.observes(pace.pool) }?.remove(pace.pool)
            pace.pool.close()
            pace.pool.delegate = nil
        }
        for tokens in accessTokens where tokens.isRetired && tokens.fetchesOpen == 0 {
            accessTokens.removeAll { $0 === tokens }
            tokens.close()
        }
    }
}
