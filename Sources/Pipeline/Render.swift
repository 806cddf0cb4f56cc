// Render: from an event and an address to the bytes of a request. What a gateway would refuse is
// refused here, before it costs a request.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import Routes
internal import Telemetry
internal import TokenIndex

/// What came of building a target's request.
internal enum RenderedTarget {
    case request
    /// Nothing to send with yet; the target waits for an access token.
    case awaitsToken
    case settled(Settlement)
}

extension Lane {
    /// Builds the target's request with the credential of this moment.
    func render(
        _ target: TargetInFlight, of event: EventInFlight, _ bulkhead: Bulkhead,
        into request: OutboundRequest
    ) -> RenderedTarget {
        guard let address = target.address else {
            preconditionFailure("a target without an address is rendered")
        }
        let content: PushContent
        do throws(ContentError) {
            content = try self.content(of: event, for: target, at: address)
        } catch {
            return .settled(
                Settlement(
                    outcome: .rejected, reason: .invalidContent, detail: error.description))
        }
        content.turn(to: target.messageID, at: loop.wall)
        if let refusal = seal(content, for: target, of: event, at: address) {
            return .settled(refusal)
        }
        let kind: AddressKind =
            event.routed == nil ? .alert : AddressKind(rawValue: address.kind) ?? .alert
        let broadcast = event.envelope?.isBroadcast == true ? event.envelope?.to?.kind : nil
        switch bulkhead.sender {
        case .apns(let renderer, let credential):
            let token: ProviderToken
            do throws(OpenSSLError) {
                token = try bulkhead.providerToken(of: credential, at: loop.now, wall: loop.wall)
            } catch {
                return .settled(credentialFault("\(error)"))
            }
            target.credentialGeneration = token.generation
            target.credentialBorn = token.mintedAt
            let rendering = address.withToken { bytes in
                renderer.render(
                    content, to: pushTarget(address, kind, bytes, broadcast), authorization: token,
                    into: request)
            }
            return rendered(rendering, target, request)
        case .certificateAPNs(let renderer):
            let rendering = address.withToken { bytes in
                renderer.render(
                    content, to: pushTarget(address, kind, bytes, broadcast), authorization: nil,
                    into: request)
            }
            return rendered(rendering, target, request)
        case .fcm(let renderer, let tokens):
            switch tokens.token() {
            case .wait: return .awaitsToken
            case .unavailable(let fault):
                alarms.noToken(fault, bulkhead)
                return .settled(
                    Settlement(
                        outcome: .credentialError, reason: fault.reason,
                        detail: fault.explanation))
            case .use(let token):
                target.credentialGeneration = token.generation
                target.credentialBorn = token.fetchedAt
                let rendering = address.withToken { bytes in
                    renderer.render(
                        content, to: pushTarget(address, kind, bytes, broadcast),
                        authorization: token,
                        into: request)
                }
                return rendered(rendering, target, request)
            }
        case .webpush(let sender):
            return renderWebPush(content, to: target, at: address, with: sender, into: request)
        case .expo(let gateway):
            return renderExpo(content, to: target, at: address, with: gateway, into: request)
        }
    }

    func pushTarget(
        _ address: DeviceAddress, _ kind: AddressKind, _ token: UnsafeRawBufferPointer,
        _ broadcast: BroadcastTarget.Kind? = nil
    ) -> PushTarget {
        PushTarget(
            gateway: address.gateway, environment: address.environment, token: token,
            apnsTopic: address.apnsTopic,
            platform: address.gateway == .apns || broadcast != nil ? nil : address.platform,
            registeredAt: address.registeredAt, kind: kind, broadcast: broadcast,
            isInstallation: address.isInstallation(token))
    }

    private func credentialFault(_ detail: String) -> Settlement {
        Settlement(outcome: .credentialError, reason: .credentialUnavailable, detail: detail)
    }

    /// What a renderer's answer means for the target.
    func rendered(
        _ rendering: Rendering, _ target: TargetInFlight, _ request: OutboundRequest
    ) -> RenderedTarget {
        switch rendering {
        case .request(let notes):
            target.notes = notes
            target.payloadBytes = request.body.count
            return .request
        case .malformedToken(let detail):
            // Nobody but the registration can mend it: the same rule as for a token that the
            // gateway refuses, but without troubling the gateway.
            return .settled(
                Settlement(
                    outcome: .tokenInvalid, reason: .malformedToken, detail: detail,
                    tokenAction: .invalidate(asOf: loop.wall)))
        case .rejected(let reason, let detail):
            return .settled(Settlement(outcome: .rejected, reason: reason, detail: detail))
        case .tooLarge(let bytes, let limit):
            // Once: with the excess known, the body is as long as it can be.
            if target.excessBytes == 0, let event = target.event, let bulkhead = target.bulkhead,
                event.routed?.route.shrinksBody == true
            {
                target.excessBytes = bytes - limit
                return render(target, of: event, bulkhead, into: request)
            }
            return .settled(
                Settlement(
                    outcome: .rejected, reason: .localPayloadTooLarge,
                    detail: ContentMaker.sizes(bytes, limit)))
        case .expired: return .settled(Settlement(outcome: .expired))
        }
    }

    /// The event's content for one of its targets: without a route it is the same for all.
    private func content(
        of event: EventInFlight, for target: TargetInFlight, at address: DeviceAddress
    ) throws(ContentError) -> PushContent {
        guard let routed = event.routed else { return try content(of: event) }
        let version = try contents.version(
            of: routed, for: address, event.user, without: target.excessBytes
        ) { base(of: event) }
        guard let content = version.content else {
            preconditionFailure("a version without content was kept")
        }
        return content
    }

    /// Encrypts what only the device may read, where the route says so; what it returns stands in
    /// the way of sending.
    private func seal(
        _ content: PushContent, for target: TargetInFlight, of event: EventInFlight,
        at address: DeviceAddress
    ) -> Settlement? {
        guard let routed = event.routed, routed.route.encrypts,
            let version = routed.versions.first(where: { $0.content === content })
        else { return nil }
        switch contents.seal(version, as: content, app: event.app?.name ?? "", for: address) {
        case .sealed: return nil
        case .refused(let outcome, let reason, let detail):
            return Settlement(outcome: outcome, reason: reason, detail: detail)
        }
    }

    /// The event's content: read once for all of its targets.
    private func content(of event: EventInFlight) throws(ContentError) -> PushContent {
        if let content = event.content { return content }
        guard let envelope = event.envelope else {
            preconditionFailure("an event without its envelope is rendered")
        }
        let content = try contents.content(of: envelope, base: base(of: event))
        if event.targets.count > 1 { content.shared = event.shared }
        event.content = content
        return content
    }

    private func base(of event: EventInFlight) -> PushContent {
        guard let envelope = event.envelope else {
            preconditionFailure("an event without its envelope is rendered")
        }
        return contents.base(
            of: envelope, event.routed, event.user, app: event.app?.name ?? "",
            identity: event.identity, now: loop.wall)
    }
}

extension DeviceAddress {
    /// Whether the client registered a Firebase installation id instead of a token: it says so with
    /// the capability `fcm_fid`. Tokens have a colon, which the ids never have.
    func isInstallation(_ token: UnsafeRawBufferPointer) -> Bool {
        gateway == .fcm && !token.contains(UInt8(ascii: ":")) && capabilities.contains("fcm_fid")
    }
}
