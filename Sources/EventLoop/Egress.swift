// How connections leave this machine: through a proxy or directly, and over which kind of address.

public import Base

/// The way out for connections to gateways.
public struct Egress: Sendable, Equatable {
    /// A proxy that opens connections for others (RFC 9110, section 9.3.6: CONNECT).
    public struct Proxy: Sendable, Equatable {
        /// Where it listens.
        public var host: String
        /// Its port.
        public var port: UInt16
        /// The value of `proxy-authorization`; nil for a proxy that asks for nothing.
        public var authorization: Secret<String>?
        /// Hosts that are connected to without it: names, or `.example.net` for all names below
        /// one.
        public var bypass: [String]

        /// A proxy.
        public init(
            host: String, port: UInt16, authorization: Secret<String>? = nil, bypass: [String] = []
        ) {
            self.host = host
            self.port = port
            self.authorization = authorization
            self.bypass = bypass
        }

        /// The scheme `Basic` for a user and password (RFC 7617).
        public static func basic(user: String, password: String) -> Secret<String> {
            // Base64 proper: the other alphabet, and padding.
            let text = Base64URL.encode("\(user):\(password)".utf8)
                .replacing("-", with: "+").replacing("_", with: "/")
            let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
            return Secret("Basic \(text)\(padding)")
        }

        /// `host:port`.
        internal var name: String { Self.authority(host, port) }

        /// A host and port as CONNECT names them, with brackets around an IPv6 address.
        internal static func authority(_ host: String, _ port: UInt16) -> String {
            host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        }
    }

    /// Which of the addresses that a name has are connected to, and which first.
    public enum AddressChoice: String, Sendable, CaseIterable {
        /// In the order of the system's resolver (RFC 6724).
        case auto
        /// IPv4 first.
        case ipv4
        /// IPv6 first.
        case ipv6
        /// IPv4 only.
        case onlyIPv4 = "ipv4_only"
        /// IPv6 only.
        case onlyIPv6 = "ipv6_only"
    }

    /// The proxy; nil for none.
    public var proxy: Proxy?
    /// Which addresses are connected to.
    public var addresses: AddressChoice

    /// Directly, over any address, unless something else is said.
    public init(proxy: Proxy? = nil, addresses: AddressChoice = .auto) {
        self.proxy = proxy
        self.addresses = addresses
    }

    /// Directly, over any address.
    public static let direct = Egress()

    /// The proxy that connections to a host go through; nil for none.
    internal func proxy(for host: String) -> Proxy? {
        guard let proxy else { return nil }
        let name = host.lowercased()
        let isBypassed = proxy.bypass.contains { entry in
            let entry = entry.lowercased()
            return entry.hasPrefix(".") ? name.hasSuffix(entry) : name == entry
        }
        return isBypassed ? nil : proxy
    }
}

extension Egress.AddressChoice {
    /// The addresses to be tried, in their order; each family keeps the resolver's.
    internal func order(_ addresses: [SocketAddress]) -> [SocketAddress] {
        let (four, six) = (addresses.filter(\.isIPv4), addresses.filter { !$0.isIPv4 })
        return switch self {
        case .auto: addresses
        case .ipv4: four + six
        case .ipv6: six + four
        case .onlyIPv4: four
        case .onlyIPv6: six
        }
    }
}
