import Base
import Crypto
import EventLoop
import HTTP2
import Testing

/// The cases from the field, H2-01 to H2-14, each as it was reported.
@Suite struct `Connections in the field` {
    @Test func `H2-01 after GOAWAY the next request dials a new connection`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 100))
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.connections[1]?.goAway(lastStream: 1)
        stage.advance(by: .milliseconds(100), step: .milliseconds(50))
        stage.submit(2)
        stage.advance(by: .seconds(2))
        #expect(stage.finish([2]))
        #expect(stage.outcomes == [1: .accepted, 2: .accepted])
        #expect(stage.paths(on: 1) == ["/1"])
        #expect(stage.paths(on: 2) == ["/2"])
        #expect(stage.repeated.isEmpty)
    }

    @Test func `H2-02 streams above the last stream id go out again, once, the others finish`()
        throws
    {
        let stage = try Stage(.single)
        stage.onRequest = { request, connection in
            if connection.number == 2 {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            } else if request.stream == 9 {
                connection.goAway(lastStream: 5)
                for stream: Int32 in [1, 3, 5] {
                    connection.respond(ServerResponse(status: 200), on: stream)
                }
            }
        }
        for tag in 1...5 { stage.submit(UInt64(tag)) }
        _ = stage.run { stage.outcomes.count == 3 }
        stage.advance(by: .seconds(2))
        #expect(stage.finish(1...5))
        #expect(stage.paths(on: 1) == ["/1", "/2", "/3", "/4", "/5"])
        #expect(stage.paths(on: 2) == ["/4", "/5"])
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.repeated.isEmpty)
        #expect(stage.pool.statistics.ambiguous == 0)
    }

    @Test func `H2-03 what waits in the queue survives the connection`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 10))
        var answered = 0
        stage.onRequest = { request, connection in
            if connection.number == 1, answered >= 40 { return }
            answered += 1
            connection.respond(ServerResponse(status: 200), on: request.stream)
            if connection.number == 1, answered == 40 {
                connection.goAway(lastStream: request.stream)
            }
        }
        for tag in 1...300 { stage.submit(UInt64(tag)) }
        _ = stage.run { answered >= 40 }
        stage.advance(by: .seconds(2))
        #expect(stage.finish(1...300))
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.repeated.isEmpty)
        // What conn 1 answered never shows up on conn 2, and the queue's order holds there.
        let second = stage.paths(on: 2).compactMap { UInt64($0.dropFirst()) }
        #expect(Set(second).isDisjoint(with: Set((1...40).map { UInt64($0) })))
        #expect(second == second.sorted())
        #expect(second.count == 260)
    }

    @Test func `H2-05 a limit that falls to one and doubled resets lose nothing`() throws {
        let stage = try Stage(.single)
        var openMax = 0
        var isRestricted = false
        stage.onRequest = { request, connection in
            if !isRestricted, request.stream < 19 { return }
            if !isRestricted {
                isRestricted = true
                connection.respond(
                    ServerResponse(
                        status: 410, text: #"{"reason":"Unregistered","timestamp":1735689700000}"#),
                    on: 1)
                connection.change(SettingsChange(maxConcurrentStreams: 1))
                for stream: Int32 in stride(from: 3, through: 19, by: 2) {
                    connection.reset(stream, codes: [7, 5])
                }
                return
            }
            openMax = max(openMax, connection.openStreams)
            connection.respond(ServerResponse(status: 200), on: request.stream, after: .seconds(1))
        }
        for tag in 1...10 { stage.submit(UInt64(tag)) }
        _ = stage.run { stage.outcomes[1] != nil }
        stage.advance(by: .seconds(20), step: .milliseconds(250))
        #expect(stage.finish(1...10))
        #expect(openMax == 1)
        #expect(stage.outcomes[1] != .accepted)
        #expect((2...10).allSatisfy { stage.outcomes[$0] == .accepted })
        #expect(stage.repeated.isEmpty)
        #expect(stage.connections.count == 1)
        #expect(!stage.sawBreach)
    }

    @Test func `H2-06 one stream until the first answer, then many`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 1))
        var openBeforeFirst = 0
        var isProven = false
        stage.onRequest = { request, connection in
            if !isProven {
                openBeforeFirst = max(openBeforeFirst, connection.openStreams)
                isProven = true
                connection.respond(ServerResponse(status: 200), on: request.stream)
                connection.change(SettingsChange(maxConcurrentStreams: 1000))
                return
            }
            connection.respond(ServerResponse(status: 200), on: request.stream)
        }
        for tag in 1...50 { stage.submit(UInt64(tag)) }
        #expect(stage.finish(1...50))
        #expect(openBeforeFirst == 1)
        #expect(stage.connections.count == 1)
        #expect(!stage.sawBreach)
    }

    @Test func `H2-09 a peer that asks for calm is not stormed`() throws {
        let stage = try Stage(.single)
        var waiting: [Int: Int] = [:]
        stage.onRequest = { _, connection in
            waiting[connection.number, default: 0] += 1
            if waiting[connection.number] == 2 {
                connection.goAway(lastStream: 0, code: 0xb, debug: "too_many_requests")
                connection.close()
            }
        }
        stage.submit(1)
        stage.submit(2)
        stage.advance(by: .seconds(30), step: .milliseconds(500))
        #expect(stage.listener.accepted < 8)
        #expect(stage.listener.accepted >= 1)
        #expect(stage.pool.statistics.calms >= 1)
        #expect(stage.pool.queued + stage.pool.inFlight == 2)
    }

    @Test func `H2-10 a black hole is found by PING before a request is lost in it`() throws {
        let stage = try Stage(.single)
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.connections[1]?.playDead()
        stage.advance(by: .seconds(60), step: .seconds(5))
        stage.submit(2)
        stage.advance(by: .seconds(11))
        #expect(stage.finish([2]))
        #expect(stage.outcomes[2] == .accepted)
        stage.submit(3)
        #expect(stage.finish([3]))
        #expect(stage.paths(on: 1) == ["/1"])
        #expect(stage.paths(on: 2) == ["/2", "/3"])
        #expect(stage.pool.statistics.pingsUnanswered == 1)
    }

    @Test func `H2-11 each connection of a pool is watched for itself`() throws {
        var policy = PoolPolicy.apns(connectionsMin: 3, connectionsMax: 3)
        policy.dialInterval = .zero
        let stage = try Stage(policy, ServerOptions(streams: 4))
        stage.onRequest = { _, _ in }
        for tag in 1...12 { stage.submit(UInt64(tag)) }
        #expect(stage.run { stage.arrivals.count == 12 })
        stage.onRequest = { request, connection in
            connection.respond(ServerResponse(status: 200), on: request.stream)
        }
        for arrival in stage.arrivals {
            stage.connections[arrival.connection]?.respond(
                ServerResponse(status: 200), on: arrival.stream)
        }
        #expect(stage.finish(1...12))
        stage.connections[1]?.playDead()
        stage.connections[3]?.playDead()
        stage.advance(by: .seconds(20), step: .seconds(5))
        for tag in 13...42 { stage.submit(UInt64(tag)) }
        stage.advance(by: .seconds(12))
        #expect(stage.finish(13...42))
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.pool.statistics.pingsUnanswered == 2)
        #expect(stage.connections[2]?.isClosed == false)
        #expect(Set(stage.arrivals.suffix(30).map(\.connection)).isDisjoint(with: [1, 3]))
    }

    @Test func `H2-12 a dial that hangs is given up and the next one works, and others go on`()
        throws
    {
        let stage = try Stage(.single)
        stage.listener.acceptance = { $0 == 1 ? .stallTLS : .serve }
        // Another host on the same loop: the thread that dials serves both.
        let other = try Stage(.single, beside: stage)
        stage.submit(1)
        #expect(stage.run { stage.listener.accepted == 1 })
        for second in 1...9 {
            stage.advance(by: .seconds(1))
            let tags = UInt64(second * 100)..<UInt64(second * 100 + 100)
            for tag in tags { other.submit(tag) }
            #expect(other.finish(tags))
            #expect(stage.outcomes.isEmpty)
        }
        #expect(other.outcomes.count == 900)
        #expect(other.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(other.listener.accepted == 1 && other.alarms.isEmpty)
        #expect(stage.pool.statistics.connectFailures == 0)
        stage.advance(by: .seconds(3))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
        #expect(stage.pool.statistics.connectFailures == 1)
        #expect(stage.listener.accepted == 2)
        #expect(
            stage.alarms.contains {
                if case .unreachable = $0 { true } else { false }
            })
    }

    @Test func `H2-13 an idle FCM connection gets no PING and is not dialled for nothing`() throws {
        let stage = try Stage(.fcm(connectionsMin: 1))
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.advance(by: .seconds(240), step: .seconds(10))
        stage.connections[1]?.goAway(debug: "session_timed_out")
        stage.advance(by: .seconds(11 * 60), step: .seconds(10))
        #expect(!stage.sawPing)
        #expect(stage.listener.accepted == 1)
        stage.submit(2)
        #expect(stage.finish([2]))
        #expect(stage.outcomes[2] == .accepted)
        #expect(stage.listener.accepted == 2)
    }

    @Test func `H2-14 an end of file on an idle connection is silent and the next request dials`()
        throws
    {
        let stage = try Stage(.single)
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.connections[1]?.close()
        stage.advance(by: .hours(2), step: .minutes(10))
        #expect(stage.listener.accepted == 1)
        #expect(stage.alarms.isEmpty)
        stage.submit(2)
        #expect(stage.finish([2]))
        #expect(stage.outcomes[2] == .accepted)
        #expect(stage.arrivals.filter { $0.path == "/2" }.count == 1)
    }
}

extension PoolPolicy {
    /// APNs' rules on one connection.
    static var single: PoolPolicy { .apns(connectionsMin: 1, connectionsMax: 1) }
}

extension ServerOptions {
    init(streams: UInt32) {
        self.init()
        maxConcurrentStreams = streams
    }
}

extension Stage {
    /// Whether the server found a breach of the protocol or of its stream limit.
    var sawBreach: Bool {
        notices.contains {
            switch $0.event {
            case .streamLimitViolated, .protocolViolated, .requestAfterGoAway: true
            default: false
            }
        }
    }

    var sawPing: Bool {
        notices.contains { if case .pingReceived = $0.event { true } else { false } }
    }
}
