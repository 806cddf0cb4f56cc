import Base
import Gateways
import Testing

@testable import Pipeline

/// When a process asks its fleet for a token, and when it goes on alone: with time in hand.
@Suite struct `A token that is due` {
    private var start: MonotonicTime { MonotonicTime(nanos: 1_000_000_000_000) }
    private let token = FleetAnswer.token(
        SealedToken(bytes: [1], age: .minutes(1), life: .hours(1)))

    @Test func `is asked for once, made on the fleet's word and not asked for again`() {
        var plan = FleetTokenPlan()
        #expect(plan.step(isDue: false, patience: .seconds(3), at: start) == .wait)
        #expect(plan.step(isDue: true, patience: .seconds(3), at: start) == .ask)
        #expect(plan.step(isDue: true, patience: .seconds(3), at: start) == .wait)
        plan.answered(.make, isTaken: false, hasToken: false, at: start)
        #expect(plan.step(isDue: true, patience: .seconds(3), at: start) == .make)
        #expect(plan.step(isDue: true, patience: .seconds(3), at: start) == .wait)
        #expect(plan.step(isDue: false, patience: .seconds(3), at: start) == .wait)
        #expect(!plan.isAlone)
    }

    @Test func `is waited for while another replica makes it, and not for ever`() {
        var plan = FleetTokenPlan()
        var now = start
        var questions = 0
        while true {
            let step = plan.step(isDue: true, patience: .seconds(3), at: now)
            if step == .make { break }
            if step == .ask {
                questions += 1
                plan.answered(.wait, isTaken: false, hasToken: false, at: now)
            }
            now = now + .milliseconds(100)
        }
        #expect(now - start == .seconds(3))
        #expect((10...20).contains(questions))
        #expect(plan.isAlone)
        // Then it is asked again, as if nothing had been.
        now = now + .seconds(1)
        #expect(plan.step(isDue: true, patience: .seconds(3), at: now) == .ask)
        plan.answered(token, isTaken: true, hasToken: true, at: now)
        #expect(!plan.isAlone)
    }

    @Test func `is made alone at once without a store only by who has none`() {
        for hasToken in [true, false] {
            var plan = FleetTokenPlan()
            var now = start
            let patience = hasToken ? TimeSpan.minutes(6) : .seconds(3)
            while true {
                let step = plan.step(isDue: true, patience: patience, at: now)
                if step == .make { break }
                if step == .ask {
                    plan.answered(.unavailable, isTaken: false, hasToken: hasToken, at: now)
                }
                now = now + .milliseconds(100)
            }
            #expect(plan.isAlone)
            if hasToken {
                #expect(now - start == .minutes(6))
            } else {
                #expect(now - start < .milliseconds(1500))
            }
        }
    }
}
