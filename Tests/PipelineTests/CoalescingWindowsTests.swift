import Base
import Kafka
import Testing

@testable import Pipeline

/// An event of a test: told apart by its number.
private final class Item: WindowMember {
    let home: Epoch
    let offset: Int64
    let expiresAt: UnixMillis
    private(set) var isFolded = false
    private let size: Int

    init(_ offset: Int64, home: UInt32 = 1, expiresAt: Int64 = 1_000_000_000, size: Int = 100) {
        self.home = Epoch(home)
        self.offset = offset
        self.expiresAt = UnixMillis(expiresAt)
        self.size = size
    }

    var byteCount: Int { isFolded ? 10 : size }
    func fold() { isFolded = true }
    func isBefore(_ other: Item) -> Bool { home == other.home && offset < other.offset }
}

private typealias Windows = CoalescingWindows<Item>

extension BurstKey {
    fileprivate init(_ number: Int) {
        self = [UInt8(number & 255), UInt8(number >> 8 & 255), UInt8(number >> 16)]
            .withUnsafeBytes { BurstKey(hashing: $0) }
    }
}

/// Both clocks at so many milliseconds.
private func at(_ millis: Int64) -> Moment {
    Moment(monotonic: time(millis), wall: UnixMillis(millis))
}

private func time(_ millis: Int64) -> MonotonicTime { MonotonicTime(nanos: millis * 1_000_000) }

@Suite struct `Windows of bursts` {
    private let windows = Windows(bytesMax: 1 << 20)

    private func arrive(
        _ item: Item, _ key: Int = 1, until: Int64, isLed: Bool = false, at now: Int64
    ) {
        let ticket = windows.arrived(
            item, BurstKey(key), .until(time(until), isLed: isLed), at: at(now))
        #expect(ticket == nil)
    }

    @Test func `gather what comes until their end, and the latest carries the others`() throws {
        for offset in 0..<5 as Range<Int64> {
            arrive(Item(offset), until: 10_000 + offset * 1_000, at: offset * 1_000)
        }
        #expect(windows.popDue(at: time(9_999)) == nil)
        #expect(windows.nextDeadline == time(10_000))
        let closed = try #require(windows.popDue(at: time(10_000)))
        #expect(closed.carrier.offset == 4 && !closed.carrier.isFolded)
        #expect(closed.folded.map(\.offset) == [0, 1, 2, 3])
        #expect(closed.folded.allSatisfy { $0.isFolded })
        #expect(!closed.isLed && !closed.isEarly)
        #expect(windows.count == 0 && windows.bytes == 0 && windows.memberCount == 0)
    }

    @Test func `are carried by the newest, in whatever order they come`() throws {
        arrive(Item(7, expiresAt: 50_000, size: 300), until: 10_000, at: 0)
        arrive(Item(5, expiresAt: 2_000), until: 10_000, at: 1)
        arrive(Item(6, expiresAt: 2_000), until: 10_000, at: 2)
        #expect(windows.bytes == 300 + 20 + WindowLimits.windowBytes)
        // What was late is not what ends the window.
        #expect(windows.nextDeadline == time(10_000))
        arrive(Item(9), until: 10_000, at: 3)
        arrive(Item(8), until: 10_000, at: 4)
        // The first that came late is the first there is: it holds its offset open.
        #expect(windows.hasten(Epoch(1), through: 4, at: time(5)) == 0)
        #expect(windows.hasten(Epoch(1), through: 5, at: time(5)) == 1)
        let closed = try #require(windows.popDue(at: time(5)))
        #expect(closed.carrier.offset == 9 && !closed.carrier.isFolded)
        #expect(closed.folded.map(\.offset) == [5, 6, 7, 8])
        #expect(closed.folded.allSatisfy { $0.isFolded })
        #expect(windows.bytes == 0 && windows.memberCount == 0)
        let ticket = try #require(windows.arrived(Item(3), BurstKey(1), .asking, at: at(9)))
        arrive(Item(2), until: 5, at: 10)
        let led = windows.lead(ticket, until: time(100), at: at(11))
        #expect(led?.first.offset == 2, "the burst's first goes first")
    }

    @Test func `are of one key each`() throws {
        arrive(Item(0), 1, until: 100, at: 0)
        arrive(Item(1), 2, until: 50, at: 0)
        #expect(windows.popDue(at: time(100))?.carrier.offset == 1)
        #expect(windows.popDue(at: time(100))?.carrier.offset == 0)
        #expect(windows.popDue(at: time(100)) == nil)
    }

