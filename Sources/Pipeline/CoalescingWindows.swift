// The windows of a lane: events that wait so that one push tells of all of them. Pure: no clock, no
// timer, no I/O; members are told apart by the assignment in which their offsets are open.
//
//     first: hold                      first: send
//
//     arrived ─► open ─► due           arrived ─► asking ──lead──► open, led ─► due or empty
//                                                    └────join───► open, led ─► due
//
// A window is asking while the index is asked for the burst's mark. The newest member carries the
// others: it is complete enough to be sent, of the others only what their results need is kept.
// A window is due at its end, or a moment before its latest member expires, or early, when room is
// short: then the one that would end first goes first.

internal import Base
internal import Kafka

/// An event in a window.
internal protocol WindowMember: AnyObject {
    /// The assignment in which its offset is open.
    var home: Epoch { get }
    /// Its offset there.
    var offset: Int64 { get }
    /// Whether `other` is newer: those that waited in retry topics come in any order.
    func isBefore(_ other: Self) -> Bool
    /// When it is worth nothing any more.
    var expiresAt: UnixMillis { get }
    /// The memory it takes.
    var byteCount: Int { get }
    /// Another one is sent for it: what only sending needs may go.
    func fold()
}

/// One moment on both clocks.
internal struct Moment {
    var monotonic: MonotonicTime
    var wall: UnixMillis
}

/// The windows of one lane. Lane-confined.
///
/// Arrival, folding and closing cost O(log windows) for the order of their ends and O(1) for all
/// else; only `drop` looks at every window.
internal final class CoalescingWindows<Member: WindowMember> {
    /// Names a window across a question to the index; worthless when the window is gone.
    struct Ticket: Hashable {
        let slot: Int32
        let serial: UInt32
    }

    /// How an event gets into a window that is not there yet.
    enum Entrance {
        /// The window is open until then. `isLed`: one event more than its members was in the burst.
        case until(MonotonicTime, isLed: Bool)
        /// The index has to be asked.
        case asking
    }

    /// What a window leaves behind.
    struct Closed {
        let key: BurstKey
        /// The event that is sent.
        let carrier: Member
        /// Those it stands for, in the order in which they were known to be older.
        let folded: [Member]
        let isLed: Bool
        /// Whether it ended before its time.
        let isEarly: Bool
    }

    private struct Window {
        var key: BurstKey
        var serial: UInt32 = 0
        var isAsking = false
        var isLed = false
        var isHastened = false
        var until = MonotonicTime(nanos: 0)
        /// What it is ordered by: its end, an expiry, or now.
        var deadline = MonotonicTime(nanos: 0)
        var latest: Member?
        var folded: [Member] = []
        /// Place in the heap; -1 outside.
        var place: Int32 = -1
        /// The assignment in whose list it stands, of the member that came first.
        var home: Epoch?
        var older: Int32 = -1
        var newer: Int32 = -1
    }

    private struct List {
        var oldest: Int32
        var newest: Int32
    }

    private var windows: [Window] = []
    private var free: [Int32] = []
    private var slots: [BurstKey: Int32] = [:]
    /// Slots ordered by deadline, the earliest first.
    private var heap: [Int32] = []
    /// By assignment, the windows with members in the order in which they got their first.
    private var lists: [Epoch: List] = [:]
    private var lastSerial: UInt32 = 0
    private let bytesMax: Int

    /// The bytes of everything that waits, as estimated.
    private(set) var bytes = 0
    /// The number of events that wait.
    private(set) var memberCount = 0

    /// Windows that hold at most about so many bytes.
    init(bytesMax: Int) { self.bytesMax = bytesMax }

    /// The number of windows, those included that are led and have no member.
    var count: Int { slots.count }

    /// Whether another event may be read.
    var hasRoom: Bool { bytes < bytesMax }

    /// Whether windows close early so that it stays so: at 75 %.
    private var isCrowded: Bool { bytes > bytesMax / 4 * 3 }

