// Against a real redis-server.

import Base
import EventLoop
import RedisServer
import Testing

@testable import Redis

/// What became of a command, copied out of the reply.
enum Outcome: Equatable {
    case text(String)
    case integer(Int64)
    case none
    case list([Outcome])
    case error(RedisError)

    init(_ reply: RedisReply) {
        switch reply.kind {
        case .none: self = .none
        case .integer: self = .integer(reply.integer ?? 0)
        case .text, .status: self = .text(reply.text ?? "")
        case .error: self = .error(.refused(RedisRefusal(reply.text ?? "")))
        case .array: self = .list(reply.elements.map { Outcome($0) })
        }
    }
}

/// A client on a loop of its own that a test turns by hand.
final class ClientRig: RedisReplyHandler {
    let loop: EventLoop
    let client: RedisClient
    private(set) var outcomes: [UInt64: Outcome] = [:]
    private(set) var order: [UInt64] = []
    private(set) var redirections: [UInt64] = []
    private(set) var events: [RedisEvent] = []
    private var nextTag: UInt64 = 0
    /// Part sizes, when parts are to be taken.
    var parts: [Int]?

    init(_ configuration: RedisConfiguration, on loop: EventLoop? = nil) throws {
        self.loop = try loop ?? EventLoop(name: "rig")
        client = RedisClient(configuration, on: self.loop)
        client.observer = { [unowned self] in events.append($0) }
        client.start()
    }

    deinit { client.close() }

    func turn(until condition: () -> Bool) throws {
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while !condition() {
            loop.turn(waitingUpTo: .milliseconds(20))
            try #require(SystemTime.shared.monotonic < deadline, "nothing happened in time")
        }
    }

    func waitUntilReady() throws { try turn { self.client.isReady } }

    /// Sends a command; its key, if it has one, is the second word.
    @discardableResult
    func start(_ arguments: String...) -> UInt64 {
        nextTag += 1
        let key = arguments.count > 1 ? arguments[1] : nil
        if let error = client.send(arguments, key: key, to: self, tag: nextTag) {
            outcomes[nextTag] = .error(error)
        }
        return nextTag
    }

    func run(_ arguments: String...) throws -> Outcome {
        nextTag += 1
        let key = arguments.count > 1 ? arguments[1] : nil
        if let error = client.send(arguments, key: key, to: self, tag: nextTag) {
            return .error(error)
        }
        return try outcome(of: nextTag)
    }

    func run(_ script: RedisScript, _ keys: [String], _ arguments: [String] = []) throws -> Outcome
    {
        nextTag += 1
        let error = client.run(
            script, keys: keys, arguments: arguments.map { Array($0.utf8) }, to: self,
            tag: nextTag)
        if let error { return .error(error) }
        return try outcome(of: nextTag)
    }

    func outcome(of tag: UInt64) throws -> Outcome {
        try turn { self.outcomes[tag] != nil }
        return try #require(outcomes[tag])
    }

    func finished(_ tag: UInt64) -> Outcome? { outcomes[tag] }

    func nextTagForScript() -> UInt64 {
        nextTag += 1
        return nextTag
    }

    func replied(_ reply: RedisReply, tag: UInt64) { finish(tag, Outcome(reply)) }

    func failed(_ error: RedisError, tag: UInt64) { finish(tag, .error(error)) }

    func redirected(tag: UInt64) { redirections.append(tag) }

    func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool {
        guard parts != nil else { return false }
        parts?.append(reply.elements.count)
        return true
    }

    private func finish(_ tag: UInt64, _ outcome: Outcome) {
        #expect(outcomes[tag] == nil, "answered twice")
        outcomes[tag] = outcome
        order.append(tag)
    }
}

extension RedisConfiguration {
    static func local(_ port: UInt16) -> RedisConfiguration {
        RedisConfiguration(host: "127.0.0.1", port: port)
    }
}

