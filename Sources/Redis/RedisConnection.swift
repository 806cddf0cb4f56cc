// One connection: output collected and written once per turn, replies handed out in order, and an
// end after the first doubt.

internal import Base
internal import Crypto
internal import EventLoop

/// Receives what became of commands, on the loop's thread. Commands to one server are answered in
/// the order they were sent, save those that a cluster redirected.
public protocol RedisReplyHandler: AnyObject {
    /// The reply, which is valid only during this call.
    func replied(_ reply: RedisReply, tag: UInt64)

    /// There is no reply, or it is an error.
    func failed(_ error: RedisError, tag: UInt64)

    /// A part of a long array that has not arrived completely: the array with the elements that
    /// are here and were not handed over before. Returns whether it was taken; a handler that
    /// takes parts gets the last ones with `replied`.
    func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool

    /// The command went on to another node of the cluster: it is carried out later than commands
    /// that were sent after it may be.
    func redirected(tag: UInt64)
}

extension RedisReplyHandler {
    /// Long replies are collected.
    public func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool { false }

    /// Nothing depends on the order.
    public func redirected(tag: UInt64) {}
}

/// A connected socket that speaks to Redis; loop-confined. Made by `RedisNode`.
internal final class RedisConnection: ReadinessHandler, TurnEndHandler {
    private enum Phase { case securing, open, closed }

    private let fd: Int32
    private let transport: Transport
    private let loop: EventLoop
    private let commandTimeout: TimeSpan
    private var registration: Registration?
    // Touched for every command, never across a call to a handler.
    @exclusivity(unchecked) private var phase: Phase
    private let reader = ReplyReader()
    @exclusivity(unchecked) private var pending = PendingCommands()
    /// What was not written yet, and in a cluster, before it, what was not answered yet.
    private let outbound = ByteWriter(capacity: 16 << 10)
    @exclusivity(unchecked) private var written = 0
    @exclusivity(unchecked) private var answeredBytes = 0
    @exclusivity(unchecked) private var keepsSent: Bool
    @exclusivity(unchecked) private var isAwaitingTurnEnd = false
    @exclusivity(unchecked) private var isAwaitingWritable = false
    @exclusivity(unchecked) private var awaitsDeadline = false
    @exclusivity(unchecked) private var hasReplied = false
    @exclusivity(unchecked) private var isDraining = false
    private let buffer: UnsafeMutableRawBufferPointer
    private lazy var deadlineTimer = LoopTimer { [unowned self] in checkDeadline() }
    private lazy var resumeTimer = LoopTimer { [unowned self] in read() }

    /// Called once, when the connection has ended, before its commands fail.
    var ended: ((RedisError) -> Void)?

    /// Sends a redirected command, given with its bytes, to where it belongs; false when it
    /// cannot.
    var redirect: ((RedisRefusal, PendingCommand, [UInt8]) -> Bool)?

    /// Called with the time that every answered command took.
    @exclusivity(unchecked) var answered: ((TimeSpan) -> Void)?

    /// Takes over a connected descriptor. With `keepsSent` a command's bytes are kept until its
    /// reply, so that it can be redirected.
    init(
        fd: Int32, tls: TLSSession?, loop: EventLoop, commandTimeout: TimeSpan, keepsSent: Bool
    ) throws(SystemError) {
        self.fd = fd
        transport = tls.map { .secured(fd, $0) } ?? .plain(fd)
        phase = tls == nil ? .open : .securing
        self.loop = loop
        self.commandTimeout = commandTimeout
        self.keepsSent = keepsSent
        buffer = .allocate(byteCount: RedisLimits.readBytes, alignment: 16)
        do throws(SystemError) {
            registration = try loop.register(fd, .read, self)
        } catch {
            buffer.deallocate()
            throw error
        }
    }

    deinit { buffer.deallocate() }

    var pendingCount: Int { pending.count }

