// The record of everything the simulated gateways received: what a test or the demo's ledger is
// compared with.

public import Base
internal import EventLoop
internal import Synchronization

/// Records requests and counts what happened. Safe on any thread.
public final class Journal: Sendable {
    /// How much is kept.
    public enum Mode: Sendable, Hashable {
        /// Every request, up to `Limits.journalEntries`, bodies too if asked for.
        case full(bodies: Bool)
        /// Counters only: memory does not grow with the load.
        case countersOnly
    }

    private struct State: Sendable {
        var counters = JournalCounters()
        var entries: [JournalEntry] = []
        var requestsByToken: [String: Int] = [:]
        var acceptedByToken: [String: Int] = [:]
        var acceptedByMessage: [String: Int] = [:]
        var authorizations: Set<String> = []
        var waiters: [Waiter] = []
        var observer: (@Sendable (JournalEntry) -> Void)?
    }

    private struct Waiter: Sendable {
        let isMet: @Sendable (JournalCounters) -> Bool
        let semaphore: Semaphore
    }

    /// How much is kept.
    public let mode: Mode

    private let state = Mutex(State())

    /// An empty journal.
    public init(_ mode: Mode = .full(bodies: false)) { self.mode = mode }

    /// The counters as they stand.
    public var counters: JournalCounters { state.withLock { $0.counters } }

    /// The requests kept, in the order received.
    public var entries: [JournalEntry] { state.withLock { $0.entries } }

    /// The requests kept that were for a token.
    public func entries(token: String) -> [JournalEntry] {
        state.withLock { $0.entries.filter { $0.token == token } }
    }

    /// The requests kept that carried a message id.
    public func entries(messageID: String) -> [JournalEntry] {
        state.withLock { $0.entries.filter { $0.messageID == messageID } }
    }

    /// Hands every entry from now on to `observer`, in order, on the services' threads, before its
    /// answer leaves. Call it before the first request; it must be quick.
    public func observe(_ observer: @escaping @Sendable (JournalEntry) -> Void) {
        state.withLock { $0.observer = observer }
    }

    /// How many requests for a token were received.
    public func count(token: String) -> Int {
        state.withLock { $0.requestsByToken[token, default: 0] }
    }

    /// How many pushes to a token a gateway took, answered or not.
    public func accepted(token: String) -> Int {
        state.withLock { $0.acceptedByToken[token, default: 0] }
    }

    /// How many times a message was taken, answered or not: above 1 it is a duplicate.
    public func accepted(messageID: String) -> Int {
        state.withLock { $0.acceptedByMessage[messageID, default: 0] }
    }

    /// Every message id that was taken, with how many times.
    public var acceptedMessages: [String: Int] { state.withLock { $0.acceptedByMessage } }

    /// How many requests got this answer, those whose answer was kept back included.
    public func count(_ service: SimulatedService, status: Int, reason: String = "") -> Int {
        let answer = JournalAnswer(service, status, reason)
        return state.withLock { $0.counters.answers[answer, default: 0] }
    }

    /// The distinct credentials that pushes carried, hashed.
    public var authorizations: Set<String> { state.withLock { $0.authorizations } }

    /// Forgets everything.
    public func clear() {
        state.withLock { state in
            let (waiters, observer) = (state.waiters, state.observer)
            state = State()
            (state.waiters, state.observer) = (waiters, observer)
        }
    }

    /// Blocks the calling thread until the counters meet a condition, or the span has passed;
    /// false then.
    public func wait(
        upTo span: TimeSpan, until isMet: @escaping @Sendable (JournalCounters) -> Bool
    ) -> Bool {
        let semaphore = Semaphore()
        let isMetAlready = state.withLock { state -> Bool in
            if isMet(state.counters) { return true }
            state.waiters.append(Waiter(isMet: isMet, semaphore: semaphore))
            return false
        }
        return isMetAlready || semaphore.wait(upTo: span)
    }
}

// What the services write.
extension Journal {
    var keepsEntries: Bool { mode != .countersOnly }

    var keepsBodies: Bool { mode == .full(bodies: true) }

    func record(_ entry: JournalEntry) {
        state.withLock { state in
            state.observer?(entry)
            Self.count(entry, in: &state.counters)
            if entry.service != .oauth { state.authorizations.insert(entry.authorization) }
            if keepsEntries {
                if state.entries.count < Limits.journalEntries { state.entries.append(entry) }
                state.requestsByToken[entry.token, default: 0] += 1
                if entry.isAccepted {
                    state.acceptedByToken[entry.token, default: 0] += 1
                    if let id = entry.messageID { state.acceptedByMessage[id, default: 0] += 1 }
                }
            }
            Self.wake(&state)
        }
    }

    func update(_ change: (inout JournalCounters) -> Void) {
        state.withLock { state in
            change(&state.counters)
            Self.wake(&state)
        }
    }

    private static func count(_ entry: JournalEntry, in counters: inout JournalCounters) {
        if entry.service == .oauth {
            counters.tokenRequests += 1
        } else {
            counters.pushes += 1
            if entry.isAccepted { counters.accepted += 1 }
            if entry.fate == .unanswered { counters.unanswered += 1 }
            if entry.fate == .notProcessed { counters.notProcessed += 1 }
        }
        guard entry.fate != .notProcessed else { return }
        let answer = JournalAnswer(entry.service, entry.status, entry.reason)
        counters.answers[answer, default: 0] += 1
    }

    private static func wake(_ state: inout State) {
        guard !state.waiters.isEmpty else { return }
        let counters = state.counters
        state.waiters.removeAll { waiter in
            guard waiter.isMet(counters) else { return false }
            waiter.semaphore.signal()
            return true
        }
    }
}
