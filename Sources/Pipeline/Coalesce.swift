// Coalesce: an event whose route gathers bursts goes into a window in front of the look-up, so that
// no list of devices grows old in it. Its offset stays open. When the window ends its latest event
// is sent for all of them; theirs complete with it, in one batch and so in one transaction.
//
// Windows are dropped when their partition leaves, and after a crash: the next owner reads the
// events again, as none of them was committed.

internal import Base
internal import EventLoop
internal import JSON
internal import Kafka
internal import Routes
internal import Telemetry
internal import TokenIndex

/// A question about a burst that waits for the index.
internal struct BurstQuestion {
    let key: BurstKey
    let app: String
    let userID: String
    /// Waits to ask again.
    var timer: LoopTimer?
}

extension Lane {
    private var moment: Moment { Moment(monotonic: loop.now, wall: loop.wall) }

    /// Whether an event waits for others of its burst from now on. What must not be stored, what is
    /// only a rehearsal, and what was in a window before does not.
    func coalesce(_ event: EventInFlight) -> Bool {
        guard event.burst == nil, event.reentry?.targets == nil, let envelope = event.envelope,
            let routed = event.routed, let coalescing = routed.route.coalescing,
            let app = event.app,
            envelope.windowHindrance(at: loop.wall) == nil,
            let key = burstKey(of: envelope, routed, app: app.name)
        else { return false }
        let entrance: CoalescingWindows<HeldEvent>.Entrance
        if let until = event.windowUntil {
            entrance = .until(end(at: until, coalescing), isLed: coalescing.sendsFirst)
        } else if coalescing.sendsFirst || coalescing.window > settings.windowSpans.longestInLane {
            entrance = .asking
        } else {
            entrance = .until(loop.now + coalescing.window, isLed: false)
        }
        let userID = envelope.userID
        guard let held = shelve(event) else { return false }
        if let ticket = windows.arrived(held, key, entrance, at: moment) {
            burstQuestions[ticket] = BurstQuestion(key: key, app: app.name, userID: userID)
            ask(ticket)
        }
        watchWindows()
        return true
    }

    /// Events with other restrictions, or of routes that are for others, reach other devices and make
    /// bursts of their own: the push that carries a burst has to reach whom each of them was for.
    private func burstKey(
        of envelope: EventEnvelope, _ routed: RoutedEvent, app: String
    ) -> BurstKey? {
        guard let key = envelope.collapseKey else { return nil }
        scratch.removeAll()
        for text in [app, envelope.userID, key] {
            scratch.append(text)
            scratch.append(0)
        }
        for filter in [envelope.only, envelope.except] {
            scratch.append(1)
            guard let filter else { continue }
            for names in filter.lists {
                for name in names?.sorted() ?? [] {
                    scratch.append(name)
                    scratch.append(0)
                }
                // An empty list is not the same as none.
                scratch.append(names?.isEmpty == true ? 3 : 2)
            }
        }
        routed.writeAudience(to: scratch)
        return BurstKey(hashing: scratch.bytes)
    }

    /// When a window ends in this lane that somebody began before.
    private func end(at until: UnixMillis, _ coalescing: Route.Coalescing) -> MonotonicTime {
        loop.now + max(until - loop.wall, min(coalescing.window, settings.windowSpans.gathering))
    }

    /// Keeps of an event what a window needs, and gives it back.
    private func shelve(_ event: EventInFlight) -> HeldEvent? {
        ResultRecord.writeShared(event, to: eventFields, scratch: scratch)
        guard let held = HeldEvent(event, result: eventFields.bytes, scratch: scratch) else {
            return nil
        }
        held.partition?.heldEvents += 1
        recycle(event)
        return held
    }

    /// Makes an event of what was kept of it. Nil when it became a dead letter instead, which takes
    /// a decoder that does not know its own events.
    private func unshelve(_ held: HeldEvent, _ burst: Burst?) -> EventInFlight? {
        held.partition?.heldEvents -= 1
        let event = events.take()
        event.partition = held.partition
        event.position = held.position
        event.offset = held.offset
        event.numbering = held.numbering
        event.timestamp = held.timestamp
        event.consumedAt = held.consumedAt
        event.eventClass = held.eventClass
        event.reentry = held.reentry.first
        event.windowUntil = held.windowUntil
        event.trace = held.trace
        event.burst = burst
        var isWhole = true
        held.withRecord { input in
            event.source.take(input)
            event.noteReplay(input)
            event.recordBytes = (input.value?.count ?? 0) + (input.key?.count ?? 0)
            recordBytes += event.recordBytes
            do throws(Refusal) {
                try restore(event, held, input)
            } catch {
                setAside(event, input, error)
                isWhole = false
            }
        }
        return isWhole ? event : nil
    }

