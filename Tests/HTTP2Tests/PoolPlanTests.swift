import Base
import Testing

@testable import HTTP2

@Suite struct `The pool's plan` {
    private let start = MonotonicTime(nanos: 1_000_000_000_000)
    private let past = MonotonicTime(nanos: 0)

    private func census(
        opening: Int = 0, open: Int = 0, aged: Int = 0, capacity: Int = 0, inFlight: Int = 0,
        queued: Int = 0, oldestWait: TimeSpan = .zero, hasRoom: Bool = false
    ) -> PoolPlan.Census {
        PoolPlan.Census(
            opening: opening, open: open, aged: aged, capacity: capacity, inFlight: inFlight,
            queued: queued, oldestWait: oldestWait, hasRoom: hasRoom)
    }

    @Test func `dials for requests only, one at a time, up to the minimum`() {
        var plan = PoolPlan(policy: .apns(connectionsMin: 2, connectionsMax: 4))
        expectEqual(plan.decide(census(), earliestDial: past, at: start), .nothing)
        expectEqual(plan.decide(census(queued: 1), earliestDial: past, at: start), .dial)
        expectEqual(
            plan.decide(census(opening: 1, queued: 1), earliestDial: past, at: start), .nothing)
        expectEqual(plan.decide(census(open: 1, inFlight: 1), earliestDial: past, at: start), .dial)
        expectEqual(
            plan.decide(census(open: 2, inFlight: 1), earliestDial: past, at: start), .nothing)
        expectEqual(plan.decide(census(open: 1), earliestDial: past, at: start), .nothing)
    }

    @Test func `waits for the earliest time it may dial`() {
        var plan = PoolPlan(policy: .apns())
        let later = start + .seconds(3)
        expectEqual(plan.decide(census(queued: 1), earliestDial: later, at: start), .dialAt(later))
        expectEqual(plan.decide(census(queued: 1), earliestDial: later, at: later), .dial)
    }

    @Test func `grows after two seconds in which all were full and a request waited too long`() {
        var plan = PoolPlan(policy: .apns(connectionsMin: 1, connectionsMax: 2))
        let full = census(
            open: 1, capacity: 10, inFlight: 10, queued: 5, oldestWait: .milliseconds(201))
        expectEqual(plan.decide(full, earliestDial: past, at: start), .nothing)
        #expect(plan.nextTime == start + .seconds(2))
        expectEqual(plan.decide(full, earliestDial: past, at: start + .seconds(1)), .nothing)
        expectEqual(plan.decide(full, earliestDial: past, at: start + .seconds(2)), .dial)
        var two = full
        two.open = 2
        expectEqual(plan.decide(two, earliestDial: past, at: start + .seconds(9)), .nothing)
    }

    @Test func `room in between ends the pressure`() {
        var plan = PoolPlan(policy: .apns(connectionsMin: 1, connectionsMax: 2))
        var full = census(
            open: 1, capacity: 10, inFlight: 10, queued: 5, oldestWait: .milliseconds(201))
        _ = plan.decide(full, earliestDial: past, at: start)
        full.hasRoom = true
        _ = plan.decide(full, earliestDial: past, at: start + .seconds(1))
        full.hasRoom = false
        expectEqual(plan.decide(full, earliestDial: past, at: start + .seconds(2)), .nothing)
        expectEqual(plan.decide(full, earliestDial: past, at: start + .seconds(4)), .dial)
    }

    @Test func `retires a surplus connection after ten minutes of low use`() {
        var plan = PoolPlan(policy: .apns(connectionsMin: 1, connectionsMax: 4))
        let low = census(open: 3, capacity: 300, inFlight: 89, hasRoom: true)
        let high = census(open: 3, capacity: 300, inFlight: 90, hasRoom: true)
        expectEqual(plan.decide(low, earliestDial: past, at: start), .nothing)
        _ = plan.decide(high, earliestDial: past, at: start + .minutes(9))
        _ = plan.decide(low, earliestDial: past, at: start + .minutes(9))
        expectEqual(plan.decide(low, earliestDial: past, at: start + .minutes(18)), .nothing)
        expectEqual(plan.decide(low, earliestDial: past, at: start + .minutes(19)), .retire)
        expectEqual(plan.decide(low, earliestDial: past, at: start + .minutes(19)), .nothing)
    }

