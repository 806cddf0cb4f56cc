// Faults that a real server does not show on demand, by a scripted TCP stub.

import Base
import EventLoop
import Testing

@testable import Redis

/// A server on the rig's own loop that answers as a test says.
private final class Stub: ReadinessHandler {
    let port: UInt16
    private let loop: EventLoop
    private let listener: Int32
    private var registration: Registration?
    private(set) var connections: [Peer] = []
    /// Answers a received chunk of bytes; an empty answer is silence.
    var answer: (String, _ connection: Int) -> String = { _, _ in "" }

    init(on loop: EventLoop) throws {
        self.loop = loop
        (listener, port) = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        registration = try loop.register(listener, .read, self)
    }

    deinit {
        if let registration { loop.deregister(registration) }
        SocketIO.close(listener)
    }

    func ready(_ readiness: Readiness) {
        while let fd = ListeningSocket.accept(listener) {
            let peer = Peer(fd: fd, loop: loop, index: connections.count) { [unowned self] in
                answer($0, $1)
            }
            connections.append(peer)
        }
    }

    final class Peer: ReadinessHandler {
        private let fd: Int32
        private let loop: EventLoop
        private let index: Int
        private let answer: (String, Int) -> String
        private var registration: Registration?
        private(set) var received = ""
        private(set) var isClosed = false

        init(fd: Int32, loop: EventLoop, index: Int, answer: @escaping (String, Int) -> String) {
            self.fd = fd
            self.loop = loop
            self.index = index
            self.answer = answer
            registration = try? loop.register(fd, .read, self)
        }

        deinit { close() }

        func send(_ text: String) {
            _ = Array(text.utf8).withUnsafeBytes { SocketIO.write(fd, $0) }
        }

        func close() {
            guard !isClosed else { return }
            isClosed = true
            if let registration { loop.deregister(registration) }
            SocketIO.close(fd)
        }

        func ready(_ readiness: Readiness) {
            var buffer = [UInt8](repeating: 0, count: 4096)
            switch buffer.withUnsafeMutableBytes({ SocketIO.read(fd, into: $0) }) {
            case .count(let count):
                let text = String(decoding: buffer[..<count], as: UTF8.self)
                received += text
                let reply = answer(text, index)
                if !reply.isEmpty { send(reply) }
            case .wouldBlock: break
            case .closed, .failed: close()
            }
        }
    }
}

/// A client and a stub on one loop with a clock that a test turns.
private final class StubRig: RedisReplyHandler {
    let time = ManualTime()
    let loop: EventLoop
    let stub: Stub
    let client: RedisClient
    var outcomes: [UInt64: Outcome] = [:]
    var events: [RedisEvent] = []

    init() throws {
        loop = try EventLoop(name: "rig", time: time)
        stub = try Stub(on: loop)
        var configuration = RedisConfiguration(host: "127.0.0.1", port: stub.port)
        configuration.cluster = .never
        client = RedisClient(configuration, on: loop)
        client.observer = { [unowned self] in events.append($0) }
        stub.answer = { text, _ in text.contains("PING") ? "+PONG\r\n" : "" }
        client.start()
    }

    deinit { client.close() }

    func turn(until condition: () -> Bool) throws {
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while !condition() {
            loop.turn(waitingUpTo: .milliseconds(5))
            try #require(SystemTime.shared.monotonic < deadline, "nothing happened in time")
        }
    }

    /// Lets time pass in steps until something is so.
    func pass(_ step: TimeSpan, until condition: () -> Bool) throws {
        try turn {
            time.advance(by: step)
            return condition()
        }
    }

    func start(_ tag: UInt64, _ arguments: String...) {
        if let error = client.send(arguments, to: self, tag: tag) { outcomes[tag] = .error(error) }
    }

    func replied(_ reply: RedisReply, tag: UInt64) { outcomes[tag] = Outcome(reply) }
    func failed(_ error: RedisError, tag: UInt64) { outcomes[tag] = .error(error) }
}

@Suite struct `A client of a server that misbehaves` {
    @Test func `REDIS-01: never takes a late reply for the next command's`() throws {
        let rig = try StubRig()
        try rig.turn { rig.client.isReady }
        rig.stub.answer = { text, connection in
            if text.contains("PING") { return "+PONG\r\n" }
            return connection == 0 ? "" : "*1\r\n$2\r\nT2\r\n"
        }
        rig.start(1, "SMEMBERS", "tokens:u1")
        try rig.turn { rig.stub.connections[0].received.contains("tokens:u1") }
        rig.time.advance(by: .seconds(1))
        try rig.turn { rig.outcomes[1] != nil }
        #expect(rig.outcomes[1] == .error(.timedOut))
        rig.stub.connections[0].send("*1\r\n$2\r\nT1\r\n")
        try rig.turn { rig.stub.connections[0].isClosed }
        try rig.pass(.milliseconds(10)) { rig.client.isReady }
        rig.start(2, "SMEMBERS", "tokens:u2")
        try rig.turn { rig.outcomes[2] != nil }
        #expect(rig.outcomes[2] == .list([.text("T2")]))
        #expect(rig.stub.connections.count == 2)
    }

