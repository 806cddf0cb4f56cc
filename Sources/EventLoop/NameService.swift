// Who knows the addresses of names: the machine's resolver, or whoever is put in its place.

/// Turns the names of hosts into addresses, as often as it is asked: nothing is kept here.
public struct NameService: Sendable {
    internal let lookUp:
        @Sendable (_ host: String, _ port: UInt16) -> Result<[SocketAddress], DialError>

    private init(
        lookUp: @escaping @Sendable (String, UInt16) -> Result<[SocketAddress], DialError>
    ) {
        self.lookUp = lookUp
    }

    /// The machine's resolver: its files, then DNS.
    public static let system = NameService { SocketAddress.lookUp(host: $0, port: $1) }

    /// A service that answers a name with numeric addresses, in the order in which they are tried;
    /// with none if the name has none. It is called on a resolver's thread and may block, and is
    /// not asked for what is an address already.
    public init(addressesOf: @escaping @Sendable (_ name: String) -> [String]) {
        lookUp = { host, port in
            if let address = SocketAddress(literal: host, port: port) { return .success([address]) }
            let found = addressesOf(host).compactMap { SocketAddress(literal: $0, port: port) }
            return found.isEmpty
                ? .failure(.lookUpFailed(host: host, "it has no address")) : .success(found)
        }
    }
}
