// The one owner of an nghttp2 session in the server role. C callbacks run inside `receive` and
// `pull` only; they copy bytes into request objects and append to `events`, and the connection acts
// on the events after the C call returned. The callbacks' context is this object, unretained: it
// owns the session and deletes it in `deinit`, so no callback can outlive it.

internal import Base
internal import CNGHTTP2

/// What happened inside the session, in order.
enum SessionEvent {
    case head(ServerRequest)
    case complete(ServerRequest)
    case closed(ServerRequest)
    case ping(payload: UInt64)
    case noticed(ServerEvent)
}

/// HTTP/2 framing and header compression of one accepted connection. Loop-confined.
final class ServerSession {
    private var handle: OpaquePointer?
    private var pool: [ServerRequest] = []
    /// The request whose header block is being received.
    private var current: ServerRequest?
    private var acknowledgedLimit: UInt32 = .max
    private var sentLimits: [UInt32?] = []
    private var received: [(stream: Int32, count: Int)] = []

    /// Filled by callbacks, emptied by `takeEvents`.
    private var events: [SessionEvent] = []

    /// Requests whose streams are open.
    private(set) var streams: [Int32: ServerRequest] = [:]

    /// Whether received data waits to be acknowledged until this is cleared.
    var withholdsWindowUpdates: Bool

    /// The highest stream a request was received on.
    private(set) var highestStream: Int32 = 0

    /// Set by the connection once it sent GOAWAY: later streams are not processed.
    var lastProcessedStream = Int32.max

    init(_ options: ServerOptions) throws(ServerSessionError) {
        withholdsWindowUpdates = options.withholdsWindowUpdates
        var callbacks: OpaquePointer?
        var settings: OpaquePointer?
        guard nghttp2_session_callbacks_new(&callbacks) == 0, nghttp2_option_new(&settings) == 0
        else { throw ServerSessionError.outOfMemory }
        defer {
            nghttp2_session_callbacks_del(callbacks)
            nghttp2_option_del(settings)
        }
        nghttp2_option_set_no_auto_window_update(settings, 1)
        nghttp2_option_set_no_auto_ping_ack(settings, 1)
        nghttp2_option_set_no_closed_streams(settings, 1)
        // A test server must endure a client that resets everything it opened.
        nghttp2_option_set_stream_reset_rate_limit(settings, 1 << 40, 1 << 40)
        Self.setCallbacks(callbacks)
        let context = Unmanaged.passUnretained(self).toOpaque()
        guard nghttp2_session_server_new2(&handle, callbacks, context, settings) == 0 else {
            throw ServerSessionError.outOfMemory
        }
        submitFirstSettings(options)
    }

    deinit { nghttp2_session_del(handle) }

    /// Whether the session still has something to say or to hear.
    var isFinished: Bool {
        nghttp2_session_want_read(handle) == 0 && nghttp2_session_want_write(handle) == 0
    }

    /// The size of the peer's header compression table as this side decodes it, in bytes.
    var decoderTableBytes: Int { nghttp2_session_get_hd_inflate_dynamic_table_size(handle) }

    func takeEvents() -> [SessionEvent] {
        if events.isEmpty { return [] }
        let taken = events
        events.removeAll(keepingCapacity: true)
        return taken
    }

    /// Reads bytes of the peer; false when the connection cannot go on.
    func receive(_ bytes: UnsafeRawBufferPointer) -> Bool {
        let source = bytes.assumingMemoryBound(to: UInt8.self).baseAddress
        let result = nghttp2_session_mem_recv(handle, source, bytes.count)
        acknowledgeData()
        return result >= 0
    }

    /// Appends frames to `target` until it holds `limit` bytes or none is left.
    func pull(into target: ByteWriter, upTo limit: Int) -> Bool {
        while target.count < limit {
            var frame: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(handle, &frame)
            if count < 0 { return false }
            if count == 0 { return true }
            target.append(UnsafeRawBufferPointer(start: frame, count: count))
        }
        return true
    }

    /// Hands a closed stream's request object back for reuse.
    func recycle(_ request: ServerRequest) {
        if pool.count < ServerLimits.pooledRequests { pool.append(request) }
    }

    /// Acknowledges all data that was withheld so far.
    func acknowledgeData() {
        if withholdsWindowUpdates || received.isEmpty { return }
        for chunk in received { nghttp2_session_consume(handle, chunk.stream, chunk.count) }
        received.removeAll(keepingCapacity: true)
    }
}

/// Why a session could not be made.
enum ServerSessionError: Error {
    case outOfMemory
}

