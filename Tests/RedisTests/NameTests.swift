// A server whose name leads elsewhere after a while.

import Base
import EventLoop
import Synchronization
import Testing

@testable import Redis

/// A name, the addresses that it has now, and how often it was looked up.
final class Names: Sendable {
    private struct State: Sendable {
        var addresses: [String]
        var asked = 0
    }

    let name: String
    private let state: Mutex<State>

    init(_ name: String, _ addresses: String...) {
        self.name = name
        state = Mutex(State(addresses: addresses))
    }

    var asked: Int { state.withLock { $0.asked } }

    func move(to addresses: String...) { state.withLock { $0.addresses = addresses } }

    var service: NameService {
        NameService { [self] asked in
            state.withLock { state in
                guard asked == name else { return [] }
                state.asked += 1
                return state.addresses
            }
        }
    }
}

@Suite struct `A client of a server with a name` {
    @Test func `REDIS-04: looks the name up again for every connection, and tries all it has`()
        throws
    {
        let names = Names("redis.test", "127.0.0.1")
        let loop = try EventLoop(name: "rig")
        loop.names = names.service
        let first = try ScriptedServer(on: loop)
        var configuration = RedisConfiguration(host: names.name, port: first.port)
        configuration.cluster = .never
        let rig = try ClientRig(configuration, on: loop)
        try rig.waitUntilReady()
        #expect(names.asked == 1)

        let second = try ScriptedServer(on: loop, host: "127.0.0.2", port: first.port)
        second.answer = { _ in "+second\r\n" }
        // Nobody listens at the one in front.
        names.move(to: "127.0.0.3", "127.0.0.2")
        // A connection that works stays where it is.
        #expect(try rig.run("GET", "k") == .text("OK"))
        #expect(names.asked == 1)
        first.stop()
        try rig.turn { rig.events.contains(.lost(.disconnected)) }
        try rig.waitUntilReady()
        #expect(try rig.run("GET", "k") == .text("second"))
        #expect(names.asked == 2)
        #expect(first.connectionCount == 1 && second.connectionCount == 1)
    }
}
