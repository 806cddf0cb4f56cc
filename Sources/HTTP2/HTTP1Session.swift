internal import Base
internal import CHTTPParser

/// HTTP/1.1 (RFC 9112) for peers that speak nothing newer: one request at a time, the connection
/// kept alive as long as both sides like.
///
/// The parser calls back from inside `receive`; the callbacks write to this object and to the
/// exchange under way. Nothing that an answer says can make it send anything.
final class HTTP1Session: WireSession {
    let recorder = SessionRecorder()
    let answersPings = false
    let peerStreamsMax = 1
    private(set) var isSpent = false

    private let parser: UnsafeMutablePointer<http_parser>
    private let pending = ByteWriter(capacity: 8 * 1024)
    /// The request that waits for its answer.
    private var current: Exchange?
    private var lastID: Int32 = -1
    /// The header field that is being read; values may come in pieces.
    private let name = ByteWriter(capacity: 64)
    private let value = ByteWriter(capacity: 256)
    private var isInValue = false
    /// Of the answer under way.
    private var bodyBytes = 0
    private var informational = 0

    init() {
        parser = .allocate(capacity: 1)
        http_parser_init(parser, HTTP_RESPONSE)
        _ = Self.limits
        parser.pointee.data = Unmanaged.passUnretained(self).toOpaque()
    }

    deinit { parser.deallocate() }

    /// The parser's bound on a head is the process's; set once.
    private static let limits: Void = http_parser_set_max_header_size(
        UInt32(Limits.responseHeaderListBytesMax))

    // MARK: Requests

    var wantsWrite: Bool { pending.count > 0 }
    var isFinished: Bool { isSpent && current == nil && pending.count == 0 }
    func ping() {}
    func terminate() {}

    func open(
        _ exchange: Exchange, _ request: OutboundRequest
    ) throws(ClientSession.OpenFailure) {
        guard current == nil, !isSpent, lastID < Int32.max - 2 else { throw .notHere }
        let start = pending.count
        guard write(request) else {
            pending.truncate(to: start)
            throw .malformed
        }
        exchange.bodyOffset = exchange.bodyLength
        lastID += 2
        exchange.streamID = lastID
        current = exchange
        bodyBytes = 0
        informational = 0
    }

