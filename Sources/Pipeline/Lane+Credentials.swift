// Another credential for an app at a gateway, or other authorities to trust, while pushes are under
// way: what is built from now on carries it, what was built before ends as it is. Connections of APNs
// are bound to a team and key or a certificate, and all to whom they trust, so new ones are opened and
// the former ones closed when their last answer is in.

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
        case .apns: if let apns = LaneBuilder.APNsParts(app) { try replace(apns, laneApp) }
        case .fcm: if let fcm = app.fcm { try replace(fcm, laneApp) }
        case .webpush: if let webPush = app.webPush { try replace(webPush, laneApp) }
        case .expo: if let expo = app.expo { try replace(expo, laneApp) }
        }
        flushAtEndOfTurn()
    }

    private func replace(
        _ apns: LaneBuilder.APNsParts, _ app: LaneApp
    ) throws(LaneBuildError) {
        for (environment, endpoint) in apns.places {
            guard let bulkhead = app.bulkhead(.apns, environment) else { continue }
            let renderer: APNsRenderer
            switch bulkhead.sender {
            case .apns(let former, _), .certificateAPNs(let former): renderer = former
            default: continue
            }
            let former = bulkhead.pace
            let pace = try builder.pool(of: apns, for: endpoint)
            keep(pace, instead: former)
            take(apns.sender(renderer), apns.name, pace, for: bulkhead)
            retire(former, unless: pace)
        }
    }

    private func replace(_ fcm: PushApp.FCM, _ app: LaneApp) throws(LaneBuildError) {
        guard let bulkhead = app.bulkhead(.fcm, .none),
            case .fcm(let renderer, let formerTokens) = bulkhead.sender
        else { return }
        let former = bulkhead.pace
        let tokens = try builder.makeAccessTokens(fcm)
        let pace = try builder.pool(of: fcm)
        keep(pace, instead: former)
        tokens.onChange = { [unowned self] in resumeAwaitingToken() }
        accessTokens.append(tokens)
        take(
            .fcm(renderer, tokens), fcm.tokens.credential.account.clientEmail, pace, for: bulkhead)
        formerTokens.retire()
        retire(former, unless: pace)
        resumeAwaitingToken()
    }

    private func replace(_ webPush: PushApp.WebPush, _ app: LaneApp) throws(LaneBuildError) {
        guard let services = app.webPush else { return }
        if services.trust.authorities != webPush.authorities {
            services.take(
                WebPushTrust(webPush.authorities, try builder.tls(trustedBy: webPush)))
        }
        let sender: WebPushSender
        do throws(OpenSSLError) {
            sender = try WebPushSender(webPush, replacing: services.sender)
        } catch {
            throw LaneBuildError(text: "web push of \(app.name): \(error)")
        }
        services.sender = sender
        for bulkhead in app.bulkheads where bulkhead.gateway == .webpush {
            take(.webpush(sender), sender.credential.name, for: bulkhead)
        }
    }

    private func replace(_ expo: PushApp.Expo, _ app: LaneApp) throws(LaneBuildError) {
        guard let gateway = app.expo, let bulkhead = app.bulkhead(.expo, .none) else { return }
        if gateway.authorities != expo.endpoint.authorities {
            gateway.pool.replaceConnections(
                with: try builder.tls(trusting: expo.endpoint.authorities))
            gateway.authorities = expo.endpoint.authorities
        }
        gateway.renderer = ExpoRenderer(
            expo.credential, authority: Origin(expo.endpoint).authority)
        take(.expo(gateway), app.name, for: bulkhead)
    }

    private func take(
        _ sender: Bulkhead.Sender, _ credential: String, _ pace: PoolPace? = nil,
        for bulkhead: Bulkhead
    ) {
        bulkhead.take(sender, credential: credential, pace: pace)
        alarms.replaced(bulkhead)
    }

    /// Counts a pool among the lane's, under the name of the one that it replaces.
    private func keep(_ pace: PoolPace, instead former: PoolPace) {
        guard !pools.contains(where: { $0 === pace }) else { return }
        pools.append(pace)
        pace.pool.delegate = self
        poolObservers.first { $0.observes(former.pool) }?.add(pace.pool)
    }

    /// Closes the connections of a pool that was replaced; apps with the same key share them.
    private func retire(_ former: PoolPace, unless pace: PoolPace) {
        guard former !== pace, !isInUse(former) else { return }
        former.retire()
        builder.forget(former)
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
