// The server's side of one HTTP/2 connection: socket, TLS and session. What was read in a turn is
// answered with one write at the end of the turn. Besides serving it can misbehave on demand, in
// each of the ways gateways and middleboxes were seen to.

public import Base
public import Crypto
public import EventLoop

/// Receives what happens on server connections, on their loop's thread.
public protocol ServerConnectionDelegate: AnyObject {
    /// TLS is done and HTTP/2 was agreed on.
    func opened(_ connection: ServerConnection)
    /// The header block of a request is complete; the body may still come.
    func receivedHead(_ request: ServerRequest, on connection: ServerConnection)
    /// A request is complete.
    func received(_ request: ServerRequest, on connection: ServerConnection)
    /// Something besides a request.
    func noticed(_ event: ServerEvent, on connection: ServerConnection)
    /// The connection is over; its socket is closed.
    func closed(_ connection: ServerConnection)
}

extension ServerConnectionDelegate {
    /// Nothing, unless the delegate says otherwise.
    public func opened(_ connection: ServerConnection) {}
    /// Nothing, unless the delegate says otherwise.
    public func receivedHead(_ request: ServerRequest, on connection: ServerConnection) {}
    /// Nothing, unless the delegate says otherwise.
    public func noticed(_ event: ServerEvent, on connection: ServerConnection) {}
    /// Nothing, unless the delegate says otherwise.
    public func closed(_ connection: ServerConnection) {}
}

/// One accepted HTTP/2 connection. Loop-confined.
public final class ServerConnection {
    /// The connection's number, counted by its listener from 1.
    public let number: Int

    /// Whatever the delegate keeps for this connection.
    public var state: AnyObject?

    /// Requests received so far.
    public private(set) var requestsReceived = 0

    /// SETTINGS frames of ours that the peer acknowledged.
    public private(set) var settingsAcknowledged = 0

    /// When the last request was complete, or the connection was accepted.
    public private(set) var lastRequestAt: MonotonicTime

    /// The push certificate that the client has shown; nil without one.
    public private(set) var clientCertificate: PushCertificate?

    /// Whether the socket is closed.
    public var isClosed: Bool { phase == .closed }

    /// Streams that are open.
    public var openStreams: Int { session.streams.count }

    /// The size of the peer's header compression table as decoded here, in bytes.
    public var decoderTableBytes: Int { session.decoderTableBytes }

    let session: ServerSession
    let loop: EventLoop
    var phase = Phase.handshaking
    var ignoresPings: Bool
    var delayed = DelayedAnswers()

    private let fd: Int32
    private let tls: TLSSession
    private let delegate: any ServerConnectionDelegate
    private let onClose: (ServerConnection) -> Void
    private let readBuffer: UnsafeMutableRawBufferPointer
    private let outgoing = ByteWriter(capacity: 32 * 1024)
    private var outgoingSent = 0
    private var registration: Registration?
    private var waitsForWrite = false
    private var isTurnEndAsked = false
    private lazy var delayTimer = LoopTimer { [unowned self] in delaysElapsed() }

    enum Phase {
        case handshaking
        case open
        /// TLS is up, but another protocol was chosen: bytes are read and dropped.
        case speaksOther
        /// Nothing is written any more, by order; bytes may be read and dropped.
        case silent
        case closed
    }

    init(
        number: Int, fd: Int32, tls: TLSSession, loop: EventLoop, options: ServerOptions,
        readBuffer: UnsafeMutableRawBufferPointer, delegate: any ServerConnectionDelegate,
        onClose: @escaping (ServerConnection) -> Void
    ) throws(ServerSessionError) {
        self.number = number
        self.fd = fd
        self.tls = tls
        self.loop = loop
        self.readBuffer = readBuffer
        self.delegate = delegate
        self.onClose = onClose
        ignoresPings = options.ignoresPings
        lastRequestAt = loop.now
        session = try ServerSession(options)
    }

    func start() throws(SystemError) {
        registration = try loop.register(fd, .read, self)
    }

    /// Asks for one flush at the end of this turn.
    func wantFlush() {
        guard !isTurnEndAsked, phase == .open else { return }
        isTurnEndAsked = true
        loop.atEndOfTurn(self)
    }

    /// Appends frames that the session would not send, after everything it has queued.
    func append(raw write: (ByteWriter) -> Void) {
        guard phase == .open else { return }
        _ = session.pull(into: outgoing, upTo: .max)
        write(outgoing)
        wantFlush()
    }

    func scheduleDelays() {
        if let due = delayed.nextDue { loop.schedule(delayTimer, at: due) }
    }

    func close(sayingGoodbye: Bool) {
        guard phase != .closed else { return }
        if sayingGoodbye { tls.close() }
        phase = .closed
        loop.cancel(delayTimer)
        delayed.removeAll()
        if let registration { loop.deregister(registration) }
        registration = nil
        SocketIO.close(fd)
        delegate.closed(self)
        onClose(self)
    }

