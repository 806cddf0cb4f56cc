// Room and rest: a bulkhead takes as many requests as its budget allows, and none while its breaker
// is open. What cannot be sent waits a moment for room, then in the gateway's parking topic, whose
// head is looked at until the bulkhead takes it.

internal import Base
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Kafka
internal import Telemetry

extension Lane {
    /// Whether a target may be submitted now; if not, it was seen to.
    func takesRoom(_ target: TargetInFlight, _ bulkhead: Bulkhead) -> Bool {
        switch bulkhead.breaker.admit(at: loop.now) {
        case .go:
            if let rest = bulkhead.rest.left(at: loop.now) {
                guard rest > settings.roomPatience else {
                    waitForRoom(target, bulkhead)
                    return false
                }
                park(target, bulkhead, reason: .throttled)
                return false
            }
            if queuesBehindParked(target, bulkhead) {
                park(target, bulkhead, reason: .noRoom)
                return false
            }
            guard bulkhead.budget.hasRoom(for: target.eventClass) else {
                waitForRoom(target, bulkhead)
                return false
            }
            if let permits = bulkhead.permits, !permits.take() {
                waitForRoom(target, bulkhead)
                return false
            }
        case .probe:
            target.isProbe = true
            bulkhead.pool.forgetBackOff()
        case .park:
            park(target, bulkhead, reason: .gatewayUnavailable)
            return false
        }
        target.waitsForRoomSince = nil
        return true
    }

    /// A target that was let through did not become a request after all.
    func leaveRoom(_ target: TargetInFlight) {
        guard target.isProbe else { return }
        target.isProbe = false
        target.bulkhead?.breaker.probeWasted(at: loop.now)
    }

    private func waitForRoom(_ target: TargetInFlight, _ bulkhead: Bulkhead) {
        let since = target.waitsForRoomSince ?? loop.now
        target.waitsForRoomSince = since
        guard loop.now - since < settings.roomPatience, !standsStill(bulkhead) else {
            return park(target, bulkhead, reason: .noRoom)
        }
        if bulkhead.admittedClass == target.eventClass {
            bulkhead.waitingAgain.append(target)
        } else {
            bulkhead.waiting[target.eventClass].append(target)
        }
        watchParking()
    }

    /// Whether a bulkhead that has no room has not answered for much longer than it takes. Room
    /// comes with answers: where none comes, each that waits takes room from all others. Before the
    /// first answer nobody knows how long it takes, and tokens and connections are still made.
    private func standsStill(_ bulkhead: Bulkhead) -> Bool {
        guard bulkhead.budget.inFlight > 0, bulkhead.pace.roundTrip.smoothed > .zero else {
            return false
        }
        let since = bulkhead.stillSince ?? loop.now
        bulkhead.stillSince = since
        return loop.now - since >= max(settings.stillness, bulkhead.pace.roundTrip.smoothed * 4)
    }

    /// Moves a target to its gateway's parking topic, without an attempt.
    func park(_ target: TargetInFlight, _ bulkhead: Bulkhead, reason: Reason) {
        let isPaused = reason == .paused
        let settlement = Settlement(
            outcome: isPaused ? .expired : .failed, reason: reason,
            detail: isPaused
                ? "an operator has paused \(bulkhead.gateway.rawValue)"
                : "\(bulkhead.gateway.rawValue) takes no more")
        target.waitsForRoomSince = nil
        bulkhead.parkedAt = loop.now
        // The parking topic is one for all push services and for all apps: behind the events of one
        // that is down those of the others would wait. In the retry topics nobody waits for anybody
        // else.
        let isInTheWay =
            bulkhead.service == nil
            ? !isPaused && othersGoOn(beside: bulkhead) : reason == .gatewayUnavailable
        if isInTheWay { return postponeUntried(target, otherwise: settlement) }
        let lot = ParkingLot(gateway: bulkhead.gateway, environment: bulkhead.environment)
        postpone(target, for: .zero, in: .lot(lot), otherwise: settlement)
    }

    // MARK: What a request's end says

