// One connection: output collected and written once per turn, replies handed out in order, and an
// end after the first doubt.

internal import Base
internal import EventLoop

/// Receives what became of commands, on the loop's thread, in the order they were sent.
public protocol RedisReplyHandler: AnyObject {
    /// The reply, which is valid only during this call.
    func replied(_ reply: RedisReply, tag: UInt64)

    /// There is no reply, or it is an error.
    func failed(_ error: RedisError, tag: UInt64)

    /// A part of a long array that has not arrived completely: the array with the elements that
    /// are here and were not handed over before. Returns whether it was taken; a handler that
    /// takes parts gets the last ones with `replied`.
    func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool
}

extension RedisReplyHandler {
    /// Long replies are collected.
    public func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool { false }
}

/// A connected socket that speaks to Redis; loop-confined. Made by `RedisClient`.
internal final class RedisConnection: ReadinessHandler, TurnEndHandler {
    private enum Phase { case open, closed }

    private let fd: Int32
    private let loop: EventLoop
    private let commandTimeout: TimeSpan
    private var registration: Registration?
    // Touched for every command, never across a call to a handler.
    @exclusivity(unchecked) private var phase = Phase.open
    private let reader = ReplyReader()
    @exclusivity(unchecked) private var pending = PendingCommands()
    private let outbound = ByteWriter(capacity: 16 << 10)
    @exclusivity(unchecked) private var written = 0
    @exclusivity(unchecked) private var isAwaitingTurnEnd = false
    @exclusivity(unchecked) private var isAwaitingWritable = false
    private let buffer: UnsafeMutableRawBufferPointer
    private lazy var deadlineTimer = LoopTimer { [unowned self] in checkDeadline() }

    /// Called once, when the connection has ended, before its commands fail.
    var ended: ((RedisError) -> Void)?

    /// Called with the time that every answered command took.
    @exclusivity(unchecked) var answered: ((TimeSpan) -> Void)?

    /// Takes over a connected descriptor.
    init(fd: Int32, loop: EventLoop, commandTimeout: TimeSpan) throws(SystemError) {
        self.fd = fd
        self.loop = loop
        self.commandTimeout = commandTimeout
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
        to handler: any RedisReplyHandler, tag: UInt64, _ write: (ByteWriter) -> Void
    ) -> RedisError? {
        guard phase == .open else { return .notConnected }
        guard pending.count < RedisLimits.commandsPending,
            outbound.count - written < RedisLimits.outboundBytes
        else { return .tooManyPending }
        write(outbound)
        let deadline = loop.now + commandTimeout
        pending.append(PendingCommand(handler: handler, tag: tag, deadline: deadline))
        if !deadlineTimer.isScheduled { loop.schedule(deadlineTimer, at: deadline) }
        if !isAwaitingTurnEnd && !isAwaitingWritable {
            isAwaitingTurnEnd = true
            loop.atEndOfTurn(self)
        }
        return nil
    }

    /// Ends the connection for a reason; everything that waits fails with it.
    func end(_ error: RedisError) {
        guard phase == .open else { return }
        phase = .closed
        loop.cancel(deadlineTimer)
        if let registration { loop.deregister(registration) }
        SocketIO.close(fd)
        let notify = ended
        ended = nil
        answered = nil
        notify?(error)
        while let command = pending.popFirst() { command.handler.failed(error, tag: command.tag) }
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
            switch SocketIO.write(fd, rest) {
            case .count(let count): written += count
            case .wouldBlock: return awaitWritable(true)
            case .closed: return end(.disconnected)
            case .failed(let error): return end(.failed(error))
            }
        }
        outbound.removeAll()
        written = 0
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
        if readiness.contains(.read) || readiness.contains(.hangUp) { read() }
        if readiness.contains(.write) { flush() }
    }

    private func read() {
        for _ in 0..<RedisLimits.readsPerTurn where phase == .open {
            switch SocketIO.read(fd, into: buffer) {
            case .count(let count):
                take(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
                if count < buffer.count { return }
            case .wouldBlock: return
            case .closed: end(.disconnected)
            case .failed(let error): end(.failed(error))
            }
        }
    }

    private func take(_ bytes: UnsafeRawBufferPointer) {
        guard reader.feed(bytes) else { return end(.notTheProtocol) }
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
        answered?(loop.now - command.deadline + commandTimeout)
        let reply = RedisReply(reader.storage, at: 0)
        if reply.kind == .error {
            let refusal = RedisRefusal(reply.text ?? "")
            command.handler.failed(.refused(refusal), tag: command.tag)
            if refusal.concernsServer { end(.refused(refusal)) }
        } else {
            command.handler.replied(reply, tag: command.tag)
        }
        reader.discard()
    }

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
        guard let command = pending.first else { return }
        if command.deadline <= loop.now {
            end(.timedOut)
        } else {
            loop.schedule(deadlineTimer, at: command.deadline)
        }
    }
}
