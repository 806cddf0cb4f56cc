import Base
import Testing

@testable import HTTP2

/// Everything that can happen to a connection.
private enum Step: CaseIterable {
    case dialled, secured, settingsOne, settingsMany, settingsZero, open, close, read, answer
    case timeout, pingAnswered, blocked, unblocked, drain, wait, waitLong, die
}

@Suite struct `The connection machine` {
    private let start = MonotonicTime(nanos: 1_000_000_000_000)
    private static let policies = [
        PoolPolicy.apns(), .fcm(), .webPush(), .expo(),
    ]

    @Test(arguments: 0..<40 as Range<UInt64>)
    func `keeps its promises on any walk through its events`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            let policy = Self.policies[Int.random(in: 0..<4, using: &random)]
            var walk = Walk(policy: policy, start: start)
            for _ in 0..<60 {
                let step = Step.allCases[Int.random(in: 0..<Step.allCases.count, using: &random)]
                walk.take(step, using: &random)
                if let fault = walk.fault {
                    Issue.record("seed \(seed): \(fault) after \(walk.trace)")
                    return
                }
            }
        }
    }

    @Test func `every event in every phase leads to a phase that is the same or later`() {
        for length in 1...4 {
            let events: [Step] = [.dialled, .secured, .settingsOne, .drain, .die, .read]
            var indices = Array(repeating: 0, count: length)
            while true {
                var walk = Walk(policy: .apns(), start: start)
                var random = SeededRandom(seed: 0)
                for index in indices { walk.take(events[index], using: &random) }
                #expect(walk.fault == nil, "\(walk.trace)")
                var place = 0
                while place < length, indices[place] == events.count - 1 {
                    indices[place] = 0
                    place += 1
                }
                if place == length { break }
                indices[place] += 1
            }
        }
    }

    @Test func `opens no stream before the first SETTINGS, then as many as they allow`() {
        var machine = ConnectionMachine(policy: .apns(), now: start)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .none)
        machine.dialled()
        machine.secured(at: start)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .none)
        machine.settingsReceived(maxStreams: 1, at: start, ageJitter: 0)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .room(1))
        machine.streamOpened(at: start)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .none)
        machine.settingsReceived(maxStreams: 100, at: start, ageJitter: 0)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .room(99))
        #expect(machine.admission(at: start, cap: 10, unsent: 0) == .room(9))
        machine.settingsReceived(maxStreams: 0, at: start, ageJitter: 0)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .none)
    }

    @Test func `without a limit of the peer's our own holds`() {
        var machine = opened(.expo())
        machine.settingsReceived(maxStreams: 0xFFFF_FFFF, at: start, ageJitter: 0)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .room(6))
    }

    @Test func `holds back while bytes wait for the socket`() {
        let machine = opened(.apns())
        #expect(machine.admission(at: start, cap: .max, unsent: Limits.unsentBytesMax) == .none)
    }

    @Test func `a silent APNs connection is asked before it is used, an FCM one is not`() {
        var apns = opened(.apns())
        let later = start + .seconds(15)
        #expect(apns.admission(at: later, cap: .max, unsent: 0) == .pingFirst)
        apns.pingSent(at: later)
        #expect(apns.admission(at: later, cap: .max, unsent: 0) == .none)
        apns.bytesRead(at: later)
        apns.pingAnswered()
        #expect(apns.admission(at: later, cap: .max, unsent: 0) == .room(100))
        #expect(opened(.fcm()).admission(at: later, cap: .max, unsent: 0) == .room(100))
    }

    @Test func `an unanswered PING is death after ten seconds`() {
        var machine = opened(.apns())
        machine.streamOpened(at: start)
        let silent = start + .seconds(15)
        #expect(machine.nextTime == silent)
        expectEqual(machine.timePassed(at: silent - TimeSpan(nanos: 1)), .nothing)
        expectEqual(machine.timePassed(at: silent), .ping)
        machine.pingSent(at: silent)
        expectEqual(machine.timePassed(at: silent + .milliseconds(9999)), .nothing)
        expectEqual(machine.timePassed(at: silent + .seconds(10)), .close(.pingUnanswered))
    }

    @Test func `thirty seconds without a byte are death, PING or not`() {
        for policy in [PoolPolicy.apns(), .fcm()] {
            var policy = policy
            policy.ping.answerWithin = .hours(1)
            var machine = opened(policy)
            machine.streamOpened(at: start)
            machine.pingSent(at: start + .seconds(29))
            let end = start + .seconds(30)
            expectEqual(machine.timePassed(at: end - TimeSpan(nanos: 1)), .nothing)
            expectEqual(machine.timePassed(at: end), .close(.silent))
        }
    }

    @Test func `silence counts from when there was something to answer`() {
        var machine = opened(.fcm())
        let later = start + .minutes(4)
        machine.streamOpened(at: later)
        expectEqual(machine.timePassed(at: later), .nothing)
        #expect(machine.nextTime == later + .seconds(15))
    }

    @Test func `FCM gets no PING while idle and at most one in thirty seconds`() {
        var machine = opened(.fcm())
        expectEqual(machine.timePassed(at: start + .seconds(299)), .nothing)
        let busy = start + .seconds(299)
        machine.streamOpened(at: busy)
        expectEqual(machine.timePassed(at: busy + .seconds(15)), .ping)
        machine.pingSent(at: busy + .seconds(15))
        machine.bytesRead(at: busy + .seconds(16))
        machine.pingAnswered()
        expectEqual(machine.timePassed(at: busy + .seconds(44)), .nothing)
        expectEqual(machine.timePassed(at: busy + .seconds(45)), .ping)
    }

    @Test func `an idle APNs connection is asked once an hour and kept`() {
        var machine = opened(.apns())
        expectEqual(machine.timePassed(at: start + .minutes(59)), .nothing)
        expectEqual(machine.timePassed(at: start + .hours(1)), .ping)
    }

    @Test
    func `an idle FCM connection goes after five minutes, a web push one after ninety seconds`() {
        var fcm = opened(.fcm())
        expectEqual(fcm.timePassed(at: start + .seconds(299)), .nothing)
        expectEqual(fcm.timePassed(at: start + .seconds(300)), .drain)
        var webPush = opened(.webPush())
        expectEqual(webPush.timePassed(at: start + .seconds(90)), .drain)
    }

    @Test func `opening has deadlines for TLS and for SETTINGS`() {
        var machine = ConnectionMachine(policy: .apns(), now: start)
        expectEqual(machine.timePassed(at: start + .seconds(10)), .close(.timedOut))
        machine.dialled()
        expectEqual(machine.timePassed(at: start + .seconds(10)), .close(.timedOut))
        machine.secured(at: start + .seconds(9))
        expectEqual(machine.timePassed(at: start + .seconds(10)), .nothing)
        expectEqual(machine.timePassed(at: start + .seconds(19)), .close(.timedOut))
    }

    @Test func `a socket that takes nothing is given up after ten seconds`() {
        var machine = opened(.apns())
        machine.wrote(progress: true, unsent: 100, at: start)
        machine.wrote(progress: true, unsent: 50, at: start + .seconds(9))
        machine.wrote(progress: false, unsent: 50, at: start + .seconds(12))
        expectEqual(machine.timePassed(at: start + .seconds(18)), .nothing)
        expectEqual(machine.timePassed(at: start + .seconds(19)), .close(.writeStalled))
    }

    @Test func `three time-outs in a row cost the trust, an answer restores it`() {
        var machine = opened(.apns())
        expectEqual(machine.requestTimedOut(), false)
        expectEqual(machine.requestTimedOut(), false)
        machine.answerReceived()
        expectEqual(machine.requestTimedOut(), false)
        expectEqual(machine.requestTimedOut(), false)
        expectEqual(machine.requestTimedOut(), true)
    }

    @Test func `an old connection is marked, with ages spread`() {
        var early = opened(.apns(), ageJitter: 1)
        var late = opened(.apns(), ageJitter: 0)
        let age = start + .minutes(13 * 60 + 30)
        _ = early.timePassed(at: age)
        _ = late.timePassed(at: age)
        #expect(early.isAged && !late.isAged)
        _ = late.timePassed(at: start + .hours(18))
        #expect(late.isAged)
    }

    @Test func `a draining connection opens nothing and is drained with its last stream`() {
        var machine = opened(.apns())
        machine.streamOpened(at: start)
        machine.drainRequested(at: start)
        #expect(machine.admission(at: start, cap: .max, unsent: 0) == .none)
        #expect(!machine.isDrained)
        machine.streamClosed(at: start)
        #expect(machine.isDrained)
    }

    private func opened(_ policy: PoolPolicy, ageJitter: Double = 0) -> ConnectionMachine {
        var machine = ConnectionMachine(policy: policy, now: start)
        machine.dialled()
        machine.secured(at: start)
        machine.settingsReceived(maxStreams: 100, at: start, ageJitter: ageJitter)
        return machine
    }
}

