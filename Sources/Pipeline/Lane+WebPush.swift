// The way of a web push through a lane, where it differs: the endpoint decides the bulkhead, and
// the message is encrypted for the subscription.

internal import Base
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import TokenIndex

extension Lane {
    /// Chooses the push service of a target and sends it there.
    func startWebPush(
        _ target: TargetInFlight, of event: EventInFlight, _ envelope: EventEnvelope, _ app: LaneApp
    ) {
        guard let services = app.webPush, let address = target.address else { return }
        let subscription: WebPushSubscription
        do throws(WebPushSubscriptionError) {
            subscription = try services.sender.subscription(of: address)
        } catch {
            return settle(target, refusal(of: error))
        }
        let endpoint = subscription.endpoint
        guard let bulkhead = services.known(endpoint) ?? open(endpoint, services, app) else {
            return postponeUntried(
                target,
                otherwise: Settlement(
                    outcome: .failed, reason: .noRoom,
                    detail: "connections to \(services.limit) push services are open"))
        }
        target.bulkhead = bulkhead
        send(target, of: event, envelope, bulkhead)
    }

    /// The bulkhead of a push service that was not used lately; idle ones make room for it.
    private func open(
        _ endpoint: WebPushEndpoint, _ services: WebPushServices, _ app: LaneApp
    ) -> Bulkhead? {
        if let bulkhead = services.add(endpoint) { return keep(bulkhead, app) }
        drop(services.takeIdle(for: settings.serviceIdleMin, at: loop.now), of: app)
        return services.add(endpoint).map { keep($0, app) }
    }

    private func keep(_ bulkhead: Bulkhead, _ app: LaneApp) -> Bulkhead {
        app.add(bulkhead)
        pools.append(bulkhead.pace)
        bulkhead.pool.delegate = self
        // A new pool counts as used: it must live until its first request.
        bulkhead.pace.used(at: loop.now)
        return bulkhead
    }

    private func drop(_ bulkheads: [Bulkhead], of app: LaneApp) {
        for bulkhead in bulkheads {
            // Who waits for an older push of its line may still hold it.
            bulkhead.isDropped = true
            app.remove(bulkhead)
            pools.removeAll { $0 === bulkhead.pace }
            bulkhead.pool.close()
            bulkhead.pool.delegate = nil
        }
    }

    /// Forgets push services that nobody subscribes at any more.
    func dropIdleServices() {
        for app in apps {
            guard let services = app.webPush else { continue }
            drop(services.takeIdle(for: WebPushLimits.serviceIdle, at: loop.now), of: app)
        }
    }

    /// Builds the request of a target.
    func renderWebPush(
        _ content: PushContent, to target: TargetInFlight, at address: DeviceAddress,
        with sender: WebPushSender, into request: OutboundRequest
    ) -> RenderedTarget {
        let subscription: WebPushSubscription
        do throws(WebPushSubscriptionError) {
            subscription = try sender.subscription(of: address)
        } catch {
            return .settled(refusal(of: error))
        }
        let index = sender.keyIndex(for: address)
        let token: VAPIDToken
        do throws(VAPIDFault) {
            token = try sender.credential.token(
                for: subscription.endpoint,
                keyID: index.map { sender.credential.keyIDs[$0] } ?? address.vapidKeyID,
                at: loop.now, wall: loop.wall)
        } catch {
            return .settled(credentialFault(error))
        }
        target.credentialGeneration = token.generation
        target.credentialBorn = token.mintedAt
        let rendering = sender.renderer.render(
            content, to: subscription, authorization: token, into: request)
        if case .request = rendering, let index {
            target.vapidKey = index
            sender.built(for: address, with: index, at: loop.now)
        }
        return rendered(rendering, target, request)
    }

    /// Whether a push that was signed with another key than its subscription's goes out again with
    /// the next one: its registration names none, and the first key may be a newer one. Nothing was
    /// delivered, so nothing is repeated; nothing is said of the subscription before every key was
    /// refused.
    func takesOtherKey(_ verdict: Verdict, _ target: TargetInFlight) -> Bool {
        guard case .final(.tokenSuspended) = verdict.course,
            verdict.reason == .vapidKeyMismatch || verdict.reason == .vapidPkHashMismatch,
            let bulkhead = target.bulkhead, case .webpush(let sender) = bulkhead.sender,
            let address = target.address, address.vapidKeyID == nil,
            target.vapidKeysRefused + 1 < sender.credential.keyIDs.count
        else { return false }
        target.vapidKeysRefused += 1
        // Other keys may have come since, in another order.
        if target.credentialEpoch == bulkhead.credentialEpoch {
            sender.mistook(target.vapidKey, for: address)
        }
        return true
    }

    /// What becomes of a target whose subscription cannot be sent to. Nobody but a new registration
    /// can mend one that no push service has issued; where the app may send is the operator's word,
    /// which may change, and so the subscription stays.
    private func refusal(of error: WebPushSubscriptionError) -> Settlement {
        switch error {
        case .endpoint(.malformed(let detail)):
            Settlement(
                outcome: .tokenInvalid, reason: .malformedToken, detail: detail,
                tokenAction: .invalidate(asOf: loop.wall))
        case .keys(let detail):
            Settlement(
                outcome: .tokenInvalid, reason: .malformedKeys, detail: detail,
                tokenAction: .invalidate(asOf: loop.wall))
        case .endpoint(.forbidden(let detail)):
            Settlement(outcome: .rejected, reason: .endpointForbidden, detail: detail)
        }
    }

    private func credentialFault(_ fault: VAPIDFault) -> Settlement {
        switch fault {
        case .unknownKey(let id):
            Settlement(
                outcome: .credentialError, reason: .vapidKeyUnknown,
                detail: "the registration names the VAPID key \(id), which is not configured")
        case .signing(let error):
            Settlement(
                outcome: .credentialError, reason: .credentialUnavailable, detail: "\(error)")
        }
    }
}
