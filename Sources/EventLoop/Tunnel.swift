// A tunnel through a proxy: CONNECT is written, the answer's head is read, and nothing else. After
// it the socket is the caller's, as if it were connected to the host itself.

internal import Base

/// The head of a proxy's answer. Pure.
internal struct ConnectAnswer {
    /// What the bytes so far come to.
    enum Outcome: Equatable {
        /// More is to come.
        case incomplete
        /// The tunnel is open.
        case open
        /// It is not; the status and its words.
        case refused(Int, String)
        /// These bytes are no answer to CONNECT.
        case malformed(String)
    }

    private var bytes: [UInt8] = []

    /// The longest head, in bytes.
    static let headBytesMax = 8 << 10

    /// Takes bytes in.
    mutating func take(_ more: UnsafeRawBufferPointer) -> Outcome {
        bytes.append(contentsOf: more)
        guard let end = Self.end(of: bytes) else {
            if !Self.isStart(bytes) { return .malformed("it does not speak HTTP/1.1") }
            return bytes.count < Self.headBytesMax
                ? .incomplete : .malformed("its answer has no end")
        }
        guard let status = Self.status(in: bytes[..<end]) else {
            return .malformed("it does not speak HTTP/1.1")
        }
        guard (200...299).contains(status.code) else { return .refused(status.code, status.words) }
        // Behind the head the peer's bytes start, and TLS servers do not speak first.
        guard end == bytes.count else {
            return .malformed("it sent more than an answer")
        }
        return .open
    }

    private static func end(of bytes: [UInt8]) -> Int? {
        guard bytes.count >= 4 else { return nil }
        for index in 3..<bytes.count where bytes[index] == 0x0A {
            if bytes[index - 3...index].elementsEqual([0x0D, 0x0A, 0x0D, 0x0A]) {
                return index + 1
            }
        }
        return nil
    }

    private static func isStart(_ bytes: [UInt8]) -> Bool {
        zip(bytes, "HTTP/1.".utf8).allSatisfy { $0 == $1 }
    }

    private static func status(in head: ArraySlice<UInt8>) -> (code: Int, words: String)? {
        let line = head.prefix { $0 != 0x0D }
        guard isStart(Array(line)), line.count >= 12, line[line.startIndex + 8] == 0x20 else {
            return nil
        }
        let digits = line[line.startIndex + 9..<line.startIndex + 12]
        guard digits.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        let code = digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
        let words = line.dropFirst(13).prefix(64).filter { (0x20...0x7E).contains($0) }
        return (code, String(decoding: words, as: UTF8.self))
    }
}

/// Asks a proxy for a tunnel over a connected socket. Loop-confined; it keeps itself alive by its
/// registration until it has told or was cancelled.
internal final class TunnelHandshake: ReadinessHandler {
    private let fd: Int32
    private let loop: EventLoop
    private let authority: String
    private var done: ((Result<Int32, TunnelFault>) -> Void)?
    private var registration: Registration?
    private var unsent: [UInt8]
    private var answer = ConnectAnswer()

    /// Takes the socket; it is handed over with the tunnel, or closed.
    init(
        _ fd: Int32, to authority: String, _ proxy: Egress.Proxy, on loop: EventLoop,
        _ done: @escaping (Result<Int32, TunnelFault>) -> Void
    ) {
        self.fd = fd
        self.loop = loop
        self.authority = authority
        self.done = done
        var head = "CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n"
        if let authorization = proxy.authorization {
            head += "Proxy-Authorization: \(authorization.exposed)\r\n"
        }
        unsent = Array((head + "\r\n").utf8)
    }

    func start() {
        do throws(SystemError) {
            registration = try loop.register(fd, [.read, .write], self)
        } catch {
            finish(.failure(.lost("\(error)")))
        }
    }

    func cancel() {
        done = nil
        if let registration { loop.deregister(registration) }
        registration = nil
        SocketIO.close(fd)
    }

    func ready(_ readiness: Readiness) {
        if readiness.contains(.write), !unsent.isEmpty { write() }
        if done != nil, !readiness.isDisjoint(with: [.read, .hangUp]) { read() }
    }

    private func write() {
        switch unsent.withUnsafeBytes({ SocketIO.write(fd, $0) }) {
        case .count(let count): unsent.removeFirst(count)
        case .wouldBlock: break
        case .closed: finish(.failure(.lost("it closed the connection")))
        case .failed(let error): finish(.failure(.lost("\(error)")))
        }
        if unsent.isEmpty, let registration { loop.modify(registration, [.read]) }
    }

    private func read() {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let (result, outcome) = buffer.withUnsafeMutableBytes { raw in
            let result = SocketIO.read(fd, into: raw)
            guard case .count(let count) = result else {
                return (result, ConnectAnswer.Outcome.incomplete)
            }
            return (result, answer.take(UnsafeRawBufferPointer(rebasing: raw[..<count])))
        }
        switch result {
        case .wouldBlock: return
        case .closed:
            return finish(.failure(.lost("it closed the connection without an answer")))
        case .failed(let error): return finish(.failure(.lost("\(error)")))
        case .count: break
        }
        switch outcome {
        case .incomplete: break
        case .open: finish(.success(fd))
        case .refused(let code, let words): finish(.failure(.refused(code, words)))
        case .malformed(let text): finish(.failure(.lost(text)))
        }
    }

    private func finish(_ result: Result<Int32, TunnelFault>) {
        guard let done else { return }
        self.done = nil
        if let registration { loop.deregister(registration) }
        registration = nil
        if case .failure = result { SocketIO.close(fd) }
        done(result)
    }
}

/// Why a proxy opened no tunnel.
internal enum TunnelFault: Error {
    /// It answered with a status.
    case refused(Int, String)
    /// The connection to it ended, or what it sent is no answer.
    case lost(String)

    /// What happened and what to do.
    var text: String {
        switch self {
        case .refused(407, _): "it asks for a user and password it takes: look at egress.proxy"
        case .refused(403, let words): "it does not allow that host (403 \(words))"
        case .refused(let code, let words):
            "it answered \(code)" + (words.isEmpty ? "" : " \(words)")
        case .lost(let text): text
        }
    }
}