@Suite struct `A client of a real server` {
    @Test func `runs commands of every kind of reply`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        #expect(try rig.run("SET", "k", "v") == .text("OK"))
        #expect(try rig.run("GET", "k") == .text("v"))
        #expect(try rig.run("GET", "nothing") == .none)
        #expect(try rig.run("INCRBY", "n", "41") == .integer(41))
        #expect(try rig.run("HGETALL", "nothing") == .list([]))
        #expect(try rig.run("SET", "empty", "") == .text("OK"))
        #expect(try rig.run("GET", "empty") == .text(""))
        let nested = try rig.run(
            "EVAL", "return {1, {'a', {}, false}, redis.error_reply('WRONGTYPE x')}", "0")
        let expected: Outcome = .list([
            .integer(1), .list([.text("a"), .list([]), .none]),
            .error(.refused(RedisRefusal("WRONGTYPE x"))),
        ])
        #expect(nested == expected)
    }

    @Test func `answers a pipeline in order, whatever its size`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        let big = String(repeating: "x", count: 30_000)
        let tags = (0..<500).map { index in
            rig.start("ECHO", index % 50 == 0 ? big : String(index))
        }
        try rig.turn { tags.allSatisfy { rig.finished($0) != nil } }
        #expect(rig.order == tags)
        for (index, tag) in tags.enumerated() where index % 50 != 0 {
            #expect(rig.finished(tag) == .text(String(index)))
        }
    }

    @Test func `gives long arrays in parts to those who take them`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        let fill = """
            for i = 1, 20000 do redis.call('HSET', 'h', 'field' .. i, string.rep('v', 50)) end
            """
        _ = try rig.run("EVAL", fill, "0")
        rig.parts = []
        guard case .list(let rest) = try rig.run("HGETALL", "h") else {
            Issue.record("no list")
            return
        }
        let parts = try #require(rig.parts)
        #expect(parts.count > 5 && parts.reduce(rest.count, +) == 40_000)
        #expect(rest.count < 5_000)
        rig.parts = nil
        guard case .list(let whole) = try rig.run("HGETALL", "h") else {
            Issue.record("no list")
            return
        }
        #expect(whole.count == 40_000)
    }

    @Test func `runs scripts by digest and sends the text when it is not known`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        let script = RedisScript("return {KEYS[1], ARGV[1]}")
        for flush in [false, true, false] {
            if flush { _ = try rig.run("SCRIPT", "FLUSH") }
            let tags = (0..<3).map { index in
                let tag = rig.nextTagForScript()
                let error = rig.client.run(
                    script, keys: ["k"], arguments: [Array("\(index)".utf8)], to: rig, tag: tag)
                #expect(error == nil)
                return tag
            }
            for (index, tag) in tags.enumerated() {
                #expect(try rig.outcome(of: tag) == .list([.text("k"), .text("\(index)")]))
            }
        }
    }

    @Test func `tells refusals apart`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        _ = try rig.run("SET", "text", "v")
        func kind(_ outcome: Outcome) -> RedisRefusal.Kind? {
            guard case .error(.refused(let refusal)) = outcome else { return nil }
            return refusal.kind
        }
        #expect(kind(try rig.run("HGETALL", "text")) == .wrongType)
        #expect(kind(try rig.run("NO-SUCH-COMMAND", "secret")) == .other)
        #expect(kind(try rig.run("EVALSHA", String(repeating: "0", count: 40), "0")) == .noScript)
        _ = try rig.run("CONFIG", "SET", "maxmemory", "1")
        #expect(kind(try rig.run("SET", "more", "v")) == .outOfMemory)
        let inScript = try rig.run("EVAL", "return redis.call('HGETALL', 'text')", "0")
        #expect(kind(inScript) == .wrongType)
        #expect(rig.client.isReady)
    }

    @Test func `keeps keys and arguments out of error texts`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        guard case .error(let error) = try rig.run("NO-SUCH-COMMAND", "secret") else {
            Issue.record("taken")
            return
        }
        #expect(error.description == "Redis refused a command: ERR")
    }

    @Test func `logs in as a user, selects a database and names itself`() throws {
        let server = try RedisServer()
        let admin = try ClientRig(.local(server.port))
        try admin.waitUntilReady()
        _ = try admin.run("ACL", "SETUSER", "bugle", "on", ">pass", "~*", "+@all")
        _ = try admin.run("ACL", "SETUSER", "default", "resetpass", ">other")
        var configuration = RedisConfiguration.local(server.port)
        configuration.user = "bugle"
        configuration.password = "pass"
        configuration.database = 3
        configuration.clientName = "bugle-lane-0"
        let rig = try ClientRig(configuration)
        try rig.waitUntilReady()
        #expect(try rig.run("ACL", "WHOAMI") == .text("bugle"))
        #expect(try rig.run("CLIENT", "GETNAME") == .text("bugle-lane-0"))
        guard case .text(let info) = try rig.run("CLIENT", "INFO") else {
            Issue.record("no text")
            return
        }
        #expect(info.contains(" db=3 "))
        configuration.password = "wrong"
        let refused = try ClientRig(configuration)
        try refused.turn { !refused.events.isEmpty }
        guard case .attemptFailed(.refused(let refusal))? = refused.events.first else {
            Issue.record("logged in")
            return
        }
        #expect(refusal.code == "WRONGPASS")
        let silent = try ClientRig(.local(server.port))
        try silent.turn { !silent.events.isEmpty }
        guard case .attemptFailed(.refused(let missing))? = silent.events.first else {
            Issue.record("let in without password")
            return
        }
        #expect(missing.code == "NOAUTH")
    }
}