    /// When the next window is due; nil when none is.
    var nextDeadline: MonotonicTime? {
        heap.first.map { isCrowded ? MonotonicTime(nanos: 0) : windows[Int($0)].deadline }
    }

    // MARK: - Arrival

    /// Takes an event in. A ticket is returned when the index has to be asked first; then `lead`,
    /// `join` or `disperse` follows.
    func arrived(
        _ member: Member, _ key: BurstKey, _ entrance: Entrance, at now: Moment
    ) -> Ticket? {
        if let slot = slots[key] {
            add(member, to: Int(slot), at: now)
            return nil
        }
        let slot = open(key)
        switch entrance {
        case .until(let end, let isLed):
            windows[slot].until = end
            windows[slot].isLed = isLed
            add(member, to: slot, at: now)
            return nil
        case .asking:
            windows[slot].isAsking = true
            add(member, to: slot, at: now)
            return Ticket(slot: Int32(slot), serial: windows[slot].serial)
        }
    }

    /// Whether there is a window for a key.
    func has(_ key: BurstKey) -> Bool { slots[key] != nil }

    /// The first member of a window that asks; nil when it is gone.
    func first(of ticket: Ticket) -> Member? {
        guard let slot = slot(of: ticket) else { return nil }
        return windows[slot].folded.first ?? windows[slot].latest
    }

    /// The first event is sent by itself. The others wait until `end`, or without one leave too.
    func lead(_ ticket: Ticket, until end: MonotonicTime?, at now: Moment)
        -> (first: Member, others: [Member])?
    {
        guard let slot = slot(of: ticket), let first = first(of: ticket) else { return nil }
        removeFirst(of: slot)
        guard let end else {
            let others = members(of: slot)
            remove(slot)
            return (first, others)
        }
        windows[slot].isLed = true
        settle(slot, until: end, at: now)
        return (first, [])
    }

    /// All events of a window wait until `end`. False when the window is gone.
    @discardableResult
    func join(_ ticket: Ticket, until end: MonotonicTime, isLed: Bool, at now: Moment) -> Bool {
        guard let slot = slot(of: ticket) else { return false }
        windows[slot].isLed = isLed
        settle(slot, until: end, at: now)
        return true
    }

    /// All events of a window leave.
    func disperse(_ ticket: Ticket) -> [Member] {
        guard let slot = slot(of: ticket) else { return [] }
        let members = members(of: slot)
        remove(slot)
        return members
    }

    private func settle(_ slot: Int, until end: MonotonicTime, at now: Moment) {
        // Until now any of them might have been sent by itself.
        let members = members(of: slot)
        for (member, next) in zip(members, members.dropFirst()) { fold(member, before: next) }
        windows[slot].isAsking = false
        windows[slot].until = end
        setDeadline(of: slot, at: now)
    }

    // MARK: - Closing

    /// Takes out the window that ends first when it is due, or when room is short.
    func popDue(at now: MonotonicTime) -> Closed? {
        while let top = heap.first {
            let window = windows[Int(top)]
            guard window.deadline <= now || isCrowded else { return nil }
            remove(Int(top))
            // Led, and nothing came behind the first.
            guard let carrier = window.latest else { continue }
            return Closed(
                key: window.key, carrier: carrier, folded: window.folded, isLed: window.isLed,
                isEarly: window.isHastened || window.until > now)
        }
        return nil
    }

    /// Makes the windows due that hold offsets of an assignment up to `offset`. Returns how many.
    @discardableResult
    func hasten(_ home: Epoch, through offset: Int64, at now: MonotonicTime) -> Int {
        var count = 0
        while let slot = lists[home].map({ Int($0.oldest) }),
            let first = windows[slot].folded.first ?? windows[slot].latest, first.offset <= offset
        {
            unlist(slot)
            hasten(slot, at: now)
            count += 1
        }
        return count
    }