    /// Writes the whole request; false when a field would become several.
    private func write(_ request: OutboundRequest) -> Bool {
        func value(_ name: StaticString) -> UnsafeRawBufferPointer? {
            request.fields.first { $0.name.description == name.description }
                .map { request.value(of: $0) }
        }
        guard let method = value(":method"), let path = value(":path"),
            let host = value(":authority")
        else { return false }
        pending.append(method)
        pending.append(" ")
        pending.append(path)
        pending.append(" HTTP/1.1\r\nhost: ")
        pending.append(host)
        for field in request.fields {
            let value = request.value(of: field)
            guard value.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }) else {
                return false
            }
            if field.name.utf8Start.pointee == UInt8(ascii: ":") {
                // A blank in the first line would end the path early.
                if value.contains(0x20) { return false }
                continue
            }
            pending.append("\r\n")
            pending.append(field.name)
            pending.append(": ")
            pending.append(value)
        }
        pending.append("\r\ncontent-length: ")
        pending.append(decimal: Int64(request.body.count))
        pending.append("\r\n\r\n")
        pending.append(request.body.bytes)
        return true
    }

    func serialise(into output: ByteWriter, limit: Int) -> Bool {
        output.append(pending.bytes)
        pending.removeAll()
        return true
    }

    /// The answer may still come, and could not be told from the next one's: the end.
    func reset(_ streamID: Int32, _ code: ErrorCode) {
        current = nil
        isSpent = true
    }

    // MARK: Answers

    func receive(_ bytes: UnsafeRawBufferPointer) -> Bool {
        // Nobody asked: a farewell such as 408, or garbage.
        guard current != nil, !isSpent else { return false }
        let start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
        let count = http_parser_execute(parser, Self.callbacks, start, bytes.count)
        if parser.pointee.http_errno == UInt32(HPE_PAUSED.rawValue) {
            http_parser_pause(parser, 0)
            // What follows a whole answer answers nothing.
            return count == bytes.count
        }
        return count == bytes.count && parser.pointee.http_errno == UInt32(HPE_OK.rawValue)
            && parser.pointee.upgrade == 0
    }

    func inputEnded() {
        guard current != nil, !isSpent else { return }
        _ = http_parser_execute(parser, Self.callbacks, "", 0)
    }

    /// The answer is whole.
    private func complete(keepsAlive: Bool) {
        guard let exchange = current else { return }
        current = nil
        if !keepsAlive { isSpent = true }
        exchange.isHeadComplete = true
        exchange.isComplete = true
        recorder.ended.append(
            SessionRecorder.EndedStream(
                exchange: .passUnretained(exchange), streamID: exchange.streamID, code: 0,
                isStillOpen: false))
    }

    private func finishField() {
        guard isInValue else { return }
        isInValue = false
        name.bytes.withLowerCase { name in
            current?.read(header: name, value: value.bytes)
        }
        name.removeAll()
        value.removeAll()
    }

    // MARK: Callbacks

    private static let goOn: Int32 = 0
    private static let stop: Int32 = -1
    /// Informational answers before the real one.
    private static let informationalMax = 16

    private static func session(_ parser: UnsafeMutablePointer<http_parser>?) -> HTTP1Session? {
        guard let data = parser?.pointee.data else { return nil }
        return Unmanaged<HTTP1Session>.fromOpaque(data).takeUnretainedValue()
    }

    /// Made once and never changed.
    private nonisolated(unsafe) static let callbacks: UnsafePointer<http_parser_settings> = {
        let settings = UnsafeMutablePointer<http_parser_settings>.allocate(capacity: 1)
        http_parser_settings_init(settings)
        settings.pointee.on_message_begin = { parser in
            guard let session = session(parser), let exchange = session.current else { return stop }
            if exchange.status == 0 { exchange.firstByteAt = session.recorder.now }
            exchange.forgetHead()
            return goOn
        }
        settings.pointee.on_header_field = { parser, start, count in
            guard let session = session(parser) else { return stop }
            session.finishField()
            session.name.append(UnsafeRawBufferPointer(start: start, count: count))
            return goOn
        }
        settings.pointee.on_header_value = { parser, start, count in
            guard let session = session(parser) else { return stop }
            session.isInValue = true
            session.value.append(UnsafeRawBufferPointer(start: start, count: count))
            return goOn
        }
        settings.pointee.on_headers_complete = { parser in
            guard let parser, let session = session(parser) else { return stop }
            return session.headComplete(Int(parser.pointee.status_code))
        }
        settings.pointee.on_body = { parser, start, count in
            guard let session = session(parser) else { return stop }
            return session.took(UnsafeRawBufferPointer(start: start, count: count))
        }
        settings.pointee.on_message_complete = { parser in
            guard let parser, let session = session(parser) else { return stop }
            session.finishField()
            guard let status = session.current?.status, status >= 200 else { return goOn }
            session.complete(keepsAlive: http_should_keep_alive(parser) != 0)
            http_parser_pause(parser, 1)
            return goOn
        }
        return UnsafePointer(settings)
    }()

    private func headComplete(_ status: Int) -> Int32 {
        finishField()
        guard let exchange = current else { return Self.stop }
        exchange.status = status
        if status >= 200 {
            exchange.isHeadComplete = true
            return Self.goOn
        }
        // Nobody asked to speak anything else (101), nor to wait without end.
        informational += 1
        return status == 101 || informational > Self.informationalMax ? Self.stop : Self.goOn
    }

    /// Of a body without end only the beginning is of use.
    private func took(_ bytes: UnsafeRawBufferPointer) -> Int32 {
        guard let exchange = current else { return Self.stop }
        exchange.appendBody(bytes)
        bodyBytes += bytes.count
        guard bodyBytes > Limits.responseBodyBytesMax else { return Self.goOn }
        complete(keepsAlive: false)
        return Self.stop
    }
}

extension UnsafeRawBufferPointer {
    /// Lends the bytes with ASCII letters in lower case; a longer name is none that is kept.
    fileprivate func withLowerCase(_ body: (UnsafeRawBufferPointer) -> Void) {
        guard count <= 64 else { return }
        withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { buffer in
            for (index, byte) in enumerated() {
                buffer[index] = (0x41...0x5A).contains(byte) ? byte | 0x20 : byte
            }
            body(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
        }
    }
}
