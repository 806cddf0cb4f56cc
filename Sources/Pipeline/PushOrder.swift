// The order of pushes that replace each other on a device: of one address and one collapse key a
// lane has one push under way. A newer one waits for it; a still newer one takes the place of the
// one that waits. Pure: no clock, no timer, no I/O.
//
//                 arrive                       turn, nobody waits
//     (nothing) ─────────► has the turn ◄──────────────────────────┐
//                              │   └───────────────────────────────┘
//                              ├── turn, a newer one waits ─► folded into that one, which goes on
//                              └── leave ─► the one that waits has the turn
//
// The holder of a turn is asked again each time before it is sent: what waits for room, for a token
// or for its next attempt is not on the wire and gives way, what is on the wire is not folded. A
// push that is put off leaves its lane and stands in the note of its line (`OrderNote`); it comes
// back through a retry topic, and is folded then if something newer came in the meantime. The note
// also names an event that is done before an older one, of which something is still open here: that
// may come yet, or again after a crash.
//
// Nobody waits for anything but the holder, and a holder never waits for another push: whatever
// ends it, an answer, a deadline, a postponement, lets the next one go.

internal import Base

/// What pushes of one line have in common.
internal struct OrderKey: Hashable, Sendable {
    let app: String
    let userID: String
    let collapseKey: String
}

/// An event's push to one address, as its order sees it.
internal protocol OrderedPush: AnyObject {
    /// Tells the addresses of a user apart.
    var orderAddress: UInt64 { get }
    /// Its event.
    var orderedEvent: OrderedEvent { get }
    /// When its event is worth nothing any more.
    var orderExpiry: UnixMillis { get }
    /// Tells events apart that are for different addresses of one user.
    var orderAudience: UInt64 { get }
}

/// All lines of a lane: one for each user and collapse key that has an event in flight.
/// Lane-confined.
internal final class PushOrder<Push: OrderedPush> {
    private var lines: [OrderKey: OrderLine<Push>] = [:]

    init() {}

    /// Lines with events in flight.
    var count: Int { lines.count }

    /// An event comes into a lane. The line is kept until every event that entered has left.
    func enter(_ key: OrderKey, _ event: OrderedEvent, expiry: UnixMillis) -> OrderLine<Push> {
        let line: OrderLine<Push>
        if let known = lines[key] {
            line = known
        } else {
            line = OrderLine(key)
            lines[key] = line
        }
        line.events.append(OrderLine.Entered(event: event, expiry: expiry))
        return line
    }

    /// An event is done here, and so are its pushes; `isPutOff` when it waits as a whole from now
    /// on. True when the note of its line was changed and has to be written.
    func leave(_ line: OrderLine<Push>, _ event: OrderedEvent, isPutOff: Bool = false) -> Bool {
        let changesNote = line.leave(event, isPutOff: isPutOff)
        if line.events.isEmpty { lines[line.key] = nil }
        return changesNote
    }

    /// The process ends.
    func removeAll() { lines = [:] }
}

/// The pushes of one user under one collapse key. Lane-confined.
internal final class OrderLine<Push: OrderedPush> {
    /// What becomes of a push that comes.
    enum Arrival {
        /// It has the turn.
        case goes
        /// It waits for the turn; the one that waited before is folded into it.
        case waits(replacing: Push?)
        /// Something newer is there already.
        case folded(into: OrderedEvent)
        /// The same event waits already, from an assignment that is over or read twice: it has no
        /// turn, and is sent.
        case passes
    }

    private struct Place {
        let address: UInt64
        var holder: Push
        var waiter: Push?
    }

    private struct Over {
        let address: UInt64
        let event: OrderedEvent
    }

    fileprivate struct Entered {
        let event: OrderedEvent
        let expiry: UnixMillis
    }

    let key: OrderKey
    /// Those that came and have not left, with a push under way or not.
    fileprivate var events: [Entered] = []
    /// Few: the addresses of a user that have a push under way.
    private var places: [Place] = []
    /// Pushes that are over, of events that are not.
    private var over: [Over] = []
    /// What the index remembers of pushes that were put off; nil until it was asked.
    private(set) var note: OrderNote?

    fileprivate init(_ key: OrderKey) { self.key = key }

    /// Takes what the index said. What happened since it was asked is newer.
    func learn(_ note: OrderNote) {
        if self.note == nil { self.note = note }
    }

