// The loop that every thread with descriptors runs: epoll, timers and jobs from other threads.
//
// One turn: wait for readiness or the next timer, read the clocks once, deliver readiness, fire
// due timers, run submitted jobs, then call the handlers that asked for the end of the turn.
// Connections collect their output during a turn and write it at the end, once.

public import Base
internal import CLinux
internal import Glibc

/// What a registered descriptor waits for.
public struct Interest: OptionSet, Sendable {
    /// The raw bits.
    public let rawValue: UInt8
    /// A set from raw bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Wake when bytes, connections or an end of stream can be read.
    public static let read = Interest(rawValue: 1)
    /// Wake when bytes can be written.
    public static let write = Interest(rawValue: 2)
}

/// What a descriptor became ready for.
public struct Readiness: OptionSet, Sendable {
    /// The raw bits.
    public let rawValue: UInt8
    /// A set from raw bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Reading will not block.
    public static let read = Readiness(rawValue: 1)
    /// Writing will not block.
    public static let write = Readiness(rawValue: 2)
    /// The peer closed or the connection failed; a read tells which.
    public static let hangUp = Readiness(rawValue: 4)
}

/// Receives the readiness of one descriptor, on the loop's thread.
public protocol ReadinessHandler: AnyObject {
    /// The descriptor is ready; level-triggered, so what is left undone is reported again.
    func ready(_ readiness: Readiness)
}

/// Receives the end of a turn it asked for, on the loop's thread.
public protocol TurnEndHandler: AnyObject {
    /// All readiness, timers and jobs of the turn have been delivered.
    func turnEnded()
}

/// A descriptor's place in its loop.
public struct Registration: Sendable {
    internal let slot: Int
    /// Tells a reused slot from the descriptor that was registered, so that a stale event of a
    /// closed descriptor never reaches its successor.
    internal let generation: UInt32
}

/// An epoll loop confined to the thread that runs it.
public final class EventLoop {
    private struct Slot {
        var fd: Int32 = -1
        var generation: UInt32 = 0
        var handler: (any ReadinessHandler)?
    }

    /// The loop's name, also its thread's.
    public let name: String

    // Unchecked: read many times per push, written only by the loop itself between turns' stages;
    // a check at run time costs more than the read. Read through accessors, as other modules that
    // touch a stored property itself check it whatever it says.
    @exclusivity(unchecked) private var turnMonotonic: MonotonicTime
    @exclusivity(unchecked) private var turnWall: UnixMillis

    /// The monotonic time of this turn.
    public var now: MonotonicTime { turnMonotonic }

    /// The wall-clock time of this turn.
    public var wall: UnixMillis { turnWall }

    /// How long the loop has waited for something to do since it was made; the rest of the time it
    /// worked, or was kept from the processor in the middle of its work.
    @exclusivity(unchecked) public private(set) var waited = TimeSpan.zero

    /// Jitter for what runs on this loop.
    public var random = SeededRandom.fromSystem()

    /// Where the names are looked up that this loop's sockets are connected to.
    public var names = NameService.system

    /// The loop's face towards other threads.
    public let handle: LoopHandle

    private let time: any TimeSource
    private let epoll: Int32
    @exclusivity(unchecked) private var slots: [Slot] = []
    private var freeSlots: [Int] = []
    @exclusivity(unchecked) private var timers = TimerHeap()
    @exclusivity(unchecked) private var turnEnds: [any TurnEndHandler] = []
    @exclusivity(unchecked) private var endingTurn: [any TurnEndHandler] = []
    @exclusivity(unchecked) private var events: UnsafeMutableBufferPointer<epoll_event>

    /// A loop with no descriptors but its own wake-up.
    public init(name: String, time: any TimeSource = SystemTime.shared) throws(SystemError) {
        self.name = name
        self.time = time
        turnMonotonic = time.monotonic
        turnWall = time.wall
        epoll = try checked("epoll_create1") { epoll_create1(Int32(EPOLL_CLOEXEC)) }
        let wakeUp: Int32
        do throws(SystemError) {
            wakeUp = try checked("eventfd") {
                eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
            }
        } catch {
            close(epoll)
            throw error
        }
        handle = LoopHandle(wakeUp: wakeUp)
        events = .allocate(capacity: Limits.eventsPerTurn)
        _ = try register(wakeUp, .read, handle)
    }

    deinit {
        close(epoll)
        events.deallocate()
    }
}

// MARK: - Descriptors

