import Base
import Testing

@testable import HTTP2

/// Frames written by hand (RFC 9113, section 6).
private enum Frame {
    static func make(_ type: UInt8, flags: UInt8 = 0, stream: UInt32, _ payload: [UInt8] = [])
        -> [UInt8]
    {
        let length = payload.count
        return [UInt8(length >> 16), UInt8(length >> 8 & 255), UInt8(length & 255), type, flags]
            + bytes(stream) + payload
    }

    static func bytes(_ value: UInt32) -> [UInt8] {
        [UInt8(value >> 24), UInt8(value >> 16 & 255), UInt8(value >> 8 & 255), UInt8(value & 255)]
    }

    static func settings(_ values: [(UInt16, UInt32)] = []) -> [UInt8] {
        make(
            4, stream: 0,
            values.flatMap { [UInt8($0.0 >> 8), UInt8($0.0 & 255)] + bytes($0.1) })
    }

    static func headers(_ stream: UInt32, _ block: [UInt8], end: Bool, endHeaders: Bool = true)
        -> [UInt8]
    {
        make(1, flags: (end ? 1 : 0) | (endHeaders ? 4 : 0), stream: stream, block)
    }

    static func data(_ stream: UInt32, _ text: String, end: Bool) -> [UInt8] {
        make(0, flags: end ? 1 : 0, stream: stream, Array(text.utf8))
    }

    static func reset(_ stream: UInt32, _ code: UInt32) -> [UInt8] {
        make(3, stream: stream, bytes(code))
    }

    static func goAway(_ last: UInt32, _ code: UInt32, _ debug: String = "") -> [UInt8] {
        make(7, stream: 0, bytes(last) + bytes(code) + Array(debug.utf8))
    }

    static func literal(_ name: String, _ value: String) -> [UInt8] {
        [0, UInt8(name.utf8.count)] + Array(name.utf8) + [UInt8(value.utf8.count)]
            + Array(value.utf8)
    }

    static let ok: [UInt8] = [0x88]
}

/// A client session without a socket.
private final class Wire {
    let session: ClientSession
    let output = ByteWriter(capacity: 4096)
    private var exchanges: [Exchange] = []

    init() throws {
        session = try #require(ClientSession())
        _ = receive(Frame.settings())
        flush()
    }

    func open(bodyBytes: Int = 4, prepare: (OutboundRequest) -> Void = { _ in }) throws -> Exchange
    {
        let request = OutboundRequest()
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", "example.org")
        request.add(":path", "/secret", .neverIndexed)
        prepare(request)
        for _ in 0..<bodyBytes { request.body.append(65) }
        let exchange = Exchange()
        exchange.request = request
        exchange.forgetAttempt(bodyLength: bodyBytes)
        exchanges.append(exchange)
        try session.open(exchange, request)
        flush()
        return exchange
    }

    func receive(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes { session.receive($0) } }

    /// What was serialised since the last flush is replaced.
    func flush() {
        output.removeAll()
        _ = session.serialise(into: output, limit: 1 << 20)
    }

    func ended() -> [SessionRecorder.EndedStream] {
        defer { session.recorder.ended = [] }
        return session.recorder.ended
    }
}