/// A machine driven as the shell drives it, with what must hold checked after each step.
private struct Walk {
    var machine: ConnectionMachine
    var now: MonotonicTime
    var trace: [Step] = []
    var fault: String?
    private let policy: PoolPolicy
    private var limit = 0
    private var isAwaitingPing = false

    init(policy: PoolPolicy, start: MonotonicTime) {
        self.policy = policy
        now = start
        machine = ConnectionMachine(policy: policy, now: start)
    }

    mutating func take(_ step: Step, using random: inout SeededRandom) {
        trace.append(step)
        let before = rank(machine.phase)
        let isReady =
            machine.phase == .open || machine.phase == .draining || machine.phase == .settling
        switch step {
        case .dialled: machine.dialled()
        case .secured: machine.secured(at: now)
        case .settingsOne: settings(1)
        case .settingsMany: settings(100)
        case .settingsZero: settings(0)
        case .open: openStream()
        case .close: if machine.openStreams > 0 { machine.streamClosed(at: now) }
        case .read: if isReady { machine.bytesRead(at: now) }
        case .answer: machine.answerReceived()
        case .timeout: _ = machine.requestTimedOut()
        case .pingAnswered:
            machine.pingAnswered()
            isAwaitingPing = false
        case .blocked: machine.wrote(progress: false, unsent: 10, at: now)
        case .unblocked: machine.wrote(progress: true, unsent: 0, at: now)
        case .drain: machine.drainRequested(at: now)
        case .wait: now = now + random.span(upTo: .seconds(20))
        case .waitLong: now = now + random.span(upTo: .hours(2))
        case .die: if Int.random(in: 0..<8, using: &random) == 0 { machine.closed(at: now) }
        }
        if rank(machine.phase) < before { fault = "the phase went back" }
        checkAdmission()
        checkTime()
    }

