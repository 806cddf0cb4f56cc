import Base
import JSON
import Testing

@testable import Pipeline

private final class Push: OrderedPush {
    let orderAddress: UInt64
    let orderedEvent: OrderedEvent
    let orderExpiry = UnixMillis(100)
    let orderAudience: UInt64

    init(_ offset: Int64, at address: UInt64 = 1, seq: Int64? = nil, audience: UInt64 = 0) {
        orderAddress = address
        orderAudience = audience
        var event = OrderedEvent(offset)
        if let seq { (event.log, event.sequence) = ("a", seq) }
        orderedEvent = event
    }
}

extension OrderedEvent {
    fileprivate init(_ offset: Int64, topic: String = "push.events", moment: Int64? = nil) {
        self.init(
            position: RecordPosition(topic: topic, partition: 3, offset: offset),
            moment: UnixMillis(moment ?? offset), id: "e\(offset)")
    }
}

private let key = OrderKey(app: "shop", userID: "u", collapseKey: "k")

extension PushOrder {
    fileprivate func enter(_ key: OrderKey, _ offset: Int64) -> OrderLine<Push> {
        enter(key, OrderedEvent(offset), expiry: UnixMillis(100))
    }
}

@Suite struct `The order of pushes` {
    private let order = PushOrder<Push>()
    private let now = UnixMillis(50)

    /// A line with one event, whose note is known to be empty.
    private func line(_ offset: Int64 = 1) -> OrderLine<Push> {
        let line = order.enter(key, offset)
        line.learn(OrderNote())
        return line
    }

    private func arrive(_ push: Push, _ line: OrderLine<Push>) -> String {
        var changesNote = false
        let arrival = line.arrive(push, at: now, changesNote: &changesNote)
        let mark = changesNote ? "!" : ""
        return switch arrival {
        case .goes: "goes\(mark)"
        case .waits(nil): "waits\(mark)"
        case .waits(let former?): "waits for \(former.orderedEvent.id)\(mark)"
        case .folded(let event): "into \(event.id)\(mark)"
        case .passes: "passes\(mark)"
        }
    }

    private func leave(_ push: Push, _ line: OrderLine<Push>, isOpen: Bool = false) -> Push? {
        line.leave(push, isOpen: isOpen)
    }

    @Test func `lets a newer push wait, and a still newer one take its place`() throws {
        let line = line()
        let (first, second, third) = (Push(1), Push(2), Push(3))
        #expect(arrive(first, line) == "goes")
        #expect(arrive(second, line) == "waits")
        #expect(arrive(third, line) == "waits for e2")
        #expect(leave(first, line) === third)
        #expect(leave(third, line) == nil)
        #expect(arrive(Push(4), line) == "goes")
    }

    @Test func `is of one address each, and of one key`() {
        let line = line()
        #expect(arrive(Push(1, at: 1), line) == "goes")
        #expect(arrive(Push(2, at: 2), line) == "goes")
        let other = order.enter(OrderKey(app: "shop", userID: "u", collapseKey: "l"), 3)
        #expect(other !== line && order.count == 2)
        #expect(order.enter(key, 2) === line)
        let isChanged = [(line, 1), (line, 2), (other, 3)].map {
            order.leave($0.0, OrderedEvent($0.1))
        }
        #expect(isChanged == [false, false, false])
        #expect(order.count == 0)
    }

    @Test func `gives the turn of one that is not on the wire to the newer`() throws {
        let line = line()
        let (first, second) = (Push(1), Push(2))
        #expect(arrive(first, line) == "goes")
        #expect(line.turn(first) == nil, "nobody waits: it goes again")
        #expect(arrive(second, line) == "waits")
        #expect(line.turn(first) === second)
        #expect(leave(second, line) == nil)
    }

    @Test func `folds what comes late`() {
        let line = line()
        #expect(arrive(Push(5), line) == "goes")
        #expect(arrive(Push(3), line) == "into e5")
        #expect(arrive(Push(8), line) == "waits")
        #expect(arrive(Push(6), line) == "into e8")
    }

    @Test func `folds what comes back from a retry when a newer one came in the meantime`() {
        let line = line()
        let first = Push(1)
        #expect(arrive(first, line) == "goes")
        line.putOff(first)
        #expect(leave(first, line) == nil)
        // It is itself the newest that is known.
        #expect(line.newer(than: Push(1), at: now) == nil)
        let second = Push(2)
        #expect(arrive(second, line) == "goes!")
        #expect(leave(second, line) == nil)
        #expect(arrive(Push(3), line) == "goes", "nothing waits that a third would have to name")
        #expect(arrive(Push(1), line) == "into e3")
        #expect(line.newer(than: Push(1, at: 2), at: now) == nil)
    }

