// The order of pushes with one collapse key to one address, in a lane and across retries: what
// `PushOrder` decides is done here. Events without a collapse key have no line and pay nothing.

internal import Base
internal import EventLoop
internal import Gateways
internal import Kafka
internal import TokenIndex

/// A question about a line's note that waits for the index.
internal struct OrderQuestion {
    let line: OrderLine<TargetInFlight>
    /// The slots of events that wait for the answer.
    var events: [Int] = []
    /// Events that are over, of which the note is to be told.
    var departed: [OrderedEvent] = []
    var tries = 0
    /// Waits to ask again.
    var timer: LoopTimer?

    /// After so many tries events go on without the note: order is worth less than the push.
    static let triesMax = 10
}

extension TargetInFlight: OrderedPush {
    var orderedEvent: OrderedEvent {
        guard let ordered = event?.ordered else {
            preconditionFailure("a target without a line is asked for its place in it")
        }
        return ordered
    }

    var orderExpiry: UnixMillis { event?.envelope?.expiresAt ?? UnixMillis(0) }

    var orderAudience: UInt64 { event?.orderAudience ?? 0 }

    /// FNV-1a over the address id: it tells the addresses of one user apart, no others.
    var orderAddress: UInt64 {
        address?.withAddressID { bytes in
            bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        } ?? 0
    }
}

extension Lane {
    // MARK: Events

    /// An event that replaces others, or is replaced, takes its place in its line. What the index
    /// remembers is asked for at the same time as the user's addresses.
    func enterOrder(_ event: EventInFlight) {
        guard let (line, ordered) = enterLine(event) else { return }
        event.line = line
        event.ordered = ordered
        guard line.note == nil else { return }
        guard mayBeNoted(event) else { return line.learn(OrderNote()) }
        event.awaitsOrder = true
        ask(for: line) { $0.events.append(event.slot) }
    }

    /// The line of an event and its place there; nil for one that has none, or has taken it already.
    private func enterLine(
        _ event: EventInFlight
    ) -> (line: OrderLine<TargetInFlight>, ordered: OrderedEvent)? {
        guard event.line == nil, let envelope = event.envelope, let app = event.app,
            let collapseKey = envelope.collapseKey, !envelope.isValidation
        else { return nil }
        let moment = max(envelope.notBefore ?? event.timestamp, event.timestamp)
        let ordered = OrderedEvent(
            position: event.position, moment: moment, isDelayed: moment > event.timestamp,
            id: envelope.id, log: envelope.cursor?.log, sequence: envelope.cursor?.sequence ?? 0)
        let line = order.enter(
            OrderKey(app: app.name, userID: envelope.userID, collapseKey: collapseKey), ordered,
            expiry: envelope.expiresAt)
        return (line, ordered)
    }

    /// Asks for a line's note, unless it was asked for already.
    private func ask(
        for line: OrderLine<TargetInFlight>, _ wait: (inout OrderQuestion) -> Void
    ) {
        let isNew = orderQuestions[line.key] == nil
        wait(&orderQuestions[line.key, default: OrderQuestion(line: line)])
        if isNew { askForOrder(line.key) }
    }

    /// An event that waited as a whole has ended before it came to its line: skipped, suppressed, or
    /// refused by a route that has changed. Its note must not go on to fold older ones into it.
    func endWhole(_ event: EventInFlight) {
        guard !event.comesBack, event.partition?.road.isOfWaitingEvents == true,
            event.reentry?.targets == nil, let (line, ordered) = enterLine(event)
        else { return }
        guard line.note == nil else { return depart(ordered, from: line) }
        ask(for: line) { $0.departed.append(ordered) }
    }

    private func depart(_ ordered: OrderedEvent, from line: OrderLine<TargetInFlight>) {
        if order.leave(line, ordered) { writeOrder(of: line) }
    }

    /// An event leaves the lane, and all its pushes have.
    func leaveOrder(_ event: EventInFlight) {
        guard let line = event.line, let ordered = event.ordered else { return }
        event.line = nil
        event.ordered = nil
        if event.awaitsOrder {
            event.awaitsOrder = false
            orderQuestions[line.key]?.events.removeAll { $0 == event.slot }
            if let question = orderQuestions[line.key], question.events.isEmpty,
                question.departed.isEmpty
            {
                if let timer = question.timer { loop.cancel(timer) }
                orderQuestions[line.key] = nil
            }
        }
        if order.leave(line, ordered, isPutOff: event.comesBack) { writeOrder(of: line) }
    }

    // MARK: The note

    /// Whether there may be a note about an event's line. Mostly nobody waits anywhere, and then
    /// nothing is asked.
    private func mayBeNoted(_ event: EventInFlight) -> Bool {
        guard let partition = event.partition, partition.road == .events else { return true }
        return partition.mayHaveWaiting || partition.isBehindFinished(event.offset)
    }

    /// Looks for which partitions something may wait: an event that was put off is in the topic of
    /// the same partition number, which this lane reads too.
    func observeOrder() {
        var waiting: [Int32: Int] = [:]
        var roads: [Int32: Int] = [:]
        for partition in partitions where partition.road.isOfWaitingEvents {
            let number = partition.assignment.place.partition
            let isRead = partition.unread == 0 && partition.openEvents == 0
            let isKnown = partition.queue.end.map { $0 == 0 || partition.commitPoint != nil }
            let isQuiet =
                isRead && isKnown == true && loop.now - partition.putOffAt > Self.quietSpan
            roads[number, default: 0] += 1
            if !isQuiet { waiting[number, default: 0] += 1 }
        }
        for partition in partitions where partition.road == .events {
            let number = partition.assignment.place.partition
            partition.mayHaveWaiting =
                waiting[number] != nil || roads[number] != settings.waitingTopics.count
                || loop.now - partition.putOffAt < Self.quietSpan
        }
    }