    private func rank(_ phase: ConnectionMachine.Phase) -> Int {
        ConnectionMachine.Phase.allCases.firstIndex(of: phase) ?? -1
    }

    private mutating func settings(_ maxStreams: Int) {
        let counts =
            machine.phase == .settling || machine.phase == .open || machine.phase == .draining
        machine.settingsReceived(maxStreams: maxStreams, at: now, ageJitter: 0.5)
        if counts { limit = maxStreams }
    }

    private mutating func openStream() {
        switch machine.admission(at: now, cap: .max, unsent: 0) {
        case .room:
            machine.streamOpened(at: now)
            if machine.openStreams > limit { fault = "more streams than the peer allows" }
        case .pingFirst:
            machine.pingSent(at: now)
            isAwaitingPing = true
        case .none: break
        }
    }

    private mutating func checkAdmission() {
        switch machine.admission(at: now, cap: .max, unsent: 0) {
        case .room(let room):
            if machine.phase != .open { fault = "room in phase \(machine.phase)" }
            if isAwaitingPing { fault = "room while a PING is unanswered" }
            if room < 1 || room + machine.openStreams > min(limit, policy.streamsMax) {
                fault = "room \(room) over the limit"
            }
        case .pingFirst:
            if !policy.ping.beforeReuse { fault = "a PING that the policy forbids" }
        case .none: break
        }
    }

    /// Nothing is due before `nextTime`, and what is due is due at `nextTime`.
    private mutating func checkTime() {
        for _ in 0..<8 {
            let next = machine.nextTime
            if machine.isOpening, next == .distantFuture { fault = "opening without a deadline" }
            if next > now {
                var copy = machine
                let early = min(now + .hours(1), next - TimeSpan(nanos: 1))
                if copy.timePassed(at: early) != .nothing { fault = "due before nextTime" }
            }
            switch machine.timePassed(at: now) {
            case .nothing:
                if machine.nextTime <= now { fault = "nextTime has passed and nothing is due" }
                return
            case .ping:
                if machine.openStreams == 0, policy.ping.whileIdle == nil {
                    fault = "an idle PING that the policy forbids"
                }
                machine.pingSent(at: now)
                isAwaitingPing = true
            case .drain:
                machine.drainRequested(at: now)
                machine.closed(at: now)
            case .close: machine.closed(at: now)
            }
        }
        fault = "time never settles"
    }
}
