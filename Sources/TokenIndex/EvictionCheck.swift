// A Redis that evicts keys would make users lose their devices without a trace. The writer looks
// at the policy after every connect and says so.

internal import Redis

internal final class EvictionCheck: RedisReplyHandler {
    private let warn: (String) -> Void

    init(_ warn: @escaping (String) -> Void) { self.warn = warn }

    func start(_ client: RedisClient) { _ = client.send(["INFO", "memory"], to: self, tag: 0) }

    func replied(_ reply: RedisReply, tag: UInt64) {
        let name = "maxmemory_policy:"
        let lines = (reply.text ?? "").split(whereSeparator: \.isNewline)
        guard let line = lines.first(where: { $0.hasPrefix(name) }) else { return }
        let policy = line.dropFirst(name.count)
        if policy != "noeviction" {
            warn(
                "Redis may evict keys of the token index: maxmemory-policy is \(policy). "
                    + "Users would lose their devices; set it to noeviction.")
        }
    }

    /// An ACL user need not be allowed to ask.
    func failed(_ error: RedisError, tag: UInt64) {}
}
