import Base
import EventLoop
import Testing

@testable import HTTP2

/// Connections through a proxy that takes CONNECT: what the gateway sees is the same.
@Suite struct `A pool behind a proxy` {
    @Test func `sends through a tunnel to the host, with the credentials of the proxy`() throws {
        let stage = try Stage(.single, through: .tunnel)
        for tag in 1...20 { stage.submit(UInt64(tag)) }
        #expect(stage.finish(1...20))
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        let authority = "127.0.0.1:\(stage.listener.port)"
        #expect(
            stage.proxy?.requests == [
                "CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n"
                    + "Proxy-Authorization: Basic YnVnbGU6Pz4/cGFzczo/\r\n\r\n"
            ])
        #expect(stage.alarms.isEmpty)
    }

    @Test func `pings and GOAWAY work through it as without`() throws {
        let stage = try Stage(.apns(connectionsMin: 1, connectionsMax: 1), through: .tunnel)
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.advance(by: .seconds(16))
        stage.submit(2)
        stage.advance(by: .milliseconds(100), step: .milliseconds(50))
        #expect(stage.finish([2]))
        #expect(stage.pool.statistics.pings == 1)
        #expect(stage.pool.statistics.pingsUnanswered == 0)
        stage.connections[1]?.goAway(lastStream: 3)
        stage.advance(by: .milliseconds(100), step: .milliseconds(50))
        stage.submit(3)
        stage.advance(by: .seconds(2))
        #expect(stage.finish([3]))
        #expect(stage.paths(on: 2) == ["/3"])
        #expect(stage.proxy?.requests.count == 2)
    }

    @Test func `a request is not processed when the tunnel breaks before it was written`() throws {
        let stage = try Stage(.single, through: .close)
        stage.submit(1, deadline: stage.loop.now + .seconds(5))
        stage.advance(by: .seconds(6))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .notProcessed(.deadlinePassed))
        #expect(stage.hasAlarm("closed the connection without an answer"))
    }

    @Test(arguments: [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
            "asks for a user and password it takes: look at egress.proxy"
        ),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "does not allow that host"),
        ("HTTP/1.0 502 Bad Gateway\r\n\r\n", "it answered 502 Bad Gateway"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP/1.1"),
        ("HTTP/1.1 200 OK\r\n\r\n<html>", "it sent more than an answer"),
    ])
    func `a tunnel that is refused is named with the proxy and what to do`(
        answer: String, words: String
    ) throws {
        let stage = try Stage(.single, through: .bytes(answer))
        stage.submit(1, deadline: stage.loop.now + .seconds(5))
        stage.advance(by: .seconds(6))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .notProcessed(.deadlinePassed))
        #expect(stage.hasAlarm(words), "\(stage.alarms)")
        #expect(stage.hasAlarm("through the proxy 127.0.0.1:\(stage.proxy?.port ?? 0)"))
        // The secret of the proxy is in no error.
        #expect(!stage.hasAlarm("YnVnbGU6"))
    }

    @Test func `a proxy that says nothing costs the connect time-out and no more`() throws {
        let stage = try Stage(.single, through: .silence)
        stage.submit(1)
        stage.advance(by: .seconds(12))
        #expect(stage.pool.statistics.connectFailures == 1)
        #expect(stage.hasAlarm("before the deadline"), "\(stage.alarms)")
        // It answers from now on; the attempt that is under way by then costs its time-out too.
        stage.proxy?.answer = .tunnel
        stage.advance(by: .seconds(16))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
    }

    @Test func `hosts that are named as exceptions are connected to directly`() throws {
        let stage = try Stage(.single, through: .close, bypass: ["127.0.0.1"])
        stage.submit(1)
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
        #expect(stage.proxy?.requests.isEmpty == true)
    }

    @Test func `a host out of reach is not asked for, one within it by its address`() throws {
        var policy = PoolPolicy.single
        policy.reach = .publicOnly
        let stage = try Stage(policy, through: .tunnel)
        stage.submit(1)
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .notProcessed(.forbiddenAddress))
        #expect(stage.proxy?.requests.isEmpty == true)
        policy.reach = .publicOrLoopback
        let local = try Stage(policy, through: .tunnel, host: "localhost")
        local.submit(1)
        #expect(local.finish([1]))
        #expect(local.outcomes[1] == .accepted)
        let asked = try #require(local.proxy?.requests.first)
        #expect(!asked.contains("localhost"), "\(asked)")
        #expect(asked.contains("127.0.0.1:") || asked.contains("[0:0:0:0:0:0:0:1]:"))
    }
}

extension Stage {
    fileprivate func hasAlarm(_ words: String) -> Bool {
        alarms.contains { "\($0)".contains(words) }
    }
}
