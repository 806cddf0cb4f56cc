internal import Base
internal import EventLoop
internal import Redis

/// Asks a Redis server a few questions from a command, on a loop of its own.
internal final class RedisProbe: RedisReplyHandler {
    /// What a server says about itself.
    struct Answer {
        /// What it does when its memory is full; nil when it does not say.
        var evictionPolicy: String?
        /// Its clock.
        var time: UnixMillis?
    }

    /// Why there is no answer.
    struct Problem: Error {
        let text: String
    }

    private enum Question: UInt64 { case memory, time }

    private var answer = Answer()
    private var open = 0
    private var fault: RedisError?
    private var isReady = false

    private static let patience = TimeSpan.seconds(3)

    /// Connects, asks and closes.
    static func ask(_ configuration: RedisConfiguration) -> Result<Answer, Problem> {
        do throws(SystemError) {
            return try RedisProbe().run(configuration, on: EventLoop(name: "probe"))
        } catch {
            return .failure(Problem(text: "\(error)"))
        }
    }

    private func run(
        _ configuration: RedisConfiguration, on loop: EventLoop
    ) -> Result<Answer, Problem> {
        let client = RedisClient(configuration, on: loop)
        defer { client.close() }
        client.observer = { [unowned self] event in
            switch event {
            case .ready: isReady = true
            case .lost(let error), .attemptFailed(let error): fault = error
            }
        }
        client.start()
        let deadline = loop.now + Self.patience
        func turn(while isWaiting: () -> Bool) {
            while isWaiting(), fault == nil, loop.now < deadline {
                loop.turn(waitingUpTo: .milliseconds(50))
            }
        }
        turn { !isReady }
        if isReady {
            send(["INFO", "memory"], .memory, client)
            send(["TIME"], .time, client)
            turn { open > 0 }
        }
        if let fault { return .failure(Problem(text: "\(fault)")) }
        guard isReady else { return .failure(Problem(text: "no answer")) }
        return .success(answer)
    }

    private func send(_ words: [String], _ question: Question, _ client: RedisClient) {
        guard client.send(words, to: self, tag: question.rawValue) == nil else { return }
        open += 1
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        open -= 1
        switch Question(rawValue: tag) {
        case .memory:
            let name = "maxmemory_policy:"
            let lines = (reply.text ?? "").split(whereSeparator: \.isNewline)
            answer.evictionPolicy = lines.first { $0.hasPrefix(name) }.map {
                String($0.dropFirst(name.count))
            }
        case .time:
            let parts = reply.elements.compactMap(\.integer)
            if parts.count == 2 {
                answer.time = UnixMillis(parts[0] * 1000 + parts[1] / 1000)
            }
        case nil: break
        }
    }

    /// An ACL user need not be allowed to ask everything.
    func failed(_ error: RedisError, tag: UInt64) {
        open -= 1
        if case .refused = error { return }
        fault = error
    }
}
