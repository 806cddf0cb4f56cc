// A walk over all keys of one kind, for what no index of the index lists: SCAN, a bounded number
// of keys in work at a time. A key that is there from the beginning to the end is visited at least
// once, perhaps more often.

internal import Base
internal import EventLoop
internal import Redis

/// Loop-confined; kept alive by its owner until it has finished or is cancelled.
internal final class KeyWalk {
    /// What to do with a key; the walk goes on when `done` was called.
    typealias Visit = (_ key: String, _ done: @escaping () -> Void) -> Void

    private let client: RedisClient
    private let loop: EventLoop
    private let pattern: String
    private let depth: Int
    private let interval: TimeSpan
    private let visit: Visit
    private var finished: ((RedisError?) -> Void)?
    /// A slot of each server that is still to be walked over, the present one first.
    private var servers: [RedisSlot] = []
    private var cursor = "0"
    private var keys: [String] = []
    private var running = 0
    private var isScanning = false
    private var isFilling = false
    private lazy var timer = LoopTimer { [unowned self] in scan() }

    /// Keys asked for at a time.
    static let page = 512

    /// A walk over the keys that match, `depth` in work at once; `interval` is the shortest time
    /// between two pages, which makes a walk slow on purpose.
    init(
        _ client: RedisClient, on loop: EventLoop, pattern: String, depth: Int,
        interval: TimeSpan = .zero, visit: @escaping Visit,
        finished: @escaping (RedisError?) -> Void
    ) {
        self.client = client
        self.loop = loop
        self.pattern = pattern
        self.depth = depth
        self.interval = interval
        self.visit = visit
        self.finished = finished
    }

    func start() {
        servers = client.slotsOfServers
        scan()
    }

    func cancel() {
        loop.cancel(timer)
        finished = nil
        keys = []
    }

    private func scan() {
        guard finished != nil else { return }
        guard let server = servers.first else { return end(.notConnected) }
        isScanning = true
        let command = ["SCAN", cursor, "MATCH", pattern, "COUNT", String(Self.page)]
        RedisQuestion.ask(client, at: server, command) { [weak self] reply in self?.scanned(reply) }
    }

    private func scanned(_ reply: Result<RedisReply, RedisError>) {
        isScanning = false
        switch reply {
        case .failure(let error): end(error)
        case .success(let reply):
            let parts = reply.elements
            cursor = parts.first?.text ?? "0"
            if cursor == "0" { servers.removeFirst() }
            if parts.count == 2 { keys += parts[1].elements.compactMap(\.text) }
            fill()
        }
    }

    private func fill() {
        // A visit may be done within the call that starts it.
        guard !isFilling, finished != nil else { return }
        isFilling = true
        while running < depth, let key = keys.popLast() {
            running += 1
            visit(key) { [weak self] in
                self?.running -= 1
                self?.fill()
            }
        }
        isFilling = false
        guard keys.isEmpty, running == 0, !isScanning, finished != nil else { return }
        if servers.isEmpty {
            end(nil)
        } else if interval > .zero {
            if !timer.isScheduled { loop.schedule(timer, at: loop.now + interval) }
        } else {
            scan()
        }
    }

    private func end(_ error: RedisError?) {
        let finished = finished
        cancel()
        finished?(error)
    }
}

extension RedisLayout {
    /// The pattern of all keys of a kind, e.g. `i` or `u`.
    func pattern(_ kind: String) -> String { "\(Self.escaped(prefix)){b*}:\(kind):*" }

    /// The pattern of the notes and counts of a user. One whose id goes on behind a slash after that
    /// of this one may be met too, in one case of a thousand; what they lose is a convenience.
    func kept(of userID: String, app: String) -> String {
        let bucket = Self.bucket(of: userID, app: app)
        return Self.escaped(prefix) + "{b\(bucket)}:[ck]:" + Self.escaped("\(app):\(userID)/") + "*"
    }

    private static func escaped(_ text: String) -> String {
        var escaped = ""
        for scalar in text.unicodeScalars {
            if "*?[]\\^".unicodeScalars.contains(scalar) { escaped.append("\\") }
            escaped.unicodeScalars.append(scalar)
        }
        return escaped
    }

    /// What stands behind the kind in a key; nil for a key of another kind.
    func rest(of key: String, kind: String) -> String? {
        guard key.hasPrefix("\(prefix){b"), let brace = key.firstIndex(of: "}") else { return nil }
        let rest = key[key.index(after: brace)...]
        guard rest.hasPrefix(":\(kind):") else { return nil }
        return String(rest.dropFirst(kind.utf8.count + 2))
    }
}