extension ServerSession {
    func submit(_ response: ServerResponse, on request: ServerRequest) {
        request.answer.removeAll()
        request.answer.append(response.body)
        request.answerSent = 0
        let text = ByteWriter(capacity: 256)
        var places: [(name: Int, value: Int, end: Int)] = []
        func add(_ name: String, _ write: () -> Void) {
            let start = text.count
            text.append(name)
            let middle = text.count
            write()
            places.append((start, middle, text.count))
        }
        add(":status") { text.append(decimal: Int64(response.status)) }
        for field in response.fields { add(field.name) { text.append(field.value) } }
        let base = UnsafeMutableRawPointer(mutating: text.bytes.baseAddress)?
            .assumingMemoryBound(to: UInt8.self)
        guard let base else { return }
        let pairs = places.map { place in
            nghttp2_nv(
                name: base + place.name, value: base + place.value,
                namelen: place.value - place.name, valuelen: place.end - place.value, flags: 0)
        }
        if response.body.isEmpty {
            nghttp2_submit_response(handle, request.stream, pairs, pairs.count, nil)
            return
        }
        // The request object lives in `streams` until the stream is closed, and nghttp2 reads no
        // body of a closed stream.
        var provider = nghttp2_data_provider()
        provider.source.ptr = Unmanaged.passUnretained(request).toOpaque()
        provider.read_callback = { _, _, target, capacity, flags, source, _ in
            guard let pointer = source?.pointee.ptr, let target else { return 0 }
            let request = Unmanaged<ServerRequest>.fromOpaque(pointer).takeUnretainedValue()
            let rest = request.answer.bytes[request.answerSent...].prefix(capacity)
            UnsafeMutableRawBufferPointer(start: target, count: capacity).copyMemory(
                from: UnsafeRawBufferPointer(rebasing: rest))
            request.answerSent += rest.count
            if request.answerSent == request.answer.count {
                flags?.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
            }
            return rest.count
        }
        nghttp2_submit_response(handle, request.stream, pairs, pairs.count, &provider)
    }

    func submitReset(stream: Int32, code: UInt32) {
        nghttp2_submit_rst_stream(handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), stream, code)
    }

    func submitPing(payload: UInt64, acknowledging: Bool) {
        let flags = acknowledging ? NGHTTP2_FLAG_ACK.rawValue : NGHTTP2_FLAG_NONE.rawValue
        withUnsafeBytes(of: payload) { bytes in
            let pointer = bytes.assumingMemoryBound(to: UInt8.self).baseAddress
            _ = nghttp2_submit_ping(handle, UInt8(flags), pointer)
        }
    }

    func submit(_ change: SettingsChange) {
        var entries: [nghttp2_settings_entry] = []
        func add(_ id: nghttp2_settings_id, _ value: UInt32?) {
            guard let value else { return }
            entries.append(nghttp2_settings_entry(settings_id: Int32(id.rawValue), value: value))
        }
        add(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, change.maxConcurrentStreams)
        add(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, change.headerListBytes)
        add(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, change.initialWindowBytes)
        add(NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, change.headerTableBytes)
        sentLimits.append(change.maxConcurrentStreams)
        nghttp2_submit_settings(
            handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), entries, entries.count)
    }

    private func submitFirstSettings(_ options: ServerOptions) {
        submit(
            SettingsChange(
                maxConcurrentStreams: options.maxConcurrentStreams,
                initialWindowBytes: options.initialWindowBytes,
                headerTableBytes: options.headerTableBytes))
        nghttp2_session_set_local_window_size(
            handle, UInt8(NGHTTP2_FLAG_NONE.rawValue), 0, max(options.connectionWindowBytes, 65_535)
        )
    }
}

