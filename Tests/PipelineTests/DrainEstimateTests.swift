import Base
import Testing

@testable import Pipeline

@Suite struct `The time to drain` {
    private let start = MonotonicTime(nanos: 1_000_000_000_000)

    /// A lane with a backlog in several partitions and nothing special.
    private func load(_ change: (inout LaneLoad) -> Void = { _ in }) -> LaneLoad {
        var load = LaneLoad()
        load.partitions = 4
        load.unread = 1000
        load.unreadInHottest = 300
        load.eventsMax = 100
        load.targetsMax = 100
        change(&load)
        return load
    }

    /// What is said after `seconds` of a backlog of which `rate` events are done each second.
    private func answer(
        after seconds: Int, rate: Int64, unread: Int64 = 1000, busyShare: Double = 1
    ) -> DrainEstimate.Answer {
        var estimate = DrainEstimate()
        var answer = DrainEstimate.Answer()
        for quarter in 0...seconds * 4 {
            let passed = TimeSpan.milliseconds(Int64(quarter) * 250)
            let load = load {
                $0.unread = unread
                $0.completed = rate * Int64(quarter) / 4
                $0.busy = TimeSpan(nanos: Int64(Double(passed.nanos) * busyShare))
            }
            answer = estimate.take(load, at: start + passed)
        }
        return answer
    }

    @Test func `is what is unread over the pace of the last half minute`() {
        #expect(answer(after: 20, rate: 100).seconds == 10)
        #expect(answer(after: 20, rate: 100).bottleneck == .replicas)
        var estimate = DrainEstimate()
        var last = DrainEstimate.Answer()
        // A minute at 10 a second, then one at 100: the first is forgotten.
        for second in 0..<120 {
            let done = second < 60 ? second * 10 : 600 + (second - 60) * 100
            let load = load { $0.completed = Int64(done) }
            last = estimate.take(load, at: start + .seconds(Int64(second)))
        }
        #expect(last.seconds > 9.9 && last.seconds < 10.5)
    }

    @Test func `says nothing for five seconds, and a day when nothing moves`() {
        #expect(answer(after: 4, rate: 0) == DrainEstimate.Answer())
        #expect(answer(after: 5, rate: 0).seconds == 86_400)
        #expect(answer(after: 20, rate: 1, unread: 1_000_000_000).seconds == 86_400)
    }

    @Test func `begins anew with every backlog`() {
        var estimate = DrainEstimate()
        _ = estimate.take(load(), at: start)
        let later = start + .seconds(60)
        #expect(estimate.take(load { $0.unread = 0 }, at: later) == DrainEstimate.Answer())
        // The minute before was no backlog: five seconds have to pass again.
        #expect(estimate.take(load(), at: later + .seconds(1)) == DrainEstimate.Answer())
        let answer = estimate.take(load { $0.completed = 500 }, at: later + .seconds(6))
        #expect(answer.seconds == 10)
    }

    private func bottleneck(busy: Double, _ change: (inout LaneLoad) -> Void) -> Bottleneck {
        DrainEstimate.bottleneck(of: load(change), busyShare: busy)
    }

    @Test func `is held back by redis while look-ups are not answered`() {
        #expect(bottleneck(busy: 1) { $0.isIndexReady = false } == .redis)
        let awaiting = { (load: inout LaneLoad) in
            load.eventsInFlight = 100
            load.lookUpsOpen = 50
        }
        #expect(bottleneck(busy: 1, awaiting) == .redis)
        #expect(bottleneck(busy: 1) { $0.lookUpsOpen = 50 } == .replicas)
    }

    @Test func `is held back by the brokers when they take or hand over no more`() {
        #expect(bottleneck(busy: 1) { $0.outboxHasRoom = false } == .kafka)
        #expect(bottleneck(busy: 0.2) { _ in } == .kafka)
    }

    @Test func `is held back by a quota when requests wait for their budget`() {
        #expect(bottleneck(busy: 1) { $0.waitingForBudget = 1 } == .quota)
    }

    @Test func `is held back by a hot key when one partition has most of it or stands still`() {
        #expect(bottleneck(busy: 1) { $0.unreadInHottest = 800 } == .hotKey)
        #expect(bottleneck(busy: 1) { $0.unreadInHottest = 799 } == .replicas)
        #expect(bottleneck(busy: 1) { $0.heldBack = 1 } == .hotKey)
    }

    @Test func `is held back by a gateway while the lane has time to spare`() {
        #expect(bottleneck(busy: 0.5) { $0.fullPools = 1 } == .gateway)
        #expect(bottleneck(busy: 0.9) { $0.fullPools = 1 } == .replicas)
        #expect(bottleneck(busy: 0.5) { $0.targetsInFlight = 100 } == .gateway)
    }

    @Test func `is held back by partitions when a busy process has one only`() {
        #expect(bottleneck(busy: 0.9) { $0.partitions = 1 } == .partitions)
    }

    @Test func `is held back by the number of replicas when a lane is busy with several`() {
        #expect(bottleneck(busy: 0.9) { _ in } == .replicas)
    }

    @Test func `names the first that holds when several do`() {
        let everything = { (load: inout LaneLoad) in
            load.isIndexReady = false
            load.outboxHasRoom = false
            load.waitingForBudget = 1
            load.heldBack = 1
            load.fullPools = 1
        }
        #expect(bottleneck(busy: 0.5, everything) == .redis)
        #expect(
            bottleneck(busy: 0.5) {
                everything(&$0)
                $0.isIndexReady = true
            } == .kafka)
        #expect(
            bottleneck(busy: 0.5) {
                everything(&$0)
                $0.isIndexReady = true
                $0.outboxHasRoom = true
            } == .quota)
    }

    @Test func `of a process is its slowest lane's`() {
        func lane(_ seconds: Double, _ bottleneck: Bottleneck, partitions: Int) -> LaneLoad {
            load {
                $0.partitions = partitions
                $0.drain = DrainEstimate.Answer(seconds: seconds, bottleneck: bottleneck)
            }
        }
        let lanes = [lane(3, .gateway, partitions: 2), lane(9, .hotKey, partitions: 2)]
        #expect(DrainEstimate.slowest(lanes).seconds == 9)
        #expect(DrainEstimate.slowest(lanes).bottleneck == .hotKey)
        // The lane has its last partition, the process has another to give away.
        let two = [lane(9, .partitions, partitions: 1), lane(0, .none, partitions: 1)]
        #expect(DrainEstimate.slowest(two).bottleneck == .replicas)
        let one = [lane(9, .partitions, partitions: 1), lane(0, .none, partitions: 0)]
        #expect(DrainEstimate.slowest(one).bottleneck == .partitions)
        #expect(DrainEstimate.slowest([]) == DrainEstimate.Answer())
    }
}
