/// A host and a port.
public struct HostPort: Sendable, Hashable, CustomStringConvertible {
    /// A name or an address, IPv6 without brackets.
    public var host: String
    /// The port.
    public var port: UInt16

    /// The longest host, in bytes: what TLS takes for a server's name.
    public static let hostBytesMax = 255

    /// A host and a port.
    public init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    /// Reads `host:port`, `[ipv6]:port` or, with a default, `host`; nil for anything else, and for a
    /// host of more than 255 bytes.
    public init?(_ text: String, defaultPort: UInt16? = nil) {
        var host = Substring(text)
        var port = defaultPort
        if host.hasPrefix("["), let end = host.firstIndex(of: "]") {
            let rest = host[host.index(after: end)...]
            host = host[host.index(after: host.startIndex)..<end]
            if rest.hasPrefix(":") {
                port = Self.port(rest.dropFirst())
            } else if !rest.isEmpty {
                return nil
            }
        } else if let colon = host.firstIndex(of: ":") {
            port = Self.port(host[host.index(after: colon)...])
            host = host[..<colon]
        }
        guard let port, (1...Self.hostBytesMax).contains(host.utf8.count),
            host.utf8.allSatisfy(Self.isHostByte)
        else { return nil }
        self.init(host: String(host), port: port)
    }

    /// `host:port`, with brackets around an IPv6 address.
    public var description: String {
        host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }

    private static func port(_ text: Substring) -> UInt16? {
        text.utf8.allSatisfy { (0x30...0x39).contains($0) } ? UInt16(text) : nil
    }

    private static func isHostByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x3A, 0x5F, 0x25: true
        default: false
        }
    }
}

/// An https address.
public struct Endpoint: Sendable, Hashable, CustomStringConvertible {
    /// The host and port; 443 when none is given.
    public var authority: HostPort
    /// The path with its slash; `/` when none is given.
    public var path: String

    /// The host.
    public var host: String { authority.host }
    /// The port.
    public var port: UInt16 { authority.port }

    /// An endpoint from its parts.
    public init(authority: HostPort, path: String = "/") {
        self.authority = authority
        self.path = path
    }

    /// Reads `https://host[:port][/path]`; nil for anything else, plain http included.
    public init?(_ text: String) {
        let scheme = "https://"
        guard text.lowercased().hasPrefix(scheme) else { return nil }
        let rest = text.dropFirst(scheme.count)
        let slash = rest.firstIndex(of: "/") ?? rest.endIndex
        guard let authority = HostPort(String(rest[..<slash]), defaultPort: 443),
            authority.port > 0,
            rest[slash...].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x23 })
        else { return nil }
        self.init(authority: authority, path: slash == rest.endIndex ? "/" : String(rest[slash...]))
    }

    /// What errors say of hosts.
    internal static let hostRule = "its host of 1 to \(HostPort.hostBytesMax) bytes"

    /// The address as text.
    public var description: String {
        "https://" + (port == 443 ? bareHost : authority.description) + (path == "/" ? "" : path)
    }

    private var bareHost: String { host.contains(":") ? "[\(host)]" : host }
}