// The callbacks. Each copies or appends and returns.
extension ServerSession {
    private static func setCallbacks(_ callbacks: OpaquePointer?) {
        nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks) { _, head, context in
            guard let head, let session = ServerSession.from(context) else { return 0 }
            session.began(
                type: UInt32(head.pointee.type), stream: head.pointee.stream_id)
            return 0
        }
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, frame, context in
            guard let frame, let session = ServerSession.from(context) else { return 0 }
            session.beganHeaders(
                stream: frame.pointee.hd.stream_id,
                isRequest: frame.pointee.headers.cat == NGHTTP2_HCAT_REQUEST)
            return 0
        }
        nghttp2_session_callbacks_set_on_header_callback(callbacks) {
            _, frame, name, nameLength, value, valueLength, flags, context in
            guard let request = ServerSession.from(context)?.current else { return 0 }
            request.append(
                name: UnsafeRawBufferPointer(start: name, count: nameLength),
                value: UnsafeRawBufferPointer(start: value, count: valueLength),
                neverIndexed: UInt32(flags) & NGHTTP2_NV_FLAG_NO_INDEX.rawValue != 0)
            return 0
        }
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) {
            _, _, stream, data, count, context in
            guard let session = ServerSession.from(context) else { return 0 }
            session.received.append((stream, count))
            session.streams[stream]?.append(body: UnsafeRawBufferPointer(start: data, count: count))
            return 0
        }
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, context in
            guard let frame, let session = ServerSession.from(context) else { return 0 }
            session.receivedFrame(frame)
            return 0
        }
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks) {
            _, frame, code, context in
            guard let frame, let session = ServerSession.from(context) else { return 0 }
            session.receivedInvalid(
                type: UInt32(frame.pointee.hd.type), stream: frame.pointee.hd.stream_id, code: code)
            return 0
        }
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) {
            _, stream, _, context in
            guard let session = ServerSession.from(context) else { return 0 }
            if let request = session.streams.removeValue(forKey: stream) {
                session.events.append(.closed(request))
            }
            return 0
        }
    }

    private static func from(_ context: UnsafeMutableRawPointer?) -> ServerSession? {
        context.map { Unmanaged<ServerSession>.fromOpaque($0).takeUnretainedValue() }
    }

    private func began(type: UInt32, stream: Int32) {
        if type == NGHTTP2_HEADERS.rawValue, stream > lastProcessedStream {
            events.append(.noticed(.requestAfterGoAway(stream: stream)))
        }
    }

    private func beganHeaders(stream: Int32, isRequest: Bool) {
        guard isRequest else {
            current = nil
            return
        }
        let request = pool.popLast() ?? ServerRequest()
        request.reset(stream: stream)
        streams[stream] = request
        highestStream = max(highestStream, stream)
        current = request
    }

    private func receivedFrame(_ frame: UnsafePointer<nghttp2_frame>) {
        let head = frame.pointee.hd
        let flags = UInt32(head.flags)
        switch UInt32(head.type) {
        case NGHTTP2_HEADERS.rawValue, NGHTTP2_DATA.rawValue:
            received(
                isHeaders: UInt32(head.type) == NGHTTP2_HEADERS.rawValue, stream: head.stream_id,
                isLast: flags & NGHTTP2_FLAG_END_STREAM.rawValue != 0)
        case NGHTTP2_SETTINGS.rawValue where flags & NGHTTP2_FLAG_ACK.rawValue != 0:
            if !sentLimits.isEmpty, let limit = sentLimits.removeFirst() {
                acknowledgedLimit = limit
            }
            events.append(.noticed(.settingsAcknowledged))
        case NGHTTP2_PING.rawValue:
            if flags & NGHTTP2_FLAG_ACK.rawValue != 0 {
                events.append(.noticed(.pingAcknowledged))
            } else {
                let payload = withUnsafeBytes(of: frame.pointee.ping.opaque_data) {
                    $0.loadUnaligned(as: UInt64.self)
                }
                events.append(.ping(payload: payload))
            }
        case NGHTTP2_RST_STREAM.rawValue:
            events.append(
                .noticed(
                    .streamReset(
                        stream: head.stream_id, code: frame.pointee.rst_stream.error_code)))
        case NGHTTP2_GOAWAY.rawValue:
            events.append(.noticed(.goAwayReceived(code: frame.pointee.goaway.error_code)))
        case NGHTTP2_PRIORITY.rawValue:
            events.append(.noticed(.priorityReceived(stream: head.stream_id)))
        default: break
        }
    }

    private func received(isHeaders: Bool, stream: Int32, isLast: Bool) {
        guard let request = streams[stream] else { return }
        if isHeaders { events.append(.head(request)) }
        if isLast { events.append(.complete(request)) }
    }

    private func receivedInvalid(type: UInt32, stream: Int32, code: Int32) {
        if code == NGHTTP2_ERR_REFUSED_STREAM.rawValue {
            events.append(.noticed(.streamRefused(stream: stream)))
        } else if type == NGHTTP2_HEADERS.rawValue, streams.count >= acknowledgedLimit,
            streams[stream] == nil
        {
            events.append(.noticed(.streamLimitViolated(stream: stream)))
        } else {
            let words = nghttp2_strerror(code).map { String(cString: $0) } ?? "unknown"
            events.append(.noticed(.protocolViolated(words)))
        }
    }
}
