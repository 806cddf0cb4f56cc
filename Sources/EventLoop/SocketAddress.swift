// An IPv4 or IPv6 address with a port, as `connect` and `bind` take it, and the look-up that
// yields them.

internal import CLinux
internal import Glibc
internal import Synchronization

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

    /// The address alone, 4 or 16 bytes in network order; empty for any other family.
    var bytes: [UInt8] {
        withUnsafeBytes(of: storage) { raw in
            switch family {
            case AF_INET: Array(raw[4..<8])
            case AF_INET6: Array(raw[8..<24])
            default: []
            }
        }
    }

    var isIPv4: Bool { family == AF_INET }

    /// The address alone as text: IPv4 with dots, IPv6 in eight groups without brackets.
    var text: String {
        let bytes = bytes
        if isIPv4 { return bytes.map(String.init).joined(separator: ".") }
        return stride(from: 0, to: bytes.count - 1, by: 2).map { index in
            String(UInt16(bytes[index]) << 8 | UInt16(bytes[index + 1]), radix: 16)
        }.joined(separator: ":")
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
        // Names under localhost are this machine and no matter of DNS (RFC 6761, section 6.3).
        let name = host.hasSuffix(".localhost") ? "localhost" : host
        let code = getaddrinfo(name, String(port), &hints, &list)
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

/// Runs look-ups on threads of its own, so that no lane ever blocks on DNS; on several, so that a
/// name whose servers are silent does not keep the others waiting.
internal final class Resolver: Sendable {
    /// For names that this machine's operator chose.
    static let shared = Resolver("resolver")
    /// For all others: they must not keep those waiting.
    static let foreign = Resolver("resolver-f")

    private let threads: Result<[LoopThread], SystemError>
    /// How many look-ups each thread has to make.
    private let open = Mutex([Int](repeating: 0, count: Limits.threads))

    private enum Limits {
        /// Names that can be waited for at the same time.
        static let threads = 4
    }

    private init(_ name: StaticString) {
        do throws(SystemError) {
            var started: [LoopThread] = []
            for number in 1...Limits.threads {
                started.append(try LoopThread.start(name: "\(name)-\(number)") { _ in })
            }
            threads = .success(started)
        } catch {
            threads = .failure(error)
        }
    }

    func lookUp(
        host: String, port: UInt16, in names: NameService,
        _ done: @escaping @Sendable (Result<[SocketAddress], DialError>) -> Void
    ) {
        switch threads {
        case .success(let threads):
            let place = take()
            threads[place].handle.submit { [self] in
                done(names.lookUp(host, port))
                open.withLock { $0[place] -= 1 }
            }
        case .failure(let error):
            done(.failure(.lookUpFailed(host: host, error.description)))
        }
    }

    /// The thread with the fewest look-ups, which gets another.
    private func take() -> Int {
        open.withLock { counts in
            let place = counts.indices.min { counts[$0] < counts[$1] } ?? 0
            counts[place] += 1
            return place
        }
    }
}
