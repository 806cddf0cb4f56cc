// What a gateway sees of our TLS before HTTP/2 begins: the client's first message, read here byte
// by byte, and the alert with which it refuses what it must not take.

import Base
import Crypto
import EventLoop
import Glibc
import HTTP2
import Testing

/// Bytes that are taken from the front, as TLS writes its numbers and vectors (RFC 8446, 3.3, 3.4).
private struct TLSBytes {
    private(set) var rest: ArraySlice<UInt8>

    init(_ bytes: some Collection<UInt8>) { rest = Array(bytes)[...] }

    mutating func take(_ count: Int) throws -> ArraySlice<UInt8> {
        try #require(rest.count >= count, "the message ends early")
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    mutating func number(_ bytes: Int) throws -> Int {
        try take(bytes).reduce(0) { $0 << 8 | Int($1) }
    }

    mutating func vector(_ lengthBytes: Int) throws -> TLSBytes {
        TLSBytes(try take(try number(lengthBytes)))
    }

    mutating func numbers(_ bytes: Int) throws -> [Int] {
        var numbers: [Int] = []
        while !rest.isEmpty { numbers.append(try number(bytes)) }
        return numbers
    }
}

/// A ClientHello (RFC 8446, section 4.1.2), as far as the tests look at it.
private struct ClientHello {
    let suites: [Int]
    let compressions: [Int]
    private(set) var serverName: String?
    private(set) var protocols: [String] = []
    private(set) var versions: [Int] = []

    /// Reads the first record of a connection.
    init(record: [UInt8]) throws {
        var bytes = TLSBytes(record)
        let kind = try bytes.number(1)
        _ = try bytes.number(2)
        var handshake = try bytes.vector(2)
        let message = try handshake.number(1)
        try #require(kind == 22 && message == 1, "no ClientHello")
        var hello = try handshake.vector(3)
        _ = try hello.take(2 + 32)
        _ = try hello.vector(1)
        var suites = try hello.vector(2)
        self.suites = try suites.numbers(2)
        var compressions = try hello.vector(1)
        self.compressions = try compressions.numbers(1)
        var extensions = try hello.vector(2)
        while !extensions.rest.isEmpty {
            let type = try extensions.number(2)
            var content = try extensions.vector(2)
            switch type {
            case 0:
                var names = try content.vector(2)
                let nameType = try names.number(1)
                try #require(nameType == 0, "no host name")
                serverName = String(decoding: try names.vector(2).rest, as: UTF8.self)
            case 16:
                var names = try content.vector(2)
                while !names.rest.isEmpty {
                    protocols.append(String(decoding: try names.vector(1).rest, as: UTF8.self))
                }
            case 43:
                var offered = try content.vector(1)
                versions = try offered.numbers(2)
            default: break
            }
        }
    }
}

/// A pool in front of an address that takes down what it is told, and answers once if it has an
/// answer.
private final class Witness: ReadinessHandler, HTTP2PoolDelegate {
    let pool: HTTP2Pool
    private(set) var alarms: [PoolAlarm] = []
    private let loop: EventLoop
    private let listener: Int32
    private let answer: [UInt8]
    private var listening: Registration?
    private var peer: Peer?

    /// One accepted connection.
    private final class Peer: ReadinessHandler {
        private(set) var received: [UInt8] = []
        private let fd: Int32
        private let loop: EventLoop
        private var answer: [UInt8]
        private var registration: Registration?

        init(_ fd: Int32, answer: [UInt8], on loop: EventLoop) throws {
            self.fd = fd
            self.answer = answer
            self.loop = loop
            registration = try loop.register(fd, .read, self)
        }

        func ready(_ readiness: Readiness) {
            var buffer = [UInt8](repeating: 0, count: 4096)
            guard
                case .count(let count) = buffer.withUnsafeMutableBytes({
                    SocketIO.read(fd, into: $0)
                })
            else { return close() }
            received += buffer[..<count]
            guard !answer.isEmpty, firstRecord != nil else { return }
            _ = answer.withUnsafeBytes { SocketIO.write(fd, $0) }
            answer = []
        }

        /// The first record with its header, when it is there.
        var firstRecord: [UInt8]? {
            guard received.count >= 5 else { return nil }
            let length = 5 + Int(received[3]) << 8 + Int(received[4])
            return received.count >= length ? Array(received[..<length]) : nil
        }

        func close() {
            guard let registration else { return }
            self.registration = nil
            loop.deregister(registration)
            SocketIO.close(fd)
        }
    }

    init(host: String, alpn: [String] = ["h2"], answer: [UInt8] = []) throws {
        signal(SIGPIPE, SIG_IGN)
        self.answer = answer
        loop = try EventLoop(name: "witness")
        loop.names = NameService { _ in ["127.0.0.1"] }
        let socket = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        listener = socket.fd
        pool = HTTP2Pool(
            loop: loop, origin: Origin(host: host, port: socket.port),
            tls: try TLSContext.client(caFile: nil, alpn: alpn),
            policy: .apns(connectionsMin: 1, connectionsMax: 1))
        pool.delegate = self
        listening = try loop.register(listener, .read, self)
        let request = OutboundRequest()
        request.add(":method", "POST")
        request.add(":path", "/secret", .neverIndexed)
        pool.submit(request, tag: 1, deadline: .distantFuture)
    }

