internal import Base
internal import EventLoop

// The way of a request through the pool: queue, connection, and back into the queue or out.

extension HTTP2Pool {
    /// Gives queued requests to the connections with room, to the least loaded first.
    func dispatch() {
        guard !queue.isEmpty else { return }
        let cap = calm.value(at: loop.now)
        for connection in connections { connection.refreshRoom(cap: cap) }
        while let exchange = queue.first, let connection = leastLoaded() {
            queue.remove(exchange)
            guard exchange.deadline > loop.now else {
                finish(exchange, .notProcessed(.deadlinePassed))
                continue
            }
            guard delegate?.pool(self, mayWrite: exchange.tag) ?? true else {
                finish(exchange, .withdrawn)
                continue
            }
            // The delegate may have closed the pool, or the connections, from inside.
            guard !isClosed, connection.machine.isOpen else {
                // Or it would be chosen again, and for ever.
                connection.room = 0
                returnToQueue(exchange)
                continue
            }
            write(exchange, on: connection)
        }
        if isClosed { handBackQueue(.closed) }
    }

    private func leastLoaded() -> Connection? {
        var best: Int?
        var least = Int.max
        for index in connections.indices where connections[index].room > 0 {
            let load = connections[index].inFlight
            if load < least { (best, least) = (index, load) }
        }
        return best.map { connections[$0] }
    }

    private func write(_ exchange: Exchange, on connection: Connection) {
        do throws(ClientSession.OpenFailure) {
            try connection.open(exchange)
            written += 1
            statistics.requestsWritten += 1
        } catch {
            switch error {
            case .headerListTooLarge(let limit):
                finish(exchange, .notProcessed(.headerListTooLarge(limit: limit)))
            case .malformed: finish(exchange, .notProcessed(.malformedRequest))
            case .notHere:
                returnToQueue(exchange)
                connection.room = 0
                connection.drain()
            }
        }
    }

    /// A connection reports the end of a stream; `end` is nil when there is an answer.
    func ended(_ exchange: Exchange, _ end: StreamEnd?) {
        written -= 1
        setNeedsTurnEnd()
        guard let end else {
            statistics.responses += 1
            if isUnreachable {
                isUnreachable = false
                delegate?.poolAlarm(self, .reachable)
            }
            if exchange.status < 500 { delay.succeeded() }
            return finish(exchange, .response(HTTPResponse(of: exchange)))
        }
        if end == .refused { statistics.refusals += 1 }
        if end == .reset(.enhanceYourCalm) { slowDown(streams: inFlight + 1) }
        if end == .http11Required, policy.speaksHTTP11 { leaveHTTP2() }
        switch Disposition(
            of: end, resends: exchange.resends, speaksHTTP11: policy.speaksHTTP11)
        {
        case .resend:
            if end != .neverWritten { countResend(exchange) }
            returnToQueue(exchange)
        case .resendAfterDelay:
            countResend(exchange)
            postpone(exchange)
        case .notProcessed(let fault): finish(exchange, .notProcessed(fault))
        case .ambiguous(let fault):
            statistics.ambiguous += 1
            finish(exchange, .ambiguous(fault, sentAt: exchange.sentAt))
        }
    }

    private func countResend(_ exchange: Exchange) {
        exchange.resends += 1
        statistics.resends += 1
    }

    private func returnToQueue(_ exchange: Exchange) {
        guard !isClosed else { return finish(exchange, .notProcessed(.closed)) }
        exchange.streamID = 0
        earliestDeadline = min(earliestDeadline, exchange.deadline)
        queue.insertInOrder(exchange)
    }

    private func postpone(_ exchange: Exchange) {
        guard !isClosed else { return finish(exchange, .notProcessed(.closed)) }
        exchange.streamID = 0
        let end =
            refusedDelayEnd
            ?? loop.now + Limits.refusedDelayMin
            + loop.random.span(upTo: Limits.refusedDelayMax - Limits.refusedDelayMin)
        refusedDelayEnd = end
        exchange.notBefore = end
        delayed.append(exchange)
    }

    /// Brings refused requests back whose delay is over.
    func releaseDelayed() {
        guard !delayed.isEmpty else { return }
        for exchange in delayed where exchange.notBefore <= loop.now { returnToQueue(exchange) }
        delayed.removeAll { $0.notBefore <= loop.now }
    }

    /// When the queue is to be looked through for passed deadlines.
    var nextSweep: MonotonicTime {
        queue.isEmpty
            ? .distantFuture : max(earliestDeadline, lastSweep + Limits.queueSweepInterval)
    }

    /// Hands back what can no longer be written in time.
    func sweepQueue() {
        if queue.isEmpty { earliestDeadline = .distantFuture }
        guard loop.now >= nextSweep else { return }
        lastSweep = loop.now
        earliestDeadline = .distantFuture
        // All are taken out before the first is told: what hears of it may submit or close.
        var passed: [Exchange] = []
        var candidate = queue.first
        while let exchange = candidate {
            candidate = exchange.next
            if exchange.deadline <= loop.now {
                queue.remove(exchange)
                passed.append(exchange)
            } else {
                earliestDeadline = min(earliestDeadline, exchange.deadline)
            }
        }
        for exchange in passed { finish(exchange, .notProcessed(.deadlinePassed)) }
    }

    func handBackQueue(_ fault: TransportFault) {
        while let exchange = queue.popFirst() { finish(exchange, .notProcessed(fault)) }
        while let exchange = delayed.popLast() { finish(exchange, .notProcessed(fault)) }
    }

    func handBackRejected() {
        while !rejected.isEmpty {
            let (exchange, fault) = rejected.removeFirst()
            finish(exchange, .notProcessed(fault))
        }
    }
}
