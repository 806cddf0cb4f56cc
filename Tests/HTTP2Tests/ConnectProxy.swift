import Base
import EventLoop

/// A proxy that takes CONNECT, on the test's loop, and does what the test says.
final class ConnectProxy: ReadinessHandler {
    /// What becomes of a request for a tunnel.
    enum Answer: Equatable {
        /// A tunnel to this machine, whatever host was named.
        case tunnel
        /// These bytes, and no tunnel.
        case bytes(String)
        /// Nothing, for ever.
        case silence
        /// The connection is closed.
        case close
    }

    let port: UInt16
    var answer: Answer
    /// The heads of all requests.
    fileprivate(set) var requests: [String] = []
    fileprivate let loop: EventLoop
    private let listener: Int32
    private var registration: Registration?
    private var clients: [ProxyClient] = []

    init(_ answer: Answer, on loop: EventLoop) throws {
        self.answer = answer
        self.loop = loop
        (listener, port) = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        registration = try loop.register(listener, .read, self)
    }

    func close() {
        for client in clients { client.close() }
        clients = []
        if let registration { loop.deregister(registration) }
        registration = nil
        SocketIO.close(listener)
    }

    func ready(_ readiness: Readiness) {
        while let fd = ListeningSocket.accept(listener) { clients.append(ProxyClient(fd, self)) }
    }
}

/// One connection to the proxy, and its other half once there is a tunnel.
private final class ProxyClient {
    private unowned let proxy: ConnectProxy
    private var head: [UInt8] = []
    private var near: ProxyEnd?
    private var far: ProxyEnd?
    private var dial: DialAttempt?

    init(_ fd: Int32, _ proxy: ConnectProxy) {
        self.proxy = proxy
        near = ProxyEnd(fd, proxy.loop) { [unowned self] in received($0) }
    }

    func close() {
        dial?.cancel()
        near?.close()
        far?.close()
    }

    private func received(_ bytes: [UInt8]) {
        if let far { return far.write(bytes) }
        head += bytes
        guard head.suffix(4).elementsEqual("\r\n\r\n".utf8) else { return }
        let request = String(decoding: head, as: UTF8.self)
        proxy.requests.append(request)
        switch proxy.answer {
        case .tunnel: open(request)
        case .bytes(let text): near?.write(Array(text.utf8))
        case .silence: break
        case .close: near?.close()
        }
    }

    private func open(_ request: String) {
        let authority = request.split(separator: " ")[1]
        guard let port = authority.split(separator: ":").last.flatMap({ UInt16($0) }) else {
            return
        }
        dial = Dialer.dial(
            host: "127.0.0.1", port: port, on: proxy.loop, deadline: proxy.loop.now + .seconds(5)
        ) { [unowned self] result in
            dial = nil
            guard case .success(let fd) = result else {
                near?.write(Array("HTTP/1.1 502 Bad Gateway\r\n\r\n".utf8))
                return
            }
            far = ProxyEnd(fd, proxy.loop) { [unowned self] in near?.write($0) }
            near?.other = far
            far?.other = near
            near?.write(Array("HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n".utf8))
        }
    }
}

private final class ProxyEnd: ReadinessHandler {
    weak var other: ProxyEnd?
    private let fd: Int32
    private let loop: EventLoop
    private let received: ([UInt8]) -> Void
    private var registration: Registration?

    init(_ fd: Int32, _ loop: EventLoop, _ received: @escaping ([UInt8]) -> Void) {
        self.fd = fd
        self.loop = loop
        self.received = received
        registration = try? loop.register(fd, .read, self)
    }

    /// Closes both halves.
    func close() {
        guard let registration else { return }
        self.registration = nil
        loop.deregister(registration)
        SocketIO.close(fd)
        other?.close()
    }

    /// What these tests send fits into a socket's buffer.
    func write(_ bytes: [UInt8]) {
        guard registration != nil else { return }
        if bytes.withUnsafeBytes({ SocketIO.write(fd, $0) }) != .count(bytes.count) { close() }
    }

    func ready(_ readiness: Readiness) {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        let result = buffer.withUnsafeMutableBytes { SocketIO.read(fd, into: $0) }
        switch result {
        case .count(let count): received(Array(buffer[..<count]))
        case .wouldBlock: break
        case .closed, .failed: close()
        }
    }
}