    /// Sends a command that `write` appends. An error means that it was not taken and the
    /// handler hears nothing.
    func send(
        to handler: any RedisReplyHandler, tag: UInt64, hops: UInt8 = 0,
        _ write: (ByteWriter) -> Void
    ) -> RedisError? {
        guard phase != .closed else { return .notConnected }
        guard pending.count < RedisLimits.commandsPending,
            outbound.count - written < RedisLimits.outboundBytes
        else { return .tooManyPending }
        let start = outbound.count
        write(outbound)
        let deadline = loop.now + commandTimeout
        pending.append(
            PendingCommand(
                handler: handler, tag: tag, deadline: deadline,
                length: Int32(truncatingIfNeeded: outbound.count - start), hops: hops))
        if !awaitsDeadline {
            awaitsDeadline = true
            loop.schedule(deadlineTimer, at: deadline)
        }
        if !isAwaitingTurnEnd && !isAwaitingWritable {
            isAwaitingTurnEnd = true
            loop.atEndOfTurn(self)
        }
        return nil
    }

    /// The server is a single one: nothing will be redirected. Call while no command waits.
    func forgetSent() {
        precondition(pending.count == 0, "what waits for a reply may be redirected")
        keepsSent = false
        redirect = nil
    }

    /// Takes nothing more and ends when everything is answered.
    func drain() {
        isDraining = true
        if pending.count == 0 { end(.closed) }
    }

    /// Ends the connection for a reason; everything that waits fails with it.
    func end(_ error: RedisError) {
        guard phase != .closed else { return }
        phase = .closed
        loop.cancel(deadlineTimer)
        loop.cancel(resumeTimer)
        if let registration { loop.deregister(registration) }
        transport.close()
        let notify = ended
        ended = nil
        answered = nil
        redirect = nil
        notify?(error)
        while let command = pending.popFirst() { command.handler.failed(error, tag: command.tag) }
    }

    private func closedByPeer() { end(hasReplied ? .disconnected : .closedUnanswered) }
}

// MARK: - Securing

extension RedisConnection {
    /// Begins the handshake when there is one; what is sent meanwhile waits for its end.
    func start() { if phase == .securing { handshake() } }

    private func handshake() {
        guard case .secured(_, let session) = transport else { return }
        switch session.handshake() {
        case .wantsRead: awaitWritable(false)
        case .wantsWrite: awaitWritable(true)
        case .failed(let error): end(.tlsFailed(error))
        case .done:
            phase = .open
            flush()
            // The session may have read on.
            read()
        }
    }
}

// MARK: - Writing

extension RedisConnection {
    func turnEnded() {
        isAwaitingTurnEnd = false
        flush()
    }

    private func flush() {
        guard phase == .open else { return }
        while written < outbound.count {
            let rest = UnsafeRawBufferPointer(rebasing: outbound.bytes[written...])
            switch transport.write(rest) {
            case .count(let count): written += count
            case .wouldBlock: return awaitWritable(true)
            case .closed: return closedByPeer()
            case .failed(let error): return end(error)
            }
        }
        if !keepsSent {
            outbound.removeAll()
            written = 0
        }
        awaitWritable(false)
    }

    private func awaitWritable(_ isNeeded: Bool) {
        guard isNeeded != isAwaitingWritable, let registration else { return }
        isAwaitingWritable = isNeeded
        loop.modify(registration, isNeeded ? [.read, .write] : .read)
    }
}

// MARK: - Reading

extension RedisConnection {
    func ready(_ readiness: Readiness) {
        if phase == .securing { return handshake() }
        if readiness.contains(.read) || readiness.contains(.hangUp) { read() }
        if readiness.contains(.write) { flush() }
    }

