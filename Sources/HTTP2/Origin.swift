/// A host and port that requests go to over TLS.
public struct Origin: Hashable, Sendable, CustomStringConvertible {
    /// The host name: looked up, sent as SNI and verified against the certificate.
    public let host: String
    /// The TCP port.
    public let port: UInt16

    /// The origin at a host and port.
    public init(host: String, port: UInt16 = 443) {
        self.host = host
        self.port = port
    }

    /// The value of `:authority`: the port is left out when it is the scheme's default.
    public var authority: String { port == 443 ? host : "\(host):\(port)" }

    /// The same as `authority`.
    public var description: String { authority }
}
