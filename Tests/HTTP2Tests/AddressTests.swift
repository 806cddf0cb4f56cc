// A gateway whose name has several addresses, and others after a while.

import Base
import Glibc
import Synchronization
import Testing

@testable import EventLoop
@testable import HTTP2

/// What a name service knows, and what it was asked.
private final class Names: Sendable {
    private struct State: Sendable {
        var addresses: [String]
        var asked: [String] = []
    }

    private let state: Mutex<State>
    /// Called on a resolver's thread with the name and the number of the look-up, counted from 1.
    private let beforeAnswer: @Sendable (String, Int) -> Void

    init(
        _ addresses: String...,
        beforeAnswer: @escaping @Sendable (String, Int) -> Void = { _, _ in }
    ) {
        state = Mutex(State(addresses: addresses))
        self.beforeAnswer = beforeAnswer
    }

    var asked: [String] { state.withLock { $0.asked } }

    func move(to addresses: String...) { state.withLock { $0.addresses = addresses } }

    var service: NameService {
        NameService { [self] name in
            let number = state.withLock { state in
                state.asked.append(name)
                return state.asked.count
            }
            beforeAnswer(name, number)
            return state.withLock { $0.addresses }
        }
    }
}

/// An address that answers nobody: its backlog is full, so that the kernel drops who comes.
private final class BlackHole {
    private let listener: Int32
    private var waiting: [Int32] = []

    init(host: String, port: UInt16) throws {
        listener = try ListeningSocket.open(host: host, port: port).fd
        listen(listener, 0)
        let address = try #require(SocketAddress(literal: host, port: port))
        for _ in 0..<3 {
            let fd = socket(
                address.family, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
            _ = address.withPointer { connect(fd, $0, $1) }
            waiting.append(fd)
        }
    }

    deinit {
        for fd in waiting + [listener] { close(fd) }
    }
}

@Suite struct `A gateway with several addresses` {
    private func stage(
        _ names: Names, _ policy: PoolPolicy = .apns(connectionsMin: 1, connectionsMax: 1)
    ) throws -> Stage {
        let stage = try Stage(policy, host: "gateway.test")
        stage.loop.names = names.service
        return stage
    }

    @Test func `is reached at the next one when one refuses`() throws {
        // Only the last one listens.
        let names = Names("127.0.0.2", "127.0.0.3", "127.0.0.1")
        let stage = try stage(names)
        stage.submit(1)
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
        #expect(names.asked == ["gateway.test"])
        // That is no failed attempt: nobody is told, nothing waits.
        #expect(stage.pool.statistics.dials == 1 && stage.pool.statistics.connectFailures == 0)
        #expect(stage.alarms.isEmpty)
    }

    @Test func `is reached at the next one when one is silent, long before the deadline`() throws {
        let names = Names("127.0.0.2", "127.0.0.1")
        let stage = try stage(names)
        let hole = try BlackHole(host: "127.0.0.2", port: stage.listener.port)
        let start = stage.time.monotonic
        stage.submit(1)
        let isDone = withExtendedLifetime(hole) {
            stage.run {
                stage.time.advance(by: .milliseconds(1))
                return stage.outcomes[1] != nil
            }
        }
        #expect(isDone && stage.outcomes[1] == .accepted)
        let took = stage.time.monotonic - start
        #expect(took >= .milliseconds(250) && took < .seconds(5), "\(took)")
        #expect(stage.pool.statistics.dials == 1 && stage.pool.statistics.connectFailures == 0)
    }

    @Test func `that all refuse is looked up again for each attempt, and told with its name`()
        throws
    {
        let names = Names("127.0.0.2", "127.0.0.3")
        let stage = try stage(names)
        stage.submit(1)
        stage.advance(by: .seconds(3), step: .milliseconds(100))
        #expect(stage.pool.statistics.connectFailures > 1)
        #expect(names.asked.count == stage.pool.statistics.dials)
        guard case .unreachable(let text, _) = stage.alarms.first else {
            Issue.record("\(stage.alarms)")
            return
        }
        #expect(text.contains("gateway.test: connect: Connection refused"))
        names.move(to: "127.0.0.1")
        stage.advance(by: .seconds(5), step: .milliseconds(100))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
    }