extension EventLoop {
    /// Watches a non-blocking descriptor. The caller keeps owning it and deregisters it before
    /// closing it.
    public func register(
        _ fd: Int32, _ interest: Interest, _ handler: any ReadinessHandler
    ) throws(SystemError) -> Registration {
        let index: Int
        if let free = freeSlots.popLast() {
            index = free
        } else {
            index = slots.count
            slots.append(Slot())
        }
        let generation = slots[index].generation &+ 1
        var event = Self.event(interest, slot: index, generation: generation)
        do throws(SystemError) {
            try checked("epoll_ctl") { epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) }
        } catch {
            freeSlots.append(index)
            throw error
        }
        slots[index] = Slot(fd: fd, generation: generation, handler: handler)
        return Registration(slot: index, generation: generation)
    }

    /// Changes what a descriptor waits for.
    public func modify(_ registration: Registration, _ interest: Interest) {
        guard isCurrent(registration) else { return }
        var event = Self.event(
            interest, slot: registration.slot, generation: registration.generation)
        let result = epoll_ctl(epoll, EPOLL_CTL_MOD, slots[registration.slot].fd, &event)
        precondition(result == 0, "a registered descriptor was closed before it was deregistered")
    }

    /// Stops watching a descriptor. Events of it that were already fetched are dropped.
    public func deregister(_ registration: Registration) {
        guard isCurrent(registration) else { return }
        let fd = slots[registration.slot].fd
        slots[registration.slot].handler = nil
        slots[registration.slot].fd = -1
        freeSlots.append(registration.slot)
        let result = epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nil)
        precondition(result == 0, "a registered descriptor was closed before it was deregistered")
    }

    private func isCurrent(_ registration: Registration) -> Bool {
        let slot = slots[registration.slot]
        return slot.fd >= 0 && slot.generation == registration.generation
    }

    private static func event(
        _ interest: Interest, slot: Int, generation: UInt32
    ) -> epoll_event {
        var bits: UInt32 = 0
        if interest.contains(.read) { bits |= EPOLLIN.rawValue | EPOLLRDHUP.rawValue }
        if interest.contains(.write) { bits |= EPOLLOUT.rawValue }
        return bugle_epoll_event(bits, UInt64(generation) << 32 | UInt64(slot))
    }
}

// MARK: - Timers and the end of the turn

extension EventLoop {
    /// Fires a timer at a time, or as soon as possible if that has passed. A timer that is
    /// already scheduled moves. O(log n).
    public func schedule(_ timer: LoopTimer, at time: MonotonicTime) {
        timers.schedule(timer, at: time)
    }

    /// Takes a timer back; nothing happens if it is not scheduled. O(log n).
    public func cancel(_ timer: LoopTimer) { timers.cancel(timer) }

    /// Calls a handler once at the end of this turn. The caller keeps a flag to ask only once.
    public func atEndOfTurn(_ handler: any TurnEndHandler) { turnEnds.append(handler) }
}

// MARK: - Turning

extension EventLoop {
    /// Turns until the handle is told to stop.
    public func run() {
        while !handle.isStopped { turn(waitingUpTo: Limits.longestWait) }
    }

    /// One turn: waits at most `limit` for something to do, then does it.
    public func turn(waitingUpTo limit: TimeSpan) {
        let start = time.monotonic
        let count = wait(limit, from: start)
        turnMonotonic = time.monotonic
        waited = waited + (turnMonotonic - start)
        turnWall = time.wall
        for index in 0..<count { deliver(events[index]) }
        fireTimers()
        handle.runJobs()
        endTurn()
    }

    /// Fires what is due. Timers scheduled by the actions for a time already due fire in the next
    /// turn.
    private func fireTimers() {
        let newest = timers.newest
        while let timer = timers.popDue(at: now, newest: newest) { timer.action() }
    }

    private func wait(_ limit: TimeSpan, from start: MonotonicTime) -> Int {
        var span = limit
        if let next = timers.next { span = min(span, next - start) }
        if handle.hasJobs || !turnEnds.isEmpty { span = .zero }
        // Rounded up: a timer that is due in 0.4 ms must not spin the loop until then.
        let millis = span.nanos <= 0 ? 0 : (span.nanos - 1) / 1_000_000 + 1
        let count = epoll_wait(
            epoll, events.baseAddress, Int32(events.count), Int32(clamping: millis))
        precondition(count >= 0 || errno == EINTR, "epoll_wait failed")
        return Int(max(count, 0))
    }

    private func deliver(_ event: epoll_event) {
        let index = Int(event.data.u64 & 0xFFFF_FFFF)
        let generation = UInt32(truncatingIfNeeded: event.data.u64 >> 32)
        let slot = slots[index]
        guard slot.generation == generation, let handler = slot.handler else { return }
        var readiness: Readiness = []
        if event.events & (EPOLLIN.rawValue | EPOLLRDHUP.rawValue) != 0 { readiness.insert(.read) }
        if event.events & EPOLLOUT.rawValue != 0 { readiness.insert(.write) }
        if event.events & (EPOLLHUP.rawValue | EPOLLERR.rawValue) != 0 {
            readiness.formUnion([.hangUp, .read])
        }
        handler.ready(readiness)
    }

    private func endTurn() {
        // Handlers may ask again while they run; the bound keeps two that answer each other from
        // holding the turn, what is left is called at the end of the next one.
        var rounds = 0
        while !turnEnds.isEmpty && rounds < Limits.turnEndRounds {
            swap(&turnEnds, &endingTurn)
            for handler in endingTurn { handler.turnEnded() }
            endingTurn.removeAll(keepingCapacity: true)
            rounds += 1
        }
        if !turnEnds.isEmpty { handle.wake() }
    }

    /// The loop's bounds.
    public enum Limits {
        /// Readiness events fetched per turn.
        public static let eventsPerTurn = 256
        /// The longest sleep, so that a missed wake-up costs a second and not an outage.
        public static let longestWait = TimeSpan.seconds(1)
        /// How often the handlers of a turn's end may ask for another call within it.
        public static let turnEndRounds = 8
    }
}
