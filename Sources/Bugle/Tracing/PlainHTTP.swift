// One HTTP/1.1 request over plain TCP (RFC 9112), for a collector on the same host or in the same pod.
// The thread that asks waits; every wait is bounded by one deadline.

internal import Base
internal import Glibc

/// Posts a body.
internal enum PlainHTTP {
    /// Why there was no answer.
    struct Fault: Error, CustomStringConvertible {
        let description: String
    }

    /// Sends `body` and returns the status of the answer.
    static func post(
        host: String, port: UInt16, path: String, headers: [(name: String, value: String)],
        body: UnsafeRawBufferPointer, timeout: TimeSpan
    ) throws(Fault) -> Int {
        let deadline = SystemTime.shared.monotonic + timeout
        let socket = try connect(host, port, deadline)
        defer { close(socket) }
        let head = ByteWriter()
        head.append("POST \(path) HTTP/1.1\r\nHost: \(host):\(port)\r\n")
        for header in headers { head.append("\(header.name): \(header.value)\r\n") }
        head.append("Content-Length: \(body.count)\r\nConnection: close\r\n\r\n")
        try write(head.bytes, to: socket, deadline)
        try write(body, to: socket, deadline)
        return try readStatus(from: socket, deadline)
    }

    private static func connect(
        _ host: String, _ port: UInt16, _ deadline: MonotonicTime
    ) throws(Fault) -> Int32 {
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        hints.ai_flags = AI_NUMERICSERV
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, String(port), &hints, &list)
        guard code == 0, let list else {
            throw Fault(description: "\(host): \(String(cString: gai_strerror(code)))")
        }
        defer { freeaddrinfo(list) }
        var last = "no address"
        var next: UnsafeMutablePointer<addrinfo>? = list
        while let address = next?.pointee {
            next = address.ai_next
            let kind = address.ai_socktype | Int32(SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
            let socket = Glibc.socket(address.ai_family, kind, address.ai_protocol)
            guard socket >= 0 else { continue }
            let result = Glibc.connect(socket, address.ai_addr, address.ai_addrlen)
            if result == 0 || errno == EINPROGRESS,
                wait(socket, POLLOUT, deadline), fault(of: socket) == 0
            {
                return socket
            }
            last = String(cString: strerror(fault(of: socket)))
            close(socket)
        }
        throw Fault(description: "\(host):\(port): \(last)")
    }

    private static func fault(of socket: Int32) -> Int32 {
        var code: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size)
        return code
    }

    private static func wait(
        _ socket: Int32, _ events: Int32, _ deadline: MonotonicTime
    ) -> Bool {
        let left = deadline - SystemTime.shared.monotonic
        var entry = pollfd(fd: socket, events: Int16(events), revents: 0)
        return left > .zero && poll(&entry, 1, Int32(clamping: left.millis)) == 1
    }

    private static func write(
        _ bytes: UnsafeRawBufferPointer, to socket: Int32, _ deadline: MonotonicTime
    ) throws(Fault) {
        var sent = 0
        while sent < bytes.count {
            let count = send(
                socket, bytes.baseAddress?.advanced(by: sent), bytes.count - sent,
                Int32(MSG_NOSIGNAL))
            if count > 0 {
                sent += count
            } else if errno != EAGAIN || !wait(socket, POLLOUT, deadline) {
                throw Fault(description: "the request was not taken in time")
            }
        }
    }

    /// The first line of the answer is all that is needed: `HTTP/1.1 200 OK`.
    private static func readStatus(
        from socket: Int32, _ deadline: MonotonicTime
    ) throws(Fault) -> Int {
        var line: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 512)
        while !line.contains(0x0A), line.count < 4096 {
            guard wait(socket, POLLIN, deadline) else {
                throw Fault(description: "no answer in time")
            }
            let count = recv(socket, &buffer, buffer.count, 0)
            guard count > 0 else { throw Fault(description: "the connection was closed") }
            line += buffer[..<count]
        }
        let words = line.prefix { $0 != 0x0D && $0 != 0x0A }.split(separator: 0x20)
        guard words.count >= 2, words[0].starts(with: Array("HTTP/1.".utf8)),
            let status = Int(String(decoding: words[1], as: UTF8.self))
        else { throw Fault(description: "the answer is not HTTP/1.1") }
        return status
    }
}
