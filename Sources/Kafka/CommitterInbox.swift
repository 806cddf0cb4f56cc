// The seam between lanes, group thread and committer: a queue under a lock, taken whole, with a
// wake-up only when the committer may be asleep.

internal import Base
internal import Synchronization

/// What others tell the committer, in the order they said it.
enum CommitterMessage: Sendable {
    case batch(OutboxBatch)
    case assigned([PartitionAssignment], Consumer)
    case flush([Epoch], MonotonicTime, @Sendable () -> Void)
    case discard([Epoch], @Sendable () -> Void)
    case stop(MonotonicTime)
}

/// Shared by all threads.
final class CommitterInbox: Sendable {
    private struct State: Sendable {
        var messages: [CommitterMessage] = []
        var spares: [OutboxBatch] = []
        /// The queue the committer waits on; replaced with the producer.
        var wakes: ClientQueue
        /// Whether it was woken since it last took everything.
        var isWoken = false
        /// Whether batches can wait for what wakes it next.
        var isLulled = false
    }

    private let state: Mutex<State>
    private let records = Atomic<Int>(0)
    private let bytes = Atomic<Int>(0)
    private let turn = Atomic<Int64>(0)
    private let clean = Atomic<Bool>(false)
    /// Since when there is something to deliver and commit, and when that last succeeded.
    private let waitingSince = Atomic<Int64>(0)
    private let lastCommit = Atomic<Int64>(0)
    private let ready = Latch()
    private let ended = Atomic<Bool>(false)
    private let failed = Mutex<CommitterFailure?>(nil)
    let statistics = Mutex(CommitterStatistics())
    let committed = Mutex<[TopicPartition: Int64]>([:])

    init(wakes: ClientQueue) { state = Mutex(State(wakes: wakes)) }

    func post(_ batch: OutboxBatch) {
        if records.add(batch.recordCount, ordering: .relaxed).oldValue == 0 {
            waitingSince.store(SystemTime.shared.monotonic.nanos, ordering: .relaxed)
        }
        bytes.add(batch.byteCount, ordering: .relaxed)
        post(.batch(batch), canWait: true)
    }

    /// One wake-up is enough: the rest is found by the same turn. It is given outside of the lock,
    /// which the woken thread asks for first of all.
    func post(_ message: CommitterMessage, canWait: Bool = false) {
        let sleeper: ClientQueue? = state.withLock { state in
            state.messages.append(message)
            guard !state.isWoken, !(canWait && state.isLulled) else { return nil }
            state.isWoken = true
            return state.wakes
        }
        sleeper?.wake()
    }

    /// Lets batches come without a wake-up, or no longer. False when there are messages to take
    /// that woke nobody.
    func setLulled(_ isLulled: Bool) -> Bool {
        state.withLock { state in
            state.isLulled = isLulled
            return isLulled || state.isWoken || state.messages.isEmpty
        }
    }

    func takeAll() -> [CommitterMessage] {
        state.withLock { state in
            state.isWoken = false
            guard !state.messages.isEmpty else { return [] }
            let taken = state.messages
            state.messages = []
            return taken
        }
    }

    func redirectWakes(to queue: ClientQueue) {
        state.withLock {
            $0.wakes = queue
            if !$0.messages.isEmpty { queue.wake() }
        }
    }

    func takeSpare() -> OutboxBatch? { state.withLock { $0.spares.popLast() } }

    func giveSpare(_ batch: OutboxBatch) {
        guard batch.byteCount <= Limits.spareBatchBytes else { return }
        batch.reset()
        state.withLock { if $0.spares.count < Limits.spareBatches { $0.spares.append(batch) } }
    }

    var backlog: (records: Int, bytes: Int) {
        (records.load(ordering: .relaxed), bytes.load(ordering: .relaxed))
    }

    func lower(records delivered: Int) { records.subtract(delivered, ordering: .relaxed) }
    func lower(bytes freed: Int) { bytes.subtract(freed, ordering: .relaxed) }

    /// What was committed of a partition means nothing any more.
    func forgetCommitted(_ place: TopicPartition?) {
        guard let place else { return }
        committed.withLock { $0[place] = nil }
    }

    /// Something was committed.
    func noteCommit() {
        lastCommit.store(SystemTime.shared.monotonic.nanos, ordering: .relaxed)
    }

    /// How long what was posted waits for a commit; zero when nothing waits.
    func commitAge(at now: MonotonicTime) -> TimeSpan {
        guard records.load(ordering: .relaxed) > 0 else { return .zero }
        let since = max(
            waitingSince.load(ordering: .relaxed), lastCommit.load(ordering: .relaxed))
        return max(now - MonotonicTime(nanos: since), .zero)
    }

    func noteTurn(at now: MonotonicTime) { turn.store(now.nanos, ordering: .relaxed) }
    var lastTurn: MonotonicTime { MonotonicTime(nanos: turn.load(ordering: .relaxed)) }

    /// Transactions can be made; said once or more.
    func noteReady() { ready.open() }

    /// None can be made any more.
    func note(_ failure: CommitterFailure) {
        failed.withLock { $0 = failure }
        ended.store(true, ordering: .relaxed)
        ready.open()
    }

    var isEnded: Bool { ended.load(ordering: .relaxed) }

    var failure: CommitterFailure? { failed.withLock { $0 } }

    /// Waits for either word; false when none came in time.
    func waitUntilReady(by deadline: MonotonicTime) -> Bool { ready.wait(until: deadline) }

    func noteCleanEnd() { clean.store(true, ordering: .releasing) }
    var endedCleanly: Bool { clean.load(ordering: .acquiring) }
}
