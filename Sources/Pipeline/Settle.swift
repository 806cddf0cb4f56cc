// Settle: outcomes become results, verdicts become invalidations, and an event whose last target
// is settled goes to the committer as one piece, together with its offset.

internal import Base
internal import EventLoop
internal import Gateways
internal import JSON
internal import Kafka
internal import Routes
internal import Telemetry
internal import TokenIndex

extension Lane {
    /// The one outcome of a target.
    func settle(_ target: TargetInFlight, _ settlement: Settlement) {
        guard let event = target.event else { return }
        if event.isHandedOver { return letGo(target) }
        precondition(target.settlement == nil, "a target is settled once")
        if target.hasSlot, target.attempts == 0 { returnSlot(of: target) }
        target.settlement = settlement
        target.settledAt = loop.wall
        metrics.settled(target, of: event, settlement)
        // A rehearsal that was not sent says nothing of the gateway.
        if let bulkhead = target.bulkhead, bulkhead.isRefused, settlement.outcome == .accepted,
            target.attempts > 0
        {
            alarms.taken(bulkhead)
        }
        if let acks = settings.acks, settlement.outcome == .accepted,
            AckSample.holds(target.messageID), let gateway = target.address?.gateway
        {
            acks.accepted(target.messageID, by: gateway, at: target.settledAt)
        }
        let next = target.isOrdered ? leaveTurn(target) : nil
        targetSettled(event)
        if let next { send(next) }
    }

    /// Ends a target that the next owner of its partition will send: nothing is told of it here.
    func letGo(_ target: TargetInFlight) {
        guard let event = target.event else { return }
        if target.hasSlot, target.attempts == 0 { returnSlot(of: target) }
        let next = target.isOrdered ? leaveTurn(target) : nil
        targetSettled(event)
        if let next { send(next) }
    }

    /// Counts down an event's open targets and completes it at zero.
    func targetSettled(_ event: EventInFlight) {
        event.openTargets -= 1
        if event.openTargets == 0 { complete(event) }
    }

    /// An event that ends before fan-out has one result of its own.
    func endWithoutTargets(_ event: EventInFlight, _ outcome: Outcome, _ reason: Reason?) {
        guard event.partition?.isLost == false else { return finish(event) }
        metrics.endedWithoutTargets(event, outcome, reason)
        let key = outbox.bytes(copying: event.envelope?.resultUserID)
        let value = outbox.bytes { bytes in
            ResultRecord.writeEventLevel(
                event, outcome: outcome, reason: reason?.rawValue, detail: "", at: loop.wall,
                shared: eventFields, scratch: scratch, to: bytes)
        }
        outbox.addRecord(to: settings.resultsTopic, key: key, value: value)
        if event.trace != nil {
            addTrace(of: event)
            endTrace(event, outcome: outcome)
        }
        if outcome == .expired { keepCopy(of: event, .expired, reason, detail: "") }
        finish(event)
    }

    private func complete(_ event: EventInFlight) {
        if event.isHandedOver { return giveBack(event) }
        guard event.partition?.isLost == false else { return finish(event) }
        writeOutcomes(of: event)
        finish(event)
    }

    /// What an event's targets came to: results, verdicts, and retry records of those put off.
    func writeOutcomes(of event: EventInFlight) {
        ResultRecord.writeShared(event, to: eventFields, scratch: scratch)
        let key = outbox.bytes(copying: event.envelope?.resultUserID)
        for target in event.targets where target.postponement == nil {
            let value = outbox.bytes { bytes in
                ResultRecord.write(
                    target, of: event, shared: eventFields.bytes, to: bytes)
            }
            outbox.addRecord(to: settings.resultsTopic, key: key, value: value)
            if event.trace != nil { addTrace(of: event) }
            addInvalidation(of: target)
            if target.address?.gateway == .expo { addTicket(of: target, of: event) }
        }
        if event.trace != nil { endTrace(event) }
        if event.postponedTargets > 0 { addRetryRecords(of: event) }
        if event.routed?.route.keepsDeadLetters == true { keepCopyOfUnsent(event) }
    }

