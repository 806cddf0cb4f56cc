/// The limits of the server role.
public enum ServerLimits {
    /// Bytes of one request's names and values that are kept.
    public static let fieldBytes = 64 * 1024
    /// Bytes of one request's body that are kept; the rest is counted.
    public static let bodyBytes = 64 * 1024
    /// Bytes waiting to be written at which a connection stops taking frames from its session.
    public static let outgoingBytes = 256 * 1024
    /// Bytes taken from a socket at a time.
    public static let readBytes = 16 * 1024
    /// Recycled request objects that a connection keeps.
    public static let pooledRequests = 1024
    /// Connections accepted in one turn of the loop.
    public static let acceptsPerTurn = 64
}
