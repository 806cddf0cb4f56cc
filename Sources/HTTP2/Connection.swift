internal import Base
internal import Crypto
internal import EventLoop

/// One connection of a pool: dials, secures, then moves bytes between the socket and an nghttp2
/// session, and tells the pool what became of its exchanges.
///
/// Loop-confined. The pool holds the connection until `closed`, and the connection holds the pool;
/// closing breaks the circle.
final class Connection: ReadinessHandler {
    /// The peer's last GOAWAY.
    struct GoAway {
        var lastStreamID: Int32
        var code: ErrorCode
        var reason: GoAwayReason?
    }

    // Not checked for exclusivity at run time, like what else is touched for each request: no access
    // lasts longer than its statement, and none calls out.
    @exclusivity(unchecked) private(set) var machine: ConnectionMachine
    @exclusivity(unchecked) private(set) var goAway: GoAway?
    /// Streams that may still be opened in this turn; set by the pool before it dispatches.
    @exclusivity(unchecked) var room = 0

    private let pool: HTTP2Pool
    private let loop: EventLoop
    private var attempt: DialAttempt?
    @exclusivity(unchecked) private var fd: Int32 = -1
    @exclusivity(unchecked) private var registration: Registration?
    @exclusivity(unchecked) private var interest: Interest = []
    @exclusivity(unchecked) private var tls: TLSSession?
    @exclusivity(unchecked) private var session: (any WireSession)?
    @exclusivity(unchecked) private var streams = ExchangeList()

    /// Serialised and not yet taken by TLS, from `outputOffset` on.
    private let output = ByteWriter(capacity: 32 * 1024)
    @exclusivity(unchecked) private var outputOffset = 0
    /// All plaintext bytes ever serialised, and those that TLS has passed to the socket whole.
    @exclusivity(unchecked) private var serialised: UInt64 = 0
    @exclusivity(unchecked) private var flushed: UInt64 = 0
    /// The estimated size of what was opened and is not serialised yet.
    @exclusivity(unchecked) private var openedBytes = 0

    @exclusivity(unchecked) private var hasMoreToRead = false
    @exclusivity(unchecked) private var timerDue = MonotonicTime.distantFuture
    private lazy var timer = LoopTimer { [unowned self] in timePassed() }

    init(pool: HTTP2Pool, loop: EventLoop, policy: PoolPolicy) {
        self.pool = pool
        self.loop = loop
        machine = ConnectionMachine(policy: policy, now: loop.now)
    }

    /// Requests on this connection.
    var inFlight: Int { streams.count }

    /// Plaintext that waits for the socket.
    private var unsent: Int { output.count - outputOffset + openedBytes }

    // MARK: Opening

    func start() {
        attempt = Dialer.dial(
            host: pool.origin.host, port: pool.origin.port, reach: pool.policy.reach,
            egress: pool.policy.egress, on: loop,
            deadline: loop.now + pool.policy.connectTimeout
        ) { [unowned self] in dialled($0) }
        armTimer()
    }

    private func dialled(_ result: Result<Int32, DialError>) {
        attempt = nil
        switch result {
        case .success(let descriptor):
            fd = descriptor
            machine.dialled()
            do {
                tls = try TLSSession(
                    client: pool.tls, fd: descriptor, hostName: pool.origin.host,
                    protocolOnly: pool.isHTTP11Only ? "http/1.1" : nil)
                registration = try loop.register(descriptor, [.read], self)
                interest = [.read]
                handshake()
            } catch {
                close(.connectionLost, .unreachable("\(error)", failures: 0))
            }
        case .failure(let error):
            close(.connectionLost, .unreachable(error.description, failures: 0))
            // What may not be connected to now will not do so within the requests' patience.
            if case .forbidden = error { pool.handBackQueue(.forbiddenAddress) }
        }
    }

    private func handshake() {
        guard let tls else { return }
        switch tls.handshake() {
        case .wantsRead: want([.read])
        case .wantsWrite: want([.read, .write])
        case .failed(let error): close(.connectionLost, Self.alarm(error))
        case .done: secured(tls)
        }
    }

