// Partitions come and go: what the group decides reaches the lane here.

internal import Base
internal import EventLoop
internal import Gateways
internal import Kafka
internal import Routes
internal import Telemetry

extension Lane {
    /// A partition is this lane's from now on.
    func assign(_ assignment: PartitionAssignment) {
        let eventClass = settings.classes[assignment.place.topic] ?? .transactional
        let partition = AssignedPartition(
            assignment, eventClass: eventClass, configurationHash: configurationHash, settings)
        partition.putOffAt = loop.now
        partitions.append(partition)
        noteUrgent()
        if case .parked(let lot) = partition.road {
            // Whose events lie there nobody knows yet: perhaps some of each app.
            for app in apps {
                app.bulkhead(lot.gateway, lot.environment)?.parkedAt = loop.now
            }
        }
        guard settings.isKnown(assignment.place) else { return leaveUnread(partition) }
        assignment.queue.onFault = { [unowned self, unowned partition] fault in
            take(fault, of: partition)
        }
        assignment.queue.enableWakeUps(wakeUp.fd)
        mayHaveRecords = true
        flushAtEndOfTurn()
    }

    private func noteUrgent() {
        urgentPartitions = partitions.filter { $0.road == .events && $0.eventClass == .critical }
    }

    /// No record of these assignments is read any more; `whenDrained` is called when what was read
    /// is complete and its results are posted. What stays unread stays in Kafka. At `deadline` they
    /// are another's; a little before it what was answered is handed over.
    func revoke(
        _ epochs: Set<Epoch>, deadline: MonotonicTime, whenDrained: @escaping () -> Void
    ) {
        let leaving = partitions.filter { epochs.contains($0.assignment.epoch) }
        abandonHeld(by: leaving)
        var open = leaving.count { $0.openEvents > 0 }
        for partition in leaving {
            partition.isReading = false
            partition.queue.disableWakeUps()
            pulse.note(partition.assignment.place, unreadable: nil)
            guard partition.openEvents > 0 else { continue }
            partition.whenDrained = {
                open -= 1
                if open == 0 { whenDrained() }
            }
            let timer = LoopTimer { [unowned self, unowned partition] in
                partition.handOverTimer = nil
                handOver(partition)
            }
            partition.handOverTimer = timer
            // Time for the record of it to reach the committer.
            let ahead = min(Self.handOverAhead, (deadline - loop.now) / 4)
            loop.schedule(timer, at: deadline - ahead)
        }
        // They stay with their open events and nowhere else.
        partitions.removeAll { epochs.contains($0.assignment.epoch) }
        noteUrgent()
        departing.append(contentsOf: leaving.filter { $0.openEvents > 0 })
        if open == 0 {
            post()
            whenDrained()
        }
    }

    /// Lets go of events that wait for their time: nothing was done for them, and their next owner
    /// will read them again.
    private func abandonHeld(by leaving: [AssignedPartition]) {
        for partition in leaving { partition.isReading = false }
        dropWindows(of: leaving)
        for app in apps { app.expo?.receipts.abandon(leaving) }
        for event in events.inUse {
            guard let partition = event.partition, leaving.contains(where: { $0 === partition }),
                event.holdTimer != nil || partition.head === event || event.ticket != nil
            else { continue }
            if let timer = event.holdTimer { loop.cancel(timer) }
            if partition.head === event { partition.head = nil }
            abandon(event)
        }
    }

    /// These assignments are over: their work goes on, as requests cannot be called back, but its
    /// results are dropped; the new owner does it again.
    func forget(_ epochs: Set<Epoch>) {
        abandonHeld(by: (partitions + departing).filter { epochs.contains($0.assignment.epoch) })
        for partition in partitions + departing where epochs.contains(partition.assignment.epoch) {
            partition.isReading = false
            partition.isLost = true
            partition.queue.disableWakeUps()
            pulse.note(partition.assignment.place, unreadable: nil)
            if let timer = partition.handOverTimer { loop.cancel(timer) }
            partition.handOverTimer = nil
            if let whenDrained = partition.whenDrained {
                partition.whenDrained = nil
                whenDrained()
            }
        }
        partitions.removeAll { epochs.contains($0.assignment.epoch) }
        noteUrgent()
        departing.removeAll { epochs.contains($0.assignment.epoch) }
    }

    // MARK: What was answered

    /// How long before a partition leaves its answered pushes are handed over.
    private static let handOverAhead = TimeSpan.seconds(1)

    /// A partition is about to leave with events open. Its next owner reads those again, and would
    /// push again what was answered beside a target that still is open, and what may have arrived
    /// and must not arrive twice. Such events end here: with the results that there are, and with
    /// retry records of what is open.
    private func handOver(_ partition: AssignedPartition) {
        for event in events.inUse where event.partition === partition {
            guard event.openTargets > 0, event.hasToBeHandedOver else { continue }
            handOver(event, of: partition)
        }
        flushAtEndOfTurn()
    }

    private func handOver(_ event: EventInFlight, of partition: AssignedPartition) {
        guard let envelope = event.envelope else { return }
        for target in event.targets where target.settlement == nil && target.postponement == nil {
            endOpen(target, of: event, envelope)
        }
        if event.postponedTargets > 0, let line = event.line {
            writeOrder(of: line)
            notePutOff(event)
        }
        writeOutcomes(of: event)
        conclude(event, of: partition)
        // Its memory stays until the gateways have let go of its requests.
        event.isHandedOver = true
        leave(partition)
    }

    /// What an open target of an event that is handed over comes to: an outcome as if its answer
    /// were lost now, or a place in a retry topic.
    private func endOpen(
        _ target: TargetInFlight, of event: EventInFlight, _ envelope: EventEnvelope
    ) {
        let isOut = target.isOut
        var settlement = Settlement(
            outcome: .failed, reason: isOut ? .answerTimeout : nil,
            detail: "the process stopped before the gateway answered")
        var mayWait = !envelope.isOneAttempt
        if isOut {
            noteAttempt(target, sentAt: loop.wall)
            mayWait = mayWait && !target.wasAmbiguous && target.attempts < settings.retry.attempts
            target.wasAmbiguous = true
            if event.routed?.route.avoidsDuplicates == true {
                settlement.outcome = .unknown
                mayWait = false
            }
        } else if let newer = event.line?.newer(than: target, at: loop.wall) {
            target.foldedInto = newer
            settlement = Settlement(outcome: .coalesced)
            mayWait = false
        }
        let wait = settings.tiers.patience(after: 0)
        if mayWait, loop.wall + wait >= envelope.expiresAt {
            settlement.outcome = .expired
            mayWait = false
        }
        guard mayWait else {
            target.settlement = settlement
            target.settledAt = loop.wall
            return metrics.settled(target, of: event, settlement)
        }
        event.line?.putOff(target)
        target.postponement = Postponement(
            notBefore: loop.wall + wait, code: settlement.reason?.rawValue ?? "handed_over",
            detail: settlement.detail)
        event.postponedTargets += 1
    }
}

extension EventInFlight {
    /// Whether another process would push again what must not be: what was answered, or may have
    /// arrived of a route that prefers none to two.
    fileprivate var hasToBeHandedOver: Bool {
        let avoids = routed?.route.avoidsDuplicates == true
        return !isHandedOver
            && targets.contains {
                $0.settlement != nil && $0.attempts > 0
                    || avoids && $0.settlement == nil && $0.isOut
            }
    }
}
