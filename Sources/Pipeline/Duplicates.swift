// Copies of an event: a producer that published it again because no acknowledgement came, and an
// operator who replayed a dead letter twice. One of them is pushed; the others end `suppressed`,
// `duplicate`.
//
// While a copy is in flight, others that come into the same lane wait for it. When it is complete
// and a target of it was taken, its place is remembered outside of the lane, but not before its
// results are committed: a mark of a push whose event is done again after a crash would be the end
// of it. A place is never its own copy, so that an event goes on with its other targets on every
// road. What cannot be known, because the store is away or has lost the mark, is pushed.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import Kafka
internal import TokenIndex

/// The copies that a lane knows of. Loop-confined.
internal final class DuplicateWatch {
    /// One event that was pushed, or is about to be.
    fileprivate struct Claim {
        let position: RecordPosition
        /// A target of it was taken: copies need not wait any longer.
        var isAccepted = false
        /// Copies that wait for it.
        var waiting: [EventInFlight] = []
    }

    /// A push whose mark is not set before its event is committed.
    fileprivate struct Uncommitted {
        let key: EventMarkKey
        let position: RecordPosition
        let span: TimeSpan
        let partition: AssignedPartition
        let offset: Int64
        let since: MonotonicTime

        /// Whether nobody will say any more if it is committed: the partition went elsewhere. While
        /// it is here an older event may hold the commit point back for as long as it takes.
        func isGivenUp(at now: MonotonicTime) -> Bool {
            partition.isLost || !partition.isReading && now - since > DuplicateWatch.patience
        }
    }

    fileprivate let marks: any EventMarks
    fileprivate var claims: [EventMarkKey: Claim] = [:]
    fileprivate var uncommitted: [Uncommitted] = []
    fileprivate var lastQuestion: UInt32 = 0

    /// How often it is looked whether what was pushed is committed.
    fileprivate static let interval = TimeSpan.milliseconds(200)
    /// How long it is asked after the partition has been given away.
    fileprivate static let patience = TimeSpan.seconds(60)
    /// How long replays are remembered.
    fileprivate static let replaySpan = TimeSpan.hours(7 * 24)

    init(_ marks: any EventMarks) { self.marks = marks }

    func whenSet(_ done: @escaping () -> Void) { marks.whenSet(done) }

    func stop() { marks.stop() }
}

extension EventInFlight {
    /// Notes which dead letter the event replays.
    func noteReplay(_ record: InputRecord) {
        replayOf = record.header(Reentry.replayHeader).map { String(decoding: $0, as: UTF8.self) }
    }

    /// What copies of the event have in common, and how long that is remembered.
    fileprivate func markKey(
        _ settings: LaneSettings
    ) -> (key: EventMarkKey, span: TimeSpan)? {
        // One that stands for others is sent in any case: they would end with it.
        guard let envelope, let app, !envelope.isValidation, (burst?.foldedCount ?? 0) == 0 else {
            return nil
        }
        if let replayOf {
            let name = "replay\0\(replayOf)"
            return (
                EventMarkKey(
                    app: app.name, userID: envelope.userID,
                    identity: UUIDv5.make(namespace: Lane.namespace, name: name)),
                DuplicateWatch.replaySpan
            )
        }
        guard settings.deduplicate > .zero, envelope.hasOwnID else { return nil }
        return (
            EventMarkKey(app: app.name, userID: envelope.userID, identity: identity),
            settings.deduplicate
        )
    }
}

extension Lane {
    /// Whether an event may be looked up now. Not while a copy of it is in flight, and not when one
    /// was pushed; then it has been seen to. A mark is asked for at the same time as the user.
    func mayBeFirst(_ event: EventInFlight) -> Bool {
        guard let duplicates, event.markQuestion == 0,
            let key = event.markKey(settings)?.key
        else { return true }
        guard let claim = duplicates.claims[key] else {
            ask(event, key, duplicates)
            return true
        }
        if claim.position == event.position { return true }
        if claim.isAccepted {
            endDuplicate(event)
        } else {
            duplicates.claims[key]?.waiting.append(event)
        }
        return false
    }