    /// A request came back, answered or not.
    func gaveRoom(_ target: TargetInFlight, _ bulkhead: Bulkhead, isGood: Bool) {
        bulkhead.budget.gave(grows: isGood && bulkhead.pace.roundTrip.isUsual)
        bulkhead.stillSince = nil
        if !bulkhead.waiting.isEmpty { admitWaiting(bulkhead) }
    }

    /// The gateway answered for itself.
    func gatewayWorked(_ target: TargetInFlight, _ bulkhead: Bulkhead) {
        target.isProbe = false
        bulkhead.workedAt = loop.now
        let wasClosed = bulkhead.breaker.isClosed
        bulkhead.breaker.succeeded(at: loop.now)
        guard !wasClosed else { return }
        alarms.recovered(bulkhead)
        observeParked()
        returnParked()
    }

    /// The gateway did not answer, or with an error of its own.
    func gatewayFailed(_ target: TargetInFlight, _ bulkhead: Bulkhead) {
        target.isProbe = false
        guard bulkhead.breaker.failed(at: loop.now, using: &loop.random) else { return }
        alarms.unavailable(bulkhead)
        admitWaiting(bulkhead)
    }

    /// Goes on with those that wait for room, the most urgent first and each class in its order: they
    /// are sent, wait on, or are parked.
    private func admitWaiting(_ bulkhead: Bulkhead) {
        guard bulkhead.admittedClass == nil else { return }
        defer { bulkhead.admittedClass = nil }
        for eventClass in WaitingTargets.classes {
            bulkhead.admittedClass = eventClass
            while let first = bulkhead.waiting[eventClass].first, mayGoOn(first, bulkhead),
                let target = bulkhead.waiting[eventClass].popFirst()
            {
                send(target)
                guard !bulkhead.waitingAgain.isEmpty else { continue }
                // It waits again, or one that took its place does: nobody behind it has more right
                // to the room that it did not get.
                bulkhead.waiting[eventClass].putBack(bulkhead.waitingAgain)
                bulkhead.waitingAgain.removeAll(keepingCapacity: true)
                break
            }
        }
    }

    /// Whether to look at one that waits: there is room, or it need not wait for it any longer.
    /// Looking costs another look-up of its address when it has waited for a second.
    private func mayGoOn(_ target: TargetInFlight, _ bulkhead: Bulkhead) -> Bool {
        guard bulkhead.breaker.isClosed else { return true }
        let rest = bulkhead.rest.left(at: loop.now)
        // Its pause outlasts all patience, and so does the wait.
        if let rest, rest > settings.roomPatience { return true }
        if rest == nil, bulkhead.budget.hasRoom(for: target.eventClass),
            bulkhead.permits?.mayTry != false
        {
            return true
        }
        let since = target.waitsForRoomSince ?? loop.now
        return loop.now - since >= settings.roomPatience || standsStill(bulkhead)
    }

    // MARK: What is parked

    /// Whether an event of that partition may go on now: always, unless it was parked.
    func mayReturn(_ event: EventInFlight, to partition: AssignedPartition) -> Bool {
        guard let envelope = event.envelope else { return true }
        if partition.road == .held { return mayLeaveHold(event, envelope) }
        guard case .parked(let lot) = partition.road else { return true }
        if !levers.isIdle {
            if isSkipped(event, envelope) { return true }
            if levers.holds(lot.gateway, lot.environment) { return envelope.expiresAt <= loop.wall }
        }
        guard envelope.expiresAt > loop.wall, let bulkhead = bulkhead(of: lot, for: event) else {
            return true
        }
        // Where it stands in the way of other apps it goes and waits elsewhere.
        let isAlone = bulkhead.service != nil || !othersGoOn(beside: bulkhead)
        guard bulkhead.breaker.isClosed else { return mayProbe(bulkhead) || !isAlone }
        let hasRoom =
            bulkhead.rest.left(at: loop.now) == nil
            && bulkhead.waiting.isEmpty(upTo: event.eventClass)
            && bulkhead.permits?.isDry != true && bulkhead.budget.hasRoom(for: event.eventClass)
        if hasRoom, bulkhead.breaker.takeReturn(at: loop.now) {
            partition.stillSince = nil
            return true
        }
        let since = partition.stillSince ?? loop.now
        partition.stillSince = since
        return !isAlone && loop.now - since > settings.roomPatience
    }

