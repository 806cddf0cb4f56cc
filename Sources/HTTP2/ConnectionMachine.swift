internal import Base

/// The life of one connection as a pure machine: events and times in, decisions out.
///
///     dialling -> securing -> settling -> open -> draining -> closed
///
/// No stream is opened before the peer's first SETTINGS; from then on the peer's limit rules, and
/// it may fall at any time, below the number of open streams and to zero. `draining` opens no
/// stream and lets the old ones finish. Liveness is judged per connection.
struct ConnectionMachine {
    enum Phase: Equatable, CaseIterable {
        case dialling, securing, settling, open, draining, closed
    }

    /// Whether a stream may be opened now.
    enum Admission: Equatable {
        /// As many as this.
        case room(Int)
        /// Not before the peer has answered a PING: it was silent for too long.
        case pingFirst
        case none
    }

    /// What the passing of time calls for.
    enum Due: Equatable {
        case nothing
        case ping
        /// Nothing wrong, but it is time to go: no new streams, close when empty.
        case drain
        case close(TransportFault)
    }

    private let policy: PoolPolicy
    private(set) var phase = Phase.dialling
    private(set) var openStreams = 0
    /// The peer's limit; zero until its first SETTINGS.
    private(set) var peerLimit = 0
    private(set) var streamsOpened: UInt64 = 0
    /// Answers read on this connection.
    private(set) var answers: UInt64 = 0
    private(set) var isAwaitingPing = false
    private(set) var isAged = false
    /// One request at a time, and no PING: HTTP/1.1.
    var isSerial = false

    private var phaseBegan: MonotonicTime
    private var ageLimit = MonotonicTime.distantFuture
    private var lastRead: MonotonicTime
    private var lastPing: MonotonicTime?
    /// When the connection last went from no streams to some, or back.
    private var busySince: MonotonicTime
    private var idleSince: MonotonicTime
    private var blockedSince: MonotonicTime?
    private var timeoutsInARow = 0

    init(policy: PoolPolicy, now: MonotonicTime) {
        self.policy = policy
        phaseBegan = now
        lastRead = now
        busySince = now
        idleSince = now
    }

    // MARK: Events

    mutating func dialled() {
        if phase == .dialling { phase = .securing }
    }

    mutating func secured(at now: MonotonicTime) {
        guard phase == .securing else { return }
        enter(.settling, at: now)
        lastRead = now
    }

    /// `ageJitter`, from 0 to 1, spreads the ages of connections that were opened together.
    mutating func settingsReceived(maxStreams: Int, at now: MonotonicTime, ageJitter: Double) {
        guard phase == .settling || phase == .open || phase == .draining else { return }
        peerLimit = max(0, maxStreams)
        guard phase == .settling else { return }
        enter(.open, at: now)
        idleSince = now
        if let age = policy.ageMax {
            ageLimit = now + TimeSpan(nanos: age.nanos - Int64(Double(age.nanos / 4) * ageJitter))
        }
    }

    mutating func streamOpened(at now: MonotonicTime) {
        if openStreams == 0 { busySince = now }
        openStreams += 1
        streamsOpened += 1
        if streamsOpened >= policy.streamsPerConnection { isAged = true }
    }

    mutating func streamClosed(at now: MonotonicTime) {
        openStreams -= 1
        if openStreams == 0 { idleSince = now }
    }

    mutating func answerReceived() {
        answers += 1
        timeoutsInARow = 0
    }

    /// True when the connection has lost its credit by it.
    mutating func requestTimedOut() -> Bool {
        timeoutsInARow += 1
        return timeoutsInARow >= Limits.timeoutsInARowMax
    }

    mutating func bytesRead(at now: MonotonicTime) { lastRead = now }

    mutating func pingSent(at now: MonotonicTime) {
        lastPing = now
        isAwaitingPing = true
    }

    mutating func pingAnswered() { isAwaitingPing = false }

    /// `unsent` bytes are left after a write that moved some, or none.
    mutating func wrote(progress: Bool, unsent: Int, at now: MonotonicTime) {
        if unsent == 0 {
            blockedSince = nil
        } else if progress || blockedSince == nil {
            blockedSince = now
        }
    }

