import Testing

@testable import Kafka

/// Every call fails in every way, at every place, in every combination of the first few calls.
@Suite struct TransactionMachineTests {
    private typealias Call = TransactionMachine.Call
    private typealias Answer = TransactionMachine.Answer

    private static let error = KafkaError(configuration: "scripted")

    /// What a broker and its client can make of a call.
    private enum Reply: CaseIterable {
        case done, again, abort, fatal, fenced, refused
        /// As the three before, but the commit had happened.
        case againLanded, abortLanded, fatalLanded

        var answer: Answer {
            switch self {
            case .done: .done
            case .again, .againLanded: .again(error)
            case .abort, .abortLanded: .abort(error)
            case .fatal, .fatalLanded: .fatal(error)
            case .fenced: .fenced(error)
            case .refused: .refused(error)
            }
        }

        var landed: Bool { self == .againLanded || self == .abortLanded || self == .fatalLanded }
    }

    /// A broker that keeps what was committed, and a session that holds one thing to commit.
    private struct World {
        var machine = TransactionMachine()
        /// How often the thing that is held is in the topic, for a reader of committed records.
        var visible = 0
        var isHeld = true
        /// Whether the broker has an open transaction with records in it.
        var isOpen = false
        /// Whether the newest attempt to commit happened.
        var landed = false
        var calls: [Call] = []
        var fault: String?

        /// Makes the next call; false when the script does not fit it.
        mutating func step(_ reply: Reply) -> Bool {
            if machine.isIdle { machine.start() }
            guard let call = machine.next else { return false }
            calls.append(call)
            guard reply == .done || call != .resolve || !reply.landed else { return false }
            guard !reply.landed || call == .commit && !landed && isOpen else { return false }
            var answer = reply.answer
            switch call {
            case .begin where reply == .done:
                if isOpen { fault = "begins over an open transaction" }
                landed = false
            case .produce where reply == .done: isOpen = true
            case .commit where reply == .done || reply.landed:
                if !landed { visible += 1 }
                landed = true
                isOpen = false
            case .abort where reply == .done:
                // The broker refuses to abort what is committed.
                if landed { answer = .fatal(TransactionMachineTests.error) }
                isOpen = false
            case .initialise where reply == .done: isOpen = false
            case .resolve where reply == .done: answer = .found(landed)
            default: break
            }
            switch machine.answered(answer) {
            case .committed?:
                if visible != 1 { fault = "called committed what is there \(visible) times" }
                isHeld = false
            case .aborted?:
                if landed { fault = "called aborted what is committed" }
            case nil: break
            }
            if visible > 1 { fault = "committed twice" }
            return fault == nil
        }
    }

    @Test func `whatever fails, what is held is committed once or the end is known`() {
        var worlds = [World()]
        var ended = 0
        var scripts = 0
        for _ in 0..<7 {
            var next: [World] = []
            for world in worlds {
                for reply in Reply.allCases {
                    var branch = world
                    guard branch.step(reply) else {
                        if let fault = branch.fault { Issue.record("\(fault): \(branch.calls)") }
                        continue
                    }
                    scripts += 1
                    if branch.machine.end != nil {
                        ended += 1
                    } else if branch.isHeld {
                        finish(branch)
                        next.append(branch)
                    } else {
                        #expect(branch.visible == 1)
                    }
                }
            }
            worlds = next
        }
        #expect(scripts > 50_000)
        #expect(ended > 1_000)
    }

    /// From any state it takes few calls that succeed to the end of a transaction.
    private func finish(_ world: World) {
        var world = world
        for _ in 0..<12 where world.isHeld { _ = world.step(.done) }
        #expect(world.fault == nil, "\(world.calls)")
        #expect(!world.isHeld && world.visible == 1, "\(world.calls)")
    }

    @Test func `a call that never ends is given up`() {
        for stuck in [Call.begin, .produce, .sendOffsets, .commit, .abort] {
            var world = World()
            _ = world.step(.done)
            world.machine.start()
            while world.machine.next != stuck {
                // An abort is only reached over a failure.
                let fails = stuck == .abort && world.machine.next == .sendOffsets
                _ = world.step(fails ? .abort : .done)
            }
            var count = 0
            while world.machine.next == stuck, count < 1_000 {
                _ = world.step(.again)
                count += 1
            }
            #expect(count == TransactionMachine.repeatsMax, "\(stuck)")
            finish(world)
        }
    }

    @Test func `only a start that is refused ends it`() {
        var machine = TransactionMachine()
        _ = machine.answered(.refused(Self.error))
        #expect(machine.end != nil && machine.next == nil)

        machine = TransactionMachine()
        _ = machine.answered(.done)
        machine.start()
        _ = machine.answered(.refused(Self.error))
        #expect(machine.end == nil && machine.next == .rebuild)
    }
}
