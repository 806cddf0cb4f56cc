// The endpoint of a subscription: a URL that a client supplied, and a secret. Where it may lead is
// decided here by its text, and once more by the address that its host resolves to, when a
// connection is made.

internal import Base

/// The push services that differ in how they answer.
public enum WebPushService: String, Sendable, CaseIterable {
    /// Google's, for Chrome and what is built like it.
    case google
    /// Mozilla's.
    case mozilla
    /// Apple's.
    case apple
    /// Windows', for Edge.
    case windows
    /// Any other.
    case other

    internal init(host: String) {
        // What plays a service on this machine is treated as that service.
        let played = host.hasSuffix(".localhost") ? String(host.dropLast(10)) : ""
        self =
            if let service = Self(rawValue: played) {
                service
            } else if host == "fcm.googleapis.com" || host == "jmt17.google.com" {
                .google
            } else if host.hasSuffix(".push.services.mozilla.com") {
                .mozilla
            } else if host.hasSuffix(".push.apple.com") {
                .apple
            } else if host.hasSuffix(".notify.windows.com") {
                .windows
            } else {
                .other
            }
    }
}

/// Why an endpoint is not sent to.
public enum WebPushEndpointError: Error, Equatable, Sendable {
    /// No push service can have issued it.
    case malformed(String)
    /// It leads where this app does not send.
    case forbidden(String)
}

/// An endpoint in parts.
public struct WebPushEndpoint: Sendable, Equatable {
    /// The host's name, in lower case.
    public let host: String
    /// The port; 443 unless the endpoint names another.
    public let port: UInt16
    /// Path and query, byte for byte as registered: services take no other spelling.
    public let path: [UInt8]
    /// The service that the host belongs to.
    public let service: WebPushService

    /// Takes an endpoint apart.
    public init(_ text: [UInt8]) throws(WebPushEndpointError) {
        guard (1...WebPushLimits.endpointBytesMax).contains(text.count) else {
            throw .malformed("the endpoint is empty or too long")
        }
        guard text.allSatisfy({ (0x21...0x7E).contains($0) && $0 != 0x23 && $0 != 0x5C }) else {
            throw .malformed("the endpoint has characters that no URL of a push service has")
        }
        let scheme = Array("https://".utf8)
        guard text.count > scheme.count,
            text[..<scheme.count].elementsEqual(scheme, by: { $0 | 0x20 == $1 | 0x20 })
        else { throw .malformed("the endpoint does not begin with https://") }
        let rest = text[scheme.count...]
        let end = rest.firstIndex { $0 == 0x2F || $0 == 0x3F } ?? rest.endIndex
        let authority = rest[..<end]
        guard !authority.contains(0x40) else {
            throw .malformed("the endpoint names a user, which endpoints never do")
        }
        let colon = authority.firstIndex(of: 0x3A)
        host = String(decoding: authority[..<(colon ?? end)], as: UTF8.self).lowercased()
        port = try Self.port(colon.map { authority[($0 + 1)...] })
        guard Self.isHostName(host) else {
            throw .malformed("the endpoint's host is not a name")
        }
        let path = Array(rest[end...])
        self.path = path.first == 0x2F ? path : [0x2F] + path
        service = WebPushService(host: host)
    }

    /// The value of `:authority` and `host`.
    public var authority: String { port == 443 ? host : "\(host):\(port)" }

    /// The origin as VAPID's audience (RFC 8292, section 2, and RFC 6454, section 6).
    public var origin: String { "https://\(authority)" }

    private static func port(
        _ digits: ArraySlice<UInt8>?
    ) throws(WebPushEndpointError) -> UInt16 {
        guard let digits else { return 443 }
        let text = String(decoding: digits, as: UTF8.self)
        guard digits.allSatisfy({ (0x30...0x39).contains($0) }), let port = UInt16(text), port > 0
        else { throw .malformed("the endpoint's port is no port") }
        return port
    }

    /// Labels of letters, digits and hyphens, the last with a letter: an IPv4 literal is none, nor
    /// is an IPv6 literal in its brackets.
    private static func isHostName(_ host: String) -> Bool {
        guard (1...253).contains(host.utf8.count) else { return false }
        let labels = host.utf8.split(separator: 0x2E, omittingEmptySubsequences: false)
        let areLabels = labels.allSatisfy { label in
            (1...63).contains(label.count)
                && label.allSatisfy { byte in
                    (0x61...0x7A).contains(byte) || (0x30...0x39).contains(byte) || byte == 0x2D
                        || byte == 0x5F
                }
        }
        // `0x7f.1` and the like are numbers to a resolver.
        guard areLabels, let last = labels.last, let first = last.first else { return false }
        return (0x61...0x7A).contains(first)
    }
}

/// Where an app's web pushes may go.
public struct WebPushHosts: Sendable, Equatable {
    /// The push services of the browsers.
    public static let browsers = [
        "fcm.googleapis.com", "jmt17.google.com", "*.push.services.mozilla.com",
        "*.push.apple.com", "*.notify.windows.com",
    ]

    /// Hosts: `push.example.net`, `*.example.net`, either with a port behind a colon, or `*` for
    /// every public host.
    public var patterns: [String]
    /// Whether endpoints on this machine, at any port, are sent to: for tests only.
    public var allowsLoopback: Bool

    /// Hosts by their patterns.
    public init(_ patterns: [String] = Self.browsers, allowsLoopback: Bool = false) {
        self.patterns = patterns.map { $0.lowercased() }
        self.allowsLoopback = allowsLoopback
    }

    /// Refuses an endpoint that leads elsewhere.
    public func check(_ endpoint: WebPushEndpoint) throws(WebPushEndpointError) {
        if Self.isLocal(endpoint.host) {
            if allowsLoopback { return }
            throw .malformed("the endpoint leads to this machine or its network")
        }
        guard patterns.contains(where: { Self.matches($0, endpoint) }) else {
            throw .forbidden(
                "\(endpoint.authority) is not among the hosts that allowed_hosts names")
        }
    }

    private static func isLocal(_ host: String) -> Bool {
        host == "localhost" || host.hasSuffix(".localhost") || host.hasSuffix(".local")
            || host.hasSuffix(".internal") || !host.contains(".")
    }

    private static func matches(_ pattern: String, _ endpoint: WebPushEndpoint) -> Bool {
        let parts = pattern.split(separator: ":", maxSplits: 1)
        guard let host = parts.first else { return false }
        let port = parts.count == 2 ? String(parts[1]) : "443"
        guard port == "\(endpoint.port)" else { return false }
        if host == "*" { return true }
        return host.hasPrefix("*.")
            ? endpoint.host.hasSuffix(host.dropFirst()) : endpoint.host == host
    }
}