    private func restore(
        _ event: EventInFlight, _ held: HeldEvent, _ input: InputRecord
    ) throws(Refusal) {
        let envelope = try settings.decoder.decode(input, with: event.parser)
        event.envelope = envelope
        event.app = app(named: envelope.app)
        event.carry(event.reentry?.cursor)
        // The latest first: its log is taken by a carrier that has none.
        for folded in (event.burst?.folded ?? []).reversed() { event.carry(folded.cursor) }
        event.routed = try contents.route(
            envelope, app: event.app?.name ?? "", as: held.match, count: event.burst?.count ?? 1)
    }

    // MARK: What the index knows of the burst

    private func ask(_ ticket: CoalescingWindows<HeldEvent>.Ticket) {
        guard let question = burstQuestions[ticket] else { return }
        burstQuestions[ticket]?.timer = nil
        index.readNote(question.key.name, app: question.app, userID: question.userID) {
            [weak self] answer in self?.answered(ticket, answer)
        }
    }

    private func answered(
        _ ticket: CoalescingWindows<HeldEvent>.Ticket, _ answer: Result<String?, IndexFault>
    ) {
        guard let first = windows.first(of: ticket), let question = burstQuestions[ticket] else {
            return
        }
        flushAtEndOfTurn()
        switch answer {
        case .success(let text):
            burstQuestions[ticket] = nil
            begin(ticket, first, question, text.flatMap { BurstMark($0) })
            watchWindows()
        case .failure(let fault):
            alarms.indexFault(fault)
            let timer = LoopTimer { [unowned self] in ask(ticket) }
            burstQuestions[ticket]?.timer = timer
            loop.schedule(timer, at: loop.now + settings.lookUpRetryInterval)
        }
    }

    private func begin(
        _ ticket: CoalescingWindows<HeldEvent>.Ticket, _ first: HeldEvent,
        _ question: BurstQuestion, _ mark: BurstMark?
    ) {
        guard let coalescing = first.match.route.coalescing else { return }
        let part = BurstMark.part(
            of: first.position, timestamp: first.timestamp, given: mark, at: loop.wall)
        switch part {
        case .begins:
            let until = loop.wall + coalescing.window
            note(BurstMark(until: until, first: first.position), question)
            gather(ticket, question, coalescing, until, sendsFirst: coalescing.sendsFirst)
        case .repeats(let until):
            gather(ticket, question, coalescing, until, sendsFirst: coalescing.sendsFirst)
        case .joins(let until): gather(ticket, question, coalescing, until, sendsFirst: false)
        }
    }

    /// Lets a burst's first event go, if it is to go, and keeps the others until the end, here or in
    /// a retry topic.
    private func gather(
        _ ticket: CoalescingWindows<HeldEvent>.Ticket, _ question: BurstQuestion,
        _ coalescing: Route.Coalescing, _ until: UnixMillis, sendsFirst: Bool
    ) {
        let isLong = until - loop.wall > settings.windowSpans.longestInLane
        let end = isLong ? nil : end(at: until, coalescing)
        if sendsFirst {
            guard let (first, others) = windows.lead(ticket, until: end, at: moment) else { return }
            if let event = unshelve(first, Burst()) { admit(event) }
            for held in others { putOff(held, question.key, coalescing, until) }
        } else if let end {
            windows.join(ticket, until: end, isLed: coalescing.sendsFirst, at: moment)
        } else {
            for held in windows.disperse(ticket) { putOff(held, question.key, coalescing, until) }
        }
    }

    /// An event waits in the retry topics until shortly before its window ends, for it at least: a
    /// second before it expires. When that is soon it waits here for as long as events do, with those
    /// that come in the meantime.
    private func putOff(
        _ held: HeldEvent, _ key: BurstKey, _ coalescing: Route.Coalescing, _ until: UnixMillis
    ) {
        let ownEnd = min(until, held.expiresAt - WindowLimits.beforeExpiry)
        let longest = settings.windowSpans.longestInLane
        guard ownEnd - loop.wall > longest else {
            let end = end(at: min(until, loop.wall + longest), coalescing)
            _ = windows.arrived(held, key, .until(end, isLed: coalescing.sendsFirst), at: moment)
            return
        }
        guard let event = unshelve(held, nil) else { return }
        event.windowUntil = ownEnd
        postpone(event, until: ownEnd - settings.windowSpans.returnAhead)
    }