    /// Closes so that the peer gets a TCP reset.
    func closeAbruptly() {
        guard phase != .closed else { return }
        AbruptClose.prepare(fd)
        close(sayingGoodbye: false)
    }

    /// Never writes again. Reading on, the kernel keeps acknowledging what the peer writes.
    func fallSilent(readingOn: Bool) {
        guard phase != .closed else { return }
        phase = .silent
        delayed.removeAll()
        loop.cancel(delayTimer)
        outgoing.removeAll()
        outgoingSent = 0
        guard let registration else { return }
        if readingOn {
            loop.modify(registration, .read)
        } else {
            loop.deregister(registration)
            self.registration = nil
        }
    }
}

extension ServerConnection: ReadinessHandler, TurnEndHandler {
    /// The socket is ready.
    public func ready(_ readiness: Readiness) {
        switch phase {
        case .handshaking: continueHandshake()
        case .open:
            if readiness.contains(.write) { wantFlush() }
            if readiness.contains(.read) || readiness.contains(.hangUp) { read() }
        case .speaksOther, .silent: readAndDrop()
        case .closed: break
        }
    }

    /// The turn is over: what was said in it goes out.
    public func turnEnded() {
        isTurnEndAsked = false
        flush()
    }

    private func continueHandshake() {
        switch tls.handshake() {
        case .done:
            clientCertificate = tls.peerPushCertificate
            phase = tls.negotiatedProtocol == "h2" ? .open : .speaksOther
            if let registration { loop.modify(registration, .read) }
            guard phase == .open else { return }
            delegate.opened(self)
            wantFlush()
            read()
        case .wantsRead: if let registration { loop.modify(registration, .read) }
        case .wantsWrite: if let registration { loop.modify(registration, .write) }
        case .failed: close(sayingGoodbye: false)
        }
    }

    private func read() {
        while phase == .open {
            switch tls.read(into: readBuffer) {
            case .count(let count):
                let bytes = UnsafeRawBufferPointer(rebasing: readBuffer[..<count])
                let isSound = session.receive(bytes)
                handleEvents()
                wantFlush()
                if !isSound { return close(sayingGoodbye: false) }
            case .wantsRead: return
            case .wantsWrite: return wantFlush()
            case .closed, .failed: return close(sayingGoodbye: false)
            }
        }
    }

    private func readAndDrop() {
        while phase != .closed {
            switch tls.read(into: readBuffer) {
            case .count: continue
            case .wantsRead, .wantsWrite: return
            case .closed, .failed: return close(sayingGoodbye: false)
            }
        }
    }

    private func handleEvents() {
        while phase == .open {
            let events = session.takeEvents()
            if events.isEmpty { return }
            for event in events where phase == .open { handle(event) }
        }
    }

    private func handle(_ event: SessionEvent) {
        switch event {
        case .head(let request):
            if request.stream <= session.lastProcessedStream {
                delegate.receivedHead(request, on: self)
            }
        case .complete(let request):
            guard request.stream <= session.lastProcessedStream else { return }
            requestsReceived += 1
            lastRequestAt = loop.now
            delegate.received(request, on: self)
        case .closed(let request): session.recycle(request)
        case .ping(let payload):
            delegate.noticed(.pingReceived(openStreams: openStreams), on: self)
            if !ignoresPings, phase == .open {
                session.submitPing(payload: payload, acknowledging: true)
            }
        case .noticed(let event):
            if event == .settingsAcknowledged { settingsAcknowledged += 1 }
            delegate.noticed(event, on: self)
        }
    }

    private func delaysElapsed() {
        while phase == .open, let entry = delayed.pop(at: loop.now) {
            switch entry.answer {
            case .response(let response): respond(response, on: entry.stream)
            case .resets(let codes): reset(entry.stream, codes: codes)
            }
        }
        scheduleDelays()
    }

    private func flush() {
        var pulled = true
        while phase == .open, pulled {
            let before = outgoing.count
            let isSound = session.pull(into: outgoing, upTo: ServerLimits.outgoingBytes)
            pulled = outgoing.count > before
            handleEvents()
            guard phase == .open else { return }
            if !isSound { return close(sayingGoodbye: false) }
            guard writeOutgoing() else { return }
            if session.isFinished { return close(sayingGoodbye: true) }
        }
        setWaitsForWrite(false)
    }

    /// Writes until nothing is left; false when the socket is full or the connection closed.
    private func writeOutgoing() -> Bool {
        while outgoingSent < outgoing.count {
            let rest = UnsafeRawBufferPointer(rebasing: outgoing.bytes[outgoingSent...])
            switch tls.write(rest) {
            case .count(let count): outgoingSent += count
            case .wantsRead, .wantsWrite:
                setWaitsForWrite(true)
                return false
            case .closed, .failed:
                close(sayingGoodbye: false)
                return false
            }
        }
        outgoing.removeAll()
        outgoingSent = 0
        return true
    }

    private func setWaitsForWrite(_ waits: Bool) {
        guard waits != waitsForWrite, let registration else { return }
        waitsForWrite = waits
        loop.modify(registration, waits ? [.read, .write] : .read)
    }
}
