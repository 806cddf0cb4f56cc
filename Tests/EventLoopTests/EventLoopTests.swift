import Base
import EventLoop
import Synchronization
import Testing

@Suite struct `The event loop` {
    @Test func `a timer that schedules itself for now fires in the next turn`() throws {
        let time = ManualTime()
        let loop = try EventLoop(name: "test", time: time)
        final class Ticker {
            var ticks = 0
            var timer: LoopTimer?
        }
        let ticker = Ticker()
        let timer = LoopTimer { [unowned ticker] in
            ticker.ticks += 1
            if let timer = ticker.timer { loop.schedule(timer, at: loop.now) }
        }
        ticker.timer = timer
        loop.schedule(timer, at: loop.now)
        for turn in 1...3 {
            loop.turn(waitingUpTo: .zero)
            #expect(ticker.ticks == turn)
        }
    }

    @Test func `timers fire in order of time, then of scheduling, and only when due`() throws {
        let time = ManualTime()
        let loop = try EventLoop(name: "test", time: time)
        var fired: [String] = []
        let timers = ["b", "a", "c", "d"].map { name in LoopTimer { fired.append(name) } }
        loop.schedule(timers[0], at: loop.now + .seconds(2))
        loop.schedule(timers[1], at: loop.now + .seconds(1))
        loop.schedule(timers[2], at: loop.now + .seconds(2))
        loop.schedule(timers[3], at: loop.now + .seconds(2))
        loop.cancel(timers[3])
        loop.turn(waitingUpTo: .zero)
        #expect(fired.isEmpty)
        time.advance(by: .seconds(2))
        loop.turn(waitingUpTo: .zero)
        #expect(fired == ["a", "b", "c"])
        #expect(timers.allSatisfy { !$0.isScheduled })
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `the timer heap agrees with a sorted list`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let time = ManualTime()
        let loop = try EventLoop(name: "test", time: time)
        var fired: [Int] = []
        let timers = (0..<60).map { index in LoopTimer { fired.append(index) } }
        var model: [Int: MonotonicTime] = [:]
        for _ in 0..<400 {
            let index = Int.random(in: 0..<60, using: &random)
            if Int.random(in: 0..<4, using: &random) == 0 {
                loop.cancel(timers[index])
                model[index] = nil
            } else {
                let due = loop.now + .milliseconds(Int64.random(in: 1...50, using: &random))
                loop.schedule(timers[index], at: due)
                model[index] = due
            }
            if Int.random(in: 0..<10, using: &random) == 0 {
                time.advance(by: .milliseconds(5))
                fired = []
                loop.turn(waitingUpTo: .zero)
                let due = model.filter { $0.value <= time.monotonic }
                #expect(Set(fired) == Set(due.keys), "seed \(seed)")
                #expect(zip(fired, fired.dropFirst()).allSatisfy { due[$0]! <= due[$1]! })
                for index in due.keys { model[index] = nil }
            }
        }
    }

    @Test func `a mailbox delivers everything, in order, and refuses what is over its bound`()
        throws
    {
        let mailbox = Mailbox<Int>(capacity: 3)
        #expect([1, 2, 3].allSatisfy { mailbox.post($0) })
        #expect(!mailbox.post(4))
        let loop = try EventLoop(name: "test")
        var received: [[Int]] = []
        mailbox.attach(to: loop) { received.append($0) }
        loop.turn(waitingUpTo: .zero)
        #expect(received == [[1, 2, 3]])
        mailbox.post(5)
        loop.turn(waitingUpTo: .seconds(5))
        #expect(received.last == [5])
    }

    @Test func `jobs from another thread run on the loop's thread, and stop ends it`() throws {
        let count = Atomic<Int>(0)
        let thread = try LoopThread.start(name: "test") { _ in }
        for _ in 0..<1000 { thread.handle.submit { count.add(1, ordering: .relaxed) } }
        thread.handle.stop()
        thread.join()
        #expect(count.load(ordering: .relaxed) == 1000)
    }
}

@Suite struct `Dialling` {
    private final class Outcome { var result: Result<Int32, DialError>? }

    private func dial(_ host: String, _ port: UInt16) throws -> Result<Int32, DialError> {
        let loop = try EventLoop(name: "test")
        let outcome = Outcome()
        Dialer.dial(host: host, port: port, on: loop, deadline: loop.now + .seconds(20)) {
            outcome.result = $0
        }
        while outcome.result == nil { loop.turn(waitingUpTo: .seconds(1)) }
        return try #require(outcome.result)
    }

    @Test func `every address of a name is tried`() throws {
        // localhost is ::1 and 127.0.0.1 on most machines, and only one of them listens.
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        defer { SocketIO.close(listener.fd) }
        let fd = try dial("localhost", listener.port).get()
        SocketIO.close(fd)
    }

    @Test func `a refused connection names the host`() throws {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        SocketIO.close(listener.fd)
        let result = try dial("127.0.0.1", listener.port)
        guard case .failure(let error) = result else {
            Issue.record("connected to a closed port")
            return
        }
        #expect(error.description == "127.0.0.1: connect: Connection refused")
    }

    @Test func `a name without an address is a failed look-up`() throws {
        guard
            case .failure(.lookUpFailed(host: "no-such-host.invalid", _)) =
                try dial("no-such-host.invalid", 1)
        else {
            Issue.record("found an address for a name that has none")
            return
        }
    }

    @Test func `bytes cross a connection and a closed peer is a value`() throws {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        defer { SocketIO.close(listener.fd) }
        let client = try dial("127.0.0.1", listener.port).get()
        let server = try #require(ListeningSocket.accept(listener.fd))
        let sent: [UInt8] = [1, 2, 3]
        #expect(sent.withUnsafeBytes { SocketIO.write(client, $0) } == .count(3))
        var buffer = [UInt8](repeating: 0, count: 8)
        let loop = try EventLoop(name: "test")
        loop.turn(waitingUpTo: .zero)
        #expect(buffer.withUnsafeMutableBytes { SocketIO.read(server, into: $0) } == .count(3))
        #expect(buffer.withUnsafeMutableBytes { SocketIO.read(server, into: $0) } == .wouldBlock)
        SocketIO.close(client)
        #expect(buffer.withUnsafeMutableBytes { SocketIO.read(server, into: $0) } == .closed)
        SocketIO.close(server)
    }
}