    @Test func `an aged connection goes when its replacement is open, or nobody needs it`() {
        var plan = PoolPlan(policy: .apns(connectionsMin: 1, connectionsMax: 1))
        let one = census(open: 1, aged: 1, capacity: 10, inFlight: 2, hasRoom: true)
        expectEqual(plan.decide(one, earliestDial: past, at: start), .dial)
        var two = one
        two.open = 2
        expectEqual(plan.decide(two, earliestDial: past, at: start), .retireAged)
        let idle = census(open: 1, aged: 1, capacity: 10, hasRoom: true)
        expectEqual(plan.decide(idle, earliestDial: past, at: start), .retireAged)
    }
}

@Suite struct `The reconnect delay` {
    private let start = MonotonicTime(nanos: 1_000_000_000_000)

    @Test(arguments: 0..<50 as Range<UInt64>)
    func `is drawn from zero up to a ceiling that doubles to a minute`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var delay = ReconnectDelay(policy: .apns())
        var ceiling = TimeSpan.milliseconds(500)
        var now = start
        for _ in 0..<12 {
            delay.attempted(at: now)
            delay.failed(at: now, using: &random)
            let wait = delay.earliest - now
            #expect(wait >= .seconds(1), "seed \(seed)")
            #expect(wait <= max(.seconds(1), ceiling), "seed \(seed)")
            now = delay.earliest
            ceiling = min(ceiling * 2, .seconds(60))
        }
        delay.succeeded()
        #expect(delay.failures == 0)
    }

    @Test func `an owner's probe does not wait for the back-off, and the cap stays`() {
        var random = SeededRandom(seed: 7)
        var delay = ReconnectDelay(policy: .apns())
        for _ in 0..<10 {
            delay.attempted(at: start)
            delay.failed(at: start, using: &random)
        }
        delay.forgetBackOff()
        let earliest = delay.earliest
        #expect(earliest >= start + .seconds(1))
        delay.failed(at: start, using: &random)
        #expect(delay.failures == 11)
    }

    @Test func `lets a replacement follow at once and caps the pace all the same`() {
        var delay = ReconnectDelay(policy: .apns())
        for _ in 0..<3 {
            #expect(delay.earliest <= start)
            delay.attempted(at: start)
        }
        var now = start
        for _ in 0..<10 {
            #expect(delay.earliest == now + .seconds(1))
            now = delay.earliest
            delay.attempted(at: now)
        }
        // A quiet minute earns three again, not sixty.
        now = now + .minutes(1)
        for _ in 0..<3 {
            #expect(delay.earliest <= now)
            delay.attempted(at: now)
        }
        #expect(delay.earliest == now + .seconds(1))
    }

    @Test func `the waits really differ and reach far`() {
        var random = SeededRandom(seed: 1)
        var waits: [Int64] = []
        for _ in 0..<200 {
            var delay = ReconnectDelay(policy: .apns())
            for _ in 0..<10 { delay.failed(at: start, using: &random) }
            waits.append((delay.earliest - start).millis)
        }
        #expect(waits.max() ?? 0 > 55_000)
        #expect(Set(waits).count > 150)
    }

    @Test func `calm lasts thirty seconds, then longer each time`() {
        var delay = ReconnectDelay(policy: .fcm())
        expectEqual(delay.calmed(at: start), .seconds(30))
        #expect(delay.earliest == start + .seconds(30))
        expectEqual(delay.calmed(at: start), .seconds(60))
        for _ in 0..<10 { _ = delay.calmed(at: start) }
        expectEqual(delay.calmed(at: start), .seconds(300))
    }

    @Test func `refused credentials stop the dialling save for a look every five minutes`() {
        var delay = ReconnectDelay(policy: .apns())
        delay.credentialsRefused(at: start)
        #expect(delay.earliest == start + .minutes(5))
        delay.attempted(at: start + .minutes(5))
        #expect(delay.earliest == start + .minutes(10))
        delay.credentialsReplaced()
        #expect(delay.earliest <= start + .minutes(5))
    }

    @Test func `the calm cap halves and comes back by the minute`() {
        var cap = CalmCap()
        expectEqual(cap.value(at: start), .max)
        cap.halve(streams: 100, at: start)
        expectEqual(cap.value(at: start), 50)
        cap.halve(streams: 40, at: start)
        expectEqual(cap.value(at: start + .seconds(59)), 20)
        expectEqual(cap.value(at: start + .seconds(60)), 40)
        expectEqual(cap.value(at: start + .hours(1)), .max)
        cap.halve(streams: 1, at: start)
        expectEqual(cap.value(at: start), 1)
    }
}

