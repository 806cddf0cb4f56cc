// Sockets, as far as a sender needs them: listen, accept, read and write without blocking.

internal import CLinux
internal import Glibc

/// What came of a read or a write that does not block.
public enum IOResult: Equatable, Sendable {
    /// This many bytes, at least one.
    case count(Int)
    /// Nothing now; wait for readiness.
    case wouldBlock
    /// The peer closed its side (read) or the connection (write).
    case closed
    /// The connection failed.
    case failed(SystemError)
}

/// Reading and writing of non-blocking sockets.
public enum SocketIO {
    /// Reads what is there, at most the buffer's size.
    public static func read(_ fd: Int32, into buffer: UnsafeMutableRawBufferPointer) -> IOResult {
        while true {
            let count = recv(fd, buffer.baseAddress, buffer.count, 0)
            if count > 0 { return .count(count) }
            if count == 0 { return .closed }
            if let result = failure("recv") { return result }
        }
    }

    /// Writes as much as the socket takes. A closed peer is a value, never a signal.
    public static func write(_ fd: Int32, _ bytes: UnsafeRawBufferPointer) -> IOResult {
        while true {
            let count = send(fd, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
            if count >= 0 { return .count(count) }
            if let result = failure("send") { return result }
        }
    }

    /// Closes a descriptor that is ours and not registered in any loop.
    public static func close(_ fd: Int32) { _ = Glibc.close(fd) }

    /// nil when the call was interrupted and has to be repeated.
    private static func failure(_ call: StaticString) -> IOResult? {
        let code = errno
        switch code {
        case EINTR: return nil
        case EAGAIN: return .wouldBlock
        case EPIPE, ECONNRESET: return .closed
        default:
            precondition(code != EBADF, "\(call): bad file descriptor")
            return .failed(SystemError(call, errno: code))
        }
    }
}

/// Sockets that accept connections.
public enum ListeningSocket {
    /// Listens on an address; port 0 takes a free one. Returns the descriptor and its port.
    public static func open(
        host: String, port: UInt16
    ) throws(SystemError) -> (fd: Int32, port: UInt16) {
        guard let address = SocketAddress(literal: host, port: port) else {
            throw SystemError("inet_pton", errno: EINVAL)
        }
        let fd = try checked("socket") {
            socket(
                address.family,
                Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue), 0)
        }
        do throws(SystemError) {
            var on: Int32 = 1
            try checked("setsockopt") { setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, 4) }
            try checked("bind") { address.withPointer { bind(fd, $0, $1) } }
            try checked("listen") { listen(fd, 1024) }
            return (fd, try boundPort(of: fd))
        } catch {
            SocketIO.close(fd)
            throw error
        }
    }

    /// Takes a waiting connection, non-blocking and without Nagle's delay; nil when none waits.
    public static func accept(_ listener: Int32) -> Int32? {
        while true {
            let fd = bugle_accept(listener)
            if fd >= 0 {
                var on: Int32 = 1
                setsockopt(fd, Int32(IPPROTO_TCP), TCP_NODELAY, &on, 4)
                return fd
            }
            if errno != EINTR && errno != ECONNABORTED { return nil }
        }
    }

    private static func boundPort(of fd: Int32) throws(SystemError) -> UInt16 {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        try checked("getsockname") {
            withUnsafeMutablePointer(to: &storage) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    getsockname(fd, $0, &length)
                }
            }
        }
        // sin_port and sin6_port share their place.
        return withUnsafeBytes(of: &storage) {
            UInt16(bigEndian: $0.loadUnaligned(fromByteOffset: 2, as: UInt16.self))
        }
    }
}