    /// Makes every window due that has a member of an assignment. Linear in all there are.
    func hastenAll(_ home: Epoch, at now: MonotonicTime) {
        for slot in slots.values.map({ Int($0) })
        where members(of: slot).contains(where: { $0.home == home }) {
            hasten(slot, at: now)
        }
    }

    private func hasten(_ slot: Int, at now: MonotonicTime) {
        guard windows[slot].place >= 0, windows[slot].deadline > now else { return }
        // Whatever comes in the meantime does not put it off again.
        windows[slot].until = now
        windows[slot].isHastened = true
        windows[slot].deadline = now
        siftUp(Int(windows[slot].place))
    }

    /// Takes out the members of assignments that leave. What is left of a window stays: the last of
    /// the others carries it.
    func drop(where isLeaving: (Epoch) -> Bool, at now: Moment) -> [Member] {
        var dropped: [Member] = []
        for slot in slots.values.map({ Int($0) }) {
            let all = members(of: slot)
            let leaving = all.filter { isLeaving($0.home) }
            guard !leaving.isEmpty || all.isEmpty else { continue }
            dropped.append(contentsOf: leaving)
            let staying = all.filter { !isLeaving($0.home) }
            for member in leaving { discount(member) }
            windows[slot].folded = Array(staying.dropLast())
            windows[slot].latest = staying.last
            if staying.isEmpty {
                remove(slot)
            } else {
                unlist(slot)
                list(slot, staying[0].home)
                if !windows[slot].isAsking { setDeadline(of: slot, at: now) }
            }
        }
        return dropped
    }

    // MARK: - Members

    private func open(_ key: BurstKey) -> Int {
        let slot = free.popLast() ?? Int32(windows.count)
        if Int(slot) == windows.count { windows.append(Window(key: key)) }
        lastSerial &+= 1
        windows[Int(slot)].key = key
        windows[Int(slot)].serial = lastSerial
        slots[key] = slot
        bytes += WindowLimits.windowBytes
        return Int(slot)
    }

    private func add(_ member: Member, to slot: Int, at now: Moment) {
        memberCount += 1
        bytes += member.byteCount
        if let latest = windows[slot].latest {
            let isLate = member.isBefore(latest)
            let (older, newer) = isLate ? (member, latest) : (latest, member)
            windows[slot].folded.append(older)
            windows[slot].latest = newer
            if !windows[slot].isAsking { fold(older, before: newer) }
            if isLate, windows[slot].folded.count == 1 {
                // It is the first member now.
                unlist(slot)
                list(slot, member.home)
            }
        } else {
            windows[slot].latest = member
            list(slot, member.home)
        }
        if !windows[slot].isAsking { setDeadline(of: slot, at: now) }
    }

    /// Should only one of two assignments stay, the last event of that one has to be whole.
    private func fold(_ member: Member, before next: Member) {
        guard member.home == next.home else { return }
        bytes -= member.byteCount
        member.fold()
        bytes += member.byteCount
    }

    private func removeFirst(of slot: Int) {
        if windows[slot].folded.isEmpty {
            windows[slot].latest.map(discount)
            windows[slot].latest = nil
        } else {
            discount(windows[slot].folded.removeFirst())
        }
        unlist(slot)
        if let next = windows[slot].folded.first ?? windows[slot].latest { list(slot, next.home) }
    }

    private func members(of slot: Int) -> [Member] {
        windows[slot].folded + (windows[slot].latest.map { [$0] } ?? [])
    }

    private func discount(_ member: Member) {
        memberCount -= 1
        bytes -= member.byteCount
    }

    private func remove(_ slot: Int) {
        for member in windows[slot].folded { discount(member) }
        windows[slot].latest.map(discount)
        unlist(slot)
        if windows[slot].place >= 0 { takeOut(Int(windows[slot].place)) }
        slots[windows[slot].key] = nil
        bytes -= WindowLimits.windowBytes
        windows[slot] = Window(key: windows[slot].key)
        free.append(Int32(slot))
    }