    /// The event that a push would be folded into, of all that are known here; nil when it is the
    /// newest, or has the furthest cursor.
    func newer(than push: Push, at now: UnixMillis) -> OrderedEvent? {
        let event = push.orderedEvent
        if let place = places.first(where: { $0.address == push.orderAddress }) {
            let newest = (place.waiter ?? place.holder).orderedEvent
            if event.isBefore(newest) { return event.isAhead(of: newest) ? nil : newest }
        }
        if let done = over.first(where: {
            $0.address == push.orderAddress && event.isBefore($0.event)
        }) {
            return event.isAhead(of: done.event) ? nil : done.event
        }
        if let noted = note?.newest(at: push.orderAddress), event.isBefore(noted) {
            return event.isAhead(of: noted) ? nil : noted
        }
        guard let whole = note?.whole, whole.isComing(at: now), event.isBefore(whole.event),
            whole.audience == push.orderAudience, !event.isAhead(of: whole.event)
        else { return nil }
        return whole.event
    }

    /// A push is ready to be sent for the first time. It leaves with `leave`, unless it is folded.
    /// `changesNote` is set when the note was changed and has to be written.
    func arrive(_ push: Push, at now: UnixMillis, changesNote: inout Bool) -> Arrival {
        if let newer = newer(than: push, at: now) { return .folded(into: newer) }
        let index = places.firstIndex { $0.address == push.orderAddress }
        if let index, places[index].waiter?.isOfEvent(of: push) == true { return .passes }
        if note?.supersede(at: push.orderAddress, by: push.orderedEvent) == true {
            changesNote = true
        }
        guard let index else {
            places.append(Place(address: push.orderAddress, holder: push))
            return .goes
        }
        let former = places[index].waiter
        places[index].waiter = push
        return .waits(replacing: former)
    }

    /// The holder is about to be sent, or put off. A newer one that waits has the turn from now on
    /// and is returned: the former holder is folded into it.
    func turn(_ push: Push) -> Push? {
        guard let index = places.firstIndex(where: { $0.holder === push }),
            let waiter = places[index].waiter,
            push.orderedEvent.isBefore(waiter.orderedEvent)
        else { return nil }
        places[index].holder = waiter
        places[index].waiter = nil
        return waiter
    }

    /// A push is over or was put off, and its event is not told yet; `isOpen` says whether others of
    /// the event remain. The one that has the turn now is returned.
    func leave(_ push: Push, isOpen: Bool) -> Push? {
        end(push, isOpen: isOpen)
        guard let index = places.firstIndex(where: { $0.holder === push || $0.waiter === push })
        else { return nil }
        if places[index].waiter === push {
            places[index].waiter = nil
            return nil
        }
        guard let waiter = places[index].waiter else {
            places.remove(at: index)
            return nil
        }
        places[index].holder = waiter
        places[index].waiter = nil
        return waiter
    }

    /// A push waits in a retry or parking topic from now on.
    func putOff(_ push: Push) {
        var note = note ?? OrderNote()
        note.wait(push.orderedEvent, at: push.orderAddress, until: push.orderExpiry)
        self.note = note
    }

    /// An event waits as a whole from now on, before its addresses are known.
    func putOff(_ event: WaitingEvent) {
        var note = note ?? OrderNote()
        note.wait(event)
        self.note = note
    }

    /// A push was folded, and is over.
    func end(_ push: Push, isOpen: Bool) {
        guard isOpen || events.count > 1 else { return }
        over.append(Over(address: push.orderAddress, event: push.orderedEvent))
    }

    fileprivate func leave(_ event: OrderedEvent, isPutOff: Bool) -> Bool {
        if let place = events.firstIndex(where: { $0.event.position == event.position }) {
            events.remove(at: place)
        }
        var changesNote = !isPutOff && note?.end(event) == true
        guard !over.isEmpty else { return changesNote }
        let older = events.filter { $0.event.isBefore(event) }
        for mine in over where mine.event.position == event.position {
            // Whatever newer event the note names serves as well.
            let newest = note?.newest(at: mine.address)
            let unaware = older.filter { older in
                newest.map { !older.event.isBefore($0) } ?? true
            }
            guard let expiry = unaware.map(\.expiry).max() else { continue }
            var note = note ?? OrderNote()
            note.name(event, at: mine.address, until: expiry)
            self.note = note
            changesNote = true
        }
        over.removeAll { $0.event.position == event.position }
        return changesNote
    }
}

extension OrderedPush {
    fileprivate func isOfEvent(of other: Self) -> Bool {
        orderedEvent.position == other.orderedEvent.position
    }
}
