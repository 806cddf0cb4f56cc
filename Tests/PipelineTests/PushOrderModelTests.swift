import Base
import JSON
import Testing

@testable import Pipeline

/// A world around `PushOrder` that does everything at random that a lane may do: wait for room, be
/// answered, rest before the next attempt, put off, come back, and lose its memory.
private final class Playground {
    final class Event {
        let ordered: OrderedEvent
        let collapseKey: Int
        let addresses: [UInt64]
        /// Read again after a crash: it may be sent again.
        var isRepeated = false
        var line: OrderLine<Push>?
        var open = 0
        var putOff: [UInt64] = []
        var isRetry = false
        /// It waited as a whole.
        var wasHeld = false

        init(_ ordered: OrderedEvent, _ collapseKey: Int, _ addresses: [UInt64]) {
            self.ordered = ordered
            self.collapseKey = collapseKey
            self.addresses = addresses
        }

        /// The same record, read again.
        func again(for addresses: [UInt64]) -> Event { Event(ordered, collapseKey, addresses) }
    }

    final class Push: OrderedPush {
        enum State { case idle, onWire, resting, over }
        let event: Event
        let orderAddress: UInt64
        var state = State.idle
        var isOrdered = false
        var orderedEvent: OrderedEvent { event.ordered }
        let orderExpiry = UnixMillis(1_000)
        /// Events with the same addresses have the same audience.
        var orderAudience: UInt64 { event.addresses.reduce(0) { $0 << 8 | $1 } }

        init(_ event: Event, _ address: UInt64) {
            self.event = event
            orderAddress = address
        }
    }

    struct Place: Hashable {
        let collapseKey: Int
        let address: UInt64
    }

    var random: SeededRandom
    let seed: UInt64
    var order = PushOrder<Push>()
    /// What the index keeps.
    var notes: [OrderKey: String] = [:]
    var inFlight: [Push] = []
    /// Events in the lane whose pushes have not begun.
    var held: [Event] = []
    private let now = UnixMillis(500)
    /// Retry topics: events whose record was committed.
    var retries: [Event] = []
    var nextOffset: Int64 = 0
    /// By place, what was sent, in order.
    var sent: [Place: [Int64]] = [:]
    /// By offset and address: outcomes, and what a push was folded into.
    var outcomes: [String: [String]] = [:]
    var folded: [String: Int64] = [:]
    var targets: [Int64: Event] = [:]
    var crashes = 0
    private let parser = JSONParser()

    init(seed: UInt64) {
        self.seed = seed
        random = SeededRandom(seed: seed)
    }

    private var say: Comment { "seed \(seed), offset \(nextOffset)" }

    private func key(_ event: Event) -> OrderKey {
        OrderKey(app: "shop", userID: "u", collapseKey: "\(event.collapseKey)")
    }

    // MARK: What happens

    func publish() {
        nextOffset += 1
        let addresses = ([1, 2, 3] as [UInt64]).filter { _ in Bool.random(using: &random) }
        let ordered = OrderedEvent(
            position: RecordPosition(topic: "push.events", partition: 0, offset: nextOffset),
            moment: UnixMillis(nextOffset), id: "\(nextOffset)")
        let event = Event(ordered, Int.random(in: 0..<2, using: &random), addresses)
        targets[nextOffset] = event
        read(event)
    }

    func comeBack() {
        guard !retries.isEmpty else { return }
        let event = retries.remove(at: Int.random(in: 0..<retries.count, using: &random))
        event.isRetry = true
        read(event)
    }

    func read(_ event: Event) {
        let line = order.enter(key(event), event.ordered, expiry: UnixMillis(1_000))
        if line.note == nil {
            line.learn(notes[line.key].flatMap { OrderNote($0, parser: parser) } ?? OrderNote())
        }
        event.line = line
        guard !event.isRetry || event.wasHeld else { return fanOut(event) }
        switch Int.random(in: 0..<12, using: &random) {
        case 0: waitWhole(event, line)
        case 1, 2:
            held.append(event)
        default: fanOut(event)
        }
    }

