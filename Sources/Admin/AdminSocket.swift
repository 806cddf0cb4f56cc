internal import Glibc

/// Why the admin server did not start. Stop the program, or go on without it.
public enum AdminError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The host is no address and no known name.
    case unknownHost(String)
    /// The address cannot be served, most often because somebody else does.
    case cannotListen(host: String, port: UInt16, errno: Int32)
    /// libmicrohttpd did not start its thread.
    case notStarted

    /// One line of text.
    public var description: String {
        switch self {
        case .unknownHost(let host): "admin.listen: unknown host \(host)"
        case .cannotListen(let host, let port, let errno):
            "admin.listen: cannot listen on \(host) port \(port): "
                + String(cString: strerror(errno))
        case .notStarted: "the admin server's thread did not start"
        }
    }
}

/// The listening socket, made here so that a failure has its reason and port 0 its answer.
internal enum AdminSocket {
    static func listen(
        host: String, port: UInt16
    ) throws(AdminError) -> (fd: Int32, port: UInt16) {
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, String(port), &hints, &list) == 0, let list else {
            throw .unknownHost(host)
        }
        defer { freeaddrinfo(list) }
        var failure = EADDRNOTAVAIL
        var next: UnsafeMutablePointer<addrinfo>? = list
        while let address = next {
            switch open(address.pointee) {
            case .success(let fd): return (fd, boundPort(fd))
            case .failure(let error): failure = error.errno
            }
            next = address.pointee.ai_next
        }
        throw .cannotListen(host: host, port: port, errno: failure)
    }

    private struct Failure: Error {
        var errno: Int32
    }

    private static func open(_ address: addrinfo) -> Result<Int32, Failure> {
        let type = address.ai_socktype | Int32(SOCK_CLOEXEC.rawValue)
        let fd = socket(address.ai_family, type, address.ai_protocol)
        if fd < 0 { return .failure(Failure(errno: errno)) }
        var on: Int32 = 1
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
        guard bind(fd, address.ai_addr, address.ai_addrlen) == 0,
            Glibc.listen(fd, AdminServer.Limits.backlog) == 0
        else {
            let failure = Failure(errno: errno)
            close(fd)
            return .failure(failure)
        }
        return .success(fd)
    }

    private static func boundPort(_ fd: Int32) -> UInt16 {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return withUnsafeMutableBytes(of: &storage) { bytes -> UInt16 in
            guard let base = bytes.baseAddress,
                getsockname(fd, base.assumingMemoryBound(to: sockaddr.self), &length) == 0
            else { return 0 }
            // The port stands at the same place in IPv4's and IPv6's structure.
            let offset = MemoryLayout<sockaddr_in>.offset(of: \.sin_port) ?? 2
            return UInt16(bigEndian: bytes.load(fromByteOffset: offset, as: UInt16.self))
        }
    }
}
