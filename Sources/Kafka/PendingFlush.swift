// Somebody waits until assignments are delivered and committed, or only until no commit for them is
// on its way: what the group thread asks for before partitions leave.

internal import Base

/// One such request.
struct PendingFlush {
    var epochs: [Epoch]
    /// The group of the assignments; nil when their books were never open.
    var group: Int?
    /// The newest batch that was there when it was asked for.
    var sequence: UInt64 = 0
    /// From here on no delivery is waited for any more.
    var settleBy: MonotonicTime
    var deadline: MonotonicTime
    var commits: Bool
    /// The group does not take commits for these assignments any more.
    var isStale = false
    var completion: @Sendable () -> Void

    /// A request to deliver and commit; `reserve` is kept back for the commit.
    init(
        committing epochs: [Epoch], of group: Int?, now: MonotonicTime, deadline: MonotonicTime,
        completion: @escaping @Sendable () -> Void
    ) {
        self.epochs = epochs
        self.group = group
        settleBy = deadline - min(Limits.flushCommitReserve, (deadline - now) / 2)
        self.deadline = deadline
        commits = true
        self.completion = completion
    }

    /// A request to wait until nothing is on its way.
    init(
        discarding epochs: [Epoch], of group: Int?, now: MonotonicTime,
        completion: @escaping @Sendable () -> Void
    ) {
        self.epochs = epochs
        self.group = group
        settleBy = now + Limits.lostSettle
        deadline = now + Limits.lostSettle
        commits = false
        self.completion = completion
    }
}
