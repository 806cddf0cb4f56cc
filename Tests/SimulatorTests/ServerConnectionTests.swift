// The server role against a client that is not ours.

import Base
import Crypto
import EventLoop
import HTTP2
import Synchronization
import Testing

/// Answers each request the way its path asks for, and keeps what it saw.
private final class Reflector: ServerConnectionDelegate {
    let seen: Seen
    init(_ seen: Seen) { self.seen = seen }

    func received(_ request: ServerRequest, on connection: ServerConnection) {
        let path = request.text(":path") ?? ""
        let indexing = request.fields.filter(\.neverIndexed).map {
            String(decoding: request.name(of: $0), as: UTF8.self)
        }
        seen.add("\(request.text(":method") ?? "") \(path) \(request.body.text)")
        if !indexing.isEmpty { seen.add("never indexed: \(indexing.joined(separator: " "))") }
        let stream = request.stream
        switch path {
        case "/refuse": connection.reset(stream, codes: [ErrorCode.refusedStream.value])
        case "/twice":
            connection.reset(
                stream, codes: [ErrorCode.refusedStream.value, ErrorCode(0x5).value])
        case "/late":
            connection.respond(
                ServerResponse(status: 200, text: "late"), on: stream, after: .milliseconds(30))
        case "/one":
            connection.change(SettingsChange(maxConcurrentStreams: 1))
            connection.respond(ServerResponse(status: 200), on: stream)
        case "/goaway":
            connection.respond(ServerResponse(status: 200), on: stream)
            connection.goAway()
            connection.goAway(lastStream: stream, code: 0, debug: #"{"reason":"Shutdown"}"#)
        case "/cut": connection.cut()
        case "/dead": connection.playDead()
        case "/close":
            connection.respond(ServerResponse(status: 200), on: stream)
            connection.close()
        default:
            connection.respond(
                ServerResponse(
                    status: 200, fields: [ServerField("x-length", "\(request.bodyLength)")],
                    body: request.body.array), on: stream)
        }
    }

    func noticed(_ event: ServerEvent, on connection: ServerConnection) {
        if event != .settingsAcknowledged { seen.add("\(event)") }
    }
}

private final class Seen: Sendable {
    private let lines = Mutex<[String]>([])
    func add(_ line: String) { lines.withLock { $0.append(line) } }
    var all: [String] { lines.withLock { $0 } }
}

/// A listener on its own thread for the length of a test.
private struct Server {
    let port: UInt16
    let seen = Seen()
    let authority: String
    let thread: LoopThread

    init(
        options: ServerOptions = ServerOptions(),
        acceptance: @escaping @Sendable (Int) -> Acceptance = { _ in .serve }
    ) throws {
        let authority = try CertificateAuthority()
        let (certificate, key) = try authority.issue(hosts: ["localhost", "127.0.0.1"])
        let seen = self.seen
        self.authority = authority.certificatePEM
        let portBox = PortBox()
        thread = try LoopThread.start(name: "server") { loop in
            guard
                let listener = try? HTTP2Listener(
                    loop: loop, certificatePEM: certificate, keyPEM: key, options: options,
                    delegate: Reflector(seen))
            else { return }
            listener.acceptance = acceptance
            portBox.port.withLock { $0 = listener.port }
        }
        self.port = portBox.port.withLock { $0 }
    }

    func stop() {
        thread.handle.stop()
        thread.join()
    }

    private final class PortBox: Sendable { let port = Mutex<UInt16>(0) }

    func run(linger: Int = 0, _ requests: [NodeRequest]) -> NodeTranscript {
        NodeClient.run(port: port, caPEM: authority, linger: linger, requests)
    }
}

@Suite struct `A server connection` {
    @Test func `a request comes back with its body and its never-indexed fields are known`() throws
    {
        let server = try Server()
        defer { server.stop() }
        let body = String(repeating: "abcdefgh", count: 6000)
        let transcript = server.run([
            NodeRequest(
                path: "/echo", fields: [("authorization", "secret"), ("x-a", "b")], body: body,
                sensitive: ["authorization"])
        ])
        let answer = try #require(transcript.answers.first)
        #expect(answer.status == 200)
        #expect(answer.body == body)
        #expect(answer.fields["x-length"] == "48000")
        #expect(server.seen.all.contains("never indexed: authorization"))
    }

    @Test func `streams are reset, answered late and answered in parallel`() throws {
        let server = try Server()
        defer { server.stop() }
        var requests = [
            NodeRequest(path: "/refuse"), NodeRequest(path: "/twice"), NodeRequest(path: "/late"),
        ]
        for index in 0..<200 {
            requests.append(NodeRequest(path: "/\(index)", body: "x\(index)", isParallel: true))
        }
        let answers = server.run(requests).answers
        try #require(answers.count == 203)
        #expect(answers[0].resetCode == 7)
        #expect(answers[1].resetCode == 7)
        #expect(answers[2].body == "late")
        for index in 0..<200 { #expect(answers[index + 3].body == "x\(index)") }
    }

    @Test func `settings change at run time and GOAWAY comes in two steps`() throws {
        let server = try Server()
        defer { server.stop() }
        let events = server.run(
            linger: 200,
            [NodeRequest(path: "/one"), NodeRequest(path: "/a"), NodeRequest(path: "/goaway")]
        ).events
        #expect(events.contains("0 settings 1000"))
        #expect(events.contains("0 settings 1"))
        #expect(events.contains("0 goaway 0 2147483647 "))
        #expect(events.contains(#"0 goaway 0 5 {"reason":"Shutdown"}"#))
    }

    @Test func `connections are cut, closed and left in silence`() throws {
        let server = try Server()
        defer { server.stop() }
        let transcript = server.run([
            NodeRequest(connection: 0, path: "/cut"),
            NodeRequest(connection: 1, path: "/close"),
            NodeRequest(connection: 2, path: "/dead", patience: 200),
        ])
        #expect(transcript.answers.first?.status == nil)
        #expect(transcript.events.contains("0 close"))
        #expect(transcript.answers.dropFirst().first?.status == 200)
        #expect(transcript.answers.last?.error == "patience")
        #expect(!transcript.events.contains("2 close"))
    }

    @Test func `TLS can be broken and another protocol chosen`() throws {
        let server = try Server(acceptance: { number in
            switch number {
            case 1: .breakTLS
            case 2: .withoutHTTP2
            case 3: .reset
            default: .serve
            }
        })
        defer { server.stop() }
        let events = server.run([
            NodeRequest(connection: 0, path: "/a", patience: 300),
            NodeRequest(connection: 1, path: "/a", patience: 300),
            NodeRequest(connection: 2, path: "/a", patience: 300),
            NodeRequest(connection: 3, path: "/a"),
        ]).events
        #expect(!events.contains("0 connected h2"))
        #expect(!events.contains("1 connected h2"))
        #expect(!events.contains("2 connected h2"))
        #expect(events.contains("3 connected h2"))
    }

    @Test func `a window that is not reopened stops a body and nothing else`() throws {
        var options = ServerOptions()
        options.withholdsWindowUpdates = true
        options.initialWindowBytes = 1000
        let server = try Server(options: options)
        defer { server.stop() }
        let answers = server.run([
            NodeRequest(path: "/small", body: String(repeating: "a", count: 1000)),
            NodeRequest(path: "/large", body: String(repeating: "a", count: 1001), patience: 200),
            NodeRequest(path: "/small", body: "b"),
        ]).answers
        #expect(answers.first?.status == 200)
        #expect(answers.dropFirst().first?.error == "patience")
        #expect(answers.last?.status == 200)
    }
}
