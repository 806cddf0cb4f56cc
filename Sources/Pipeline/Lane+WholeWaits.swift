// Events that are put off as a whole, before anybody knows for which addresses they are: until the
// end of quiet hours or of a long window, for their publisher's moment, or an operator's word. One
// with a collapse key leaves a note first, so that it is folded if something newer goes out in the
// meantime, and those that waited with it fold into the newest of them.

internal import Base
internal import EventLoop
internal import Gateways
internal import Routes

extension Lane {
    /// Puts a whole event off that was not looked up in this lane.
    func postpone(
        _ event: EventInFlight, until notBefore: UnixMillis,
        because detail: String = "its time has not come"
    ) {
        guard let envelope = event.envelope else { return }
        if notBefore >= envelope.expiresAt { return expire(event) }
        putOff(
            event,
            Postponement(notBefore: notBefore, code: Postponement.holdCode, detail: detail))
    }

    /// Writes the record of an event that waits as a whole, once its line's note tells of it.
    func putOff(_ event: EventInFlight, _ postponement: Postponement) {
        if needsNote(event, postponement) {
            enterOrder(event)
            if event.awaitsOrder {
                event.awaitedPostponement = postponement
                return
            }
            noteWhole(event, postponement)
        }
        event.comesBack = true
        if event.partition?.isLost == false {
            let writer = RetryRecord(event, settings, now: loop.wall)
            writer.add(
                (event.reentry?.pending ?? [])[...], isFannedOut: event.reentry?.targets != nil,
                postponement: postponement, to: outbox)
        }
        finish(event)
    }

    /// Whether others have to be told. They know of what goes from one waiting topic to the next,
    /// and if its targets are fixed, which are noted one by one.
    private func needsNote(_ event: EventInFlight, _ postponement: Postponement) -> Bool {
        guard let envelope = event.envelope, envelope.collapseKey != nil, event.app != nil,
            !envelope.isValidation, event.reentry?.targets == nil
        else { return false }
        if postponement.place == .held { return event.partition?.road != .held }
        return event.reentry?.notBefore != postponement.notBefore
    }

    private func noteWhole(_ event: EventInFlight, _ postponement: Postponement) {
        guard let line = event.line, let ordered = event.ordered, let envelope = event.envelope
        else { return }
        line.putOff(
            WaitingEvent(
                event: ordered,
                due: postponement.place == nil
                    ? postponement.notBefore : WaitingEvent.distantFuture,
                expiry: envelope.expiresAt, audience: event.orderAudience))
        writeOrder(of: line)
        notePutOff(event)
    }
}

extension EventInFlight {
    /// FNV-1a over what decides for which of its user's addresses an event is.
    var orderAudience: UInt64 {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        func add(_ text: String) {
            for byte in text.utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
            hash = (hash ^ 0xFF) &* 0x100_0000_01B3
        }
        add(routed?.route.name ?? "")
        for filter in [envelope?.only, envelope?.except] {
            for names in filter?.lists ?? [nil, nil, nil] {
                names?.sorted().forEach(add)
                // An empty list is not the same as none.
                add(names?.isEmpty == true ? "\u{1}" : "")
            }
        }
        return hash
    }
}
