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
    func render(
        _ target: TargetInFlight, of event: EventInFlight, _ bulkhead: Bulkhead,
        into request: OutboundRequest
    ) -> RenderedTarget {
        guard let address = target.address else {
            preconditionFailure("a target without an address is rendered")
        }
        let content: PushContent
        do throws(ContentError) {
            content = try self.content(of: event)
        } catch {
            return .settled(
                Settlement(
                    outcome: .rejected, reason: .invalidContent, detail: error.description))
        }
        content.turn(to: target.messageID, at: loop.wall)
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
                    content, to: pushTarget(address, bytes), authorization: token, into: request)
            }
            return rendered(rendering, target, request)
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
                let rendering = address.withToken { bytes in
                    renderer.render(
                        content, to: pushTarget(address, bytes), authorization: token,
                        into: request)
                }
                return rendered(rendering, target, request)
            }
        }
    }

    private func pushTarget(
        _ address: DeviceAddress, _ token: UnsafeRawBufferPointer
    ) -> PushTarget {
        PushTarget(
            gateway: address.gateway, environment: address.environment, token: token,
            apnsTopic: address.apnsTopic,
            platform: address.gateway == .apns ? nil : address.platform,
            registeredAt: address.registeredAt)
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

    /// The event's content: read once for all of its targets.
    private func content(of event: EventInFlight) throws(ContentError) -> PushContent {
        if let content = event.content { return content }
        guard let envelope = event.envelope else {
            preconditionFailure("an event without its envelope is rendered")
        }
        let content = PushContent(
            messageID: event.identity, eventType: envelope.type, eventIdentity: event.identity,
            now: loop.wall, audience: audience(of: event, envelope),
            expiresAt: envelope.expiresAt, storesNothing: envelope.isOneAttempt,
            priority: envelope.priority, collapseKey: envelope.collapseKey,
            unread: envelope.unread,
            cursor: envelope.cursor.map { .init(log: $0.log, seq: $0.sequence) },
            validateOnly: envelope.isValidation,
            shared: event.targets.count > 1 ? event.shared : nil)
        try content.take(
            notification: envelope.content.notification, data: envelope.content.data,
            apns: envelope.content.apns, fcm: envelope.content.fcm)
        event.content = content
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
