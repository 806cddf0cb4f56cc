// Fairness: how often a person, a device and a source are served, in all replicas together. A
// person's caps and a source's quota count events, once, between look-up and fan-out; a device's
// slots count its silent pushes, each before it is sent. What is not sent in the end gives back
// what it took. Routes and apps without caps ask nothing.

internal import Base
internal import EventLoop
internal import Gateways
public import Routes
internal import Telemetry
public import TokenIndex

/// What an event counts for. Lane-confined.
internal final class UsageClaim {
    /// Of its user.
    let caps: [UsageCap]
    /// Questions that are not answered.
    var open = 0
    /// Why it does not go out.
    var refusal: Reason?
    /// Whether it has its places.
    var isTaken = false
    /// The store said nothing: everything is asked again.
    var isUnknown = false

    init(_ caps: [UsageCap]) { self.caps = caps }
}

extension Caps {
    /// Everything that counts for a person, in the order of its names.
    public var people: [UsageCap] {
        [user.map { UsageCap("user", $0) }].compactMap(\.self)
            + preferences.sorted { $0.key < $1.key }.map { Self.cap(of: $0.key, $0.value) }
    }

    private static func cap(of preference: String, _ cap: Cap) -> UsageCap {
        UsageCap("preferences.\(preference)", cap)
    }

    /// What an event of a route counts for with its user.
    func personal(of route: Route?) -> [UsageCap] {
        guard let preference = route?.preference else { return [] }
        var caps: [UsageCap] = []
        if let user { caps.append(UsageCap("user", user)) }
        if let cap = preferences[preference] { caps.append(Self.cap(of: preference, cap)) }
        return caps
    }

    /// What an event counts for with its source.
    func quotas(of source: String) -> [UsageQuota] {
        guard let quota = quota(of: source) else { return [] }
        return [quota.rate.map { UsageQuota("rate", $0) }, quota.day.map { UsageQuota("day", $0) }]
            .compactMap(\.self)
    }
}

// MARK: - People and sources

extension Lane {
    /// Whether an event waits to be counted, or is over because it would be one too many.
    func awaitsPlace(
        _ event: EventInFlight, _ addresses: [DeviceAddress], _ lookUp: HeldLookUp
    ) -> Bool {
        guard let usage, event.reentry?.targets == nil, let envelope = event.envelope,
            let app = event.app, !envelope.isValidation
        else { return false }
        if let claim = event.claim, claim.open == 0 { return false }
        let caps =
            envelope.isBroadcast ? [] : routes.caps.personal(of: event.routed?.route)
        let quotas = event.isCounted ? [] : routes.caps.quotas(of: envelope.source)
        guard !caps.isEmpty || !quotas.isEmpty else { return false }
        // What no device gets counts for nobody.
        let wouldBeSent = addresses.contains {
            envelope.addresses($0, event.routed?.route) && !$0.isQuarantined
                && suppression(of: $0, by: event.routed, event.user) == nil
        }
        guard wouldBeSent else { return false }
        let claim = UsageClaim(caps)
        claim.open = (caps.isEmpty ? 0 : 1) + (quotas.isEmpty ? 0 : 1)
        event.claim = claim
        event.heldLookUp = lookUp
        if !caps.isEmpty {
            usage.takePlace(
                of: event.identity, in: caps, app: app.name, userID: envelope.userID,
                at: loop.wall
            ) { [weak self] answer in
                if case .success(nil) = answer { claim.isTaken = true }
                self?.counted(event, claim, answer.map { $0 == nil ? nil : .overCap })
            }
        }
        if !quotas.isEmpty {
            usage.count(for: envelope.source, in: quotas, at: loop.wall) { [weak self] answer in
                // Places are taken by id, but a source's events are only counted: once each.
                if case .success(nil) = answer, event.claim === claim { event.isCounted = true }
                self?.counted(event, claim, answer.map { $0 == nil ? nil : .overQuota })
            }
        }
        return true
    }

