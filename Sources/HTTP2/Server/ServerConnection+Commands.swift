// What a delegate can order a connection to do. Frames leave at the end of the turn.

public import Base
internal import EventLoop

extension ServerConnection {
    /// Answers a request. Nothing happens if its stream is closed or answered.
    public func respond(_ response: ServerResponse, on stream: Int32) {
        guard phase == .open, let request = session.streams[stream], !request.isSettled else {
            return
        }
        request.isSettled = true
        session.submit(response, on: request)
        wantFlush()
    }

    /// Answers a request after a delay; at once when the delay is zero.
    public func respond(_ response: ServerResponse, on stream: Int32, after delay: TimeSpan) {
        guard delay > .zero else { return respond(response, on: stream) }
        delayed.push(.response(response), stream: stream, due: loop.now + delay)
        scheduleDelays()
    }

    /// Resets a stream. Codes after the first go out as further RST_STREAM frames for the same
    /// stream, as APNs was seen to send them.
    public func reset(_ stream: Int32, codes: [UInt32]) {
        guard phase == .open, let first = codes.first else { return }
        session.streams[stream]?.isSettled = true
        session.submitReset(stream: stream, code: first)
        for code in codes.dropFirst() {
            append { FrameBytes.resetStream(stream, code: code, into: $0) }
        }
        wantFlush()
    }

    /// Resets a stream after a delay.
    public func reset(_ stream: Int32, codes: [UInt32], after delay: TimeSpan) {
        guard delay > .zero else { return reset(stream, codes: codes) }
        delayed.push(.resets(codes), stream: stream, due: loop.now + delay)
        scheduleDelays()
    }

    /// Sends GOAWAY and keeps the connection open. Streams above `lastStream` are not processed
    /// from now on. The first step of a graceful shutdown names the highest stream id there is.
    public func goAway(
        lastStream: Int32 = .max, code: UInt32 = ErrorCode.noError.value, debug: String = ""
    ) {
        guard phase == .open else { return }
        session.lastProcessedStream = min(session.lastProcessedStream, lastStream)
        append {
            FrameBytes.goAway(
                lastStream: lastStream, code: code, debug: Array(debug.utf8), into: $0)
        }
    }

    /// The highest stream that a request was received on, or 0.
    public var highestStream: Int32 { session.highestStream }

    /// Sends a SETTINGS frame.
    public func change(_ settings: SettingsChange) {
        guard phase == .open else { return }
        session.submit(settings)
        wantFlush()
    }

    /// Stops or resumes acknowledging received data with WINDOW_UPDATE; resuming acknowledges
    /// all that was held back.
    public func withholdWindowUpdates(_ withholds: Bool) {
        session.withholdsWindowUpdates = withholds
        session.acknowledgeData()
        wantFlush()
    }

    /// Stops or resumes answering PING.
    public func ignorePings(_ ignores: Bool) { ignoresPings = ignores }

    /// Sends a PING.
    public func ping() {
        guard phase == .open else { return }
        session.submitPing(payload: 0x6275_676C_6531_3233, acknowledging: false)
        wantFlush()
    }

    /// Appends any bytes after the frames queued so far: for frames that no library sends.
    public func send(raw bytes: [UInt8]) {
        append { $0.append(bytes) }
    }

    /// Plays dead: never writes again. Reading on, it drops what it reads, so that the peer's
    /// writes succeed; otherwise the peer's writes end up filling the socket's buffers.
    public func playDead(readingOn: Bool = true) { fallSilent(readingOn: readingOn) }

    /// Cuts the TCP connection with a reset; what was not yet written is lost.
    public func cut() { closeAbruptly() }

    /// Writes what waits, says goodbye in TLS and closes.
    public func close() {
        guard phase == .open else { return close(sayingGoodbye: true) }
        turnEnded()
        close(sayingGoodbye: true)
    }
}