    @Test func `ask first, and let the first one go`() throws {
        let ticket = try #require(
            windows.arrived(Item(0), BurstKey(1), .asking, at: at(0)))
        arrive(Item(1), until: 5, at: 1)
        arrive(Item(2), until: 5, at: 2)
        #expect(windows.nextDeadline == nil && windows.popDue(at: time(1_000)) == nil)
        let (first, others) = try #require(windows.lead(ticket, until: time(100), at: at(3)))
        #expect(first.offset == 0 && !first.isFolded && others.isEmpty)
        arrive(Item(3), until: 5, at: 4)
        let closed = try #require(windows.popDue(at: time(100)))
        #expect(closed.carrier.offset == 3 && closed.folded.map(\.offset) == [1, 2])
        #expect(closed.isLed && closed.folded.allSatisfy(\.isFolded))
    }

    @Test func `are forgotten when nothing came behind the first`() throws {
        let ticket = try #require(windows.arrived(Item(0), BurstKey(1), .asking, at: at(0)))
        _ = windows.lead(ticket, until: time(100), at: at(1))
        #expect(windows.count == 1 && windows.nextDeadline == time(100))
        #expect(windows.popDue(at: time(100)) == nil)
        #expect(windows.count == 0 && windows.bytes == 0)
    }

    @Test func `give everything back, whole, that has to wait elsewhere`() throws {
        let ticket = try #require(windows.arrived(Item(0), BurstKey(1), .asking, at: at(0)))
        arrive(Item(1), until: 5, at: 1)
        let (first, others) = try #require(windows.lead(ticket, until: nil, at: at(1)))
        #expect(first.offset == 0 && others.map(\.offset) == [1] && !others[0].isFolded)
        #expect(windows.count == 0 && windows.bytes == 0)
        let other = try #require(windows.arrived(Item(2), BurstKey(1), .asking, at: at(2)))
        arrive(Item(3), until: 5, at: 2)
        #expect(windows.disperse(other).map(\.offset) == [2, 3])
        #expect(windows.lead(ticket, until: nil, at: at(3)) == nil)
        #expect(windows.disperse(other).isEmpty)
    }

    @Test func `end before their latest event expires`() throws {
        arrive(Item(0, expiresAt: 3_000), until: 10_000, at: 0)
        #expect(windows.nextDeadline == time(2_000))
        // The newer one lives longer.
        arrive(Item(1, expiresAt: 60_000), until: 10_000, at: 1_000)
        #expect(windows.nextDeadline == time(10_000))
        arrive(Item(2, expiresAt: 1_500), until: 10_000, at: 1_200)
        let closed = try #require(windows.popDue(at: time(1_200)))
        #expect(closed.carrier.offset == 2 && closed.isEarly)
    }

    @Test func `end early when a partition has too many offsets open`() {
        for offset in 0..<10 as Range<Int64> {
            arrive(Item(offset), Int(offset), until: 10_000, at: 0)
        }
        arrive(Item(0, home: 2), 99, until: 9_000, at: 0)
        arrive(Item(10), 0, until: 10_000, at: 1)
        #expect(windows.hasten(Epoch(1), through: 4, at: time(2)) == 5)
        var closed: [Int64] = []
        while let window = windows.popDue(at: time(2)) { closed.append(window.carrier.offset) }
        // Window 0 has a later event by now and is still the one that held offset 0 open.
        #expect(Set(closed) == [10, 1, 2, 3, 4])
        #expect(windows.hasten(Epoch(1), through: 4, at: time(2)) == 0)
        #expect(windows.count == 6)
    }

    @Test func `end early when they take too much memory, those first that end first`() {
        let small = Windows(bytesMax: 10_000)
        for offset in 0..<40 as Range<Int64> {
            _ = small.arrived(
                Item(offset, size: 400), BurstKey(Int(offset)),
                .until(time(1_000 + offset), isLed: false), at: at(0))
            while let closed = small.popDue(at: time(0)) {
                #expect(closed.isEarly)
                #expect(small.bytes <= 7_500 + 608)
            }
            #expect(small.bytes <= 7_500 && small.hasRoom)
        }
        #expect(small.count == 12)
        #expect(small.popDue(at: time(2_000))?.carrier.offset == 28)
    }

    @Test func `lose what leaves, and the last of the others carries them`() throws {
        arrive(Item(0, home: 1), until: 100, at: 0)
        arrive(Item(0, home: 2), until: 100, at: 0)
        arrive(Item(1, home: 2), until: 100, at: 0)
        arrive(Item(1, home: 1), until: 100, at: 0)
        let gone = windows.drop(where: { $0 == Epoch(1) }, at: at(1))
        #expect(gone.map(\.offset) == [0, 1])
        let closed = try #require(windows.popDue(at: time(100)))
        #expect(closed.carrier.home == Epoch(2) && closed.carrier.offset == 1)
        #expect(!closed.carrier.isFolded && closed.folded.map(\.offset) == [0])
        #expect(windows.bytes == 0 && windows.memberCount == 0)
    }

    @Test func `answer nobody whose window is gone`() throws {
        let ticket = try #require(windows.arrived(Item(0), BurstKey(1), .asking, at: at(0)))
        #expect(windows.drop(where: { _ in true }, at: at(0)).count == 1)
        let next = try #require(windows.arrived(Item(1), BurstKey(1), .asking, at: at(1)))
        #expect(windows.first(of: ticket) == nil)
        #expect(windows.lead(ticket, until: time(9), at: at(2)) == nil)
        #expect(!windows.join(ticket, until: time(9), isLed: true, at: at(2)))
        #expect(windows.first(of: next)?.offset == 1)
    }
}