@Suite struct `A client whose server goes away` {
    @Test func `fails what waits and works again within a second of its return`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        let open = rig.start("BLPOP", "never", "0")
        rig.loop.turn(waitingUpTo: .milliseconds(20))
        server.kill()
        #expect(try rig.outcome(of: open) == .error(.disconnected))
        #expect(rig.events.contains(.lost(.disconnected)))
        #expect(try rig.run("PING") == .error(.notConnected))
        try rig.turn { rig.events.count > 5 }
        try server.start()
        let returned = SystemTime.shared.monotonic
        try rig.waitUntilReady()
        #expect(SystemTime.shared.monotonic - returned < .seconds(1))
        #expect(try rig.run("PING") == .text("PONG"))
    }

    @Test func `gives a frozen server up at the limit, also after a reconnect`() throws {
        let server = try RedisServer()
        var configuration = RedisConfiguration.local(server.port)
        configuration.commandTimeout = .milliseconds(100)
        let rig = try ClientRig(configuration)
        for _ in 0..<2 {
            try rig.waitUntilReady()
            server.freeze()
            let tag = rig.start("PING")
            #expect(try rig.outcome(of: tag) == .error(.timedOut))
            #expect(!rig.client.isReady)
            server.thaw()
        }
        try rig.waitUntilReady()
        #expect(try rig.run("PING") == .text("PONG"))
    }

    @Test func `REDIS-09: replaces an idle connection that the server cut`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        let admin = try ClientRig(.local(server.port))
        try admin.waitUntilReady()
        _ = try admin.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        try rig.turn { rig.events.contains(.lost(.disconnected)) }
        try rig.waitUntilReady()
        #expect(try rig.run("PING") == .text("PONG"))
    }

    @Test func `leaves a server that became a replica`() throws {
        let server = try RedisServer()
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        _ = try rig.run("REPLICAOF", "127.0.0.1", "1")
        guard case .error(.refused(let refusal)) = try rig.run("SET", "k", "v") else {
            Issue.record("a replica took a write")
            return
        }
        #expect(refusal.kind == .readOnly)
        #expect(!rig.client.isReady)
        try rig.waitUntilReady()
    }
}
