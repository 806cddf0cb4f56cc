import Base
import Glibc
import Synchronization
import Testing

@testable import EventLoop

/// A clock that goes on by a millisecond whenever it is read.
private final class SteppingTime: TimeSource {
    private let reads = Atomic<Int64>(0)

    var monotonic: MonotonicTime {
        MonotonicTime(nanos: reads.add(1, ordering: .relaxed).newValue * 1_000_000)
    }
    var wall: UnixMillis { UnixMillis(0) }
}

@Suite struct `The event loop` {
    @Test func `time between two looks at the clock is waiting, work is not`() throws {
        let time = SteppingTime()
        let loop = try EventLoop(name: "test", time: time)
        for _ in 0..<3 {
            loop.turn(waitingUpTo: .zero)
            // Somebody works for a millisecond.
            _ = time.monotonic
        }
        #expect(loop.waited == .milliseconds(3))
    }

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

    private func dial(
        _ host: String, _ port: UInt16, reach: AddressReach = .any
    ) throws -> Result<Int32, DialError> {
        let loop = try EventLoop(name: "test")
        let outcome = Outcome()
        Dialer.dial(
            host: host, port: port, reach: reach, on: loop, deadline: loop.now + .seconds(20)
        ) { outcome.result = $0 }
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

    @Test func `names under localhost are this machine`() throws {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        defer { SocketIO.close(listener.fd) }
        SocketIO.close(try dial("mozilla.localhost", listener.port).get())
        SocketIO.close(
            try dial("mozilla.localhost", listener.port, reach: .publicOrLoopback).get())
    }

    @Test(arguments: ["localhost", "127.0.0.1", "push.localhost"])
    func `an address out of reach is not connected to`(host: String) throws {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        defer { SocketIO.close(listener.fd) }
        guard
            case .failure(.forbidden(host: host)) =
                try dial(host, listener.port, reach: .publicOnly)
        else {
            Issue.record("connected")
            return
        }
        #expect(ListeningSocket.accept(listener.fd) == nil)
    }

    @Test(arguments: [
        "8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "192.0.1.1", "100.63.255.255",
        "100.128.0.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "2606:4700:4700::1111",
        "2001:4860:4860::8888", "2a00:1450::1", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8",
    ])
    func `public addresses are within reach`(literal: String) throws {
        let address = try #require(SocketAddress(literal: literal, port: 443))
        #expect(AddressReach.publicOnly.permits(address))
        #expect(AddressReach.publicOrLoopback.permits(address))
    }

    @Test(arguments: [
        "0.0.0.0", "0.1.2.3", "10.0.0.5", "100.64.0.1", "100.127.255.255", "127.0.0.1",
        "127.1.2.3", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1",
        "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7",
        "203.0.113.7", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1",
        "fe80::1", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1",
        "2002:7f00:1::1", "3fff::1", "100::1", "64:ff9b::10.0.0.1", "64:ff9b:1::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.5", "::ffff:169.254.169.254", "::127.0.0.1",
    ])
    func `what is not of the public Internet is not`(literal: String) throws {
        let address = try #require(SocketAddress(literal: literal, port: 443))
        #expect(!AddressReach.publicOnly.permits(address))
        let isLoopback = ["127.0.0.1", "127.1.2.3", "::1"].contains(literal)
        #expect(AddressReach.publicOrLoopback.permits(address) == isLoopback)
        #expect(AddressReach.any.permits(address))
    }

    /// A push is small and wanted at once; what a firewall forgot is noticed in 90 seconds.
    @Test func `a connection sends at once and asks whether its peer is still there`() throws {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        defer { SocketIO.close(listener.fd) }
        let fd = try dial("127.0.0.1", listener.port).get()
        defer { SocketIO.close(fd) }
        func option(_ level: Int32, _ name: Int32) -> Int32? {
            var value: Int32 = 0
            var length = socklen_t(4)
            return getsockopt(fd, level, name, &value, &length) == 0 ? value : nil
        }
        let tcp = Int32(IPPROTO_TCP)
        #expect(option(tcp, TCP_NODELAY) == 1)
        #expect(option(SOL_SOCKET, SO_KEEPALIVE) == 1)
        #expect(option(tcp, TCP_KEEPIDLE) == 60)
        #expect(option(tcp, TCP_KEEPINTVL) == 10)
        #expect(option(tcp, TCP_KEEPCNT) == 3)
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