@Suite struct `A hundred thousand windows of twenty-four partitions` {
    private static let homes = 24
    private static let count = 100_000
    /// How many windows a partition has, by its number.
    private static func share(_ home: Int) -> Int {
        count / homes + (home <= count % homes ? 1 : 0)
    }

    private func filled() -> Windows {
        let windows = Windows(bytesMax: 1 << 30)
        for number in 0..<Self.count {
            let home = UInt32(number % Self.homes) + 1
            let ticket = windows.arrived(
                Item(Int64(number / Self.homes), home: home), BurstKey(number),
                .until(time(10_000), isLed: false), at: at(0))
            #expect(ticket == nil)
        }
        return windows
    }

    @Test func `end early one partition at a time, the oldest of it`() {
        let windows = filled()
        #expect(windows.count == Self.count)
        let half = Int64(Self.share(7) / 2)
        #expect(windows.hasten(Epoch(7), through: half - 1, at: time(1)) == Int(half))
        var (closed, homes): (Set<Int64>, Set<Epoch>) = ([], [])
        while let window = windows.popDue(at: time(1)) {
            closed.insert(window.carrier.offset)
            homes.insert(window.carrier.home)
        }
        #expect(closed == Set(0..<half) && homes == [Epoch(7)])
        #expect(windows.count == Self.count - Int(half))
        #expect(windows.nextDeadline == time(10_000))
    }

    @Test func `go with their partition, and leave nothing behind`() {
        let windows = filled()
        var left = Self.count
        for home in 1...Self.homes {
            let gone = windows.drop(where: { $0 == Epoch(UInt32(home)) }, at: at(1))
            #expect(gone.count == Self.share(home))
            #expect(gone.allSatisfy { $0.home == Epoch(UInt32(home)) })
            left -= gone.count
            #expect(windows.count == left && windows.memberCount == left)
            #expect(windows.bytes == left * (100 + WindowLimits.windowBytes))
        }
        #expect(left == 0 && windows.bytes == 0 && windows.nextDeadline == nil)
    }
}

private func isSame(_ left: some Sequence<Item>, _ right: some Sequence<Item>) -> Bool {
    left.elementsEqual(right) { $0 === $1 }
}

/// The same rules, told in the simplest way.
private struct Model {
    struct Window {
        var key: Int
        var items: [Item]
        var until: Int64?
        var isLed = false
        var setAt: Int64 = 0

        /// Nil while it asks.
        var deadline: Int64? {
            guard let until else { return nil }
            guard let last = items.last else { return until }
            return min(until, setAt + max(last.expiresAt.value - setAt - 1_000, 0))
        }
    }

    var windows: [Window] = []

    func index(_ key: Int) -> Int? { windows.firstIndex { $0.key == key } }
}

