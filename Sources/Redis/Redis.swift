// A Redis client for one event loop: pipelined commands, replies read by hiredis' reader into
// flat storage, a connection that is given up after the first doubt, and a reconnect that keeps
// trying.
//
// Replies carry no number: which command they answer is known by their order alone. So a
// connection on which anything went wrong, be it a time-out, a failed read or a byte that is not
// the protocol, is closed at once and never used again, and every command that waits on it
// fails. A late reply can then not be taken for another command's.

public import Base

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
    /// Reads per turn, so that one busy connection leaves room for others.
    public static let readsPerTurn = 4
    /// The first wait before another attempt to connect.
    public static let reconnectDelayMin = TimeSpan.milliseconds(50)
    /// The longest wait. Under a second, so that a server that came back is used within one.
    public static let reconnectDelayMax = TimeSpan.milliseconds(800)
    /// A connection that was usable for so long is replaced without a wait.
    public static let steadySpan = TimeSpan.seconds(1)
}

/// Where and how to connect.
public struct RedisConfiguration: Sendable {
    /// A name or an address; a name is looked up afresh for every connection.
    public var host: String
    /// The port.
    public var port: UInt16
    /// The ACL user; nil for the default one.
    public var user: String?
    /// The password; nil when none is asked for.
    public var password: String?
    /// The database number.
    public var database: Int
    /// The name that `CLIENT LIST` shows; nil for none. No spaces.
    public var clientName: String?
    /// How long one attempt to connect may take.
    public var connectTimeout = TimeSpan.seconds(1)
    /// How long a reply may take; then the connection is given up.
    public var commandTimeout = TimeSpan.seconds(1)

    /// A server without password.
    public init(
        host: String, port: UInt16 = 6379, user: String? = nil, password: String? = nil,
        database: Int = 0, clientName: String? = nil
    ) {
        self.host = host
        self.port = port
        self.user = user
        self.password = password
        self.database = database
        self.clientName = clientName
    }
}
