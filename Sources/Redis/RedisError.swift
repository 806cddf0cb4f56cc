// What can go wrong, in three families: the command was not taken, the connection is gone and
// nobody knows what became of the command, the server refused the command.

internal import Base
public import EventLoop

/// Why a command has no reply.
public enum RedisError: Error, Equatable, Sendable, CustomStringConvertible {
    /// Not taken: there is no usable connection.
    case notConnected
    /// Not taken: too many commands or bytes are waiting.
    case tooManyPending
    /// No connection came about.
    case dialFailed(DialError)
    /// No reply in time; the connection is closed.
    case timedOut
    /// The connection ended.
    case disconnected
    /// The connection failed.
    case failed(SystemError)
    /// The server sent what is not the protocol, or a reply nobody waits for.
    case notTheProtocol
    /// A reply is larger than is taken.
    case replyTooLarge(limit: Int)
    /// The server answered with an error.
    case refused(RedisRefusal)
    /// The client was closed.
    case closed

    /// One line of text.
    public var description: String {
        switch self {
        case .notConnected: "not connected to Redis"
        case .tooManyPending: "too many commands wait for Redis already"
        case .dialFailed(let error): "cannot connect to Redis: \(error)"
        case .timedOut: "Redis did not reply in time"
        case .disconnected: "Redis closed the connection"
        case .failed(let error): "the connection to Redis failed: \(error)"
        case .notTheProtocol: "what answers is not Redis, or its answers are out of step"
        case .replyTooLarge(let limit): "a reply of Redis is larger than \(limit) bytes"
        case .refused(let refusal): "Redis refused a command: \(refusal)"
        case .closed: "the Redis client is closed"
        }
    }
}

/// An error reply, by its code. The text behind the code may repeat keys and arguments and is
/// not kept, save where it names another server or a line of a script.
public struct RedisRefusal: Error, Equatable, Sendable, CustomStringConvertible {
    /// What kind of refusal it is.
    public enum Kind: Sendable {
        /// The server reads its data from disk.
        case loading
        /// The server is a replica, as after a fail-over behind one address.
        case readOnly
        /// The memory limit is reached and nothing may be evicted.
        case outOfMemory
        /// The key holds another type.
        case wrongType
        /// Password or permission are missing or wrong.
        case authentication
        /// The key's slot lives on another node.
        case moved
        /// The key's slot is moving to another node.
        case ask
        /// The script is not cached.
        case noScript
        /// The server cannot serve now, e.g. a script runs or the master link is down.
        case unavailable
        /// Anything else: the command itself is at fault.
        case other
    }

    /// The kind.
    public var kind: Kind
    /// The error code, e.g. `WRONGTYPE`.
    public var code: String
    /// `slot host:port` of a redirection, or the place in a script.
    public var detail: String?

    /// One line of text.
    public var description: String { detail.map { "\(code) \($0)" } ?? code }

    /// Whether the server as a whole is not usable, so that another connection may find one
    /// that is.
    internal var concernsServer: Bool {
        switch kind {
        case .loading, .readOnly, .unavailable: true
        case .authentication: code == "NOAUTH"
        default: false
        }
    }
}

extension RedisRefusal {
    /// Reads the text of an error reply.
    internal init(_ text: String) {
        let words = text.split(separator: " ", maxSplits: 1)
        code = words.first.map { String($0.prefix(32)) } ?? ""
        let rest = words.count > 1 ? String(words[1].prefix(200)) : ""
        kind = Self.kinds[code] ?? .other
        // Before version 7 an error of a command inside a script comes wrapped.
        if kind == .other, text.contains("user_script") {
            for (name, inner) in Self.kinds where text.contains(" \(name) ") {
                kind = inner
                code = name
            }
            detail = kind == .other ? rest : nil
        } else if kind == .moved || kind == .ask {
            detail = rest
        }
    }

    private static let kinds: [String: Kind] = [
        "LOADING": .loading, "READONLY": .readOnly, "OOM": .outOfMemory, "WRONGTYPE": .wrongType,
        "NOAUTH": .authentication, "WRONGPASS": .authentication, "NOPERM": .authentication,
        "MOVED": .moved, "ASK": .ask, "NOSCRIPT": .noScript, "BUSY": .unavailable,
        "MASTERDOWN": .unavailable, "CLUSTERDOWN": .unavailable, "TRYAGAIN": .unavailable,
        "MISCONF": .outOfMemory, "NOREPLICAS": .unavailable,
    ]
}
