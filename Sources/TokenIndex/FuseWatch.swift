// A reader's part in the fuses: learns every second which have tripped, and passes on how many
// answers the gateways gave, against which verdicts are weighed.

internal import Base
internal import EventLoop
internal import Redis

/// Loop-confined, owned by a reader.
internal final class FuseWatch {
    /// The tripped fuses as of the last reply.
    private(set) var tripped: [FuseName: String] = [:]
    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private var answers: [FuseName: Int] = [:]
    private lazy var timer = LoopTimer { [unowned self] in tick() }

    init(_ client: RedisClient, layout: RedisLayout, on loop: EventLoop) {
        self.client = client
        self.layout = layout
        self.loop = loop
    }

    func count(answers count: Int, for name: FuseName) { answers[name, default: 0] += count }

    func connected() { tick() }

    func stop() { loop.cancel(timer) }

    private func tick() {
        loop.schedule(timer, at: loop.now + IndexLimits.markerInterval)
        guard client.isReady else { return }
        RedisQuestion.ask(client, ["HGETALL", layout.trippedFuses]) { [weak self] reply in
            if case .success(let reply) = reply { self?.take(reply) }
        }
        let counted = answers
        answers = [:]
        for (name, count) in counted { report(count, name) }
    }

    private func report(_ count: Int, _ name: FuseName) {
        let wall = loop.wall.value
        let kept = FuseWatch.countSpan.millis
        let arguments = [Int64(count), wall / 60_000, wall / 3_600_000, kept]
        RedisQuestion.ask(
            client, FuseScripts.answered,
            [
                layout.answers(name), layout.churn(app: name.app, name.gateway, name.environment),
            ], arguments.map { Array(String($0).utf8) }
        ) { [weak self] reply in
            // What did not arrive is counted with the next ones.
            if case .failure = reply { self?.count(answers: count, for: name) }
        }
    }

    private func take(_ reply: RedisReply) {
        var found: [FuseName: String] = [:]
        let parts = reply.elements
        for index in stride(from: 0, to: parts.count - 1, by: 2) {
            guard let fuse = TrippedFuse(parts[index], parts[index + 1]) else { continue }
            found[fuse.name] = fuse.id
        }
        tripped = found
    }

    /// How long counts of answers outlive the last one; more than any window.
    private static let countSpan = TimeSpan.hours(2)
}

extension TrippedFuse {
    /// Reads a field of the hash of tripped fuses; nil when it is not one.
    internal init?(_ name: RedisReply, _ value: RedisReply) {
        guard let name = name.text.flatMap({ FuseName(text: $0) }), let text = value.text else {
            return nil
        }
        let lines = text.split(separator: "\n", maxSplits: 2, omittingEmptySubsequences: false)
        guard lines.count == 3, let since = Int64(lines[1]) else { return nil }
        self.init(
            id: String(lines[0]), name: name, since: UnixMillis(since), reason: String(lines[2]),
            held: 0)
    }
}