@Suite struct `The client session` {
    @Test func `opens with the preface, no push and a header list limit`() throws {
        let session = try #require(ClientSession())
        let output = ByteWriter()
        #expect(session.serialise(into: output, limit: 1 << 20))
        let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)
        #expect(Array(output.array.prefix(24)) == preface)
        let settings = Frame.settings([(2, 0), (6, 16 * 1024)])
        #expect(Array(output.array.dropFirst(24).prefix(settings.count)) == settings)
    }

    @Test func `an answer split at every byte reads the same`() throws {
        let block = Frame.ok + Frame.literal("apns-id", "abc")
        let answer =
            Frame.headers(1, block, end: false) + Frame.data(1, "hello", end: false)
            + Frame.data(1, "", end: true)
        for split in 0...answer.count {
            let wire = try Wire()
            let exchange = try wire.open()
            #expect(wire.receive(Array(answer[..<split])))
            #expect(wire.receive(Array(answer[split...])))
            let ended = wire.ended()
            #expect(ended.count == 1 && ended.first?.streamID == 1 && ended.first?.code == 0)
            let response = HTTPResponse(of: exchange)
            #expect(exchange.isComplete && response.status == 200)
            #expect(response.text(.apnsID) == "abc")
            #expect(String(decoding: response.body, as: UTF8.self) == "hello")
        }
    }

    @Test func `a header block in CONTINUATION frames is one head`() throws {
        let wire = try Wire()
        let exchange = try wire.open()
        let block = Frame.ok + Frame.literal("apns-id", "abc") + Frame.literal("retry-after", "9")
        var bytes = Frame.headers(1, Array(block[..<4]), end: true, endHeaders: false)
        bytes += Frame.make(9, stream: 1, Array(block[4..<9]))
        bytes += Frame.make(9, flags: 4, stream: 1, Array(block[9...]))
        #expect(wire.receive(bytes))
        #expect(wire.ended().count == 1)
        #expect(exchange.isComplete && exchange.status == 200)
        #expect(HTTPResponse(of: exchange).text(.retryAfter) == "9")
    }

    @Test func `an informational answer is skipped`() throws {
        let wire = try Wire()
        let exchange = try wire.open()
        let early = Frame.literal(":status", "103") + Frame.literal("link", "x")
        #expect(wire.receive(Frame.headers(1, early, end: false)))
        #expect(wire.ended().isEmpty)
        #expect(wire.receive(Frame.headers(1, Frame.ok, end: true)))
        #expect(wire.ended().count == 1)
        #expect(exchange.status == 200)
        #expect(HTTPResponse(of: exchange).header(.link) == nil)
    }

    @Test func `unknown settings and frames are ignored`() throws {
        let wire = try Wire()
        _ = try wire.open()
        #expect(wire.receive(Frame.settings([(0x99, 7), (3, 5)])))
        #expect(wire.receive(Frame.make(0xEE, flags: 0xFF, stream: 0, [1, 2, 3])))
        #expect(wire.receive(Frame.headers(1, Frame.ok, end: true)))
        #expect(wire.ended().count == 1)
        #expect(wire.session.peerStreamsMax == 5)
        #expect(!wire.session.isFinished)
    }

    @Test func `a pushed stream ends the connection`() throws {
        let wire = try Wire()
        _ = try wire.open()
        // The peer has acknowledged that it must not push.
        #expect(wire.receive(Frame.make(4, flags: 1, stream: 0)))
        let promise = Frame.bytes(2) + [0x82, 0x87, 0x84] + Frame.literal(":authority", "x")
        _ = wire.receive(Frame.make(5, flags: 4, stream: 1, promise))
        wire.flush()
        #expect(wire.session.isFinished)
    }

    @Test func `a GOAWAY is told with its reason, and the streams above it end`() throws {
        let wire = try Wire()
        let first = try wire.open()
        let second = try wire.open()
        #expect(wire.receive(Frame.goAway(1, 0, #"{"reason":"Shutdown"}"#)))
        guard case .goAway(1, .noError, let reason) = wire.session.recorder.events.last else {
            Issue.record("no GOAWAY in \(wire.session.recorder.events)")
            return
        }
        #expect(reason?.text == "Shutdown")
        let ended = wire.ended()
        #expect(ended.map(\.streamID) == [second.streamID])
        #expect(ended.first?.code == ErrorCode.refusedStream.value)
        #expect(wire.receive(Frame.headers(1, Frame.ok, end: true)))
        #expect(first.isComplete)
        // A request after that never leaves; the connection opens none, but if it did, it is told.
        let late = try wire.open()
        let notSent = wire.session.recorder.events.contains {
            if case .notSent(let streamID) = $0 { streamID == late.streamID } else { false }
        }
        #expect(notSent)
    }

    @Test func `a second reset of one stream is ignored`() throws {
        let wire = try Wire()
        _ = try wire.open()
        #expect(wire.receive(Frame.reset(1, 7) + Frame.reset(1, 5)))
        #expect(wire.ended().map(\.code) == [7])
        #expect(!wire.session.isFinished)
    }

    @Test func `an answer before the request is sent ends the stream at once`() throws {
        let wire = try Wire()
        let exchange = try wire.open(bodyBytes: 100_000)
        #expect(!exchange.isBodySent)
        #expect(wire.receive(Frame.headers(1, Frame.ok, end: true)))
        let ended = wire.ended()
        #expect(ended.count == 1 && ended.first?.isStillOpen == true)
        #expect(exchange.isComplete)
        wire.session.reset(1, .noError)
        wire.flush()
        #expect(wire.output.array == Frame.reset(1, 0))
        #expect(wire.ended().isEmpty)
    }

    @Test func `a malformed answer resets the stream, not the connection`() throws {
        let wire = try Wire()
        let exchange = try wire.open()
        #expect(wire.receive(Frame.headers(1, Frame.literal("server", "x"), end: true)))
        wire.flush()
        #expect(wire.ended().map(\.code) == [ErrorCode.protocolError.value])
        #expect(!exchange.isComplete)
        #expect(!wire.session.isFinished)
    }

    @Test func `a header list above the peer's limit is refused here`() throws {
        let wire = try Wire()
        #expect(wire.receive(Frame.settings([(6, 300)])))
        _ = try wire.open()
        #expect(throws: ClientSession.OpenFailure.self) {
            _ = try wire.open { $0.add("x", String(repeating: "v", count: 200)) }
        }
    }

    @Test func `secret fields never enter the compression table, others do`() throws {
        let wire = try Wire()
        var sizes: [Int] = []
        for _ in 0..<3 {
            _ = try wire.open(bodyBytes: 0) {
                $0.add("authorization", "bearer abcdefghijklmnop", .neverIndexed)
                $0.add("apns-topic", "com.example.app")
            }
            sizes.append(wire.output.count)
            // 0001 in the first four bits: never indexed. 04 is `:path`, 0x17 `authorization`.
            let block = Array(wire.output.array.dropFirst(9))
            #expect(block.contains(0x14))
            let never = zip(block, block.dropFirst()).contains { $0 == 0x1F && $1 == 0x08 }
            #expect(never)
        }
        #expect(sizes[1] < sizes[0] && sizes[1] == sizes[2])
    }

    @Test func `a peer without a compression table gets literals only`() throws {
        let wire = try Wire()
        #expect(wire.receive(Frame.settings([(1, 0)])))
        wire.flush()
        var blocks: [[UInt8]] = []
        for _ in 0..<3 {
            _ = try wire.open(bodyBytes: 0) { $0.add("apns-topic", "com.example.app") }
            blocks.append(Array(wire.output.array.dropFirst(9)))
        }
        // A table size update to zero comes first, and nothing is ever indexed.
        #expect(blocks[0].first == 0x20)
        #expect(blocks[1] == blocks[2] && blocks[1] == Array(blocks[0].dropFirst()))
    }
}