    private func secured(_ tls: TLSSession) {
        let negotiated = tls.negotiatedProtocol
        let made: (any WireSession)? =
            switch negotiated {
            case "h2": ClientSession()
            case "http/1.1", nil: pool.policy.speaksHTTP11 ? HTTP1Session() : nil
            default: nil
            }
        guard let made else {
            return close(.connectionLost, .http2NotNegotiated(negotiated: negotiated))
        }
        session = made
        want([.read])
        machine.secured(at: loop.now)
        if !made.answersPings {
            // There are no SETTINGS to wait for.
            machine.isSerial = true
            opened(made)
        }
        flush()
        // The peer's SETTINGS may have come with the end of the handshake.
        if session != nil { receive() }
    }

    // MARK: Readiness and time

    func ready(_ readiness: Readiness) {
        guard machine.phase != .closed else { return }
        guard session != nil else { return handshake() }
        if readiness.contains(.write) { flush() }
        if !readiness.isDisjoint(with: [.read, .hangUp]) { receive() }
    }

    private func want(_ wanted: Interest) {
        guard let registration, wanted != interest else { return }
        interest = wanted
        loop.modify(registration, wanted)
    }

    /// One timer for everything; it is moved only to fire earlier, and looks anew when it fires.
    private func armTimer() {
        var due = machine.nextTime
        if let oldest = streams.first { due = min(due, oldest.sentAt + pool.policy.requestTimeout) }
        guard due < timerDue, machine.phase != .closed else { return }
        timerDue = due
        loop.schedule(timer, at: due)
    }

    private func timePassed() {
        timerDue = .distantFuture
        guard machine.phase != .closed else { return }
        if hasMoreToRead {
            hasMoreToRead = false
            receive()
        }
        expireRequests()
        loop: while true {
            switch machine.timePassed(at: loop.now) {
            case .nothing: break loop
            case .ping: ping()
            case .drain: drain()
            case .close(let fault):
                if fault == .pingUnanswered { pool.statistics.pingsUnanswered += 1 }
                let alarm: PoolAlarm? =
                    machine.isOpening
                    ? .unreachable(
                        "\(pool.origin): no HTTP/2 connection before the deadline", failures: 0)
                    : nil
                return close(fault, alarm)
            }
            if machine.phase == .closed { return }
        }
        flush()
        armTimer()
        pool.setNeedsTurnEnd()
    }

    private func expireRequests() {
        while let oldest = streams.first, loop.now >= oldest.sentAt + pool.policy.requestTimeout {
            session?.reset(oldest.streamID, .cancel)
            pool.statistics.timeouts += 1
            let isSpent = machine.requestTimedOut() || session?.isSpent == true
            end(oldest, .timedOut)
            if isSpent { drain() }
            if machine.phase == .closed { return }
        }
    }

    // MARK: Requests

    /// How many streams may be opened now; sends a PING when the answer depends on one.
    func refreshRoom(cap: Int) {
        switch machine.admission(at: loop.now, cap: cap, unsent: unsent) {
        case .room(let room): self.room = room
        case .none: room = 0
        case .pingFirst:
            room = 0
            ping()
        }
    }

    /// Writes a request; the bytes leave at the end of the turn. False when it has to go elsewhere.
    func open(_ exchange: Exchange) throws(ClientSession.OpenFailure) {
        guard let session, let request = exchange.request else { throw .notHere }
        exchange.forgetAttempt(bodyLength: request.body.count)
        try session.open(exchange, request)
        exchange.sentAt = loop.now
        exchange.serialisedBefore = serialised
        streams.append(exchange)
        machine.streamOpened(at: loop.now)
        openedBytes += request.fieldBytes.count + exchange.bodyLength + 256
        room = openedBytes < Limits.unsentBytesMax ? room - 1 : 0
    }

    private func end(_ exchange: Exchange, _ end: StreamEnd?) {
        streams.remove(exchange)
        machine.streamClosed(at: loop.now)
        if end == nil { machine.answerReceived() }
        pool.ended(exchange, end)
    }

    // MARK: Reading