    /// The verdict on a token leaves in the same batch as the result that tells of it.
    private func addInvalidation(of target: TargetInFlight) {
        guard let settlement = target.settlement, let address = target.address else { return }
        let verdict: TokenVerdict
        let asOf: UnixMillis
        switch settlement.tokenAction {
        case .none: return
        case .invalidate(let time): (verdict, asOf) = (.invalidate, time)
        case .suspend(let time): (verdict, asOf) = (.suspend, time)
        }
        var record = InvalidationRecord(
            address, verdict: verdict, reason: settlement.reason?.rawValue ?? "other",
            origin: .gateway, asOf: asOf)
        record.gatewayTime = settlement.gatewayTime
        if settlement.countsForFuse, let fuse = target.bulkhead?.fuse {
            record.credential = fuse.credential
            if let fuseID = index.trippedFuses[fuse] { record = record.held(by: fuseID) }
        }
        record.eventID = target.event?.envelope?.id
        record.resultID = target.resultID.text
        let key = outbox.bytes { bytes in address.withAddressID { bytes.append($0) } }
        let value = outbox.bytes { record.encode(to: $0) }
        outbox.addRecord(to: settings.invalidationsTopic, key: key, value: value)
        metrics.invalidations.add(1)
    }

    /// A record that can never become a push goes to the dead letters, with all it had.
    func setAside(_ event: EventInFlight, _ input: InputRecord, _ refusal: Refusal) {
        metrics.deadLettered(refusal.code)
        alarms.deadLetter(refusal, at: input.position)
        let letter = DeadLetterRecord(input, refusal, settings: settings, now: loop.wall)
        letter.add(to: outbox)
        if let user = refusal.userID, refusal.eventID != nil {
            let key = outbox.bytes(copying: user)
            let value = outbox.bytes { bytes in
                ResultRecord.writeRefused(
                    refusal, input, partition: event.partition, at: loop.wall, to: bytes)
            }
            outbox.addRecord(to: settings.resultsTopic, key: key, value: value)
        }
        finish(event)
    }

    /// Completes the offset, gives everything back and tells who waits for the partition.
    func finish(_ event: EventInFlight) {
        guard let partition = event.partition else { return }
        conclude(event, of: partition)
        giveBack(event)
        leave(partition)
    }

    /// Completes an event's offset and what hangs on its end.
    func conclude(_ event: EventInFlight, of partition: AssignedPartition) {
        if event.claim != nil { returnUnusedPlaces(of: event) }
        leaveDuplicates(event, isComplete: !partition.isLost)
        if partition.isLost {
            event.comesBack = true
        } else {
            complete(event.offset, event.numbering, of: partition)
        }
        if event.burst != nil { completeFolded(into: event) }
    }

    /// Completes an offset with the records that were added since the last one. No offset depends on
    /// those of an event that was read before its partition's records were numbered anew.
    func complete(_ offset: Int64, _ numbering: UInt32, of partition: AssignedPartition) {
        guard numbering == partition.numbering else { return outbox.detachRecords() }
        outbox.completeEvent(
            epoch: partition.assignment.epoch, partition.ledger.complete(offset))
    }

    /// Lets go of an event that nothing was done for: its offset stays open, and the partition's
    /// next owner reads it again.
    func abandon(_ event: EventInFlight) {
        guard let partition = event.partition else { return }
        event.comesBack = true
        if event.burst != nil { abandonFolded(of: event) }
        leaveDuplicates(event, isComplete: false)
        giveBack(event)
        leave(partition)
    }

    private func giveBack(_ event: EventInFlight) {
        if event.line != nil { leaveOrder(event) } else { endWhole(event) }
        recycle(event)
    }

    /// Gives an event's memory back, and that of its targets.
    func recycle(_ event: EventInFlight) {
        recordBytes -= event.recordBytes
        if let routed = event.routed { contents.recycle(routed) }
        for target in event.targets { targets.give(target) }
        events.give(event)
    }

    /// One event of a partition less is open here.
    func leave(_ partition: AssignedPartition) {
        partition.openEvents -= 1
        flushAtEndOfTurn()
        if partition.openEvents == 0, let whenDrained = partition.whenDrained {
            partition.whenDrained = nil
            if let timer = partition.handOverTimer { loop.cancel(timer) }
            partition.handOverTimer = nil
            departing.removeAll { $0 === partition }
            post()
            whenDrained()
        }
    }
}

extension OutboxBatch {
    /// Copies a text; nil gives the null range.
    internal func bytes(copying text: String?) -> ByteRange {
        guard var text else { return .null }
        return text.withUTF8 { bytes(copying: UnsafeRawBufferPointer($0)) }
    }
}
