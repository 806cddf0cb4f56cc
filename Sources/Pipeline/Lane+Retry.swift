// Waits that are too long for a lane. What is put off leaves through a retry topic, in the same
// batch as the results of the event's other targets, and comes back as an event whose targets are
// fixed.

internal import Base
internal import EventLoop
internal import Gateways
internal import Kafka
internal import Telemetry
internal import TokenIndex

/// Why a target leaves the lane without an outcome, and until when.
internal struct Postponement {
    var notBefore: UnixMillis
    /// One word for `bugle-error-code`.
    var code: String
    /// For a person.
    var detail: String
    /// Set when it does not wait for a time.
    var place: WaitingPlace?

    /// The code of what waits for its time.
    static let holdCode = "hold"
}

extension Lane {
    /// Puts one target off. What may not be stored ends in `settlement`, what would come back too
    /// late has expired.
    func postpone(
        _ target: TargetInFlight, for wait: TimeSpan, in place: WaitingPlace? = nil,
        otherwise settlement: Settlement
    ) {
        guard let event = target.event, let envelope = event.envelope else { return }
        if event.isHandedOver { return letGo(target) }
        if envelope.isOneAttempt { return settle(target, settlement) }
        let notBefore = loop.wall + wait
        if notBefore >= envelope.expiresAt {
            var settlement = settlement
            settlement.outcome = .expired
            return settle(target, settlement)
        }
        if event.line != nil, !mayBePutOff(target) { return }
        target.postponement = Postponement(
            notBefore: notBefore, code: settlement.reason?.rawValue ?? Postponement.holdCode,
            detail: settlement.detail, place: place)
        target.bulkhead?.metrics.postponed.add(1)
        event.postponedTargets += 1
        let next = target.isOrdered ? leaveTurn(target) : nil
        targetSettled(event)
        if let next { send(next) }
    }

    /// Puts one target off that had no attempt in vain: somebody else was to blame. Each time it
    /// waits longer.
    func postponeUntried(_ target: TargetInFlight, otherwise settlement: Settlement) {
        let wait = settings.tiers.patience(after: target.waits)
        target.waits += 1
        postpone(target, for: wait, otherwise: settlement)
    }

    /// Writes the retry records of an event's postponed targets: one for each topic that they go
    /// to, since a device that is throttled must not keep the others waiting.
    func addRetryRecords(of event: EventInFlight) {
        let writer = RetryRecord(event, settings, now: loop.wall)
        var byTopic: [OutputTopic: [TargetInFlight]] = [:]
        for target in event.targets {
            guard let postponement = target.postponement else { continue }
            byTopic[writer.topic(for: postponement), default: []].append(target)
        }
        for targets in byTopic.values {
            let postponements = targets.compactMap(\.postponement)
            guard var first = postponements.first else { continue }
            first.notBefore = postponements.map(\.notBefore).min() ?? first.notBefore
            for part in RetryRecord.parts(of: targets.compactMap(\.asPending)) {
                writer.add(part, isFannedOut: true, postponement: first, to: outbox)
            }
        }
    }

    // MARK: Coming back

    /// Every open target of an event that came back too late.
    func expire(_ event: EventInFlight) {
        let wasHeld = event.partition?.road == .held
        end(event, .expired, wasHeld ? .paused : nil)
    }

    /// Ends an event that was not looked up in this lane: every open target of it.
    func end(_ event: EventInFlight, _ outcome: Outcome, _ reason: Reason?) {
        guard event.reentry?.targets != nil else {
            return endWithoutTargets(event, outcome, reason)
        }
        takeUpTargets(event)
        settleTogether(event) { target in
            settle(target, Settlement(outcome: outcome, reason: reason))
        }
    }

    /// Ends the targets that were fixed earlier when the routes of today have no use for their
    /// event; false when there are none. A dead letter would leave them without an outcome.
    func rejectOpenTargets(of event: EventInFlight, _ refusal: Refusal) -> Bool {
        guard event.reentry?.targets != nil, event.app != nil else { return false }
        identify(event)
        takeUpTargets(event)
        guard !event.targets.isEmpty else { return false }
        settleTogether(event) { target in
            settle(
                target,
                Settlement(
                    outcome: .rejected, reason: .invalidContent, detail: refusal.reason))
        }
        return true
    }

    /// Goes on with the targets that were fixed earlier: each with its address as it is now.
    func resume(_ event: EventInFlight, _ addresses: [DeviceAddress], at time: MonotonicTime) {
        takeUpTargets(event)
        settleTogether(event) { target in
            guard let former = target.former,
                let address = addresses.first(where: { $0.addressID == former.addressID })
            else {
                return settle(target, Settlement(outcome: .suppressed, reason: .superseded))
            }
            target.address = address
            target.lookedUpAt = time
            if let newer = event.line?.newer(than: target, at: loop.wall) {
                return fold(target, into: newer)
            }
            let wait = former.notBefore - loop.wall
            if wait <= .zero { return start(target) }
            target.bulkhead = event.app?.bulkhead(address.gateway, address.environment)
            if wait <= settings.retry.longestWait { return wake(target, after: wait) }
            postpone(target, for: wait, otherwise: Settlement(outcome: .failed))
        }
    }

    /// Sends a target after a wait in place.
    func wake(_ target: TargetInFlight, after wait: TimeSpan) {
        let timer = LoopTimer { [unowned self, unowned target] in
            target.timer = nil
            start(target)
            flushAtEndOfTurn()
        }
        target.timer = timer
        loop.schedule(timer, at: loop.now + wait)
    }

    func takeUpTargets(_ event: EventInFlight) {
        guard let reentry = event.reentry else { return }
        event.fannedOutAt = reentry.fannedOutAt
        let stems = writeStems(of: event)
        for pending in reentry.pending {
            let target = targets.take()
            target.event = event
            target.former = pending
            target.index = pending.index
            target.attempts = pending.attempts
            target.waits = pending.waits
            target.firstSentAt = pending.firstSentAt
            target.wasAmbiguous = pending.wasAmbiguous
            var id = pending.addressID
            id.withUTF8 { identify(target, UnsafeRawBufferPointer($0), stems) }
            event.targets.append(target)
        }
    }
}

extension TargetInFlight {
    /// What has to be known of it when it comes back.
    fileprivate var asPending: PendingTarget? {
        guard let address, let postponement else { return nil }
        var pending = PendingTarget(
            addressID: address.addressID, index: index, gateway: address.gateway.rawValue,
            environment: address.environment.rawValue, platform: address.platform,
            appVersion: address.appVersion, tokenHash: address.tokenName)
        pending.service = bulkhead?.service?.origin
        pending.attempts = attempts
        pending.waits = waits
        pending.notBefore = postponement.notBefore
        pending.firstSentAt = firstSentAt
        pending.wasAmbiguous = wasAmbiguous
        return pending
    }
}
