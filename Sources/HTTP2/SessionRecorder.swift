internal import Base
internal import CNGHTTP2

#if canImport(Glibc)
    internal import Glibc
#endif

/// Where nghttp2's callbacks leave what happened. They run inside a call of the session and only
/// write here, to the exchanges they concern, and to the output buffer.
final class SessionRecorder {
    /// A stream that has an end to be dealt with.
    struct EndedStream {
        let exchange: Unmanaged<Exchange>
        let streamID: Int32
        let code: UInt32
        /// The answer was whole while the request was still being sent: the stream is open.
        let isStillOpen: Bool
    }

    /// What concerns the whole connection.
    enum Event {
        case settings
        case pingAnswered
        case goAway(lastStreamID: Int32, ErrorCode, GoAwayReason?)
        /// HEADERS that nghttp2 queued and then did not send.
        case notSent(streamID: Int32)
    }

    // Not checked for exclusivity at run time: each access is one statement, and the callbacks that
    // write here run while nobody else looks.
    /// Streams that ended, in order.
    @exclusivity(unchecked) var ended: [EndedStream] = []
    /// Everything else, in order.
    @exclusivity(unchecked) var events: [Event] = []
    /// The stream whose header block is being read.
    @exclusivity(unchecked) var current: Unmanaged<Exchange>?
    /// Where DATA frames go while the session serialises.
    @exclusivity(unchecked) var output: ByteWriter?
    /// The loop's time, for stamps.
    @exclusivity(unchecked) var now = MonotonicTime(nanos: 0)

    static func register(in callbacks: OpaquePointer) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, headersBegan)
        nghttp2_session_callbacks_set_on_header_callback(callbacks, headerRead)
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, dataRead)
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, frameRead)
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, streamClosed)
        nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, frameNotSent)
        nghttp2_session_callbacks_set_send_data_callback(callbacks, sendData)
    }

    // MARK: Reading

    private static let headersBegan: nghttp2_on_begin_headers_callback = {
        session, frame, context in
        guard let recorder = recorder(context), let frame else { return 0 }
        recorder._withUnsafeGuaranteedRef { recorder in
            recorder.current = exchange(session, streamID(of: frame))
            recorder.current?._withUnsafeGuaranteedRef {
                if $0.status == 0 { $0.firstByteAt = recorder.now }
            }
        }
        return 0
    }

    private static let headerRead: nghttp2_on_header_callback = {
        session, frame, name, nameLength, value, valueLength, _, context in
        guard let recorder = recorder(context), let frame, let name, let value else { return 0 }
        let exchange = recorder._withUnsafeGuaranteedRef {
            $0.resume(session, streamID(of: frame))
        }
        exchange?._withUnsafeGuaranteedRef {
            $0.read(
                header: UnsafeRawBufferPointer(start: name, count: nameLength),
                value: UnsafeRawBufferPointer(start: value, count: valueLength))
        }
        return 0
    }

    /// The exchange of the header block that is being read, looked up again when the block goes on
    /// in another call: in between the exchange may have been taken from its stream.
    private func resume(_ session: OpaquePointer?, _ streamID: Int32) -> Unmanaged<Exchange>? {
        if current == nil { current = Self.exchange(session, streamID) }
        return current
    }

    private static let dataRead: nghttp2_on_data_chunk_recv_callback = {
        session, _, streamID, data, length, _ in
        exchange(session, streamID)?._withUnsafeGuaranteedRef {
            $0.appendBody(UnsafeRawBufferPointer(start: data, count: length))
        }
        return 0
    }

    private static let frameRead: nghttp2_on_frame_recv_callback = { session, frame, context in
        guard let recorder = recorder(context), let frame else { return 0 }
        recorder._withUnsafeGuaranteedRef { $0.read(frame, session) }
        return 0
    }

    private func read(_ frame: UnsafePointer<nghttp2_frame>, _ session: OpaquePointer?) {
        let header = UnsafeRawPointer(frame).assumingMemoryBound(to: nghttp2_frame_hd.self).pointee
        switch UInt32(header.type) {
        case NGHTTP2_HEADERS.rawValue:
            messageFrameRead(session, header, resume(session, header.stream_id))
            current = nil
        case NGHTTP2_DATA.rawValue:
            if UInt32(header.flags) & NGHTTP2_FLAG_END_STREAM.rawValue != 0 {
                messageFrameRead(session, header, Self.exchange(session, header.stream_id))
            }
        case NGHTTP2_SETTINGS.rawValue:
            if UInt32(header.flags) & NGHTTP2_FLAG_ACK.rawValue == 0 { events.append(.settings) }
        case NGHTTP2_PING.rawValue:
            if UInt32(header.flags) & NGHTTP2_FLAG_ACK.rawValue != 0 {
                events.append(.pingAnswered)
            }
        case NGHTTP2_GOAWAY.rawValue: goAwayRead(frame.pointee.goaway)
        default: break
        }
    }

    private func messageFrameRead(
        _ session: OpaquePointer?, _ header: nghttp2_frame_hd, _ exchange: Unmanaged<Exchange>?
    ) {
        guard let exchange else { return }
        exchange._withUnsafeGuaranteedRef {
            if $0.status >= 200 { $0.isHeadComplete = true }
            guard UInt32(header.flags) & NGHTTP2_FLAG_END_STREAM.rawValue != 0 else { return }
            $0.isComplete = true
            guard !$0.isBodySent else { return }
            // The caller will reset the stream; nothing more is to be heard of it.
            nghttp2_session_set_stream_user_data(session, header.stream_id, nil)
            ended.append(
                EndedStream(
                    exchange: exchange, streamID: header.stream_id, code: 0, isStillOpen: true))
        }
    }

    private func goAwayRead(_ frame: nghttp2_goaway) {
        let data = UnsafeBufferPointer(start: frame.opaque_data, count: frame.opaque_data_len)
        events.append(
            .goAway(
                lastStreamID: frame.last_stream_id, ErrorCode(frame.error_code),
                GoAwayReason(debugData: data)))
    }

    private static let streamClosed: nghttp2_on_stream_close_callback = {
        session, streamID, code, context in
        guard let recorder = recorder(context), let exchange = exchange(session, streamID) else {
            return 0
        }
        recorder._withUnsafeGuaranteedRef {
            $0.ended.append(
                EndedStream(
                    exchange: exchange, streamID: streamID, code: code, isStillOpen: false))
        }
        return 0
    }

    // MARK: Writing

    /// Says how much of the body comes next; `sendData` then copies it straight to the output.
    static let readBody: nghttp2_data_source_read_callback = {
        _, streamID, _, length, flags, source, _ in
        guard let pointer = source?.pointee.ptr, let flags else {
            return Int(NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue)
        }
        return Unmanaged<Exchange>.fromOpaque(pointer)._withUnsafeGuaranteedRef { exchange in
            guard exchange.streamID == streamID else {
                return Int(NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue)
            }
            let rest = exchange.bodyLength - exchange.bodyOffset
            flags.pointee |= NGHTTP2_DATA_FLAG_NO_COPY.rawValue
            if rest <= length { flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
            return min(rest, length)
        }
    }

    private static let sendData: nghttp2_send_data_callback = {
        _, _, frameHeader, length, source, context in
        guard
            let output = recorder(context)?._withUnsafeGuaranteedRef({ $0.output }),
            let pointer = source?.pointee.ptr
        else { return NGHTTP2_ERR_CALLBACK_FAILURE.rawValue }
        return Unmanaged<Exchange>.fromOpaque(pointer)._withUnsafeGuaranteedRef { exchange in
            guard let body = exchange.request?.body.bytes else {
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue
            }
            let end = exchange.bodyOffset + length
            output.append(UnsafeRawBufferPointer(start: frameHeader, count: 9))
            output.append(UnsafeRawBufferPointer(rebasing: body[exchange.bodyOffset..<end]))
            exchange.bodyOffset = end
            return 0
        }
    }

    private static let frameNotSent: nghttp2_on_frame_not_send_callback = { _, frame, _, context in
        guard let recorder = recorder(context), let frame else { return 0 }
        let header = UnsafeRawPointer(frame).assumingMemoryBound(to: nghttp2_frame_hd.self).pointee
        if UInt32(header.type) == NGHTTP2_HEADERS.rawValue {
            recorder._withUnsafeGuaranteedRef {
                $0.events.append(.notSent(streamID: header.stream_id))
            }
        }
        return 0
    }

    // MARK: Context

    /// The recorder, which lives as long as its session.
    private static func recorder(
        _ context: UnsafeMutableRawPointer?
    ) -> Unmanaged<SessionRecorder>? {
        context.map { .fromOpaque($0) }
    }

    private static func streamID(of frame: UnsafePointer<nghttp2_frame>) -> Int32 {
        UnsafeRawPointer(frame).assumingMemoryBound(to: nghttp2_frame_hd.self).pointee.stream_id
    }

    private static func exchange(
        _ session: OpaquePointer?, _ streamID: Int32
    ) -> Unmanaged<Exchange>? {
        nghttp2_session_get_stream_user_data(session, streamID).map { .fromOpaque($0) }
    }
}