    /// Whether another app whose events share the parking topic with a bulkhead's goes on sending,
    /// or has parked some of its own and may see whether it can: perhaps only what is parked behind
    /// is left to do that. One that has nothing to send is in nobody's way: for its sake alone
    /// nothing leaves the topic where it lies still.
    private func othersGoOn(beside bulkhead: Bulkhead) -> Bool {
        guard apps.count > 1 else { return false }
        return apps.contains { app in
            guard app.name != bulkhead.app,
                let other = app.bulkhead(bulkhead.gateway, bulkhead.environment)
            else { return false }
            let isAtWork =
                loop.now - other.workedAt < settings.atWork
                || loop.now - other.parkedAt < settings.atWorkAfterParking
            return isAtWork && other.breaker.wouldAdmit(at: loop.now)
                && other.rest.left(at: loop.now) == nil
        }
    }

    // MARK: Behind what is parked

    /// Whether a new event's target waits its turn behind those that were parked before it: events
    /// that were published in the time of an outage would otherwise come after those of the time
    /// after it. Not critical ones, and none that may not wait.
    private func queuesBehindParked(_ target: TargetInFlight, _ bulkhead: Bulkhead) -> Bool {
        guard !parkedBehind.isEmpty, target.eventClass != .critical, bulkhead.service == nil,
            let event = target.event, event.partition?.road == .events,
            event.envelope?.isOneAttempt == false, event.envelope?.isValidation == false
        else { return false }
        let lot = ParkingLot(gateway: bulkhead.gateway, environment: bulkhead.environment)
        guard parkedBehind[lot]?.contains(event.position.partition) == true else { return false }
        // Those that are parked may be another app's.
        return apps.count { $0.bulkhead(lot.gateway, lot.environment) != nil } == 1
    }

    /// Looks for which partitions what is parked waits for longer than a target waits for room.
    func observeParked() {
        parkedBehind.removeAll()
        for partition in partitions {
            guard case .parked(let lot) = partition.road,
                partition.unread > 0 || partition.head != nil,
                loop.wall - partition.parkedAt > settings.roomPatience
            else { continue }
            parkedBehind[lot, default: []].insert(partition.assignment.place.partition)
        }
    }

    /// What a parked event waits for; of web push the service of its first target.
    private func bulkhead(of lot: ParkingLot, for event: EventInFlight) -> Bulkhead? {
        guard lot.gateway == .webpush else {
            return event.app?.bulkhead(lot.gateway, lot.environment)
        }
        return event.reentry?.pending.first?.service.flatMap {
            event.app?.webPush?.known(origin: $0)
        }
    }

    /// Whether a parked event may go and see: one at a time, or the others would only be written
    /// back to where they were.
    private func mayProbe(_ bulkhead: Bulkhead) -> Bool {
        guard bulkhead.breaker.wouldAdmit(at: loop.now),
            loop.now - bulkhead.probeSentAt > settings.probeInterval
        else { return false }
        bulkhead.probeSentAt = loop.now
        return true
    }

    /// Looks after parked heads and waiting targets until there are none.
    func watchParking() {
        guard !parkingTimer.isScheduled else { return }
        loop.schedule(parkingTimer, at: loop.now + settings.parkingInterval)
    }

    /// One look at everything that waits for a bulkhead.
    func lookAfterParking() {
        for app in apps {
            for bulkhead in app.bulkheads where !bulkhead.waiting.isEmpty { admitWaiting(bulkhead) }
        }
        returnParked()
        let waits =
            partitions.contains { $0.head?.holdTimer == nil && $0.head != nil }
            || apps.contains { $0.bulkheads.contains { !$0.waiting.isEmpty } }
        if waits { watchParking() }
        flushAtEndOfTurn()
    }

    private func returnParked() {
        for partition in partitions {
            guard partition.road.isParking, let head = partition.head,
                mayReturn(head, to: partition)
            else { continue }
            partition.head = nil
            mayHaveRecords = true
            admit(head)
        }
        flushAtEndOfTurn()
    }
}

extension TargetInFlight {
    /// The class of its event.
    fileprivate var eventClass: EventClass { event?.eventClass ?? .transactional }
}
