// An IPv4 or IPv6 address with a port, as `connect` and `bind` take it, and the look-up that
// yields them.

internal import CLinux
internal import Glibc

internal struct SocketAddress: Sendable {
    let family: Int32
    private let storage: sockaddr_storage
    private let length: socklen_t

    private init(family: Int32, _ pointer: UnsafePointer<sockaddr>, _ length: socklen_t) {
        self.family = family
        self.length = length
        var storage = sockaddr_storage()
        withUnsafeMutableBytes(of: &storage) {
            $0.copyMemory(from: UnsafeRawBufferPointer(start: pointer, count: Int(length)))
        }
        self.storage = storage
    }

    /// Parses a numeric address; nil for a name.
    init?(literal host: String, port: UInt16) {
        let found = try? Self.lookUp(host: host, port: port, flags: AI_NUMERICHOST).get()
        guard let address = found?.first else { return nil }
        self = address
    }

    func withPointer<Value>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Value) -> Value {
        withUnsafePointer(to: storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
        }
    }

    /// Asks the system's resolver; blocks, so never on a loop's thread unless numeric only.
    static func lookUp(
        host: String, port: UInt16, flags: Int32 = AI_ADDRCONFIG
    ) -> Result<[SocketAddress], DialError> {
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        hints.ai_flags = flags | AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, String(port), &hints, &list)
        guard code == 0, let first = list else {
            return .failure(.lookUpFailed(host: host, String(cString: gai_strerror(code))))
        }
        defer { freeaddrinfo(first) }
        var addresses: [SocketAddress] = []
        var next: UnsafeMutablePointer<addrinfo>? = first
        while let entry = next?.pointee {
            if let pointer = entry.ai_addr {
                addresses.append(
                    SocketAddress(family: entry.ai_family, pointer, entry.ai_addrlen))
            }
            next = entry.ai_next
        }
        return .success(addresses)
    }
}

/// Runs look-ups on a thread of its own, one after another, so that no lane ever blocks on DNS.
internal final class Resolver: Sendable {
    static let shared = Resolver()

    private let thread: Result<LoopThread, SystemError>

    private init() {
        do throws(SystemError) {
            thread = .success(try LoopThread.start(name: "resolver") { _ in })
        } catch {
            thread = .failure(error)
        }
    }

    func lookUp(
        host: String, port: UInt16,
        _ done: @escaping @Sendable (Result<[SocketAddress], DialError>) -> Void
    ) {
        switch thread {
        case .success(let thread):
            thread.handle.submit { done(SocketAddress.lookUp(host: host, port: port)) }
        case .failure(let error):
            done(.failure(.lookUpFailed(host: host, error.description)))
        }
    }
}