    mutating func drainRequested(at now: MonotonicTime) {
        switch phase {
        case .dialling, .securing, .settling, .open: enter(.draining, at: now)
        case .draining, .closed: break
        }
    }

    mutating func closed(at now: MonotonicTime) { enter(.closed, at: now) }

    private mutating func enter(_ next: Phase, at now: MonotonicTime) {
        phase = next
        phaseBegan = now
    }

    // MARK: Questions

    /// Whether nothing is left to wait for.
    var isDrained: Bool { phase == .draining && openStreams == 0 }

    /// Whether the connection counts as one that serves, now or soon.
    var isOpen: Bool { phase == .open }
    var isOpening: Bool { phase == .dialling || phase == .securing || phase == .settling }

    /// Streams the connection may have open under the peer's and our own limits.
    func limit(cap: Int) -> Int { min(peerLimit, policy.streamsMax, cap) }

    /// Whether and how many streams may be opened, with `cap` as the pool's momentary limit.
    func admission(at now: MonotonicTime, cap: Int, unsent: Int) -> Admission {
        guard phase == .open, !isAwaitingPing, unsent < Limits.unsentBytesMax else { return .none }
        let room = limit(cap: cap) - openStreams
        guard room > 0 else { return .none }
        if !isSerial, policy.ping.beforeReuse, now - lastRead >= policy.ping.afterSilence {
            return .pingFirst
        }
        return .room(room)
    }

    // MARK: Time

    /// What is due at `now`; to be asked again after it has been done.
    mutating func timePassed(at now: MonotonicTime) -> Due {
        switch phase {
        case .closed: return .nothing
        case .dialling, .securing:
            return now >= phaseBegan + policy.connectTimeout ? .close(.timedOut) : .nothing
        case .settling:
            return now >= phaseBegan + policy.settingsTimeout ? .close(.timedOut) : .nothing
        case .open, .draining: break
        }
        if isAwaitingPing, let lastPing, now >= lastPing + policy.ping.answerWithin {
            return .close(.pingUnanswered)
        }
        if let blockedSince, now >= blockedSince + policy.writeStall {
            return .close(.writeStalled)
        }
        if phase == .open, now >= ageLimit { isAged = true }
        return openStreams > 0 ? dueWhileBusy(now) : dueWhileIdle(now)
    }

    private func dueWhileBusy(_ now: MonotonicTime) -> Due {
        if now >= silenceBegan + policy.noProgress { return .close(.silent) }
        if let time = busyPingTime, now >= time { return .ping }
        return .nothing
    }

    private func dueWhileIdle(_ now: MonotonicTime) -> Due {
        if phase == .open, let limit = policy.idleClose, now >= idleSince + limit { return .drain }
        if let time = idlePingTime, now >= time { return .ping }
        return .nothing
    }

    /// The next time at which `timePassed` may have something to say.
    var nextTime: MonotonicTime {
        switch phase {
        case .closed: return .distantFuture
        case .dialling, .securing: return phaseBegan + policy.connectTimeout
        case .settling: return phaseBegan + policy.settingsTimeout
        case .open, .draining: break
        }
        var time = phase == .open && !isAged ? ageLimit : .distantFuture
        if isAwaitingPing, let lastPing { time = min(time, lastPing + policy.ping.answerWithin) }
        if let blockedSince { time = min(time, blockedSince + policy.writeStall) }
        if openStreams > 0 {
            time = min(time, silenceBegan + policy.noProgress)
            if let ping = busyPingTime { time = min(time, ping) }
        } else {
            if phase == .open, let limit = policy.idleClose { time = min(time, idleSince + limit) }
            if let ping = idlePingTime { time = min(time, ping) }
        }
        return time
    }

    /// Silence is counted from the last read, but not from before there was anything to answer.
    private var silenceBegan: MonotonicTime { max(lastRead, busySince) }

    private var busyPingTime: MonotonicTime? {
        guard !isAwaitingPing, !isSerial else { return nil }
        let time = silenceBegan + policy.ping.afterSilence
        return lastPing.map { max(time, $0 + policy.ping.interval) } ?? time
    }

    private var idlePingTime: MonotonicTime? {
        guard phase == .open, !isAwaitingPing, !isSerial, let silence = policy.ping.whileIdle else {
            return nil
        }
        return lastRead + silence
    }
}