@Suite struct `Windows of bursts, at random` {
    @Test(arguments: 0..<300 as Range<UInt64>)
    func `do what a simple model does`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let windows = Windows(bytesMax: 1 << 30)
        var model = Model()
        var tickets: [Int: Windows.Ticket] = [:]
        var now: Int64 = 0
        var offsets: [Int64] = [0, 0, 0]
        for step in 0..<400 {
            let say = "seed \(seed), step \(step)"
            let key = Int.random(in: 0..<6, using: &random)
            switch Int.random(in: 0..<20, using: &random) {
            case 0..<8:
                let home = Int.random(in: 0..<3, using: &random)
                offsets[home] += 1
                let lifetime = Int64.random(in: 0..<20_000, using: &random)
                let item = Item(
                    offsets[home], home: UInt32(home) + 1, expiresAt: now + lifetime,
                    size: Int.random(in: 20..<200, using: &random))
                let asks = Bool.random(using: &random)
                let until = now + Int64.random(in: 0..<10_000, using: &random)
                let ticket = windows.arrived(
                    item, BurstKey(key), asks ? .asking : .until(time(until), isLed: asks),
                    at: at(now))
                if let index = model.index(key) {
                    #expect(ticket == nil, "\(say)")
                    model.windows[index].items.append(item)
                    if model.windows[index].until != nil {
                        model.windows[index].setAt = now
                    }
                } else {
                    #expect((ticket != nil) == asks, "\(say)")
                    tickets[key] = ticket
                    model.windows.append(
                        .init(key: key, items: [item], until: asks ? nil : until, setAt: now))
                }
            case 8..<12:
                guard let index = model.index(key), let ticket = tickets[key],
                    model.windows[index].until == nil
                else {
                    if let ticket = tickets[key] { #expect(windows.disperse(ticket).isEmpty) }
                    break
                }
                answer(
                    ticket, index, at: now, windows, &model, &random, say)
            case 12..<15: now += Int64.random(in: 0..<4_000, using: &random)
            case 15:
                let home = UInt32.random(in: 1...3, using: &random)
                windows.hastenAll(Epoch(home), at: time(now))
                for index in model.windows.indices
                where model.windows[index].items.contains(where: { $0.home == Epoch(home) }) {
                    if let deadline = model.windows[index].deadline, deadline > now {
                        model.windows[index].until = now
                    }
                }
            case 16 where step % 5 == 0:
                let home = Epoch(UInt32.random(in: 1...3, using: &random))
                let gone = windows.drop(where: { $0 == home }, at: at(now))
                var expected = 0
                for index in model.windows.indices {
                    let all = model.windows[index].items
                    let staying = all.filter { $0.home != home }
                    expected += all.count - staying.count
                    guard staying.count < all.count else { continue }
                    model.windows[index].items = staying
                    model.windows[index].setAt = now
                }
                model.windows.removeAll { $0.items.isEmpty }
                #expect(gone.count == expected, "\(say)")
            default: try close(at: now, windows, &model, say)
            }
            let items = model.windows.flatMap(\.items)
            #expect(windows.memberCount == items.count, "\(say)")
            #expect(windows.count == model.windows.count, "\(say)")
            #expect(
                windows.bytes
                    == items.reduce(0) { $0 + $1.byteCount }
                    + model.windows.count * WindowLimits.windowBytes, "\(say)")
            #expect(
                windows.nextDeadline == model.windows.compactMap(\.deadline).min().map(time),
                "\(say)")
        }
    }

    private func answer(
        _ ticket: Windows.Ticket, _ index: Int, at now: Int64, _ windows: Windows,
        _ model: inout Model, _ random: inout SeededRandom, _ say: String
    ) {
        let until = now + Int64.random(in: 0..<10_000, using: &random)
        let items = model.windows[index].items
        func settle(_ rest: [Item], isLed: Bool) {
            model.windows[index].items = rest
            model.windows[index].until = until
            model.windows[index].isLed = isLed
            model.windows[index].setAt = now
        }
        switch Int.random(in: 0..<4, using: &random) {
        case 0:
            #expect(windows.join(ticket, until: time(until), isLed: true, at: at(now)), "\(say)")
            settle(items, isLed: true)
        case 1:
            let left = windows.disperse(ticket)
            #expect(isSame(left, items), "\(say)")
            model.windows.remove(at: index)
        case 2:
            let left = windows.lead(ticket, until: nil, at: at(now))
            #expect(left?.first === items[0] && left?.others.count == items.count - 1, "\(say)")
            #expect(items.allSatisfy { !$0.isFolded }, "\(say)")
            model.windows.remove(at: index)
        default:
            let left = windows.lead(ticket, until: time(until), at: at(now))
            #expect(left?.first === items[0] && !items[0].isFolded, "\(say)")
            settle(Array(items.dropFirst()), isLed: true)
        }
    }

    /// Everything that is due comes out, in the order of the ends, and with the right events.
    private func close(
        at now: Int64, _ windows: Windows, _ model: inout Model, _ say: String
    ) throws {
        var last = Int64.min
        while let closed = windows.popDue(at: time(now)) {
            let index = try #require(
                model.windows.firstIndex { $0.items.last === closed.carrier }, "\(say)")
            let window = model.windows.remove(at: index)
            let deadline = try #require(window.deadline)
            #expect(deadline <= now && deadline >= last, "\(say)")
            last = deadline
            #expect(isSame(closed.folded, window.items.dropLast()), "\(say)")
            #expect(!closed.carrier.isFolded && closed.isLed == window.isLed, "\(say)")
        }
        // Led windows without an event go unseen.
        model.windows.removeAll { $0.items.isEmpty && $0.deadline ?? .max <= now }
        #expect(!model.windows.contains { $0.deadline ?? .max <= now }, "\(say)")
    }
}

