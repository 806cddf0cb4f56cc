// The sweep of an index in Redis, page by page with pauses in between.

internal import Base
internal import EventLoop
internal import Redis

/// Loop-confined, owned by the index writer: only one process has one that sweeps.
internal final class StalenessSweeper {
    /// Hears of each address that is stale, and of each sweep's end.
    var note: ((IndexNotice) -> Void)?

    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private let staleness: StalenessPolicy
    private let policy: SweepPolicy
    private var walk: KeyWalk?
    private var report = SweepReport()
    private var isAllowed = false
    private var nextAt = MonotonicTime(nanos: .min)
    private lazy var timer = LoopTimer { [unowned self] in sweep() }

    /// Installs in work at once.
    private static let depth = 16
    /// How soon a sweep that failed begins again.
    private static let retryInterval = TimeSpan.minutes(1)

    init(
        _ client: RedisClient, layout: RedisLayout, on loop: EventLoop,
        staleness: StalenessPolicy, policy: SweepPolicy
    ) {
        self.client = client
        self.layout = layout
        self.loop = loop
        self.staleness = staleness
        self.policy = policy
    }

    /// The index shows all that the topics hold: before that, what looks stale may have been seen.
    func indexCompleted() {
        guard policy.interval != nil else { return }
        isAllowed = true
        loop.schedule(timer, at: max(nextAt, loop.now))
    }

    /// The topics are applied again from somewhere; a sweep under way begins again behind that.
    func indexIncomplete() {
        isAllowed = false
        loop.cancel(timer)
        guard let walk else { return }
        walk.cancel()
        self.walk = nil
        nextAt = loop.now
    }

    func stop() {
        indexIncomplete()
        note = nil
    }

    private func sweep() {
        guard isAllowed, walk == nil, let interval = policy.interval else { return }
        let startedAt = loop.now
        nextAt = startedAt + interval
        report = SweepReport()
        let walk = KeyWalk(
            client, on: loop, pattern: layout.pattern("i"), depth: Self.depth,
            interval: TimeSpan(
                nanos: Int64(KeyWalk.page) * 1_000_000_000 / Int64(policy.keysPerSecond)),
            visit: { [unowned self] in look($0, $1) },
            finished: { [unowned self] in ended($0) })
        self.walk = walk
        walk.start()
    }

    private func look(_ key: String, _ done: @escaping () -> Void) {
        RedisQuestion.ask(client, OperatorScripts.describe, [key], []) { [weak self] reply in
            if let self, case .success(let reply) = reply { judge(reply) }
            done()
        }
    }

    private func judge(_ reply: RedisReply) {
        guard isAllowed else { return }
        report.installs += 1
        reply.forEachElement { element in
            guard let found = AddressReport(element) else { return }
            if let record = found.staleRecord(at: loop.wall, staleness) {
                report.stale += 1
                note?(.publish(record))
            } else if let record = found.restatement {
                note?(.publish(record))
            }
        }
    }

    private func ended(_ error: RedisError?) {
        walk = nil
        if error == nil {
            note?(.swept(report))
        } else if let interval = policy.interval {
            nextAt = loop.now + min(interval, Self.retryInterval)
        }
        if isAllowed { loop.schedule(timer, at: max(nextAt, loop.now)) }
    }
}