    @Test func `keeps a note across lanes`() throws {
        var note = OrderNote()
        note.wait(OrderedEvent(1), at: 1, until: UnixMillis(500))
        note.wait(OrderedEvent(1), at: .max, until: UnixMillis(400))
        let isNews = note.supersede(at: 1, by: OrderedEvent(7))
        #expect(isNews)
        let text = note.text(ByteWriter())
        let read = try #require(OrderNote(text, parser: JSONParser()))
        #expect(read == note && read.until == UnixMillis(500))
        #expect(read.newest(at: 1)?.position.offset == 7)
        #expect(read.newest(at: .max)?.position.offset == 1)
        for text in ["", "{}", "[]", #"{"until":1,"newest":[{}]}"#] {
            #expect(OrderNote(text, parser: JSONParser()) == nil, "\(text)")
        }
    }

    @Test func `names what is done before an older event, which a crash would bring back`() {
        let line = line()
        #expect(order.enter(key, 2) === line)
        let (first, second) = (Push(1), Push(2))
        #expect(arrive(first, line) == "goes")
        #expect(arrive(second, line) == "waits")
        // Another target of the first event is not over.
        #expect(leave(first, line, isOpen: true) === second)
        #expect(leave(second, line) == nil && line.note?.isEmpty == true)
        #expect(order.leave(line, second.orderedEvent))
        #expect(line.note?.newest(at: 1)?.id == "e2")
        #expect(arrive(Push(1), line) == "into e2")
        #expect(!order.leave(line, first.orderedEvent) && order.count == 0)
    }

    @Test func `folds what had not begun when a newer one was sent`() {
        let line = line()
        #expect(order.enter(key, 2) === line && order.enter(key, 3) === line)
        let second = Push(2)
        #expect(arrive(second, line) == "goes")
        #expect(leave(second, line, isOpen: true) == nil)
        #expect(arrive(Push(1), line) == "into e2", "another target of the second is open")
        #expect(order.leave(line, second.orderedEvent), "after a crash the first comes again")
        #expect(arrive(Push(1), line) == "into e2")
        #expect(arrive(Push(1, at: 2), line) == "goes")
        #expect(arrive(Push(3), line) == "goes")
    }

    @Test func `bounds a note`() {
        var note = OrderNote()
        for address in 0..<1_000 as Range<UInt64> {
            note.wait(OrderedEvent(1), at: address, until: UnixMillis(1))
        }
        #expect(note.newest(at: UInt64(OrderNote.addressesMax) - 1) != nil)
        #expect(note.newest(at: UInt64(OrderNote.addressesMax)) == nil)
        #expect(note.text(ByteWriter()).utf8.count < 8_192)
    }

    @Test func `does not fold an event into itself`() {
        let line = line()
        let first = Push(1)
        #expect(arrive(first, line) == "goes")
        // The same record, read again by the assignment that follows.
        let again = Push(1)
        #expect(arrive(again, line) == "waits")
        #expect(arrive(Push(1), line) == "passes")
        #expect(line.turn(first) == nil)
        #expect(leave(first, line) === again)
    }

    @Test func `counts an event that was put off by its publisher from its moment`() {
        var reminder = OrderedEvent(1, moment: 100)
        reminder.isDelayed = true
        #expect(OrderedEvent(2).isBefore(reminder) && !reminder.isBefore(OrderedEvent(2)))
        #expect(reminder.isBefore(OrderedEvent(200)))
        #expect(OrderedEvent(1, topic: "a").isBefore(OrderedEvent(1, topic: "b")))
    }

    @Test func `does not take a topic that was made anew for the old one`() {
        let day = Int64(86_400_000)
        let old = OrderedEvent(1_000, moment: day)
        let new = OrderedEvent(5, moment: 2 * day)
        #expect(!new.isBefore(old))
        #expect(OrderedEvent(5, moment: day + 30_000).isBefore(old), "clocks differ a little")
    }

