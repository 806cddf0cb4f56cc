import Base
import Crypto
import EventLoop
import Glibc
import HTTP2
import Synchronization

/// What a scripted gateway does with one request.
enum GatewayAction: Sendable {
    case answer(Int, String)
    /// Answers only after the test says so.
    case hold
    /// Takes the request and cuts the connection without an answer.
    case cut
}

/// A gateway that answers as a closure says, over real TLS and HTTP/2, and remembers what it saw.
final class ScriptedGateway: Sendable {
    struct Seen: Sendable {
        let token: String
        let messageID: String
        let collapseID: String
        let topic: String
        let authorization: String
        let body: String
        let attempt: Int
        /// The number of its connection, counted from 1.
        let connection: Int
    }

    private struct State: Sendable {
        var seen: [Seen] = []
        var attempts: [String: Int] = [:]
    }

    let port: UInt16
    let caFile: String
    private let thread: LoopThread
    private let state = Mutex(State())
    private let relay: Relay
    private let script: @Sendable (_ token: String, _ attempt: Int) -> GatewayAction

    /// Requests seen so far, in order.
    var seen: [Seen] { state.withLock { $0.seen } }

    /// Answers everything that is held.
    func release(_ status: Int = 200, _ body: String = "") {
        thread.handle.submit { [relay] in relay.release(status, body) }
    }

    /// Gateways that one client is to trust need one authority.
    init(
        streamLimit: UInt32 = 1000, of authority: CertificateAuthority? = nil,
        _ script: @escaping @Sendable (_ token: String, _ attempt: Int) -> GatewayAction = {
            _, _ in .answer(200, "")
        }
    ) throws {
        let authority = try authority ?? CertificateAuthority()
        let leaf = try authority.issue(hosts: ["localhost", "127.0.0.1"])
        caFile = "/tmp/bugle-test-ca-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pem"
        let file = fopen(caFile, "w")
        fputs(authority.certificatePEM, file)
        fclose(file)
        self.script = script
        let port = Atomic<UInt16>(0)
        let relay = Relay()
        self.relay = relay
        thread = try LoopThread.start(name: "gateway") { loop in
            relay.listen(on: loop, leaf.certificatePEM, leaf.keyPEM, streamLimit)
            port.store(relay.port, ordering: .releasing)
        }
        self.port = port.load(ordering: .acquiring)
        relay.gateway = self
    }

    deinit { unlink(caFile) }

    func stop() {
        thread.handle.stop()
        thread.join()
    }

    fileprivate func act(on request: ServerRequest, of connection: Int) -> GatewayAction {
        let token = (request.text(":path") ?? "").split(separator: "/").last.map(String.init) ?? ""
        let attempt = state.withLock { state in
            let attempt = (state.attempts[token] ?? 0) + 1
            state.attempts[token] = attempt
            state.seen.append(
                Seen(
                    token: token, messageID: request.text("apns-id") ?? "",
                    collapseID: request.text("apns-collapse-id") ?? "",
                    topic: request.text("apns-topic") ?? "",
                    authorization: request.text("authorization") ?? "",
                    body: request.body.text, attempt: attempt, connection: connection))
            return attempt
        }
        return script(token, attempt)
    }
}

/// The gateway's side on its loop's thread.
///
/// `@unchecked Sendable`: touched on the gateway's loop only, save for `gateway`, which is set
/// before any connection is made.
private final class Relay: ServerConnectionDelegate, @unchecked Sendable {
    weak var gateway: ScriptedGateway?
    private var listener: HTTP2Listener?
    private var held: [(ServerConnection, Int32)] = []
    var port: UInt16 { listener?.port ?? 0 }

    func listen(
        on loop: EventLoop, _ certificate: String, _ key: String, _ streamLimit: UInt32
    ) {
        var options = ServerOptions()
        options.maxConcurrentStreams = streamLimit
        listener = try? HTTP2Listener(
            loop: loop, certificatePEM: certificate, keyPEM: key, options: options, delegate: self)
    }

    func release(_ status: Int, _ body: String) {
        for (connection, stream) in held {
            connection.respond(ServerResponse(status: status, text: body), on: stream)
        }
        held = []
    }

    func received(_ request: ServerRequest, on connection: ServerConnection) {
        guard let gateway else { return }
        switch gateway.act(on: request, of: connection.number) {
        case .answer(let status, let body):
            connection.respond(ServerResponse(status: status, text: body), on: request.stream)
        case .hold: held.append((connection, request.stream))
        case .cut: connection.cut()
        }
    }
}