    private func receive() {
        guard let tls else { return }
        let buffer = pool.readBuffer
        for _ in 0..<Limits.readsPerTurnMax {
            var filled = 0
            var stop: TLSResult?
            while stop == nil, filled < buffer.count {
                switch tls.read(into: UnsafeMutableRawBufferPointer(rebasing: buffer[filled...])) {
                case .count(let count): filled += count
                case let other: stop = other
                }
            }
            if filled > 0 {
                let bytes = UnsafeRawBufferPointer(
                    rebasing: UnsafeRawBufferPointer(buffer)[..<filled])
                process(bytes)
            }
            guard let session else { return }
            if let stop { return finishReading(stop, session) }
        }
        // More may wait inside TLS, where epoll does not see it: go on in the next turn.
        timerDue = loop.now
        loop.schedule(timer, at: loop.now)
        hasMoreToRead = true
    }

    private func process(_ bytes: UnsafeRawBufferPointer) {
        guard let session else { return }
        session.recorder.now = loop.now
        machine.bytesRead(at: loop.now)
        let isSound = session.receive(bytes)
        handleEvents(of: session)
        guard machine.phase != .closed else { return }
        pool.setNeedsTurnEnd()
        if !isSound { return close(.protocolError) }
        if session.isSpent { machine.drainRequested(at: loop.now) }
        if machine.isDrained { shutDown() }
    }

    private func finishReading(_ stop: TLSResult, _ session: any WireSession) {
        switch stop {
        case .closed:
            session.inputEnded()
            handleEvents(of: session)
            close(.connectionLost)
        case .failed(let error): close(after: error)
        case .wantsWrite: want([.read, .write])
        case .wantsRead, .count: armTimer()
        }
    }

    /// In TLS 1.3 a peer that refuses our certificate says so after the handshake.
    private func close(after error: TLSError) {
        close(.connectionLost, error.kind == .connection ? nil : Self.alarm(error))
    }

    private static func alarm(_ error: TLSError) -> PoolAlarm {
        error.kind == .ownCertificate
            ? .credentialsRefused(reason: error.description) : .tlsFailed(error.description)
    }

    private func handleEvents(of session: any WireSession) {
        let recorder = session.recorder
        if !recorder.events.isEmpty {
            let events = recorder.events
            recorder.events.removeAll(keepingCapacity: true)
            for event in events where machine.phase != .closed { handle(event, session) }
        }
        var index = 0
        while index < recorder.ended.count, machine.phase != .closed {
            handle(recorder.ended[index], session)
            index += 1
        }
        recorder.ended.removeAll(keepingCapacity: true)
    }

    private func handle(_ event: SessionRecorder.Event, _ session: any WireSession) {
        switch event {
        case .settings:
            opened(session)
        case .pingAnswered: machine.pingAnswered()
        case .goAway(let lastStreamID, let code, let reason):
            goAway = GoAway(lastStreamID: lastStreamID, code: code, reason: reason)
            let inFlight = streams.count
            machine.drainRequested(at: loop.now)
            pool.received(code, reason, streams: inFlight)
        case .notSent(let streamID):
            var candidate = streams.first
            while let exchange = candidate, exchange.streamID != streamID {
                candidate = exchange.next
            }
            if let exchange = candidate { end(exchange, .neverWritten) }
        }
    }

    /// The peer says how much it takes, for the first time or anew.
    private func opened(_ session: any WireSession) {
        let isFirst = machine.phase == .settling
        machine.settingsReceived(
            maxStreams: session.peerStreamsMax, at: loop.now,
            ageJitter: Double.random(in: 0...1, using: &loop.random))
        if isFirst { pool.opened(self) }
    }

    private func handle(_ ended: SessionRecorder.EndedStream, _ session: any WireSession) {
        let exchange = ended.exchange.takeUnretainedValue()
        guard exchange.streamID == ended.streamID else { return }
        if ended.isStillOpen { session.reset(ended.streamID, .noError) }
        if exchange.isComplete {
            if exchange.status == 421 {
                machine.drainRequested(at: loop.now)
                end(exchange, .misdirected)
            } else {
                end(exchange, exchange.status >= 200 ? nil : .malformed)
            }
            return
        }
        let code = ErrorCode(ended.code)
        switch code {
        case .refusedStream:
            if let goAway, ended.streamID > goAway.lastStreamID {
                end(exchange, .aboveGoAway(goAway.code))
            } else {
                end(exchange, .refused)
            }
        case .http11Required: end(exchange, .http11Required)
        default: end(exchange, .reset(code))
        }
    }