    /// Quiet hours, say: its addresses are not looked at.
    private func waitWhole(_ event: Event, _ line: OrderLine<Push>) {
        line.putOff(
            WaitingEvent(
                event: event.ordered, due: now, expiry: UnixMillis(1_000),
                audience: Push(event, 0).orderAudience))
        write(line)
        event.line = nil
        let next = event.again(for: event.addresses)
        next.wasHeld = true
        retries.append(next)
        if order.leave(line, event.ordered, isPutOff: true) { write(line) }
    }

    /// A look-up that was repeated is answered, say.
    func release() {
        guard !held.isEmpty else { return }
        let event = held.remove(at: Int.random(in: 0..<held.count, using: &random))
        fanOut(event)
    }

    private func fanOut(_ event: Event) {
        guard let line = event.line else { return }
        event.open = event.addresses.count + 1
        let pushes = event.addresses.map { Push(event, $0) }
        inFlight += pushes
        for push in pushes {
            if event.isRetry, let newer = line.newer(than: push, at: now) {
                fold(push, into: newer)
            } else {
                send(push)
            }
        }
        done(event)
    }

    /// Something happens to a push that is on its way.
    func move() {
        let moving = inFlight.filter { $0.state == .onWire || $0.state == .resting }
        guard !moving.isEmpty else { return }
        let push = moving[Int.random(in: 0..<moving.count, using: &random)]
        if push.state == .resting {
            if Int.random(in: 0..<4, using: &random) == 0 { return putOff(push) }
            return send(push)
        }
        switch Int.random(in: 0..<5, using: &random) {
        case 0: push.state = .resting
        case 1: putOff(push)
        default: settle(push, "accepted")
        }
    }

    /// The lane's memory is lost; what is not committed is read again, in its order.
    func crash() {
        crashes += 1
        var again: [Event] = []
        for push in inFlight where !again.contains(where: { $0 === push.event }) {
            again.append(push.event)
        }
        again += held
        inFlight = []
        held = []
        order = PushOrder()
        for event in again.sorted(by: { $0.ordered.position.offset < $1.ordered.position.offset }) {
            // Its results were not written.
            for address in event.addresses {
                outcomes[name(event, address)] = nil
                folded[name(event, address)] = nil
            }
            let next = event.again(for: event.addresses)
            next.isRepeated = true
            next.isRetry = event.isRetry
            next.wasHeld = event.wasHeld
            read(next)
        }
    }

    // MARK: What a lane does

    private func send(_ push: Push) {
        guard let line = push.event.line else { return }
        if push.isOrdered {
            if let newer = line.turn(push) {
                giveWay(push, to: newer)
                return send(newer)
            }
        } else {
            var changesNote = false
            let arrival = line.arrive(push, at: now, changesNote: &changesNote)
            if changesNote { write(line) }
            switch arrival {
            case .goes: push.isOrdered = true
            case .passes: Issue.record("nothing is read twice here; \(say)")
            case .folded(let newer): return fold(push, into: newer)
            case .waits(let former):
                push.isOrdered = true
                push.state = .idle
                if let former { giveWay(former, to: push) }
                return
            }
        }
        // No room: it is asked again.
        if Int.random(in: 0..<4, using: &random) == 0 { return push.state = .resting }
        write(push)
    }

    private func write(_ push: Push) {
        let place = Place(collapseKey: push.event.collapseKey, address: push.orderAddress)
        let offset = push.orderedEvent.position.offset
        let others = inFlight.filter {
            $0.state == .onWire && $0.orderAddress == push.orderAddress
                && $0.event.collapseKey == push.event.collapseKey
        }
        #expect(others.isEmpty, "one is under way already; \(say)")
        if !push.event.isRepeated, let last = sent[place]?.max() {
            #expect(offset >= last, "\(offset) behind \(last); \(say)")
        }
        sent[place, default: []].append(offset)
        push.state = .onWire
    }

    private func giveWay(_ push: Push, to newer: Push) {
        push.isOrdered = false
        #expect(push.state != .onWire, "what is on the wire is not folded; \(say)")
        fold(push, into: newer.orderedEvent)
    }

