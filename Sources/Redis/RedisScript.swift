// Scripts by their digest: EVALSHA, and EVAL once when the server does not know the script. Each
// node of a cluster learns a script for itself.

internal import Base
internal import Crypto

/// A Lua script whose keys share one slot.
public struct RedisScript: Sendable {
    /// The script's text.
    public let source: String
    /// SHA-1 of the text, in hex.
    public let digest: String

    /// A script.
    public init(_ source: String) {
        self.source = source
        digest = Hex.encode(SHA1.digest(of: Array(source.utf8)))
    }
}

/// One run of a script, repeated with its text when the server does not know the digest.
private final class ScriptRun: RedisReplyHandler {
    private let script: RedisScript
    private let keys: [String]
    private let slot: RedisSlot
    private let arguments: [[UInt8]]
    private let client: RedisClient
    private let handler: any RedisReplyHandler
    private let tag: UInt64

    init(
        _ script: RedisScript, _ keys: [String], _ arguments: [[UInt8]], _ client: RedisClient,
        _ handler: any RedisReplyHandler, _ tag: UInt64
    ) {
        self.script = script
        self.keys = keys
        slot = RedisSlot(of: keys.first ?? "")
        self.arguments = arguments
        self.client = client
        self.handler = handler
        self.tag = tag
    }

    func send(withText: Bool) -> RedisError? {
        client.send(slot: slot, to: self, tag: 0) { writer in
            writer.append(commandOf: 3 + keys.count + arguments.count)
            if withText {
                writer.append(argument: "EVAL" as StaticString)
                writer.append(argument: script.source)
            } else {
                writer.append(argument: "EVALSHA" as StaticString)
                writer.append(argument: script.digest)
            }
            writer.append(argument: String(keys.count))
            for key in keys { writer.append(argument: key) }
            for argument in arguments { writer.append(argument: argument) }
        }
    }

    func replied(_ reply: RedisReply, tag: UInt64) { handler.replied(reply, tag: self.tag) }

    func failed(_ error: RedisError, tag: UInt64) {
        if case .refused(let refusal) = error, refusal.kind == .noScript {
            guard let error = send(withText: true) else { return }
            handler.failed(error, tag: self.tag)
        } else {
            handler.failed(error, tag: self.tag)
        }
    }
}

extension RedisClient {
    /// Runs a script whose keys are in one slot. Like `send`: an error means that it was not
    /// taken.
    public func run(
        _ script: RedisScript, keys: [String], arguments: [[UInt8]],
        to handler: any RedisReplyHandler, tag: UInt64
    ) -> RedisError? {
        ScriptRun(script, keys, arguments, self, handler, tag).send(withText: false)
    }
}