    @Test func `does not lose the furthest cursor of a log`() {
        let line = line()
        let later = Push(5, seq: 7)
        #expect(arrive(later, line) == "goes")
        #expect(arrive(Push(3, seq: 7), line) == "into e5")
        #expect(arrive(Push(4, seq: 9), line) == "waits")
        let other = order.enter(OrderKey(app: "shop", userID: "u", collapseKey: "l"), 1)
        other.learn(OrderNote())
        other.putOff(later)
        #expect(arrive(Push(3, seq: 9), other) == "goes")
        #expect(arrive(Push(3, at: 2, seq: 1), other) == "goes")
    }

    // MARK: Events that wait as a whole

    private func wait(
        _ offset: Int64, _ line: OrderLine<Push>, due: Int64 = 40, expiry: Int64 = 100
    ) {
        line.putOff(
            WaitingEvent(
                event: OrderedEvent(offset), due: UnixMillis(due), expiry: UnixMillis(expiry),
                audience: 0))
    }

    @Test func `folds what waited as a whole into what went out meanwhile`() {
        let line = line()
        wait(1, line)
        #expect(!order.leave(line, OrderedEvent(1), isPutOff: true))
        let other = self.line(2)
        other.putOff(line.note!.whole!)
        let second = Push(2)
        #expect(arrive(second, other) == "goes!", "others have to know where it went")
        #expect(leave(second, other) == nil)
        #expect(arrive(Push(3), other) == "goes", "one name is enough")
        #expect(arrive(Push(1, at: 2), other) == "goes!", "nothing newer went there")
        #expect(arrive(Push(1), other) == "into e3")
    }

    @Test func `names who goes behind one that began to wait after another was named`() {
        let line = line()
        wait(1, line)
        let second = Push(2)
        #expect(arrive(second, line) == "goes!")
        #expect(leave(second, line) == nil)
        wait(3, line, due: 90)
        let fourth = Push(4)
        #expect(arrive(fourth, line) == "goes!")
        #expect(leave(fourth, line) == nil)
        #expect(arrive(Push(3), line) == "into e4")
    }

    @Test func `names who goes behind one that waits as a whole although it was named itself`() {
        let line = line()
        line.putOff(Push(1))
        let second = Push(2)
        #expect(arrive(second, line) == "goes!")
        // Nothing of it was written: it is done again, and waits this time.
        #expect(leave(second, line) == nil)
        wait(2, line)
        #expect(arrive(Push(3), line) == "goes!")
        #expect(arrive(Push(2), line) == "into e3")
    }

    @Test func `folds what waits as a whole into the newest that waits with it`() {
        let line = line()
        for offset in [2, 5, 3] as [Int64] { wait(offset, line) }
        #expect(line.note?.whole?.event.id == "e5")
        #expect(arrive(Push(2), line) == "into e5")
        #expect(arrive(Push(2, audience: 1), line) == "goes!", "the other is for other devices")
        #expect(arrive(Push(3, at: 2), line) == "into e5")
        #expect(arrive(Push(5, at: 2), line) == "goes!")
    }

    @Test func `folds nothing into what comes later, or will not come`() {
        for (due, expiry) in [(51, 100), (10, 50)] as [(Int64, Int64)] {
            let line = line()
            wait(2, line, due: due, expiry: expiry)
            #expect(arrive(Push(1), line) == "goes!", "\(due) \(expiry)")
            #expect(!order.leave(line, OrderedEvent(1)))
        }
        let line = line()
        wait(2, line)
        #expect(order.leave(order.enter(key, 2), OrderedEvent(2)), "it came, and is over")
        #expect(arrive(Push(1), line) == "goes!")
        #expect(!order.leave(line, OrderedEvent(2)))
    }

    @Test func `keeps what waits as a whole across lanes`() throws {
        var note = OrderNote()
        var event = OrderedEvent(7)
        event.isDelayed = true
        (event.log, event.sequence) = ("a", 9)
        note.wait(
            WaitingEvent(
                event: event, due: WaitingEvent.distantFuture, expiry: UnixMillis(800),
                audience: .max))
        #expect(note.until == UnixMillis(800) && !note.isEmpty)
        let text = note.text(ByteWriter())
        #expect(OrderNote(text, parser: JSONParser()) == note)
        _ = note.end(event)
        let ended = note.text(ByteWriter())
        #expect(ended != text && OrderNote(ended, parser: JSONParser()) == note)
        let broken = #"{"until":1,"newest":[],"whole":{"id":"x"}}"#
        #expect(OrderNote(broken, parser: JSONParser()) == nil)
    }
}