@Suite struct `The mark of a burst` {
    private func place(_ offset: Int64, _ topic: String = "push.events", _ partition: Int32 = 3)
        -> RecordPosition
    {
        RecordPosition(topic: topic, partition: partition, offset: offset)
    }

    private func part(_ offset: Int64, _ mark: BurstMark?, written: Int64 = 0, now: Int64)
        -> BurstMark.Part
    {
        BurstMark.part(
            of: place(offset), timestamp: UnixMillis(written), given: mark, at: UnixMillis(now))
    }

    @Test func `comes back as it was written`() {
        for topic in ["push.events", "a topic with spaces"] {
            for closed in [nil, 0, 17] as [Int64?] {
                let mark = BurstMark(
                    until: UnixMillis(99), first: place(5, topic), closedThrough: closed)
                #expect(BurstMark(mark.text) == mark)
            }
        }
        for text in ["", "1", "1 2 3 4", "x 1 - 0 t", "1 x - 0 t", "1 1 x 0 t", "1 1 - x t"] {
            #expect(BurstMark(text) == nil, "\(text)")
        }
    }

    @Test func `makes one burst of events that come while it is on`() {
        let mark = BurstMark(until: UnixMillis(100), first: place(5))
        #expect(part(6, nil, now: 50) == .begins)
        #expect(part(6, mark, now: 50) == .joins(until: UnixMillis(100)))
        #expect(part(4, mark, now: 50) == .joins(until: UnixMillis(100)))
        #expect(part(6, mark, written: 101, now: 101) == .begins)
    }

    @Test func `lets the first one be the first again after a crash`() {
        let mark = BurstMark(until: UnixMillis(100), first: place(5))
        #expect(part(5, mark, now: 50) == .repeats(until: UnixMillis(100)))
        #expect(part(5, mark, now: 500) == .repeats(until: UnixMillis(100)))
    }

    @Test func `folds what was waiting when a process died, however late that comes`() {
        let mark = BurstMark(until: UnixMillis(100), first: place(5))
        #expect(part(6, mark, written: 90, now: 5_000) == .joins(until: UnixMillis(100)))
        #expect(part(6, mark, written: 150, now: 5_000) == .begins)
        #expect(part(4, mark, written: 90, now: 5_000) == .begins)
    }

    @Test func `keeps a last push that was not committed from becoming another burst`() {
        let mark = BurstMark(
            closing: [place(5), place(8), place(90, "other")], place(7), at: UnixMillis(100))
        #expect(mark.closedThrough == 8)
        #expect(part(6, mark, now: 101) == .joins(until: UnixMillis(100)))
        #expect(part(8, mark, now: 101) == .joins(until: UnixMillis(100)))
        #expect(part(9, mark, now: 101) == .begins)
    }

    @Test func `is of one key`() {
        let keys = (0..<1_000).map { BurstKey($0) }
        #expect(Set(keys.map(\.name)).count == 1_000)
        #expect(keys.allSatisfy { $0.name.utf8.count == 38 })
    }
}
