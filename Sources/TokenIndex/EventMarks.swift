// Which events were pushed lately: so that the copy of an event that its producer published twice,
// or that an operator replayed twice, is not pushed again. A mark names the place of the record
// that was pushed; that record itself is no copy, on whichever road it comes back.
//
// Marks lie beside the keys of the event's user, in the same bucket: `<prefix>{b<n>}:d:<id>`. They
// are no part of the index's truth. Without them, or when Redis has lost them, a copy is pushed: a
// mark never keeps the only push of an event back.

public import Base
public import EventLoop
internal import Redis
internal import Synchronization

/// What a mark is found by.
public struct EventMarkKey: Hashable, Sendable {
    /// The app.
    public var app: String
    /// The user.
    public var userID: String
    /// What copies have in common.
    public var identity: UUIDBytes

    /// The key of an event.
    public init(app: String, userID: String, identity: UUIDBytes) {
        self.app = app
        self.userID = userID
        self.identity = identity
    }
}

/// A lane's view of the marks; confined to the lane's loop.
public protocol EventMarks: AnyObject {
    /// Asks for a mark. The answer goes to the delegate with the same tag, exactly once, perhaps
    /// within this call; a store that cannot be reached answers as one that has no mark.
    func find(_ key: EventMarkKey, tag: UInt64)
    /// Remembers the place that was pushed, unless one is remembered already.
    func set(_ key: EventMarkKey, place: String, for span: TimeSpan)
    /// Calls back once when every mark that was set is answered for, or cannot be; perhaps within
    /// this call.
    func whenSet(_ done: @escaping () -> Void)
    /// Where answers go. Set once, before the first question.
    var delegate: (any EventMarksDelegate)? { get set }
    /// Lets go of the connection. Questions that are open are not answered.
    func stop()
}

/// Receives answers on the lane's loop.
public protocol EventMarksDelegate: AnyObject {
    /// The place that the mark names; nil when there is no mark.
    func markFound(tag: UInt64, place: String?)
}

extension RedisTokenIndex {
    /// The marks beside this index, with a connection of their own.
    public func marks(on loop: EventLoop) -> any EventMarks {
        RedisEventMarks(configuration, layout: layout, on: loop)
    }
}

/// Marks in Redis.
internal final class RedisEventMarks: EventMarks, RedisReplyHandler {
    weak var delegate: (any EventMarksDelegate)?
    private let client: RedisClient
    private let layout: RedisLayout
    /// Marks that were sent and are not answered.
    private var open = 0
    private var whenNoneIsOpen: (() -> Void)?

    /// The tag of commands whose reply nobody waits for.
    private static let unasked = UInt64.max

    init(_ configuration: RedisConfiguration, layout: RedisLayout, on loop: EventLoop) {
        self.layout = layout
        client = RedisClient(configuration, on: loop)
        client.start()
    }

    func find(_ key: EventMarkKey, tag: UInt64) {
        let name = layout.mark(key)
        if client.send(["GET", name], key: name, to: self, tag: tag) != nil {
            delegate?.markFound(tag: tag, place: nil)
        }
    }

    func set(_ key: EventMarkKey, place: String, for span: TimeSpan) {
        let name = layout.mark(key)
        let failure = client.send(
            ["SET", name, place, "PX", String(span.millis), "NX"], key: name, to: self,
            tag: Self.unasked)
        if failure == nil { open += 1 }
    }

    func whenSet(_ done: @escaping () -> Void) {
        guard open > 0 else { return done() }
        whenNoneIsOpen = done
    }

    private func answeredSet() {
        open -= 1
        guard open == 0, let done = whenNoneIsOpen else { return }
        whenNoneIsOpen = nil
        done()
    }

    func stop() {
        delegate = nil
        client.close()
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        guard tag != Self.unasked else { return answeredSet() }
        delegate?.markFound(tag: tag, place: reply.text)
    }

    func failed(_ error: RedisError, tag: UInt64) {
        guard tag != Self.unasked else { return answeredSet() }
        delegate?.markFound(tag: tag, place: nil)
    }
}

extension RedisLayout {
    /// Where an event's mark lies.
    func mark(_ key: EventMarkKey) -> String {
        let bucket = Self.bucket(of: key.userID, app: key.app)
        return "\(prefix){b\(bucket)}:d:\(key.identity.text)"
    }
}

/// Marks in this process, for all its lanes.
public final class InMemoryEventMarks: Sendable {
    private struct Mark {
        var place: String
        var until: MonotonicTime
    }

    private struct State {
        var marks: [EventMarkKey: Mark] = [:]
        var order: [EventMarkKey] = []
    }

    private let state = Mutex(State())
    private let time: any TimeSource

    /// Marks that are kept; older ones are forgotten.
    private static let limit = 100_000

    /// No marks.
    public init(time: any TimeSource = SystemTime.shared) { self.time = time }

    /// A lane's view.
    public func marks() -> any EventMarks { InMemoryMarksReader(self) }

    /// The place that is remembered.
    public func place(_ key: EventMarkKey) -> String? {
        let now = time.monotonic
        return state.withLock { state in
            state.marks[key].flatMap { $0.until > now ? $0.place : nil }
        }
    }

    fileprivate func set(_ key: EventMarkKey, place: String, for span: TimeSpan) {
        guard self.place(key) == nil else { return }
        let until = time.monotonic + span
        state.withLock { state in
            if state.marks.updateValue(Mark(place: place, until: until), forKey: key) == nil {
                state.order.append(key)
            }
            guard state.marks.count > Self.limit else { return }
            for old in state.order.prefix(Self.limit / 2) { state.marks[old] = nil }
            state.order.removeFirst(Self.limit / 2)
        }
    }
}

/// One lane's view of marks in memory.
private final class InMemoryMarksReader: EventMarks {
    weak var delegate: (any EventMarksDelegate)?
    private let store: InMemoryEventMarks

    init(_ store: InMemoryEventMarks) { self.store = store }

    func find(_ key: EventMarkKey, tag: UInt64) {
        delegate?.markFound(tag: tag, place: store.place(key))
    }

    func set(_ key: EventMarkKey, place: String, for span: TimeSpan) {
        store.set(key, place: place, for: span)
    }

    func whenSet(_ done: @escaping () -> Void) { done() }

    func stop() { delegate = nil }
}
