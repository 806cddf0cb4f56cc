// Holding back what an operator has paused. An event of a paused type, source or app leaves for the
// topic of held events, and what a paused gateway would get for that gateway's parking topic: once,
// not again and again. There it waits as the head of its partition, unread behind it, until it is
// resumed or expires.

internal import Base
internal import EventLoop
internal import Gateways
internal import Telemetry

extension Lane {
    /// Takes what an operator asks for from now on.
    func replace(_ levers: Levers) {
        if levers.loosenedAt != self.levers.loosenedAt {
            // Its moment is the operator's clock's, and it takes a while to arrive. What was set aside
            // until it did is looked at too; not so what was read again long after.
            let latest = levers.loosenedAt + Self.wordPatience
            loosenedSince = max(levers.loosenedAt, min(loop.wall, latest))
        }
        self.levers = levers
        lookAfterParking()
    }

    /// Whether an event may go on; if not, it was seen to.
    func passesLevers(_ event: EventInFlight) -> Bool {
        guard !levers.isIdle, let envelope = event.envelope else { return true }
        if isSkipped(event, envelope) {
            end(event, .expired, .skipped)
            return false
        }
        guard let kind = levers.hold(on: envelope, app: event.app?.name) else { return true }
        metrics.held(kind)
        if envelope.isOneAttempt {
            end(event, .expired, .paused)
        } else {
            setAsideHeld(event, kind)
        }
        return false
    }

    /// Whether a target may go on; if not, it was seen to.
    func passesLevers(
        _ target: TargetInFlight, of event: EventInFlight, _ envelope: EventEnvelope,
        _ bulkhead: Bulkhead
    ) -> Bool {
        if isSkipped(event, envelope) {
            settle(target, Settlement(outcome: .expired, reason: .skipped))
            return false
        }
        if levers.holds(bulkhead.gateway, bulkhead.environment) {
            metrics.held(.gateway)
            park(target, bulkhead, reason: .paused)
            return false
        }
        guard let kind = levers.hold(on: envelope, app: event.app?.name) else { return true }
        metrics.held(kind)
        postpone(
            target, for: .zero, in: .held,
            otherwise: Settlement(
                outcome: .expired, reason: .paused, detail: Self.holdDetail(kind)))
        return false
    }

    /// Whether a request that waits to be written is still wanted.
    func isWanted(
        _ target: TargetInFlight, of event: EventInFlight, _ envelope: EventEnvelope
    ) -> Bool {
        if isSkipped(event, envelope) || levers.hold(on: envelope, app: event.app?.name) != nil {
            return false
        }
        guard let bulkhead = target.bulkhead else { return true }
        return !levers.holds(bulkhead.gateway, bulkhead.environment)
    }

    /// Whether a held event, the head of its partition, goes on: to be sent, to be ended, or to the
    /// end of its topic, since behind it may be one that was resumed.
    func mayLeaveHold(_ event: EventInFlight, _ envelope: EventEnvelope) -> Bool {
        if envelope.expiresAt <= loop.wall || isSkipped(event, envelope) { return true }
        guard levers.hold(on: envelope, app: event.app?.name) != nil else { return true }
        return event.waitsSince < loosenedSince
    }

    /// How much later than its own moment an operator's word may arrive.
    private static let wordPatience = TimeSpan.seconds(10)

    func isSkipped(_ event: EventInFlight, _ envelope: EventEnvelope) -> Bool {
        levers.skips(envelope, app: event.app?.name, publishedAt: event.timestamp)
    }

    private func setAsideHeld(_ event: EventInFlight, _ kind: LeverKind) {
        putOff(
            event,
            Postponement(
                notBefore: loop.wall, code: Reason.paused.rawValue,
                detail: Self.holdDetail(kind), place: .held))
    }

    private static func holdDetail(_ kind: LeverKind) -> String {
        "an operator has paused its \(kind.rawValue)"
    }
}