    private func counted(
        _ event: EventInFlight, _ claim: UsageClaim, _ answer: Result<Reason?, UsageFault>
    ) {
        guard event.claim === claim else { return }
        claim.open -= 1
        switch answer {
        case .success(let refusal): claim.refusal = claim.refusal ?? refusal
        case .failure(let fault):
            alarms.usageFault(fault)
            if case .away = fault { claim.isUnknown = true } else { metrics.uncounted.add(1) }
        }
        guard claim.open == 0, let lookUp = event.heldLookUp else { return }
        event.heldLookUp = nil
        flushAtEndOfTurn()
        if claim.isUnknown {
            // As with a look-up that nobody answers. What was taken is taken by the same id again.
            event.claim = nil
            return hold(event, for: settings.lookUpRetryInterval)
        }
        if let refusal = claim.refusal { return suppress(event, refusal) }
        fanOut(event, lookUp.addresses, dropped: lookUp.dropped, at: lookUp.time)
    }

    /// An event that nothing was sent for, nor will be, gives its places back.
    func returnUnusedPlaces(of event: EventInFlight) {
        guard let claim = event.claim, claim.isTaken, let envelope = event.envelope,
            let app = event.app, event.postponedTargets == 0,
            event.targets.allSatisfy({ $0.attempts == 0 })
        else { return }
        usage?.returnPlace(
            of: event.identity, in: claim.caps, app: app.name, userID: envelope.userID)
    }
}

// MARK: - Devices

extension EventInFlight {
    /// Whether its pushes wake an app and show nothing.
    fileprivate var isSilent: Bool {
        if let routed { return routed.kind == .silent || routed.kind == .hint }
        guard let content = envelope?.content else { return false }
        return content.notification == nil && content.apns == nil
    }
}

extension Lane {
    /// Whether a target waits for a slot of its device, or is over without one.
    func awaitsSlot(
        _ target: TargetInFlight, of event: EventInFlight, _ envelope: EventEnvelope
    ) -> Bool {
        guard !target.hasSlot, event.isSilent, let usage, let cap = routes.caps.silent,
            let address = target.address, !envelope.isValidation, !envelope.isBroadcast
        else { return false }
        if envelope.expiresAt <= loop.wall {
            settle(target, Settlement(outcome: .expired))
            return true
        }
        let request = SlotRequest(
            id: target.messageID, time: event.timestamp, offset: event.position.offset,
            hasWaited: target.awaitedSlot || target.former.map { $0.attempts == 0 } ?? false,
            patience: patience(of: envelope))
        usage.takeSlot(request, of: address.addressID, cap, at: loop.wall) {
            [weak self] answer in
            self?.flushAtEndOfTurn()
            self?.slotAnswered(target, answer)
        }
        return true
    }

    private func slotAnswered(_ target: TargetInFlight, _ answer: Result<SlotAnswer, UsageFault>) {
        guard let event = target.event, let envelope = event.envelope else { return }
        switch answer {
        case .success(.taken):
            target.hasSlot = true
            send(target)
        case .success(.replaced): settle(target, Self.slotless(", and a newer one goes first"))
        case .success(.waits(let until)):
            let wait = until - loop.wall
            let isShort = wait <= settings.retry.longestWait
            guard until <= patience(of: envelope) else {
                return settle(target, Self.slotless(" before it expires"))
            }
            metrics.delayed(.silentCap)
            target.awaitedSlot = true
            if isShort {
                wake(target, after: wait)
            } else {
                postpone(
                    target, for: wait,
                    otherwise: Settlement(outcome: .suppressed, detail: "the cap of silent pushes"))
            }
        case .failure(let fault):
            alarms.usageFault(fault)
            guard case .away = fault else {
                metrics.uncounted.add(1)
                target.hasSlot = true
                return send(target)
            }
            wake(target, after: settings.lookUpRetryInterval)
        }
    }

    /// Until when a push can wait for a slot: what is not stored waits in the lane alone.
    private func patience(of envelope: EventEnvelope) -> UnixMillis {
        let last = envelope.expiresAt - .milliseconds(1)
        return envelope.isOneAttempt ? min(last, loop.wall + settings.retry.longestWait) : last
    }

    private static func slotless(_ why: String) -> Settlement {
        Settlement(
            outcome: .suppressed, reason: .overCap, detail: "no silent push is free\(why)")
    }

    /// A target that nothing was sent for gives its slot back.
    func returnSlot(of target: TargetInFlight) {
        guard let address = target.address else { return }
        usage?.returnSlot(of: target.messageID, of: address.addressID)
    }
}