    // MARK: Writing

    private func ping() {
        guard let session else { return }
        session.ping()
        machine.pingSent(at: loop.now)
        pool.statistics.pings += 1
        pool.setNeedsTurnEnd()
    }

    /// Serialises and writes what there is, one TLS record after the other, until the socket is
    /// full. Nothing is serialised while older bytes wait, so a full socket holds back requests.
    func flush() {
        guard let session, let tls, machine.phase != .closed else { return }
        let wasBlocked = interest.contains(.write)
        var progress = false
        writing: while true {
            if outputOffset == output.count {
                output.removeAll()
                outputOffset = 0
                guard session.wantsWrite else { break }
                guard session.serialise(into: output, limit: Limits.unsentBytesMax) else {
                    return close(.protocolError)
                }
                serialised += UInt64(output.count)
                if output.count == 0 { break }
            }
            let end = min(output.count, outputOffset + Limits.recordBytesMax)
            switch tls.write(UnsafeRawBufferPointer(rebasing: output.bytes[outputOffset..<end])) {
            case .count(let count):
                outputOffset += count
                flushed += UInt64(count)
                progress = true
            case .wantsRead, .wantsWrite: break writing
            case .closed: return close(.connectionLost)
            case .failed(let error): return close(after: error)
            }
        }
        let isBlocked = output.count > outputOffset
        // Room was short only because of bytes that are gone now.
        if !isBlocked, wasBlocked || openedBytes >= Limits.unsentBytesMax { pool.setNeedsTurnEnd() }
        openedBytes = 0
        machine.wrote(progress: progress, unsent: output.count - outputOffset, at: loop.now)
        want(isBlocked ? [.read, .write] : [.read])
        handleEvents(of: session)
        guard machine.phase != .closed else { return }
        if machine.isDrained { return shutDown() }
        if !isBlocked, session.isFinished { return close(.protocolError) }
        armTimer()
    }

    // MARK: Closing

    /// Opens no more streams, lets the open ones finish, then closes.
    func drain() {
        machine.drainRequested(at: loop.now)
        if machine.isDrained { shutDown() }
    }

    /// Says GOAWAY as far as the socket takes it, and closes.
    private func shutDown() {
        if let session, let tls, outputOffset == output.count {
            output.removeAll()
            outputOffset = 0
            // Resets first: nghttp2 sends nothing after this GOAWAY, whatever was queued before.
            _ = session.serialise(into: output, limit: Limits.unsentBytesMax)
            session.terminate()
            _ = session.serialise(into: output, limit: Limits.unsentBytesMax)
            _ = tls.write(output.bytes)
            output.removeAll()
        }
        close(nil)
    }

    /// Ends the connection at once; `fault` is nil when that was our wish and nothing was open.
    func close(_ fault: TransportFault?, _ alarm: PoolAlarm? = nil) {
        guard machine.phase != .closed else { return }
        let wasOpening = machine.isOpening
        let inFlight = streams.count
        machine.closed(at: loop.now)
        attempt?.cancel()
        attempt = nil
        loop.cancel(timer)
        if let registration { loop.deregister(registration) }
        registration = nil
        tls?.close()
        if fd >= 0 { SocketIO.close(fd) }
        fd = -1
        session = nil
        tls = nil
        // From the newest to the oldest: each goes back to the very front of the queue.
        while let exchange = streams.last {
            let isUnwritten = flushed <= exchange.serialisedBefore
            end(exchange, isUnwritten ? .neverWritten : .connectionEnded(fault ?? .connectionLost))
        }
        pool.closed(self, fault, wasOpening: wasOpening, inFlight: inFlight, alarm)
    }
}
