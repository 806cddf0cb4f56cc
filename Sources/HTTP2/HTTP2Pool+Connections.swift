internal import Base
internal import EventLoop

// The pool's connections: dialled for requests, replaced when they go, retired when they are not
// needed.

extension HTTP2Pool {
    // MARK: What connections report

    func opened(_ connection: Connection) {
        statistics.connectionsOpened += 1
        setNeedsTurnEnd()
    }

    func received(_ code: ErrorCode, _ reason: GoAwayReason?, streams: Int) {
        statistics.goAways += 1
        if code == .enhanceYourCalm {
            slowDown(streams: streams)
        } else if let reason, reason.blamesCredentials {
            delay.credentialsRefused(at: loop.now)
            delegate?.poolAlarm(self, .credentialsRefused(reason: reason.text))
        } else if code != .noError || reason.map({ !$0.isRoutine }) ?? false {
            delay.failed(at: loop.now, using: &loop.random)
        }
        delegate?.poolAlarm(self, .goAway(code, reason: reason?.text))
        setNeedsTurnEnd()
    }

    func slowDown(streams: Int) {
        statistics.calms += 1
        calm.halve(streams: streams, at: loop.now)
        delegate?.poolAlarm(self, .calm(pause: delay.calmed(at: loop.now)))
    }

    func closed(
        _ connection: Connection, _ fault: TransportFault?, wasOpening: Bool, inFlight: Int,
        _ alarm: PoolAlarm?
    ) {
        connections.removeAll { $0 === connection }
        guard !isClosed else { return }
        setNeedsTurnEnd()
        guard let fault else { return }
        if wasOpening { statistics.connectFailures += 1 }
        // One that never answered anything and was not told off is a failed attempt as well.
        if connection.machine.answers == 0, connection.goAway == nil {
            delay.failed(at: loop.now, using: &loop.random)
        }
        if inFlight > 0 {
            statistics.connectionsLost += 1
            delegate?.poolAlarm(self, .connectionLost(fault, inFlight: inFlight))
        }
        switch alarm {
        case .unreachable(let text, _): failed(.unreachable(text, failures: delay.failures))
        case .credentialsRefused(let reason):
            delay.credentialsRefused(at: loop.now)
            delegate?.poolAlarm(self, .credentialsRefused(reason: reason))
        case .some(let alarm): failed(alarm)
        case nil:
            if wasOpening {
                let text = "\(origin): the connection ended before the first SETTINGS"
                failed(.unreachable(text, failures: delay.failures))
            }
        }
    }

    private func failed(_ alarm: PoolAlarm) {
        isUnreachable = true
        delegate?.poolAlarm(self, alarm)
    }

    // MARK: What the pool decides

    func adjustConnections() {
        if isDraining && queued == 0 {
            for connection in connections where !connection.machine.isDrained { connection.drain() }
            dialTime = nil
            return
        }
        dialTime = nil
        while !isClosed {
            switch plan.decide(census(), earliestDial: delay.earliest, at: loop.now) {
            case .nothing: return
            case .dialAt(let time):
                dialTime = time
                return
            case .dial: dial()
            case .retire: leastUsed { _ in true }?.drain()
            case .retireAged: leastUsed { $0.machine.isAged }?.drain()
            }
        }
    }

    private func dial() {
        delay.attempted(at: loop.now)
        statistics.dials += 1
        let connection = Connection(pool: self, loop: loop, policy: policy)
        connections.append(connection)
        connection.start()
    }

    private func leastUsed(_ matches: (Connection) -> Bool) -> Connection? {
        connections.filter { $0.machine.isOpen && matches($0) }.min { $0.inFlight < $1.inFlight }
    }

    private func census() -> PoolPlan.Census {
        let cap = calm.value(at: loop.now)
        var census = PoolPlan.Census()
        census.inFlight = inFlight
        census.queued = queued
        if let oldestQueuedAt { census.oldestWait = loop.now - oldestQueuedAt }
        for connection in connections {
            if connection.machine.isOpening { census.opening += 1 }
            guard connection.machine.isOpen else { continue }
            census.open += 1
            census.capacity += connection.machine.limit(cap: cap)
            if connection.machine.isAged { census.aged += 1 }
            if connection.machine.limit(cap: cap) > connection.inFlight { census.hasRoom = true }
        }
        return census
    }

    /// Since when the request waits that has waited longest: urgent ones stand in front of all others,
    /// however long those have waited.
    private var oldestQueuedAt: MonotonicTime? {
        guard let first = queue.first else { return nil }
        var plain: Exchange? = first
        while let exchange = plain, exchange.sequence & Self.afterUrgent == 0 {
            plain = exchange.next
        }
        return min(first.queuedAt, plain?.queuedAt ?? first.queuedAt)
    }

    /// One timer for the pool: growth, dialling, delays and the queue's deadlines.
    func armTimer() {
        // What is over was acted upon in this turn, and would come again with each.
        let planned = plan.nextTime > loop.now ? plan.nextTime : .distantFuture
        var due = min(planned, nextSweep)
        if let dialTime { due = min(due, dialTime) }
        for exchange in delayed { due = min(due, exchange.notBefore) }
        if let oldestQueuedAt, !connections.isEmpty {
            let pressure = oldestQueuedAt + policy.growthWait
            if pressure >= loop.now { due = min(due, pressure + TimeSpan(nanos: 1)) }
        }
        guard due != timerDue || !timer.isScheduled else { return }
        timerDue = due
        if due == .distantFuture { loop.cancel(timer) } else { loop.schedule(timer, at: due) }
    }
}