    private func fold(_ push: Push, into newer: OrderedEvent) {
        let offset = push.orderedEvent.position.offset
        #expect(newer.position.offset > offset, "\(say)")
        #expect(
            targets[newer.position.offset]?.collapseKey == push.event.collapseKey
                && targets[newer.position.offset]?.addresses.contains(push.orderAddress) == true,
            "folded into what goes elsewhere; \(say)")
        folded[name(push.event, push.orderAddress)] = newer.position.offset
        push.event.line?.end(push, isOpen: push.event.open > 1)
        settle(push, "coalesced")
    }

    private func settle(_ push: Push, _ outcome: String) {
        #expect(push.state != .over, "\(say)")
        push.state = .over
        inFlight.removeAll { $0 === push }
        outcomes[name(push.event, push.orderAddress), default: []].append(outcome)
        finish(push)
    }

    private func putOff(_ push: Push) {
        guard let line = push.event.line else { return }
        if let newer = line.turn(push) {
            push.state = .resting
            giveWay(push, to: newer)
            return send(newer)
        }
        line.putOff(push)
        write(line)
        push.state = .over
        inFlight.removeAll { $0 === push }
        push.event.putOff.append(push.orderAddress)
        finish(push)
    }

    private func finish(_ push: Push) {
        var next: Push?
        if push.isOrdered { next = push.event.line?.leave(push, isOpen: push.event.open > 1) }
        push.isOrdered = false
        done(push.event)
        if let next { send(next) }
    }

    private func done(_ event: Event) {
        event.open -= 1
        guard event.open == 0, let line = event.line else { return }
        event.line = nil
        if !event.putOff.isEmpty { retries.append(event.again(for: event.putOff)) }
        if order.leave(line, event.ordered) { write(line) }
    }

    private func write(_ line: OrderLine<Push>) {
        notes[line.key] = line.note?.text(ByteWriter())
    }

    private func name(_ event: Event, _ address: UInt64) -> String {
        "\(event.ordered.position.offset)/\(address)"
    }

    // MARK: The end

    /// Lets everything come to its end.
    func drain() {
        for _ in 0..<100_000 where !(inFlight.isEmpty && retries.isEmpty && held.isEmpty) {
            comeBack()
            release()
            let moving = inFlight.first { $0.state == .onWire || $0.state == .resting }
            if let moving {
                moving.state == .onWire ? settle(moving, "accepted") : send(moving)
            }
        }
    }

    func judge() {
        #expect(
            inFlight.isEmpty && retries.isEmpty && held.isEmpty, "somebody waits for ever; \(say)")
        #expect(order.count == 0, "\(say)")
        for event in targets.values {
            for address in event.addresses {
                let found = outcomes[name(event, address)] ?? []
                #expect(found.count == 1, "\(name(event, address)): \(found); \(say)")
                guard let into = folded[name(event, address)] else { continue }
                let next = outcomes["\(into)/\(address)"] ?? []
                #expect(next.count == 1, "folded into what has no outcome; \(say)")
            }
        }
        for (place, offsets) in sent {
            let newest = targets.values.filter {
                $0.collapseKey == place.collapseKey && $0.addresses.contains(place.address)
            }.map(\.ordered.position.offset).max()
            #expect(offsets.last == newest, "\(place): the device shows something old; \(say)")
        }
    }
}

@Suite struct `The order of pushes, at random` {
    @Test(arguments: 0..<400 as Range<UInt64>)
    func `has one under way, never an older behind a newer, and an end for each`(seed: UInt64) {
        let world = Playground(seed: seed)
        for _ in 0..<300 {
            switch Int.random(in: 0..<20, using: &world.random) {
            case 0..<8: world.publish()
            case 8..<10: world.comeBack()
            case 10: world.release()
            case 11 where seed % 2 == 0:
                if Int.random(in: 0..<6, using: &world.random) == 0 { world.crash() }
            default: world.move()
            }
        }
        world.drain()
        world.judge()
    }
}
