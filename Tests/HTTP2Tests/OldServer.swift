import Base
import Crypto
import EventLoop
import Glibc
import HTTP2

/// A server that speaks HTTP/1.1 over TLS as a script says, byte by byte, on the loop of the pool
/// in front of it.
final class OldServer: ReadinessHandler, HTTP2PoolDelegate {
    /// One accepted connection.
    final class Peer: ReadinessHandler {
        let number: Int
        private let fd: Int32
        private let tls: TLSSession
        private unowned let server: OldServer
        private var registration: Registration?
        private var input: [UInt8] = []
        private var isSecured = false
        private(set) var requests = 0
        private(set) var isClosed = false

        init(_ number: Int, _ fd: Int32, _ server: OldServer) throws {
            self.number = number
            self.fd = fd
            self.server = server
            tls = try TLSSession(server: server.context, fd: fd)
            registration = try server.loop.register(fd, .read, self)
        }

        func ready(_ readiness: Readiness) {
            if !isSecured {
                switch tls.handshake() {
                case .done: isSecured = true
                case .wantsRead, .wantsWrite: return
                case .failed: return close()
                }
            }
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 16_384, alignment: 1)
            defer { buffer.deallocate() }
            while !isClosed {
                guard case .count(let count) = tls.read(into: buffer) else { break }
                input += buffer[..<count]
                takeRequests()
            }
        }

        private func takeRequests() {
            while let text = nextRequest() {
                requests += 1
                server.seen.append((number, text))
                server.script(requests, text, self)
            }
        }

        private func nextRequest() -> String? {
            let text = String(decoding: input, as: UTF8.self)
            guard let end = text.firstRange(of: "\r\n\r\n") else { return nil }
            let head = text[..<end.lowerBound]
            let length =
                head.split(separator: "\r\n").first { $0.hasPrefix("content-length: ") }
                .flatMap { Int($0.dropFirst(16)) } ?? 0
            let whole = text.utf8.distance(from: text.startIndex, to: end.upperBound) + length
            guard input.count >= whole else { return nil }
            defer { input.removeFirst(whole) }
            return String(decoding: input[..<whole], as: UTF8.self)
        }

        func send(_ text: String) {
            guard !isClosed else { return }
            let bytes = Array(text.utf8)
            bytes.withUnsafeBytes { all in
                var rest = all
                while !rest.isEmpty, case .count(let count) = tls.write(rest) {
                    rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count))
                }
            }
        }

        func close() {
            guard !isClosed else { return }
            isClosed = true
            if let registration { server.loop.deregister(registration) }
            tls.close()
            SocketIO.close(fd)
        }
    }

    let loop: EventLoop
    private(set) var pool: HTTP2Pool
    fileprivate let context: TLSContext
    private let listening: Int32
    private var registration: Registration?
    /// Connection and text of every whole request.
    fileprivate(set) var seen: [(connection: Int, text: String)] = []
    private(set) var peers: [Peer] = []
    private(set) var outcomes: [UInt64: Stage.Outcome] = [:]
    private(set) var headers: [UInt64: String] = [:]
    private(set) var alarms: [PoolAlarm] = []
    /// The request's number on its connection, its text, and where to answer.
    var script: (Int, String, Peer) -> Void = { _, _, peer in
        peer.send("HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")
    }
    private var tags: UInt64 = 0
    private let caFile: String

    static let policy: PoolPolicy = {
        var policy = PoolPolicy.webPush(connectionsMax: 2, reach: .any)
        policy.requestTimeout = .seconds(20)
        policy.dialInterval = .milliseconds(20)
        policy.reconnectDelayMin = .milliseconds(10)
        policy.reconnectDelayMax = .milliseconds(50)
        return policy
    }()

    /// `alpn` is what the server offers; empty: it does not know the extension.
    init(alpn: [String] = ["http/1.1"], _ policy: PoolPolicy = OldServer.policy) throws {
        signal(SIGPIPE, SIG_IGN)
        let authority = try CertificateAuthority()
        let issued = try authority.issue(hosts: ["127.0.0.1"])
        var name = Array("/tmp/bugle-http1-XXXXXX".utf8CString)
        let file = mkstemp(&name)
        let pem = Array(authority.certificatePEM.utf8)
        write(file, pem, pem.count)
        Glibc.close(file)
        caFile = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        context = try TLSContext.server(
            certificatePEM: issued.certificatePEM, keyPEM: issued.keyPEM, alpn: alpn)
        loop = try EventLoop(name: "old server")
        let socket = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        listening = socket.fd
        pool = HTTP2Pool(
            loop: loop, origin: Origin(host: "127.0.0.1", port: socket.port),
            tls: try TLSContext.client(caFile: caFile, alpn: ["h2", "http/1.1"]), policy: policy)
        pool.delegate = self
        registration = try loop.register(listening, .read, self)
    }

    func ready(_ readiness: Readiness) {
        while let fd = ListeningSocket.accept(listening) {
            if let peer = try? Peer(peers.count + 1, fd, self) { peers.append(peer) }
        }
    }

    func stop() {
        pool.close()
        pool.delegate = nil
        for peer in peers { peer.close() }
        if let registration { loop.deregister(registration) }
        SocketIO.close(listening)
        unlink(caFile)
    }

    @discardableResult
    func submit(_ path: String = "/p", body: String = "x", field: String? = nil) -> UInt64 {
        tags += 1
        let request = OutboundRequest()
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", pool.origin.authority)
        request.add(":path", path, .neverIndexed)
        request.add("ttl", "60")
        if let field { request.add("topic", field) }
        request.body.append(body)
        pool.submit(request, tag: tags, deadline: .distantFuture)
        return tags
    }

    /// Turns until every submitted request has its result; false after half a minute.
    func finishAll() -> Bool { run { outcomes.count == Int(tags) } }

    func run(until condition: () -> Bool) -> Bool {
        let limit = SystemTime.shared.monotonic + .seconds(30)
        while !condition() {
            if SystemTime.shared.monotonic > limit { return false }
            loop.turn(waitingUpTo: .milliseconds(5))
        }
        return true
    }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        switch result {
        case .response(let response):
            headers[tag] = response.text(.retryAfter) ?? response.text(.location)
            outcomes[tag] = .response(
                status: response.status, body: String(decoding: response.body, as: UTF8.self))
        case .notProcessed(let fault): outcomes[tag] = .notProcessed(fault)
        case .ambiguous(let fault, _): outcomes[tag] = .ambiguous(fault)
        case .withdrawn: outcomes[tag] = .withdrawn
        }
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) { alarms.append(alarm) }
}
