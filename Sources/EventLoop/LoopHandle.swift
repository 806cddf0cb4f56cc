// The face a loop shows to other threads: wake it, stop it, give it a job. Per-message traffic
// goes through a `Mailbox`; jobs are for control.

internal import Glibc
internal import Synchronization

/// Reaches a loop from any thread.
public final class LoopHandle: Sendable, ReadinessHandler {
    private struct State: Sendable {
        var jobs: [@Sendable () -> Void] = []
        var stopped = false
    }

    private let wakeUp: Int32
    private let state = Mutex(State())
    /// Set from the first wake-up until the loop has read the descriptor: later ones are free.
    private let isWaking = Atomic<Bool>(false)

    internal init(wakeUp: Int32) { self.wakeUp = wakeUp }

    deinit { close(wakeUp) }

    /// Ends `run()` after the turn in progress. Jobs submitted before still run.
    public func stop() {
        state.withLock { $0.stopped = true }
        wake()
    }

    /// Makes the loop turn.
    public func wake() {
        if isWaking.exchange(true, ordering: .acquiringAndReleasing) { return }
        var one: UInt64 = 1
        write(wakeUp, &one, 8)
    }

    /// Runs a job on the loop's thread, in the order of submission.
    public func submit(_ job: @escaping @Sendable () -> Void) {
        state.withLock { $0.jobs.append(job) }
        wake()
    }

    internal var isStopped: Bool { state.withLock { $0.stopped && $0.jobs.isEmpty } }

    internal var hasJobs: Bool { state.withLock { !$0.jobs.isEmpty } }

    internal func runJobs() {
        let jobs = state.withLock { state in
            defer { state.jobs.removeAll() }
            return state.jobs
        }
        for job in jobs { job() }
    }

    /// Reads the wake-up descriptor empty; called by the loop.
    public func ready(_ readiness: Readiness) {
        var value: UInt64 = 0
        read(wakeUp, &value, 8)
        isWaking.store(false, ordering: .releasing)
    }
}