    func stop() {
        pool.close()
        pool.delegate = nil
        peer?.close()
        if let listening { loop.deregister(listening) }
        SocketIO.close(listener)
    }

    func ready(_ readiness: Readiness) {
        guard let fd = ListeningSocket.accept(listener) else { return }
        // Later attempts are nobody's business here.
        guard peer == nil else { return SocketIO.close(fd) }
        peer = try? Peer(fd, answer: answer, on: loop)
    }

    /// The client's first message.
    func hello() throws -> ClientHello {
        let isHeard = run { peer?.firstRecord != nil }
        #expect(isHeard)
        return try ClientHello(record: try #require(peer?.firstRecord))
    }

    /// What the client said after its first message until it closed.
    func lastWords() throws -> [UInt8] {
        let isTold = run { !alarms.isEmpty }
        #expect(isTold)
        let peer = try #require(peer)
        let hello = try #require(peer.firstRecord)
        let isSaid = run { peer.received.count >= hello.count + 7 }
        #expect(isSaid)
        return Array(peer.received[hello.count...])
    }

    private func run(until condition: () -> Bool) -> Bool {
        let limit = SystemTime.shared.monotonic + .seconds(10)
        while !condition() {
            if SystemTime.shared.monotonic > limit { return false }
            loop.turn(waitingUpTo: .milliseconds(10))
        }
        return true
    }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }
    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {}
    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) { alarms.append(alarm) }
}

@Suite struct `What a gateway sees of our TLS` {
    /// With ephemeral keys and authenticated encryption, which is what RFC 9113, appendix A leaves;
    /// the last is no suite but says that nothing is renegotiated (RFC 5746).
    private static let permitted: Set = [
        0x1301, 0x1302, 0x1303, 0xC02B, 0xC02C, 0xC02F, 0xC030, 0xCCA8, 0xCCA9, 0x00FF,
    ]

    @Test func `the host's name, HTTP/2, versions 1.2 and 1.3, no suite that it forbids`() throws {
        let witness = try Witness(host: "gateway.test")
        defer { witness.stop() }
        let hello = try witness.hello()
        #expect(hello.serverName == "gateway.test")
        #expect(hello.protocols == ["h2"])
        #expect(Set(hello.versions) == [0x0303, 0x0304])
        #expect(Set(hello.suites).isSubset(of: Self.permitted), "\(hello.suites)")
        #expect(!Set(hello.suites).isDisjoint(with: [0x1301, 0x1302]))
        #expect(!Set(hello.suites).isDisjoint(with: [0xC02B, 0xC02F]))
        #expect(hello.compressions == [0])
    }

    @Test func `no name when the host is an address, which is none (RFC 6066)`() throws {
        let witness = try Witness(host: "127.0.0.1")
        defer { witness.stop() }
        let hello = try witness.hello()
        #expect(hello.serverName == nil)
        #expect(hello.protocols == ["h2"])
    }

    @Test func `HTTP/2 before HTTP/1.1 where both are spoken`() throws {
        let witness = try Witness(host: "gateway.test", alpn: ["h2", "http/1.1"])
        defer { witness.stop() }
        #expect(try witness.hello().protocols == ["h2", "http/1.1"])
    }

    /// The alerts of RFC 8446, section 6: protocol_version and illegal_parameter, both fatal.
    @Test(
        arguments: [
            (0x0301, 0xC013, 70), (0x0302, 0xC013, 70),
            // CBC, and a key that is not ephemeral.
            (0x0303, 0xC013, 47), (0x0303, 0x009C, 47),
        ] as [(UInt16, UInt16, UInt8)])
    func `a refusal when it speaks only what is too old, and not a byte more`(
        version: UInt16, suite: UInt16, alert: UInt8
    ) throws {
        let witness = try Witness(
            host: "gateway.test", answer: Self.serverHello(version: version, suite: suite))
        defer { witness.stop() }
        let words = try witness.lastWords()
        #expect(words.count == 7 && words.first == 21, "\(words)")
        #expect(Array(words.suffix(4)) == [0, 2, 2, alert])
        guard case .tlsFailed = witness.alarms.first else {
            Issue.record("\(witness.alarms)")
            return
        }
        #expect(witness.pool.statistics.requestsWritten == 0 && witness.pool.queued == 1)
    }

    /// A server's choice of version and suite, without extensions (RFC 5246, section 7.4.1.3).
    private static func serverHello(version: UInt16, suite: UInt16) -> [UInt8] {
        func bytes(_ number: UInt16) -> [UInt8] { [UInt8(number >> 8), UInt8(number & 0xFF)] }
        let body =
            bytes(version) + [UInt8](repeating: 7, count: 32) + [0] + bytes(suite) + [0]
        let message = [2, 0, 0, UInt8(body.count)] + body
        return [22] + bytes(version) + bytes(UInt16(message.count)) + message
    }
}
