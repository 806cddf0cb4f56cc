// A Redis that evicts keys would make users lose their devices without a trace. The writer looks
// at the policy of every server after every connect and now and then, and says so.

internal import Base
internal import EventLoop
internal import Redis

/// Loop-confined, owned by the index writer.
internal final class EvictionCheck: RedisReplyHandler {
    private let client: RedisClient
    private let loop: EventLoop
    private let warn: (String) -> Void
    /// Told of every round whether any server may evict keys.
    var told: ((Bool) -> Void)?
    private var repliesLeft = 0
    private var evicts = false
    private lazy var timer = LoopTimer { [unowned self] in start() }

    init(_ client: RedisClient, on loop: EventLoop, _ warn: @escaping (String) -> Void) {
        self.client = client
        self.loop = loop
        self.warn = warn
    }

    func start() {
        evicts = false
        repliesLeft = client.sendToAll(["INFO", "memory"], to: self)
        loop.schedule(timer, at: loop.now + Self.interval)
    }

    func stop() {
        loop.cancel(timer)
        told = nil
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        defer { count() }
        let lines = (reply.text ?? "").split(whereSeparator: \.isNewline)
        func value(_ name: String) -> Substring? {
            lines.first { $0.hasPrefix(name) }?.dropFirst(name.count)
        }
        guard let policy = value("maxmemory_policy:") else { return }
        if policy != "noeviction" {
            // Without a bound on its memory it evicts nothing yet.
            if value("maxmemory:") != "0" { evicts = true }
            warn(
                "Redis may evict keys of the token index: maxmemory-policy is \(policy). "
                    + "Users would lose their devices; set it to noeviction.")
        }
    }

    /// An ACL user need not be allowed to ask.
    func failed(_ error: RedisError, tag: UInt64) { count() }

    private func count() {
        repliesLeft -= 1
        if repliesLeft == 0 { told?(evicts) }
    }

    private static let interval = TimeSpan.seconds(60)
}
