import Base
import Crypto
import EventLoop
import Glibc

@testable import HTTP2

/// A pool and a scripted server on one loop under a clock that the test turns: real sockets, real
/// TLS, no waiting for timers.
final class Stage {
    /// What a request came to, copied out of the borrowed result.
    enum Outcome: Equatable {
        case response(status: Int, body: String)
        case notProcessed(TransportFault)
        case ambiguous(TransportFault)
        case withdrawn

        static let accepted = Outcome.response(status: 200, body: "")
    }

    /// A request as the server saw it.
    struct Arrival: Equatable {
        var connection: Int
        var stream: Int32
        var path: String
    }

    let time: ManualTime
    let loop: EventLoop
    let listener: HTTP2Listener
    let pool: HTTP2Pool
    /// The proxy that the pool's connections go through, if there is one.
    let proxy: ConnectProxy?
    private let server = Server()
    private let client = Client()
    private let caFile: String
    private var others: [HTTP2Listener] = []

    /// Results by tag; a second result for one tag is recorded in `repeated`.
    var outcomes: [UInt64: Outcome] { client.outcomes }
    var repeated: [UInt64] { client.repeated }
    /// Tags in the order of their results.
    var finished: [UInt64] { client.finished }
    var alarms: [PoolAlarm] { client.alarms }
    var arrivals: [Arrival] { server.arrivals }
    var notices: [(connection: Int, event: ServerEvent)] { server.notices }
    /// Server connections by number, also when they are closed.
    var connections: [Int: ServerConnection] { server.connections }

    /// Script of the server; the default answers 200 at once.
    var onRequest: (ServerRequest, ServerConnection) -> Void {
        get { server.onRequest }
        set { server.onRequest = newValue }
    }
    var onHead: (ServerRequest, ServerConnection) -> Void {
        get { server.onHead }
        set { server.onHead = newValue }
    }
    var onOpened: (ServerConnection) -> Void {
        get { server.onOpened }
        set { server.onOpened = newValue }
    }
    /// Called for each result, in the callback.
    var onFinished: (UInt64, HTTPResult) -> Void {
        get { client.onFinished }
        set { client.onFinished = newValue }
    }
    var mayWrite: (UInt64) -> Bool {
        get { client.mayWrite }
        set { client.mayWrite = newValue }
    }

    /// With a neighbour both stand on one loop and under one clock, as the pools of a lane do.
    init(
        _ policy: PoolPolicy, _ options: ServerOptions = ServerOptions(),
        through answer: ConnectProxy.Answer? = nil, bypass: [String] = [],
        host: String = "127.0.0.1", beside neighbour: Stage? = nil
    ) throws {
        signal(SIGPIPE, SIG_IGN)
        let authority = try Self.authority.get()
        caFile = authority.caFile
        let time = neighbour?.time ?? ManualTime()
        self.time = time
        loop = try neighbour?.loop ?? EventLoop(name: "stage", time: time)
        loop.random = SeededRandom(seed: 7)
        listener = try HTTP2Listener(
            loop: loop, certificatePEM: authority.certificate, keyPEM: authority.key,
            options: options, delegate: server)
        var policy = policy
        let loop = loop
        proxy = try answer.map { try ConnectProxy($0, on: loop) }
        if let proxy {
            policy.egress.proxy = Egress.Proxy(
                host: "127.0.0.1", port: proxy.port,
                authorization: Egress.Proxy.basic(user: "bugle", password: "?>?pass:?"),
                bypass: bypass)
        }
        pool = HTTP2Pool(
            loop: loop, origin: Origin(host: host, port: listener.port),
            tls: try TLSContext.client(caFile: caFile, alpn: ["h2"]), policy: policy)
        pool.delegate = client
    }

    deinit {
        pool.close()
        proxy?.close()
        listener.close()
        for other in others { other.close() }
    }

    /// Serves the same port at another address as well, and answers 200 to everything there.
    func serve(at address: String) throws -> HTTP2Listener {
        let authority = try Self.authority.get()
        let other = try HTTP2Listener(
            loop: loop, host: address, port: listener.port, certificatePEM: authority.certificate,
            keyPEM: authority.key, delegate: Server())
        others.append(other)
        return other
    }

    /// Submits a request whose path is the tag.
    func submit(
        _ tag: UInt64, bodyBytes: Int = 16, deadline: MonotonicTime = .distantFuture,
        isUrgent: Bool = false, prepare: (OutboundRequest) -> Void = { _ in }
    ) {
        let request = OutboundRequest()
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", pool.origin.authority)
        request.add(":path", "/\(tag)", .neverIndexed)
        request.add("authorization", "bearer secret-\(tag)", .neverIndexed)
        prepare(request)
        request.body.append([UInt8](repeating: 97, count: bodyBytes))
        pool.submit(request, tag: tag, deadline: deadline, isUrgent: isUrgent)
    }