    @Test(arguments: ["HTTP/1.1 400 Bad Request\r\n\r\n", "*2\r\n!x\r\n", "$-7\r\n"])
    func `closes on bytes that are not the protocol`(bytes: String) throws {
        let rig = try StubRig()
        try rig.turn { rig.client.isReady }
        rig.stub.answer = { _, _ in bytes }
        rig.start(1, "GET", "a")
        rig.start(2, "GET", "b")
        try rig.turn { rig.outcomes.count == 2 }
        #expect(rig.outcomes[1] == .error(.notTheProtocol))
        #expect(rig.outcomes[2] == .error(.notTheProtocol))
        try rig.turn { rig.stub.connections[0].isClosed }
    }

    @Test func `closes on a reply nobody waits for`() throws {
        let rig = try StubRig()
        try rig.turn { rig.client.isReady }
        rig.stub.connections[0].send("+SURPRISE\r\n")
        try rig.turn { rig.events.contains(.lost(.notTheProtocol)) }
    }

    @Test func `gives up a reply that never ends`() throws {
        let rig = try StubRig()
        try rig.turn { rig.client.isReady }
        rig.stub.answer = { _, _ in "$100000000\r\n" }
        rig.start(1, "GET", "a")
        try rig.turn { rig.stub.connections[0].received.contains("GET") }
        let chunk = String(repeating: "x", count: 60_000)
        try rig.turn {
            if !rig.stub.connections[0].isClosed { rig.stub.connections[0].send(chunk) }
            return rig.outcomes[1] != nil
        }
        #expect(rig.outcomes[1] == .error(.replyTooLarge(limit: RedisLimits.replyBytes)))
    }

    @Test func `waits while the server loads its data`() throws {
        let rig = try StubRig()
        rig.stub.answer = { text, connection in
            guard text.contains("PING") else { return "" }
            return connection < 3 ? "-LOADING Redis is loading\r\n" : "+PONG\r\n"
        }
        try rig.pass(.milliseconds(20)) { rig.client.isReady }
        let loading = RedisEvent.attemptFailed(
            .refused(RedisRefusal("LOADING Redis is loading")))
        #expect(rig.events == [loading, loading, loading, .ready])
    }

    @Test func `REDIS-10: sets its limits again on a connection that is a black hole`() throws {
        let rig = try StubRig()
        try rig.turn { rig.client.isReady }
        rig.stub.connections[0].close()
        try rig.turn { rig.events.contains(.lost(.disconnected)) }
        try rig.pass(.milliseconds(10)) { rig.client.isReady }
        rig.stub.answer = { text, _ in "" }
        rig.start(1, "GET", "a")
        try rig.turn { rig.stub.connections[1].received.contains("GET") }
        rig.time.advance(by: .seconds(1))
        try rig.turn { rig.outcomes[1] != nil }
        #expect(rig.outcomes[1] == .error(.timedOut))
        // The third does not even greet.
        try rig.pass(.milliseconds(50)) { rig.events.contains(.attemptFailed(.timedOut)) }
    }

    @Test func `reads redirections`() {
        let moved = RedisRefusal("MOVED 6917 127.0.0.1:7001")
        #expect(moved.kind == .moved && moved.detail == "6917 127.0.0.1:7001")
        #expect(RedisRefusal("ASK 6917 127.0.0.1:7001").kind == .ask)
        let wrapped = RedisRefusal(
            "ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against")
        #expect(wrapped.kind == .wrongType)
    }
}

@Suite struct `The state of reconnecting` {
    @Test func `waits longer after every failure, never a second, and starts over`() {
        var random = SeededRandom(seed: 1)
        var state = ReconnectState()
        var now = MonotonicTime(nanos: 0)
        #expect(state.started(at: now) == .dial && state.started(at: now) == .none)
        var last = TimeSpan.zero
        for attempt in 0..<12 {
            guard case .wait(let span) = state.failed(at: now, &random) else {
                Issue.record("did not wait")
                return
            }
            let full = min(TimeSpan.milliseconds(50) * (1 << Int64(attempt)), .milliseconds(800))
            #expect(span >= full / 2 && span <= full)
            last = span
            #expect(state.failed(at: now, &random) == .none)
            #expect(state.waited(at: now) == .dial)
        }
        #expect(last < .seconds(1))
        state.connected()
        state.greeted(at: now)
        #expect(state.isReady)
        now = now + .seconds(2)
        #expect(state.failed(at: now, &random) == .dial && state.failures == 0)
        state.connected()
        state.greeted(at: now)
        guard case .wait = state.failed(at: now, &random) else {
            Issue.record("a connection that failed at once is replaced without a wait")
            return
        }
        state.closed()
        #expect(state.waited(at: now) == .none && state.failed(at: now, &random) == .none)
    }

    @Test func `does not wait after an attempt that took its time`() {
        var random = SeededRandom(seed: 1)
        var state = ReconnectState()
        var now = MonotonicTime(nanos: 0)
        #expect(state.started(at: now) == .dial)
        for _ in 0..<5 {
            now = now + .seconds(1)
            #expect(state.failed(at: now, &random) == .wait(.zero))
            #expect(state.waited(at: now) == .dial)
        }
    }
}
