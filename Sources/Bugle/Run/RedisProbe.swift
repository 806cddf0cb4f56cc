internal import Base
internal import EventLoop
internal import Redis

/// Asks a Redis server, or every master of a cluster, a few questions from a command, on a loop of
/// its own.
internal final class RedisProbe: RedisReplyHandler {
    /// What the servers say about themselves.
    struct Answer {
        /// The masters of the cluster; nil for a single server.
        var masters: Int?
        /// What they do when their memory is full, each policy once, as far as they say.
        var evictionPolicies: Set<String> = []
        /// Whether a server that is used as a single one is a node of a cluster.
        var isPartOfCluster = false
        /// A clock.
        var time: UnixMillis?
    }

    private enum Question: UInt64 { case cluster = 1_000_000, time }

    private let client: RedisClient
    private let loop: EventLoop
    private let isPatient: Bool
    private var answer = Answer()
    private var open = 0
    private var fault: RedisError?

    private static let patience = TimeSpan.seconds(3)

    /// Connects, asks and closes.
    static func ask(_ configuration: RedisConfiguration) -> Result<Answer, RedisError> {
        do throws(SystemError) {
            let probe = RedisProbe(configuration, on: try EventLoop(name: "probe"))
            defer { probe.client.close() }
            return probe.run()
        } catch {
            return .failure(.failed(error))
        }
    }

    private init(_ configuration: RedisConfiguration, on loop: EventLoop) {
        self.loop = loop
        client = RedisClient(configuration, on: loop)
        isPatient = configuration.endpoints.count > 1
    }

    private func run() -> Result<Answer, RedisError> {
        client.observer = { [unowned self] event in
            switch event {
            case .ready: fault = nil
            case .lost(let error), .attemptFailed(let error): fault = error
            }
        }
        client.start()
        let deadline = loop.now + Self.patience
        // One of several nodes may be away; what a single server says is the last word.
        func isHopeless() -> Bool { fault != nil && !isPatient && !client.isCluster }
        while !client.isReady, !isHopeless(), loop.now < deadline {
            loop.turn(waitingUpTo: .milliseconds(50))
        }
        guard client.isReady else { return .failure(fault ?? .timedOut) }
        let nodes = client.sendToAll(["INFO", "memory"], to: self)
        open += nodes
        answer.masters = client.isCluster ? nodes : nil
        send(["INFO", "cluster"], .cluster)
        send(["TIME"], .time)
        while open > 0, fault == nil, loop.now < deadline {
            loop.turn(waitingUpTo: .milliseconds(50))
        }
        if let fault { return .failure(fault) }
        return .success(answer)
    }

    private func send(_ words: [String], _ question: Question) {
        guard client.send(words, to: self, tag: question.rawValue) == nil else { return }
        open += 1
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        open -= 1
        switch Question(rawValue: tag) {
        case .cluster:
            let isNode = Self.field("cluster_enabled", in: reply) == "1"
            answer.isPartOfCluster = isNode && !client.isCluster
        case .time:
            let parts = reply.elements.compactMap(\.integer)
            if parts.count == 2 {
                answer.time = UnixMillis(parts[0] * 1000 + parts[1] / 1000)
            }
        case nil:
            if let policy = Self.field("maxmemory_policy", in: reply) {
                answer.evictionPolicies.insert(policy)
            }
        }
    }

    /// An ACL user need not be allowed to ask everything.
    func failed(_ error: RedisError, tag: UInt64) {
        open -= 1
        if case .refused = error { return }
        fault = error
    }

    private static func field(_ name: String, in reply: RedisReply) -> String? {
        let lines = (reply.text ?? "").split(whereSeparator: \.isNewline)
        return lines.first { $0.hasPrefix("\(name):") }.map { String($0.dropFirst(name.count + 1)) }
    }
}
