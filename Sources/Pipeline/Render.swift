// Render: from an event and an address to the bytes of a request. What a gateway would refuse is
// refused here, before it costs a request.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
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
    func render(_ target: TargetInFlight, into request: OutboundRequest) -> RenderedTarget {
        guard let event = target.event, let address = target.address,
            let bulkhead = target.bulkhead
        else { preconditionFailure("a target without event, address or bulkhead is rendered") }
        let content: PushContent
        do throws(ContentError) {
            content = try self.content(of: event, for: target)
        } catch {
            return .settled(
                Settlement(
                    outcome: .rejected, reason: .invalidContent, detail: error.description))
        }
        let pushTarget = PushTarget(
            gateway: address.gateway, environment: address.environment,
            token: address.withToken { Array($0) }, apnsTopic: address.apnsTopic,
            platform: address.platform, registeredAt: address.registeredAt)
        switch bulkhead.sender {
        case .apns(let renderer, let credential):
            let token: ProviderToken
            do throws(OpenSSLError) {
                token = try credential.token(at: loop.now, wall: loop.wall)
            } catch {
                return .settled(credentialFault("\(error)"))
            }
            target.credentialGeneration = token.generation
            target.credentialBorn = token.mintedAt
            return rendered(
                renderer.render(content, to: pushTarget, authorization: token, into: request),
                target, request)
        case .fcm(let renderer, let tokens):
            switch tokens.token() {
            case .wait: return .awaitsToken
            case .unavailable(let fault):
                return .settled(
                    Settlement(
                        outcome: .credentialError, reason: fault.reason,
                        detail: fault.explanation))
            case .use(let token):
                target.credentialGeneration = token.generation
                target.credentialBorn = token.fetchedAt
                return rendered(
                    renderer.render(content, to: pushTarget, authorization: token, into: request),
                    target, request)
            }
        }
    }

    private func credentialFault(_ detail: String) -> Settlement {
        Settlement(outcome: .credentialError, reason: .credentialUnavailable, detail: detail)
    }

    private func rendered(
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
        case .expired: return .settled(Settlement(outcome: .expired))
        }
    }

    /// The event's content for one of its targets: read once, then only the identity and the time
    /// change.
    private func content(
        of event: EventInFlight, for target: TargetInFlight
    ) throws(ContentError) -> PushContent {
        if event.content == nil { event.content = try content(of: event) }
        event.content?.messageID = target.messageID
        event.content?.now = loop.wall
        guard let content = event.content else {
            preconditionFailure("an event's content was just set")
        }
        return content
    }

    private func content(of event: EventInFlight) throws(ContentError) -> PushContent {
        guard let envelope = event.envelope else {
            preconditionFailure("an event without its envelope is rendered")
        }
        var content = PushContent(
            messageID: event.identity, eventType: envelope.type, eventIdentity: event.identity,
            now: loop.wall)
        content.audience = audience(of: event, envelope)
        content.expiresAt = envelope.expiresAt
        content.storesNothing = envelope.isOneAttempt
        content.priority = envelope.priority
        content.collapseKey = envelope.collapseKey
        content.unread = envelope.unread
        content.cursor = envelope.cursor.map { .init(log: $0.log, seq: $0.sequence) }
        content.validateOnly = envelope.isValidation
        try content.take(
            notification: envelope.content.notification, data: envelope.content.data,
            apns: envelope.content.apns, fcm: envelope.content.fcm)
        content.sharedPayload = event.payload
        return content
    }

    /// The audience tag: the first 8 bytes of a SHA-256 over app and user, so that a client that
    /// knows its own user can compare, and a lock screen tells nothing.
    private func audience(of event: EventInFlight, _ envelope: EventEnvelope) -> String {
        scratch.removeAll()
        scratch.append(envelope.app ?? event.app?.name ?? "")
        scratch.append("\u{0}")
        scratch.append(envelope.userID)
        return SHA256Digest(of: scratch.bytes).withUnsafeBytes { Hex.encode($0[..<8]) }
    }
}