    private func read() {
        for _ in 0..<RedisLimits.readsPerTurn where phase == .open {
            switch transport.read(into: buffer) {
            case .count(let count):
                take(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
                if count < buffer.count && !transport.buffersInput { return }
            case .wouldBlock: return
            case .closed: closedByPeer()
            case .failed(let error): end(error)
            }
        }
        // What waits inside the session is not seen by epoll.
        if phase == .open && transport.buffersInput { loop.schedule(resumeTimer, at: loop.now) }
    }

    /// Feeds the reader in pieces: it moves what it has not read yet to the front of its buffer for
    /// every kilobyte that it has, so that a large piece would be moved many times over.
    private func take(_ bytes: UnsafeRawBufferPointer) {
        var rest = bytes[...]
        while !rest.isEmpty, phase == .open {
            take(piece: UnsafeRawBufferPointer(rebasing: rest.prefix(RedisLimits.feedBytes)))
            rest = rest.dropFirst(RedisLimits.feedBytes)
        }
    }

    private func take(piece: UnsafeRawBufferPointer) {
        guard reader.feed(piece) else { return end(.notTheProtocol) }
        while phase == .open {
            switch reader.next() {
            case .reply: handOver()
            case .incomplete: return takePart()
            case .broken: end(.notTheProtocol)
            }
        }
    }

    private func handOver() {
        guard let command = pending.popFirst() else { return end(.notTheProtocol) }
        hasReplied = true
        answered?(loop.now - command.deadline + commandTimeout)
        let reply = RedisReply(reader.storage, at: 0)
        if reply.kind == .error {
            refuse(command, RedisRefusal(reply.text ?? ""))
        } else {
            command.handler.replied(reply, tag: command.tag)
            if keepsSent { letGo(command) }
        }
        reader.discard()
        if isDraining && pending.count == 0 { end(.closed) }
    }

    private func refuse(_ command: PendingCommand, _ refusal: RedisRefusal) {
        if refusal.concernsCluster, keepsSent, let redirect {
            let end = answeredBytes + Int(command.length)
            let bytes = Array(outbound.bytes[answeredBytes..<min(end, outbound.count)])
            letGo(command)
            if redirect(refusal, command, bytes) {
                command.handler.redirected(tag: command.tag)
            } else {
                command.handler.failed(.refused(refusal), tag: command.tag)
            }
            return
        }
        if keepsSent { letGo(command) }
        command.handler.failed(.refused(refusal), tag: command.tag)
        if refusal.concernsServer { end(.refused(refusal)) }
    }

    /// Lets go of an answered command's bytes.
    private func letGo(_ command: PendingCommand) {
        guard phase == .open else { return }
        answeredBytes += Int(command.length)
        guard answeredBytes <= written else { return end(.notTheProtocol) }
        if answeredBytes == outbound.count {
            outbound.removeAll()
        } else if answeredBytes >= Self.compactAt, answeredBytes * 2 >= outbound.count {
            outbound.removeFirst(answeredBytes)
            written -= answeredBytes
            answeredBytes = 0
            return
        } else {
            return
        }
        written = 0
        answeredBytes = 0
    }

    private static let compactAt = 64 << 10

    /// Bounds what an unfinished reply keeps in memory.
    private func takePart() {
        let storage = reader.storage
        guard storage.byteCount + reader.bufferedBytes > RedisLimits.partBytes else { return }
        if storage.count > 1, storage[0].kind == .array, let command = pending.first,
            command.handler.repliedInPart(RedisReply(storage, at: 0), tag: command.tag)
        {
            storage.truncate(to: 1)
            return
        }
        if storage.byteCount + reader.bufferedBytes > RedisLimits.replyBytes {
            end(.replyTooLarge(limit: RedisLimits.replyBytes))
        }
    }

    private func checkDeadline() {
        awaitsDeadline = false
        guard let command = pending.first else { return }
        if command.deadline <= loop.now {
            end(phase == .securing ? .handshakeTimedOut : .timedOut)
        } else {
            awaitsDeadline = true
            loop.schedule(deadlineTimer, at: command.deadline)
        }
    }
}
