internal import Base
internal import EventLoop
internal import Gateways
internal import Pipeline
internal import Redis

/// Tokens of a fleet in Redis. Confined to its loop.
internal final class RedisTokenStore: FleetTokenStore, RedisReplyHandler {
    private let client: RedisClient
    private let prefix: String
    /// This process, among those that may make a token.
    private let owner: String
    private var questions: [UInt64: (FleetAnswer) -> Void] = [:]
    private var lastTag: UInt64 = 0

    init(
        _ configuration: RedisConfiguration, prefix: String, owner: String, on loop: EventLoop
    ) {
        self.prefix = prefix
        self.owner = owner
        client = RedisClient(configuration, on: loop)
        client.start()
    }

    func close() { client.close() }

    private func key(_ name: String) -> String { "\(prefix){fleet}:t:\(name)" }

    func ask(
        _ name: String, percent: Int64, butNot refused: String?,
        _ done: @escaping (FleetAnswer) -> Void
    ) {
        lastTag += 1
        let failure = client.run(
            FleetScripts.askToken, keys: [key(name)],
            arguments: [
                Array(owner.utf8), Array(String(percent).utf8),
                Array(String(FleetLimits.makingTime.millis).utf8), Array((refused ?? "none").utf8),
            ], to: self, tag: lastTag)
        guard failure == nil else { return done(.unavailable) }
        questions[lastTag] = done
    }

    func publish(_ name: String, _ token: SealedToken) {
        _ = client.run(
            FleetScripts.publishToken, keys: [key(name)],
            arguments: [
                Array(owner.utf8), token.bytes, Array(String(token.age.millis).utf8),
                Array(String(token.life.millis).utf8), Array(token.id.utf8),
            ], to: self, tag: 0)
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        guard let done = questions.removeValue(forKey: tag) else { return }
        done(Self.answer(reply.elements))
    }

    func failed(_ error: RedisError, tag: UInt64) {
        questions.removeValue(forKey: tag)?(.unavailable)
    }

    private static func answer(_ elements: [RedisReply]) -> FleetAnswer {
        switch elements.first?.text {
        case "make": return .make
        case "wait": return .wait
        case "token" where elements.count == 4:
            guard let age = elements[2].integer, let life = elements[3].integer else {
                return .unavailable
            }
            return .token(
                SealedToken(
                    bytes: Array(elements[1].bytes), age: .milliseconds(age),
                    life: .milliseconds(life)))
        default: return .unavailable
        }
    }
}
