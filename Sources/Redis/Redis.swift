// A Redis client for one event loop: pipelined commands, replies read by hiredis' reader into
// flat storage, connections that are given up after the first doubt, and a reconnect that keeps
// trying. Behind it stands one server or a Redis Cluster; who sends names the slot of his keys and
// notices no difference.
//
// Replies carry no number: which command they answer is known by their order alone. So a
// connection on which anything went wrong, be it a time-out, a failed read or a byte that is not
// the protocol, is closed at once and never used again, and every command that waits on it
// fails. A late reply can then not be taken for another command's.

public import Base
public import Crypto

/// The bounds of this room.
public enum RedisLimits {
    /// Commands of one connection that may wait for their reply.
    public static let commandsPending = 32_768
    /// Bytes that may wait to be written.
    public static let outboundBytes = 16 << 20
    /// Bytes of one reply that is handed over as a whole.
    public static let replyBytes = 8 << 20
    /// Once so many bytes of a reply are here, handlers that take parts are given them.
    public static let partBytes = 128 << 10
    /// Bytes read at once.
    public static let readBytes = 64 << 10
    /// Bytes handed to the reader of replies at once.
    public static let feedBytes = 2 << 10
    /// Reads per turn, so that one busy connection leaves room for others.
    public static let readsPerTurn = 4
    /// The first wait between two attempts to connect, from the start of one to the next.
    public static let reconnectDelayMin = TimeSpan.milliseconds(50)
    /// The longest wait. Under a second, so that a server that came back is used within one.
    public static let reconnectDelayMax = TimeSpan.milliseconds(800)
    /// A connection that was usable for so long is replaced without a wait.
    public static let steadySpan = TimeSpan.seconds(1)
    /// How often a connection is asked whether it is still there and still a master.
    public static let heartbeatInterval = TimeSpan.milliseconds(500)
    /// How often a command follows redirections before its sender hears of them.
    public static let redirections: UInt8 = 5
    /// The least time between two questions for the map of a cluster.
    public static let mapGap = TimeSpan.milliseconds(100)
    /// The longest time between two such questions while nodes or slots are missing.
    public static let mapRetryMax = TimeSpan.milliseconds(800)
    /// How often the map is asked for when nothing is missing.
    public static let mapInterval = TimeSpan.seconds(30)
    /// How long a node that the map does not name is kept after it was last redirected to.
    public static let strangerSpan = TimeSpan.seconds(10)
    /// Nodes of a cluster.
    public static let nodes = 1_000
}

/// A host and a port.
public struct RedisEndpoint: Hashable, Sendable, CustomStringConvertible {
    /// A name or an address, IPv6 without brackets; a name is looked up afresh for every
    /// connection.
    public var host: String
    /// The port.
    public var port: UInt16

    /// An endpoint.
    public init(host: String, port: UInt16 = 6379) {
        self.host = host
        self.port = port
    }

    /// `host:port`, with brackets around an IPv6 address.
    public var description: String {
        host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}

/// How connections are secured.
public struct RedisTLS: Sendable {
    /// Trust, and the client's certificate where servers ask for one.
    public var context: TLSContext
    /// The name that every server's certificate is verified against, and that is sent to it; nil
    /// for the host that was connected to.
    public var serverName: String?

    /// TLS with the given trust.
    public init(_ context: TLSContext, serverName: String? = nil) {
        self.context = context
        self.serverName = serverName
    }
}

/// Where and how to connect.
public struct RedisConfiguration: Sendable {
    /// Whether a Redis Cluster is expected.
    public enum ClusterUse: Sendable {
        /// The server is asked. It counts as a single one when the question is not allowed.
        case auto
        /// A server that is no part of a cluster is an error.
        case always
        /// A single server.
        case never
    }

    /// The server, or those of a cluster that are asked for the others; at least one.
    public var endpoints: [RedisEndpoint]
    /// Whether a cluster is expected; several endpoints mean one in any case.
    public var cluster = ClusterUse.auto
    /// TLS; nil for plain connections.
    public var tls: RedisTLS?
    /// The ACL user; nil for the default one.
    public var user: String?
    /// The password; nil when none is asked for.
    public var password: String?
    /// The database number; a cluster has 0 only.
    public var database: Int
    /// The name that `CLIENT LIST` shows; nil for none. No spaces.
    public var clientName: String?
    /// A key that nobody uses, and that the user may delete. With it a single server is asked
    /// for a write in every greeting and heartbeat: one that became a replica, whose answers may
    /// be old, is left. nil takes whatever answers.
    public var probeKey: String?
    /// How long one attempt to connect may take.
    public var connectTimeout = TimeSpan.seconds(1)
    /// How long a reply may take; then the connection is given up.
    public var commandTimeout = TimeSpan.seconds(1)

    /// Servers without password.
    public init(
        endpoints: [RedisEndpoint], user: String? = nil, password: String? = nil,
        database: Int = 0, clientName: String? = nil
    ) {
        precondition(!endpoints.isEmpty, "at least one endpoint")
        self.endpoints = endpoints
        self.user = user
        self.password = password
        self.database = database
        self.clientName = clientName
    }

    /// A server without password.
    public init(
        host: String, port: UInt16 = 6379, user: String? = nil, password: String? = nil,
        database: Int = 0, clientName: String? = nil
    ) {
        self.init(
            endpoints: [RedisEndpoint(host: host, port: port)], user: user, password: password,
            database: database, clientName: clientName)
    }

    /// Whether nothing but a cluster will do.
    internal var demandsCluster: Bool { cluster == .always || endpoints.count > 1 }
}