    /// Turns the loop until the condition holds; false if it does not within five seconds of
    /// work.
    func run(until condition: () -> Bool) -> Bool {
        let limit = SystemTime.shared.monotonic + .seconds(5)
        while !condition() {
            if SystemTime.shared.monotonic > limit { return false }
            loop.turn(waitingUpTo: .milliseconds(2))
        }
        return true
    }

    /// Turns until all of these have a result.
    func finish(_ tags: some Sequence<UInt64>) -> Bool {
        run { tags.allSatisfy { outcomes[$0] != nil } }
    }

    /// Turns until loopback traffic has had its chance to happen.
    func settle() {
        finishDialling()
        for _ in 0..<12 { loop.turn(waitingUpTo: .milliseconds(1)) }
    }

    /// Lets time pass in steps, with the traffic that each step causes.
    func advance(by span: TimeSpan, step: TimeSpan = .seconds(1)) {
        var left = span
        while left > .zero {
            let part = min(left, step)
            time.advance(by: part)
            left = left - part
            loop.turn(waitingUpTo: .zero)
            finishDialling()
            for _ in 0..<4 { loop.turn(waitingUpTo: .milliseconds(1)) }
        }
    }

    /// Looking up a name takes another thread and real time, which must not count against
    /// deadlines of the test's clock.
    private func finishDialling() {
        _ = run {
            if let proxy, proxy.answer == .silence { return !proxy.requests.isEmpty }
            return !pool.connections.contains { $0.machine.phase == .dialling }
        }
    }

    /// Paths that arrived on one connection.
    func paths(on connection: Int) -> [String] {
        arrivals.filter { $0.connection == connection }.map(\.path)
    }

    private struct Authority {
        var caFile: String
        var certificate: String
        var key: String
    }

    /// One authority for all tests of the process; its certificate lies in a file for OpenSSL.
    private static let authority = Result<Authority, any Error> {
        let authority = try CertificateAuthority()
        let issued = try authority.issue(hosts: ["127.0.0.1", "localhost", "gateway.test"])
        var name = Array("/tmp/bugle-http2-ca-XXXXXX".utf8CString)
        let fd = mkstemp(&name)
        let path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let pem = Array(authority.certificatePEM.utf8)
        write(fd, pem, pem.count)
        close(fd)
        return Authority(
            caFile: path, certificate: issued.certificatePEM, key: issued.keyPEM)
    }
}

private final class Server: ServerConnectionDelegate {
    var arrivals: [Stage.Arrival] = []
    var notices: [(connection: Int, event: ServerEvent)] = []
    var connections: [Int: ServerConnection] = [:]
    var onHead: (ServerRequest, ServerConnection) -> Void = { _, _ in }
    var onOpened: (ServerConnection) -> Void = { _ in }
    var onRequest: (ServerRequest, ServerConnection) -> Void = { request, connection in
        connection.respond(ServerResponse(status: 200), on: request.stream)
    }

    func opened(_ connection: ServerConnection) {
        connections[connection.number] = connection
        onOpened(connection)
    }

    func receivedHead(_ request: ServerRequest, on connection: ServerConnection) {
        onHead(request, connection)
    }

    func received(_ request: ServerRequest, on connection: ServerConnection) {
        arrivals.append(
            Stage.Arrival(
                connection: connection.number, stream: request.stream,
                path: request.text(":path") ?? ""))
        onRequest(request, connection)
    }

    func noticed(_ event: ServerEvent, on connection: ServerConnection) {
        notices.append((connection.number, event))
    }
}

private final class Client: HTTP2PoolDelegate {
    var outcomes: [UInt64: Stage.Outcome] = [:]
    var repeated: [UInt64] = []
    var finished: [UInt64] = []
    var alarms: [PoolAlarm] = []
    var onFinished: (UInt64, HTTPResult) -> Void = { _, _ in }
    var mayWrite: (UInt64) -> Bool = { _ in true }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { mayWrite(tag) }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        let outcome: Stage.Outcome =
            switch result {
            case .response(let response):
                .response(
                    status: response.status, body: String(decoding: response.body, as: UTF8.self))
            case .notProcessed(let fault): .notProcessed(fault)
            case .ambiguous(let fault, _): .ambiguous(fault)
            case .withdrawn: .withdrawn
            }
        if outcomes.updateValue(outcome, forKey: tag) != nil { repeated.append(tag) }
        finished.append(tag)
        onFinished(tag, result)
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) { alarms.append(alarm) }
}