    /// After so long a record that was put off is in its topic, and this lane knows.
    private static let quietSpan = TimeSpan.seconds(10)

    /// Something was put off: whoever comes next has to know.
    func notePutOff(_ event: EventInFlight) {
        guard let number = event.partition?.assignment.place.partition else { return }
        for partition in partitions where partition.assignment.place.partition == number {
            partition.mayHaveWaiting = true
            partition.putOffAt = loop.now
        }
    }

    private func askForOrder(_ key: OrderKey) {
        orderQuestions[key]?.timer = nil
        orderQuestions[key]?.tries += 1
        index.readNote(noteName(of: key), app: key.app, userID: key.userID) {
            [weak self] answer in self?.orderAnswered(key, answer)
        }
    }

    private func orderAnswered(_ key: OrderKey, _ answer: Result<String?, IndexFault>) {
        guard let question = orderQuestions[key], question.timer == nil else { return }
        flushAtEndOfTurn()
        switch answer {
        case .success(let text):
            question.line.learn(
                text.flatMap { OrderNote($0, parser: headerParser) } ?? OrderNote())
        case .failure(let fault):
            alarms.indexFault(fault)
            if question.tries < OrderQuestion.triesMax {
                let timer = LoopTimer { [unowned self] in askForOrder(key) }
                orderQuestions[key]?.timer = timer
                return loop.schedule(timer, at: loop.now + settings.lookUpRetryInterval)
            }
            question.line.learn(OrderNote())
        }
        orderQuestions[key] = nil
        for ordered in question.departed { depart(ordered, from: question.line) }
        for event in question.events.map({ events[$0] }) {
            event.awaitsOrder = false
            if let postponement = event.awaitedPostponement {
                event.awaitedPostponement = nil
                putOff(event, postponement)
                continue
            }
            guard let found = event.heldLookUp else { continue }
            event.heldLookUp = nil
            fanOut(event, found.addresses, dropped: found.dropped, at: found.time)
        }
    }

    func writeOrder(of line: OrderLine<TargetInFlight>) {
        guard let note = line.note else { return }
        let span = min(note.until - loop.wall, Self.orderKeptMax)
        index.writeNote(
            noteName(of: line.key), note.text(scratch), app: line.key.app,
            userID: line.key.userID, keptFor: max(span, .zero) + BurstMark.keptFor)
    }

    /// Retry topics keep records no longer.
    private static let orderKeptMax = TimeSpan.hours(7 * 24)

    private func noteName(of key: OrderKey) -> String {
        scratch.removeAll()
        for text in [key.app, key.userID, key.collapseKey] {
            scratch.append(text)
            scratch.append(0)
        }
        return BurstKey(hashing: scratch.bytes).name(of: "order")
    }

    // MARK: Pushes

    /// Whether a target may be sent now. If not it was seen to: it waits for an older push of its
    /// line, or a newer one goes in its place.
    func hasTurn(_ target: TargetInFlight, in line: OrderLine<TargetInFlight>) -> Bool {
        if target.isOrdered {
            guard let newer = line.turn(target) else { return true }
            giveWay(target, to: newer)
            send(newer)
            return false
        }
        var changesNote = false
        let arrival = line.arrive(target, at: loop.wall, changesNote: &changesNote)
        if changesNote { writeOrder(of: line) }
        switch arrival {
        case .goes:
            target.isOrdered = true
            return true
        case .passes: return true
        case .folded(let newer): fold(target, into: newer)
        case .waits(let former):
            target.isOrdered = true
            if let former { giveWay(former, to: target) }
        }
        return false
    }

    /// Ends a target for which a newer event is sent.
    func fold(_ target: TargetInFlight, into newer: OrderedEvent) {
        target.foldedInto = newer
        if let event = target.event { event.line?.end(target, isOpen: event.openTargets > 1) }
        settle(target, Settlement(outcome: .coalesced))
    }

    /// Ends a target whose place a newer one has taken.
    private func giveWay(_ target: TargetInFlight, to newer: TargetInFlight) {
        guard let event = newer.event, let ordered = event.ordered else { return }
        target.isOrdered = false
        if let other = target.event?.ordered, other.isAhead(of: ordered) || ordered.log == nil {
            event.advance(past: other, contents)
        }
        fold(target, into: ordered)
    }

    /// A target is over, and its event is not told yet. Returns the one that has its turn now.
    func leaveTurn(_ target: TargetInFlight) -> TargetInFlight? {
        target.isOrdered = false
        guard let event = target.event else { return nil }
        return event.line?.leave(target, isOpen: event.openTargets > 1)
    }

    /// Whether a target may be put off. If not it was seen to: something newer is sent for it.
    func mayBePutOff(_ target: TargetInFlight) -> Bool {
        guard let line = target.event?.line else { return true }
        if target.isOrdered, let newer = line.turn(target) {
            giveWay(target, to: newer)
            // It is not to blame for what befell the older one.
            send(newer)
            return false
        }
        if !target.isOrdered, let newer = line.newer(than: target, at: loop.wall) {
            fold(target, into: newer)
            return false
        }
        line.putOff(target)
        writeOrder(of: line)
        if let event = target.event { notePutOff(event) }
        return true
    }
}

extension EventInFlight {
    /// Takes the cursor of an event that was folded into this one. What was written of it with the
    /// old one is written anew.
    fileprivate func advance(past other: OrderedEvent, _ contents: ContentMaker) {
        guard let log = other.log, carry(EventCursor(log: log, sequence: other.sequence)) else {
            return
        }
        ordered?.log = log
        ordered?.sequence = other.sequence
        content = nil
        shared.forget()
        if let routed { contents.recycle(routed) }
    }
}