    private func ask(_ event: EventInFlight, _ key: EventMarkKey, _ duplicates: DuplicateWatch) {
        duplicates.claims[key] = DuplicateWatch.Claim(position: event.position)
        duplicates.lastQuestion = max(duplicates.lastQuestion &+ 1, 1)
        event.markQuestion = duplicates.lastQuestion
        event.awaitsMark = true
        let tag = UInt64(event.markQuestion) << 32 | UInt64(UInt32(event.slot))
        duplicates.marks.find(key, tag: tag)
    }

    /// Ends a copy without a push.
    func endDuplicate(_ event: EventInFlight) {
        suppress(event, .duplicate)
    }

    /// Ends an event without a push: as a whole, or with each of the targets that were fixed.
    func suppress(_ event: EventInFlight, _ reason: Reason) {
        guard event.reentry?.targets != nil else {
            return endWithoutTargets(event, .suppressed, reason)
        }
        takeUpTargets(event)
        settleTogether(event) { target in
            settle(target, Settlement(outcome: .suppressed, reason: reason))
        }
    }

    /// An event leaves the lane: its copies go on, or need not.
    func leaveDuplicates(_ event: EventInFlight, isComplete: Bool) {
        guard let duplicates, event.markQuestion != 0, let mark = event.markKey(settings),
            let claim = duplicates.claims[mark.key], claim.position == event.position
        else { return }
        let isAccepted =
            isComplete
            && event.targets.contains {
                // What a newer event was sent for is not to come back behind that one either; unless
                // that is a copy itself and has yet to be sent.
                $0.settlement?.outcome.outcomeClass == .sent
                    || $0.settlement?.outcome == .coalesced
                        && $0.foldedInto?.id != event.envelope?.id
            }
        if isAccepted, let partition = event.partition {
            duplicates.claims[mark.key]?.isAccepted = true
            duplicates.claims[mark.key]?.waiting = []
            duplicates.uncommitted.append(
                DuplicateWatch.Uncommitted(
                    key: mark.key, position: event.position, span: mark.span,
                    partition: partition, offset: event.offset, since: loop.now))
            if !markTimer.isScheduled {
                loop.schedule(markTimer, at: loop.now + DuplicateWatch.interval)
            }
        } else {
            duplicates.claims[mark.key] = nil
        }
        // Not within this call: the event that leaves still holds its slot.
        guard !claim.waiting.isEmpty else { return }
        let timer = LoopTimer { [unowned self] in
            for copy in claim.waiting { admit(copy) }
            flushAtEndOfTurn()
        }
        loop.schedule(timer, at: loop.now)
    }

    /// Sets the marks of what is committed by now.
    func setMarks() {
        guard let duplicates else { return }
        let committed = committer.committedOffsets
        duplicates.uncommitted.removeAll { push in
            let place = push.partition.assignment.place
            let isCommitted = committed[place].map { $0 > push.offset } ?? false
            if isCommitted {
                duplicates.marks.set(push.key, place: push.position.eventID, for: push.span)
            }
            let isOver = isCommitted || push.isGivenUp(at: loop.now)
            if isOver, duplicates.claims[push.key]?.position == push.position {
                duplicates.claims[push.key] = nil
            }
            return isOver
        }
        guard !duplicates.uncommitted.isEmpty else { return }
        loop.schedule(markTimer, at: loop.now + DuplicateWatch.interval)
    }
}

extension Lane: EventMarksDelegate {
    func markFound(tag: UInt64, place: String?) {
        let event = events[Int(tag & 0xFFFF_FFFF)]
        guard event.awaitsMark, event.markQuestion == UInt32(tag >> 32) else { return }
        event.awaitsMark = false
        event.isDuplicate = place != nil && place != event.position.eventID
        flushAtEndOfTurn()
        guard let found = event.heldLookUp else { return }
        event.heldLookUp = nil
        fanOut(event, found.addresses, dropped: found.dropped, at: found.time)
    }
}

/// An answer about a user that came before the one about the event's mark.
internal struct HeldLookUp {
    let addresses: [DeviceAddress]
    let dropped: Int
    let time: MonotonicTime
}