    private func note(_ mark: BurstMark, _ question: BurstQuestion) {
        index.writeNote(
            question.key.name, mark.text, app: question.app, userID: question.userID,
            keptFor: max(mark.until - loop.wall, .zero) + BurstMark.keptFor)
    }

    // MARK: The end of a window

    /// Sends what is due, as far as there is room.
    func closeWindows() {
        while hasRoom, let closed = windows.popDue(at: loop.now) { close(closed) }
        watchWindows()
    }

    private func watchWindows() {
        guard let deadline = windows.nextDeadline else { return loop.cancel(windowTimer) }
        // Without room it is tried again soon. Arrivals must not put that off.
        let time = max(deadline, loop.now + settings.windowInterval)
        guard !windowTimer.isScheduled || time < windowsWatchedAt else { return }
        windowsWatchedAt = time
        loop.schedule(windowTimer, at: time)
    }

    private func close(_ closed: CoalescingWindows<HeldEvent>.Closed) {
        if closed.isEarly { metrics.windowsEndedEarly.add(1) }
        for held in closed.folded { held.partition?.heldEvents -= 1 }
        let carrier = closed.carrier
        guard let event = unshelve(carrier, Burst(closed.folded, isLed: closed.isLed)) else {
            return
        }
        let isLong =
            carrier.match.route.coalescing.map { $0.window > settings.windowSpans.longestInLane }
        if closed.isLed || isLong == true, let envelope = event.envelope, let app = event.app {
            note(
                BurstMark(closing: closed.folded.map(\.position), carrier.position, at: loop.wall),
                BurstQuestion(key: closed.key, app: app.name, userID: envelope.userID))
        }
        admit(event)
    }

    /// A partition that keeps too many offsets open sends its oldest windows now.
    func relieve(_ partition: AssignedPartition) {
        let home = partition.assignment.epoch
        let count = windows.hasten(home, through: partition.ledger.middle, at: loop.now)
        if count == 0, !partition.ledger.hasRoom { windows.hastenAll(home, at: loop.now) }
        closeWindows()
    }

    // MARK: Results

    /// The events that a carrier stands for are done when it is, in the same batch.
    func completeFolded(into event: EventInFlight) {
        guard let burst = event.burst else { return }
        let folded = burst.folded
        burst.folded = []
        for held in folded {
            if let partition = held.partition, !partition.isLost {
                let key = outbox.bytes(copying: event.envelope?.resultUserID)
                let value = outbox.bytes { bytes in
                    ResultRecord.writeFolded(held, into: event, at: loop.wall, to: bytes)
                }
                outbox.addRecord(to: settings.resultsTopic, key: key, value: value)
                if let trace = held.trace {
                    addHeader(of: trace)
                    endTrace(of: held, app: event.app?.name ?? "")
                }
                complete(held.offset, held.numbering, of: partition)
                metrics.folded()
            }
        }
        // Only now: the last event of a partition that leaves posts the batch.
        for held in folded { held.partition.map(leave) }
    }

    /// A carrier goes whose partition left. Events of other partitions that it stood for are still
    /// to be sent: the last of them carries them.
    func abandonFolded(of event: EventInFlight) {
        guard let burst = event.burst else { return }
        let folded = burst.folded
        burst.folded = []
        let staying = folded.filter { $0.partition?.isReading ?? false }
        for held in folded where !(held.partition?.isReading ?? false) {
            if let partition = held.partition { leave(partition) }
        }
        guard let carrier = staying.last else { return }
        carrier.partition?.heldEvents += 1
        let isLed = burst.count > burst.foldedCount + 1
        if let next = unshelve(carrier, Burst(Array(staying.dropLast()), isLed: isLed)) {
            admit(next)
        }
    }

    // MARK: Leaving

    /// Forgets what waits of partitions that leave: the next owner reads it again.
    func dropWindows(of leaving: [AssignedPartition]) {
        let homes = Set(leaving.map(\.assignment.epoch))
        drop { homes.contains($0) }
    }

    /// Forgets everything that waits: the process ends, and does not send before its time what the
    /// next one can gather.
    func dropWindows() { drop { _ in true } }

    private func drop(where isLeaving: (Epoch) -> Bool) {
        for held in windows.drop(where: isLeaving, at: moment) {
            guard let partition = held.partition else { continue }
            partition.heldEvents -= 1
            leave(partition)
        }
        burstQuestions = burstQuestions.filter { ticket, question in
            if windows.first(of: ticket) != nil { return true }
            if let timer = question.timer { loop.cancel(timer) }
            return false
        }
    }
}
