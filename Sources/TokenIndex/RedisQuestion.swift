// One script or command whose reply a closure takes; for what stands beside the chains of changes.

internal import Base
internal import Redis

/// Lives as long as its command waits for a reply.
internal final class RedisQuestion: RedisReplyHandler {
    private let done: (Result<RedisReply, RedisError>) -> Void

    private init(_ done: @escaping (Result<RedisReply, RedisError>) -> Void) { self.done = done }

    static func ask(
        _ client: RedisClient, _ script: RedisScript, _ keys: [String], _ arguments: [[UInt8]],
        _ done: @escaping (Result<RedisReply, RedisError>) -> Void
    ) {
        let question = RedisQuestion(done)
        let error = client.run(script, keys: keys, arguments: arguments, to: question, tag: 0)
        if let error { done(.failure(error)) }
    }

    /// Asks with a command whose key is its second word.
    static func ask(
        _ client: RedisClient, _ command: [String],
        _ done: @escaping (Result<RedisReply, RedisError>) -> Void
    ) {
        let error = client.send(command, key: command[1], to: RedisQuestion(done), tag: 0)
        if let error { done(.failure(error)) }
    }

    /// Asks the server of a slot with a command that has no key.
    static func ask(
        _ client: RedisClient, at slot: RedisSlot, _ command: [String],
        _ done: @escaping (Result<RedisReply, RedisError>) -> Void
    ) {
        let error = client.send(slot: slot, to: RedisQuestion(done), tag: 0) { writer in
            writer.append(commandOf: command.count)
            for word in command { writer.append(argument: word) }
        }
        if let error { done(.failure(error)) }
    }

    func replied(_ reply: RedisReply, tag: UInt64) { done(.success(reply)) }

    func failed(_ error: RedisError, tag: UInt64) { done(.failure(error)) }
}
