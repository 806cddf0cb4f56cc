internal import Base
internal import CNGHTTP2

/// The only owner of an nghttp2 client session: frames in, frames out, requests down.
///
/// nghttp2 calls back from inside `receive` and `serialise`; the callbacks write to the
/// `SessionRecorder` and to the exchanges, never to this object, and never call nghttp2 to send or
/// to destroy. The caller looks at the recorder after the call has returned.
///
/// An exchange given to `open` must stay alive and keep its request until its stream has been
/// reported closed or has been detached by `reset`: nghttp2 holds its address as stream user data,
/// and the request's header bytes are not copied.
final class ClientSession: WireSession {
    /// What happened inside nghttp2.
    let recorder = SessionRecorder()
    let answersPings = true
    let isSpent = false
    private let session: OpaquePointer
    /// Outlives the session: `deinit` ends the session before the properties go.
    private let memory = SessionMemory()
    /// Scratch for one request's header fields.
    private let fields: UnsafeMutablePointer<nghttp2_nv>

    /// Why a request could not be given to the session.
    enum OpenFailure: Error {
        /// No id is left, or the peer has said GOAWAY: another connection will do.
        case notHere
        /// The header list is larger than the peer accepts.
        case headerListTooLarge(limit: Int)
        /// A field holds what cannot be written.
        case malformed
    }

    /// A session with its preface and SETTINGS queued; nil only when memory is short.
    init?() {
        var callbacks: OpaquePointer?
        guard nghttp2_session_callbacks_new(&callbacks) == 0, let callbacks else { return nil }
        defer { nghttp2_session_callbacks_del(callbacks) }
        SessionRecorder.register(in: callbacks)
        var made: OpaquePointer?
        // The recorder outlives the session: both belong to this object, and deinit ends the
        // session first.
        let context = Unmanaged.passUnretained(recorder).toOpaque()
        let result = memory.withFunctions {
            nghttp2_session_client_new3(&made, callbacks, context, nil, $0)
        }
        guard result == 0, let made else { return nil }
        session = made
        fields = .allocate(capacity: Limits.requestFieldsMax)
        guard submitPreface() else { return nil }
    }

    deinit {
        nghttp2_session_del(session)
        fields.deallocate()
    }

    private func submitPreface() -> Bool {
        let settings = [
            nghttp2_settings_entry(
                settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0),
            nghttp2_settings_entry(
                settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue),
                value: UInt32(Limits.responseHeaderListBytesMax)),
        ]
        let flags = UInt8(NGHTTP2_FLAG_NONE.rawValue)
        return nghttp2_submit_settings(session, flags, settings, settings.count) == 0
            && nghttp2_session_set_local_window_size(
                session, flags, 0, Int32(Limits.connectionWindowBytes)) == 0
    }

    // MARK: Requests

    /// Queues a request's HEADERS and DATA; sets the exchange's stream id.
    func open(_ exchange: Exchange, _ request: OutboundRequest) throws(OpenFailure) {
        let (count, listSize) = collectFields(of: request)
        let limit = nghttp2_session_get_remote_settings(
            session, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE)
        guard listSize <= limit else { throw .headerListTooLarge(limit: Int(limit)) }
        let context = Unmanaged.passUnretained(exchange).toOpaque()
        let id: Int32
        if request.body.count > 0 {
            var provider = nghttp2_data_provider(
                source: nghttp2_data_source(ptr: context),
                read_callback: SessionRecorder.readBody)
            id = nghttp2_submit_request(session, nil, fields, count, &provider, context)
        } else {
            id = nghttp2_submit_request(session, nil, fields, count, nil, context)
        }
        guard id > 0 else { throw .notHere }
        exchange.streamID = id
    }

    /// Fills the scratch array; answers the number of fields and the list's size as RFC 9113,
    /// section 6.5.2 counts it.
    private func collectFields(of request: OutboundRequest) -> (Int, Int) {
        let values = request.fieldBytes.bytes.baseAddress
        var count = 0
        var size = 0
        // Names are literals and values stay with the exchange, so nghttp2 need not copy either.
        let borrowed = UInt8(
            NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue | NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue)
        let secret = borrowed | UInt8(NGHTTP2_NV_FLAG_NO_INDEX.rawValue)
        for field in request.fields.prefix(Limits.requestFieldsMax) {
            let name = field.name.utf8Start
            let nameLength = field.name.utf8CodeUnitCount
            let value = values?.advanced(by: field.offset).assumingMemoryBound(to: UInt8.self)
            (fields + count).initialize(
                to: nghttp2_nv(
                    name: UnsafeMutablePointer(mutating: name),
                    value: UnsafeMutablePointer(mutating: value),
                    namelen: nameLength, valuelen: field.length,
                    flags: field.indexing == .neverIndexed ? secret : borrowed))
            count += 1
            size += nameLength + field.length + 32
        }
        return (count, size)
    }

    /// Resets a stream and forgets its exchange: no event about it follows.
    func reset(_ streamID: Int32, _ code: ErrorCode) {
        nghttp2_session_set_stream_user_data(session, streamID, nil)
        nghttp2_submit_rst_stream(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), streamID, code.value)
    }

    /// Streams end with frames, not with the connection.
    func inputEnded() {}

    /// Queues a PING.
    func ping() { nghttp2_submit_ping(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), nil) }

    /// Queues a GOAWAY that ends the session.
    func terminate() {
        nghttp2_session_terminate_session(session, UInt32(NGHTTP2_NO_ERROR.rawValue))
    }

    // MARK: Bytes

    /// Processes input; false means that the session is beyond repair.
    func receive(_ bytes: UnsafeRawBufferPointer) -> Bool {
        recorder.current = nil
        let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        return nghttp2_session_mem_recv(session, start, bytes.count) == bytes.count
    }

    /// Appends what there is to send, up to about `limit` bytes; false as in `receive`.
    func serialise(into output: ByteWriter, limit: Int) -> Bool {
        recorder.output = output
        defer { recorder.output = nil }
        while output.count < limit {
            var data: UnsafePointer<UInt8>?
            let length = nghttp2_session_mem_send(session, &data)
            if length < 0 { return false }
            if length == 0 { break }
            output.append(UnsafeRawBufferPointer(start: data, count: length))
        }
        return true
    }

    /// Whether the session has nothing more to read or to write.
    var isFinished: Bool {
        nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0
    }

    /// Whether there may be something to serialise.
    var wantsWrite: Bool { nghttp2_session_want_write(session) != 0 }

    /// The peer's limit of concurrent streams.
    var peerStreamsMax: Int {
        Int(
            nghttp2_session_get_remote_settings(
                session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))
    }
}
