import Base
import EventLoop
import Redis
import RedisServer
import Testing

/// Runs single commands beside the index.
final class Operator: RedisReplyHandler {
    private let client: RedisClient
    private let loop: EventLoop
    private var text: String?

    init(_ server: RedisServer) throws {
        loop = try EventLoop(name: "operator")
        var configuration = RedisConfiguration(host: "127.0.0.1", port: server.port)
        configuration.commandTimeout = .seconds(60)
        client = RedisClient(configuration, on: loop)
        client.start()
    }

    deinit { client.close() }

    @discardableResult
    func run(_ arguments: String...) throws -> String { try run(words: arguments) }

    @discardableResult
    func run(words arguments: [String]) throws -> String {
        text = nil
        repeat { loop.turn(waitingUpTo: .milliseconds(5)) } while !client.isReady
        try #require(client.send(arguments, to: self, tag: 0) == nil)
        while text == nil { loop.turn(waitingUpTo: .milliseconds(50)) }
        return text ?? ""
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        text = reply.text ?? String(reply.integer ?? 0)
    }

    func failed(_ error: RedisError, tag: UInt64) { text = "\(error)" }
}