    @Test func `that moved is found by the look-up that follows a lost connection`() throws {
        let names = Names("127.0.0.1")
        let stage = try stage(names)
        let other = try stage.serve(at: "127.0.0.3")
        stage.submit(1)
        #expect(stage.finish([1]))
        names.move(to: "127.0.0.3")
        stage.submit(2)
        #expect(stage.finish([2]))
        // A connection that works stays where it is.
        #expect(other.accepted == 0 && names.asked.count == 1)
        stage.connections[1]?.cut()
        #expect(stage.run { stage.pool.connectionCount == 0 })
        stage.submit(3)
        stage.advance(by: .seconds(2))
        #expect(stage.finish([3]))
        #expect(stage.outcomes[3] == .accepted)
        #expect(stage.listener.accepted == 1 && other.accepted == 1)
        #expect(names.asked.count == 2)
    }

    @Test func `is looked up once for each connection of a pool`() throws {
        let names = Names("127.0.0.1")
        var policy = PoolPolicy.apns(connectionsMin: 3, connectionsMax: 3)
        policy.dialInterval = .zero
        let stage = try stage(names, policy)
        stage.onRequest = { _, _ in }
        stage.submit(1)
        #expect(stage.run { stage.pool.openConnectionCount == 3 })
        #expect(names.asked.count == 3)
    }

    @Test func `keeps nobody waiting whose look-up hangs`() throws {
        let gate = Semaphore()
        defer { gate.signal() }
        let names = Names("127.0.0.1") { _, number in if number == 2 { gate.wait() } }
        var policy = PoolPolicy.apns(connectionsMin: 2, connectionsMax: 2)
        policy.dialInterval = .zero
        let stage = try stage(names, policy)
        stage.onRequest = { _, _ in }
        stage.submit(1)
        // The second connection's look-up hangs from here on.
        #expect(stage.run { stage.arrivals.count == 1 && names.asked.count == 2 })
        stage.onRequest = { $1.respond(ServerResponse(status: 200), on: $0.stream) }
        stage.connections[1]?.respond(ServerResponse(status: 200), on: 1)
        for tag in 2...200 { stage.submit(UInt64(tag)) }
        #expect(stage.finish(1...200))
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.pool.connectionCount == 2 && stage.pool.openConnectionCount == 1)
        // It is given up at the deadline like any other attempt, and its late answer does no harm.
        stage.time.advance(by: .seconds(11))
        #expect(stage.run { stage.pool.statistics.connectFailures == 1 })
        gate.signal()
        stage.onRequest = { _, _ in }
        stage.submit(201)
        let isWhole = stage.run {
            stage.time.advance(by: .milliseconds(1))
            return stage.pool.openConnectionCount == 2
        }
        #expect(isWhole && names.asked.count == 3)
    }

    @Test func `is reached while the look-up of another's name hangs`() throws {
        let gate = Semaphore()
        defer { gate.signal() }
        let names = Names("127.0.0.1") { name, _ in if name == "slow.test" { gate.wait() } }
        let slow = try Stage(.apns(connectionsMin: 1, connectionsMax: 1), host: "slow.test")
        slow.loop.names = names.service
        slow.submit(1)
        #expect(slow.run { names.asked == ["slow.test"] })
        let other = try Stage(
            .apns(connectionsMin: 1, connectionsMax: 1), host: "gateway.test", beside: slow)
        other.submit(1)
        #expect(other.finish([1]))
        #expect(other.outcomes[1] == .accepted && slow.outcomes.isEmpty)
        #expect(names.asked == ["slow.test", "gateway.test"])
    }
}