extension Exchange {
    /// Takes in one header field of the answer: `:status` and the few that are read by name.
    func read(header name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer) {
        headBytes += name.count + value.count + 32
        if name.first == UInt8(ascii: ":") {
            // Only `:status` may start with a colon. A second one follows an informational answer.
            forgetHead()
            status = value.reduce(0) { $0 * 10 + Int($1 &- 0x30) }
            return
        }
        guard !isHeadComplete, headBytes <= Limits.responseHeaderListBytesMax,
            let header = ResponseHeader(named: name)
        else { return }
        keep(header, value)
    }
}

extension ResponseHeader {
    /// The header with that name on the wire; found by length first, for this runs per field.
    init?(named name: UnsafeRawBufferPointer) {
        let candidate: ResponseHeader
        switch name.count {
        case 4: candidate = name[0] == UInt8(ascii: "d") ? .date : .link
        case 7: candidate = .apnsID
        case 8: candidate = .location
        case 11: candidate = .retryAfter
        case 12: candidate = name[0] == UInt8(ascii: "c") ? .contentType : .wnsStatus
        case 14: candidate = .apnsUniqueID
        case 15: candidate = name[5] == UInt8(ascii: "c") ? .apnsChannelID : .apnsRequestID
        case 23: candidate = .wnsError
        case 24: candidate = .wnsNotificationStatus
        default: return nil
        }
        let expected = candidate.name
        guard let start = name.baseAddress, memcmp(start, expected.utf8Start, name.count) == 0
        else { return nil }
        self = candidate
    }
}
