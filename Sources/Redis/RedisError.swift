// What can go wrong, in three families: the command was not taken, the connection is gone and
// nobody knows what became of the command, the server refused the command.

internal import Base
public import Crypto
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
    /// The connection ended before the first reply, as a server that expects TLS or a client's
    /// certificate ends one that brings none.
    case closedUnanswered
    /// The server asks for no password, and one was given.
    case passwordNotAsked
    /// The TLS handshake came to nothing.
    case tlsFailed(TLSError)
    /// The server did not answer the TLS handshake in time, as one that speaks no TLS does not.
    case handshakeTimedOut
    /// A cluster is demanded and the server is a single one.
    case notACluster
    /// The server is a node of a cluster, and the user may not ask it for the others, or a single
    /// server is demanded.
    case partOfCluster
    /// A cluster has database 0 only.
    case databaseInCluster
    /// So many slots of the cluster have no master.
    case slotsUncovered(Int)
    /// What happened at one node of a cluster.
    indirect case atNode(RedisEndpoint, RedisError)
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
        case .closedUnanswered: "Redis closed the connection before it answered anything"
        case .passwordNotAsked: "Redis asks for no password, and one is given"
        case .tlsFailed(let error): "no TLS connection to Redis: \(error)"
        case .handshakeTimedOut: "Redis did not answer the TLS handshake"
        case .notACluster: "the server is not part of a Redis Cluster"
        case .partOfCluster:
            "the server is part of a Redis Cluster, and its nodes may not be asked for"
        case .databaseInCluster: "a Redis Cluster has no database but 0"
        case .slotsUncovered(let count):
            "\(count) of \(RedisSlot.count) slots of the Redis Cluster have no master"
        case .atNode(let endpoint, let error): "\(error) (node \(endpoint))"
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
        /// Keys of one slot are on two nodes, while it moves.
        case tryAgain
        /// The cluster, or a part of it, does not serve.
        case clusterDown
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
        case .loading, .readOnly: true
        // Too few replicas hinder writes only.
        case .unavailable: code != "NOREPLICAS"
        case .authentication: code == "NOAUTH"
        default: false
        }
    }

    /// Whether it says where the command belongs.
    internal var isRedirection: Bool { kind == .moved || kind == .ask }

    /// Whether it says something about the cluster as a whole.
    internal var concernsCluster: Bool { isRedirection || kind == .clusterDown }
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
        "MASTERDOWN": .unavailable, "CLUSTERDOWN": .clusterDown, "TRYAGAIN": .tryAgain,
        "MISCONF": .outOfMemory, "NOREPLICAS": .unavailable,
    ]
}