    private func slot(of ticket: Ticket) -> Int? {
        let slot = Int(ticket.slot)
        return windows[slot].serial == ticket.serial && windows[slot].isAsking ? slot : nil
    }

    // MARK: - The windows of an assignment, by age

    private func list(_ slot: Int, _ home: Epoch) {
        windows[slot].home = home
        windows[slot].newer = -1
        guard let list = lists[home] else {
            windows[slot].older = -1
            lists[home] = List(oldest: Int32(slot), newest: Int32(slot))
            return
        }
        windows[slot].older = list.newest
        windows[Int(list.newest)].newer = Int32(slot)
        lists[home]?.newest = Int32(slot)
    }

    private func unlist(_ slot: Int) {
        guard let home = windows[slot].home else { return }
        let (older, newer) = (windows[slot].older, windows[slot].newer)
        if older >= 0 { windows[Int(older)].newer = newer } else { lists[home]?.oldest = newer }
        if newer >= 0 { windows[Int(newer)].older = older } else { lists[home]?.newest = older }
        if older < 0, newer < 0 { lists[home] = nil }
        windows[slot].home = nil
    }

    // MARK: - The order of their ends

    private func setDeadline(of slot: Int, at now: Moment) {
        var deadline = windows[slot].until
        if let latest = windows[slot].latest {
            let lifetime = latest.expiresAt - now.wall - WindowLimits.beforeExpiry
            deadline = min(deadline, now.monotonic + max(lifetime, .zero))
        }
        windows[slot].deadline = deadline
        let place = Int(windows[slot].place)
        if place < 0 {
            windows[slot].place = Int32(heap.count)
            heap.append(Int32(slot))
            siftUp(heap.count - 1)
        } else {
            siftUp(place)
            siftDown(Int(windows[slot].place))
        }
    }

    private func takeOut(_ place: Int) {
        windows[Int(heap[place])].place = -1
        let last = heap.removeLast()
        guard place < heap.count else { return }
        put(last, at: place)
        siftUp(place)
        siftDown(Int(windows[Int(last)].place))
    }

    private func put(_ slot: Int32, at place: Int) {
        heap[place] = slot
        windows[Int(slot)].place = Int32(place)
    }

    private func deadline(at place: Int) -> MonotonicTime { windows[Int(heap[place])].deadline }

    private func siftUp(_ start: Int) {
        var child = start
        while child > 0 {
            let parent = (child - 1) / 2
            guard deadline(at: child) < deadline(at: parent) else { return }
            exchange(child, parent)
            child = parent
        }
    }

    private func siftDown(_ start: Int) {
        var parent = start
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < heap.count && deadline(at: child) < deadline(at: least) {
                least = child
            }
            guard least != parent else { return }
            exchange(parent, least)
            parent = least
        }
    }

    private func exchange(_ left: Int, _ right: Int) {
        let (first, second) = (heap[left], heap[right])
        put(first, at: right)
        put(second, at: left)
    }
}

/// The bounds of windows.
internal enum WindowLimits {
    /// How long before its latest event's expiry a window ends.
    static let beforeExpiry = TimeSpan.seconds(1)
    /// What a window takes beside its members, in bytes: its slot, and its places in the table, the
    /// order and the list.
    static let windowBytes = 208
    /// Events named by the result of the one that carries them.
    static let foldedNames = 50
}

/// The spans of windows, which tests shorten together with the waits of the retry topics.
internal struct WindowSpans: Sendable {
    /// The longest time that an event waits in a lane. What waits longer does so in a retry topic.
    let longestInLane: TimeSpan
    /// How long a window stays open, at least, that others have begun: what was read again after a
    /// crash comes at once, but not in one piece.
    let gathering: TimeSpan
    /// How long before its end an event comes back that waited for it in a retry topic: more than
    /// the shortest of them can be late.
    let returnAhead: TimeSpan

    init(divisor: Int64) {
        longestInLane = .seconds(30) / divisor
        gathering = .seconds(2)
        returnAhead = .seconds(15) / divisor
    }
}