@Suite struct `What becomes of a stream without an answer` {
    @Test(arguments: [
        (StreamEnd.neverWritten, Disposition.resend, Disposition.resend),
        (.aboveGoAway(.noError), .resend, .notProcessed(.goAway(.noError))),
        (.refused, .resendAfterDelay, .notProcessed(.refused)),
        (.misdirected, .resend, .notProcessed(.misdirected)),
        (.http11Required, .notProcessed(.http11Required), .notProcessed(.http11Required)),
        (.reset(.cancel), .ambiguous(.reset(.cancel)), .ambiguous(.reset(.cancel))),
        (
            .reset(.protocolError), .ambiguous(.reset(.protocolError)),
            .ambiguous(.reset(.protocolError))
        ),
        (.timedOut, .ambiguous(.timedOut), .ambiguous(.timedOut)),
        (
            .connectionEnded(.connectionLost), .ambiguous(.connectionLost),
            .ambiguous(.connectionLost)
        ),
        (.malformed, .ambiguous(.malformedResponse), .ambiguous(.malformedResponse)),
    ])
    func `follows from the proof, and ends after eight repetitions`(
        end: StreamEnd, first: Disposition, last: Disposition
    ) {
        for resends in 0..<Limits.resendsMax {
            #expect(Disposition(of: end, resends: resends) == first)
        }
        #expect(Disposition(of: end, resends: Limits.resendsMax) == last)
    }
}

@Suite struct `The reason of a GOAWAY` {
    @Test(arguments: [
        (#"{"reason":"Shutdown"}"#, "Shutdown"),
        (#"{ "timestamp": 12, "reason" : "BadCertificate" }"#, "BadCertificate"),
        (#"{"reason":"IdleTimeout""#, "IdleTimeout"),
    ])
    func `is found in the debug data`(text: String, reason: String) {
        #expect(GoAwayReason(debugData: text.utf8)?.text == reason)
    }

    @Test(arguments: [
        "", "reason", #"{"reason":}"#, #"{"reason":7}"#, #"{"reason":"}"#, #"{"reason":"a b"}"#,
        #"{"reason""#, "too_many_pings", "\u{0}\u{1}",
    ])
    func `is absent from anything else`(text: String) {
        #expect(GoAwayReason(debugData: text.utf8) == nil)
    }

    @Test func `tells credentials from routine`() throws {
        let shutdown = try #require(GoAwayReason(debugData: #"{"reason":"Shutdown"}"#.utf8))
        #expect(shutdown.isRoutine && !shutdown.blamesCredentials)
        let certificate = try #require(
            GoAwayReason(debugData: #"{"reason":"BadCertificateEnvironment"}"#.utf8))
        #expect(!certificate.isRoutine && certificate.blamesCredentials)
    }
}
