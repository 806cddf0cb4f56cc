// The client of a cluster against scripted nodes: what a real cluster does not show on demand.

import Base
import EventLoop
import Testing

@testable import Redis

/// Scripted nodes that share the slots evenly, a client, and a clock that a test turns.
private final class ScriptedCluster: RedisReplyHandler {
    let time = ManualTime()
    let loop: EventLoop
    var nodes: [ScriptedServer]
    let client: RedisClient
    var outcomes: [UInt64: Outcome] = [:]
    var events: [RedisEvent] = []
    var redirections: [UInt64] = []
    /// What every node says the map is.
    var map = ""
    /// What each node answers to a command that has a key.
    var answer: (_ node: Int, [String]) -> String = { node, _ in "+node \(node)\r\n" }

    /// With names the first nodes are configured by one that leads to them.
    init(_ count: Int = 3, seeds: Int = 1, names: Names? = nil) throws {
        loop = try EventLoop(name: "rig", time: time)
        if let names { loop.names = names.service }
        nodes = []
        for _ in 0..<count { nodes.append(try ScriptedServer(on: loop)) }
        let endpoints = nodes.prefix(seeds).map { node in
            names.map { RedisEndpoint(host: $0.name, port: node.port) } ?? node.endpoint
        }
        client = RedisClient(RedisConfiguration(endpoints: endpoints), on: loop)
        client.observer = { [unowned self] in events.append($0) }
        map = evenMap(of: nodes)
        for index in nodes.indices { script(index) }
        client.start()
    }

    deinit { client.close() }

    func script(_ index: Int) {
        nodes[index].answer = { [unowned self] command in
            switch command {
            case ["CLUSTER", "SLOTS"]: map
            case ["ASKING"]: "+OK\r\n"
            default: answer(index, command)
            }
        }
    }

    func evenMap(of nodes: [ScriptedServer]) -> String {
        slotsReply(
            nodes.enumerated().map { index, node in
                let first = RedisSlot.count * index / nodes.count
                let last = RedisSlot.count * (index + 1) / nodes.count - 1
                return (first, last, node.endpoint.host, Int(node.port))
            })
    }

    func turn(until condition: () -> Bool) throws {
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while !condition() {
            loop.turn(waitingUpTo: .milliseconds(5))
            try #require(SystemTime.shared.monotonic < deadline, "nothing happened in time")
        }
    }

    /// Lets time pass in steps until something is so; returns how much passed.
    @discardableResult
    func pass(_ step: TimeSpan = .milliseconds(10), until condition: () -> Bool) throws -> TimeSpan
    {
        var passed = TimeSpan.zero
        try turn {
            if condition() { return true }
            time.advance(by: step)
            passed = passed + step
            return false
        }
        return passed
    }

    func waitUntilReady() throws { try turn { self.client.isReady } }

    func start(_ tag: UInt64, _ arguments: String...) {
        if let error = client.send(arguments, key: arguments[1], to: self, tag: tag) {
            outcomes[tag] = .error(error)
        }
    }

    func get(_ tag: UInt64, _ key: String) throws -> Outcome {
        start(tag, "GET", key)
        try turn { outcomes[tag] != nil }
        return try #require(outcomes[tag])
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        #expect(outcomes[tag] == nil, "answered twice")
        outcomes[tag] = Outcome(reply)
    }

    func failed(_ error: RedisError, tag: UInt64) {
        #expect(outcomes[tag] == nil, "answered twice")
        outcomes[tag] = .error(error)
    }

    func redirected(tag: UInt64) { redirections.append(tag) }
}

/// Keys of the first, second and third node of three.
private let keys = ["tokens:{u1}", "tokens:u1", "tokens:u2"]

@Suite struct `A client of a cluster` {
    @Test func `finds the nodes by one of them and sends each key to its own`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        #expect(rig.client.isCluster && rig.events.last == .ready)
        for (node, key) in keys.enumerated() {
            #expect(try rig.get(UInt64(node), key) == .text("node \(node)"))
        }
        #expect(rig.nodes.map(\.connectionCount) == [1, 1, 1])
        #expect(rig.redirections.isEmpty)
    }

    @Test func `REDIS-03: follows MOVED, asks for the map once, then goes straight`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        var asked = 0
        for node in rig.nodes {
            let answer = node.answer
            node.answer = { command in
                if command == ["CLUSTER", "SLOTS"] { asked += 1 }
                return answer(command)
            }
        }
        let target = rig.nodes[2].endpoint
        rig.answer = { node, _ in node == 1 ? "-MOVED 6917 \(target)\r\n" : "+node \(node)\r\n" }
        rig.map = slotsReply([
            (0, 6_916, "127.0.0.1", Int(rig.nodes[0].port)),
            (6_917, 16_383, "127.0.0.1", Int(target.port)),
        ])
        for tag in 1...20 { rig.start(UInt64(tag), "GET", keys[1]) }
        try rig.turn { rig.outcomes.count == 20 }
        #expect(rig.outcomes.values.allSatisfy { $0 == .text("node 2") })
        #expect(rig.redirections == Array(1...20))
        try rig.pass { asked == 1 }
        #expect(try rig.get(21, keys[1]) == .text("node 2"))
        #expect(rig.redirections.count == 20 && rig.nodes[1].commands.count == 20)
        // The node that serves nothing any more is let go.
        try rig.turn { rig.client.pendingCount == 0 }
        for _ in 0..<100 {
            rig.time.advance(by: .milliseconds(10))
            rig.loop.turn(waitingUpTo: .zero)
        }
        #expect(asked == 1)
    }

    @Test func `REDIS-03: follows ASK with ASKING and keeps the map`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        let target = rig.nodes[0].endpoint
        rig.answer = { node, _ in node == 1 ? "-ASK 6917 \(target)\r\n" : "+node \(node)\r\n" }
        for tag in 1...3 {
            #expect(try rig.get(UInt64(tag), keys[1]) == .text("node 0"))
            #expect(rig.nodes[1].commands.count == tag)
        }
        #expect(
            rig.nodes[0].commands
                == Array(repeatElement([["ASKING"], ["GET", keys[1]]], count: 3).joined()))
    }

    @Test func `REDIS-03: gives two nodes up that send it to each other`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        let ends = rig.nodes.map(\.endpoint)
        rig.answer = { node, _ in "-MOVED 6917 \(ends[node == 1 ? 2 : 1])\r\n" }
        guard case .error(.refused(let refusal)) = try rig.get(1, keys[1]) else {
            Issue.record("answered")
            return
        }
        #expect(refusal.kind == .moved)
        let sent = rig.nodes.reduce(0) { $0 + $1.commands.count }
        #expect(sent == 1 + Int(RedisLimits.redirections))
        #expect(try rig.get(2, keys[0]) != .error(.notConnected))
    }

    @Test func `meets a node by a redirection that no map names`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        let stranger = try ScriptedServer(on: rig.loop)
        stranger.answer = { _ in "+stranger\r\n" }
        rig.answer = { _, _ in "-ASK 6917 \(stranger.endpoint)\r\n" }
        guard case .error(.refused(let refusal)) = try rig.get(1, keys[1]) else {
            Issue.record("answered before there was a connection")
            return
        }
        #expect(refusal.kind == .ask)
        try rig.turn { stranger.connectionCount == 1 }
        var tag: UInt64 = 1
        try rig.turn {
            tag += 1
            return (try? rig.get(tag, keys[1])) == .text("stranger")
        }
        #expect(stranger.connectionCount == 1)
    }

    @Test func `loses one node's keys with that node, and says so`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        rig.answer = { node, _ in node == 1 ? "" : "+node \(node)\r\n" }
        rig.start(1, "GET", keys[1])
        try rig.turn { rig.nodes[1].commands.count == 1 }
        let lost = rig.nodes[1].endpoint
        rig.nodes[1].stop()
        try rig.turn { rig.outcomes[1] != nil }
        #expect(rig.outcomes[1] == .error(.disconnected))
        #expect(rig.events.last == .lost(.atNode(lost, .disconnected)))
        #expect(!rig.client.isReady && rig.client.isUsable)
        #expect(try rig.get(2, keys[0]) == .text("node 0"))
        #expect(try rig.get(3, keys[1]) == .error(.notConnected))
        // Another one takes its slots: found within a second.
        rig.nodes[1] = try ScriptedServer(on: rig.loop)
        rig.script(1)
        rig.answer = { node, _ in "+node \(node)\r\n" }
        rig.map = rig.evenMap(of: rig.nodes)
        #expect(try rig.pass { rig.client.isReady } < .seconds(1))
        #expect(try rig.get(4, keys[1]) == .text("node 1"))
    }

    @Test func `REDIS-04: finds a cluster that moved as a whole by its configured nodes`() throws {
        let rig = try ScriptedCluster(4, seeds: 2)
        try rig.waitUntilReady()
        // The first of the configured ones stays, and knows nobody; the second knows all.
        let others = try (0..<3).map { _ in try ScriptedServer(on: rig.loop) }
        let map = rig.evenMap(of: others)
        for (index, node) in others.enumerated() { node.answer = { _ in "+new \(index)\r\n" } }
        rig.nodes[2].stop()
        rig.nodes[3].stop()
        rig.nodes[0].answer = { _ in "*0\r\n" }
        rig.nodes[1].answer = {
            $0.first == "CLUSTER" ? map : "-CLUSTERDOWN The cluster is down\r\n"
        }
        try rig.pass { rig.client.isReady && others.allSatisfy { $0.connectionCount > 0 } }
        for (node, key) in keys.enumerated() {
            #expect(try rig.get(UInt64(node), key) == .text("new \(node)"))
        }
    }

    @Test func `REDIS-04: finds a cluster that came back elsewhere under its names`() throws {
        let names = Names("redis.test", "127.0.0.1")
        let rig = try ScriptedCluster(seeds: 3, names: names)
        try rig.waitUntilReady()
        for node in rig.nodes { node.stop() }
        try rig.turn { !rig.client.isUsable }
        // None of the old addresses answers any more.
        let others = try rig.nodes.map {
            try ScriptedServer(on: rig.loop, host: "127.0.0.2", port: $0.port)
        }
        let map = rig.evenMap(of: others)
        for (index, node) in others.enumerated() {
            node.answer = { $0.first == "CLUSTER" ? map : "+new \(index)\r\n" }
        }
        names.move(to: "127.0.0.2")
        #expect(try rig.pass { rig.client.isReady } < .seconds(10))
        for (node, key) in keys.enumerated() {
            #expect(try rig.get(UInt64(node), key) == .text("new \(node)"))
        }
    }

    @Test func `asks for the map when the cluster is down, and keeps the connections`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        rig.answer = { _, _ in "-CLUSTERDOWN Hash slot not served\r\n" }
        guard case .error(.refused(let refusal)) = try rig.get(1, keys[1]) else {
            Issue.record("answered")
            return
        }
        #expect(refusal.kind == .clusterDown)
        rig.answer = { _, _ in "-TRYAGAIN Multiple keys request during rehashing of slot\r\n" }
        guard case .error(.refused(let other)) = try rig.get(2, keys[1]) else {
            Issue.record("answered")
            return
        }
        #expect(other.kind == .tryAgain)
        #expect(rig.client.isReady && rig.nodes.map(\.connectionCount) == [1, 1, 1])
    }

    @Test func `is not ready while a slot has no master, and says how many`() throws {
        let rig = try ScriptedCluster()
        rig.map = slotsReply([(0, 16_000, "127.0.0.1", Int(rig.nodes[0].port))])
        try rig.pass { rig.events.contains(.attemptFailed(.slotsUncovered(383))) }
        #expect(try rig.get(1, keys[0]) == .text("node 0"))
        rig.map = rig.evenMap(of: rig.nodes)
        #expect(try rig.pass { rig.client.isReady } < .seconds(1))
    }

    @Test func `closes on a silent node at the limit, alone`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        rig.answer = { node, command in
            node == 1 ? "" : "+\(command[1])\r\n"
        }
        rig.start(1, "GET", keys[1])
        try rig.turn { rig.nodes[1].commands.count == 1 }
        rig.time.advance(by: .milliseconds(900))
        #expect(try rig.get(2, keys[0]) == .text(keys[0]))
        rig.time.advance(by: .milliseconds(100))
        try rig.turn { rig.outcomes.count == 2 }
        #expect(rig.outcomes[1] == .error(.timedOut))
        // A late answer on the old connection would be taken for this one's.
        rig.answer = { _, command in "+\(command[1])\r\n" }
        try rig.pass { rig.client.isReady }
        #expect(try rig.get(3, keys[1]) == .text(keys[1]))
        #expect(rig.nodes.map(\.connectionCount) == [1, 2, 1])
    }

    @Test func `keeps the bytes of a long pipeline until it is answered`() throws {
        let rig = try ScriptedCluster()
        try rig.waitUntilReady()
        let target = rig.nodes[2].endpoint
        // Every third command is sent on, out of a pipeline of a megabyte.
        rig.answer = { node, command in
            node == 1 && Int(command[2])! % 3 == 0
                ? "-ASK 6917 \(target)\r\n" : "+\(node) \(command[2]) \(command[3].utf8.count)\r\n"
        }
        for tag in 0..<900 {
            let filler = String(repeating: "x", count: 1 + tag * 7 % 3_000)
            rig.start(UInt64(tag), "APPEND", keys[1], "\(tag)", filler)
            if tag % 90 == 0 { rig.loop.turn(waitingUpTo: .zero) }
        }
        try rig.turn { rig.outcomes.count == 900 }
        for tag in 0..<900 {
            let node = tag % 3 == 0 ? 2 : 1
            #expect(rig.outcomes[UInt64(tag)] == .text("\(node) \(tag) \(1 + tag * 7 % 3_000)"))
        }
    }
}

@Suite struct `A client that expects something else` {
    private func firstFault(
        _ configure: (inout RedisConfiguration) -> Void, _ answer: @escaping ([String]) -> String
    ) throws -> RedisError? {
        let loop = try EventLoop(name: "rig")
        let server = try ScriptedServer(on: loop)
        server.answer = answer
        var configuration = RedisConfiguration(endpoints: [server.endpoint])
        configure(&configuration)
        let rig = try ClientRig(configuration, on: loop)
        try rig.turn { !rig.events.isEmpty }
        switch rig.events[0] {
        case .ready: return nil
        case .lost(let error): return error
        case .attemptFailed(.atNode(_, let error)), .attemptFailed(let error): return error
        }
    }

    private let disabled = "-ERR This instance has cluster support disabled\r\n"

    @Test func `takes a single server when it is asked for nothing else`() throws {
        #expect(try firstFault({ _ in }) { _ in disabled } == nil)
        #expect(try firstFault({ _ in }) { _ in "-NOPERM no permissions\r\n" } == nil)
    }

    @Test func `refuses a single server where a cluster is demanded`() throws {
        #expect(try firstFault({ $0.cluster = .always }) { _ in disabled } == .notACluster)
    }

    @Test func `refuses a cluster's node whose map it may not ask for`() throws {
        let answer: ([String]) -> String = {
            $0[0] == "CLUSTER" ? "-NOPERM no permissions\r\n" : "-MOVED 1 127.0.0.1:1\r\n"
        }
        #expect(try firstFault({ $0.probeKey = "w" }, answer) == .partOfCluster)
        #expect(
            try firstFault(
                {
                    $0.probeKey = "w"
                    $0.cluster = .never
                }, answer) == .partOfCluster)
        let demanded = try firstFault({ $0.cluster = .always }, answer)
        #expect(demanded == .refused(RedisRefusal("NOPERM no permissions")))
    }

    @Test func `refuses another database than 0 in a cluster`() throws {
        let fault = try firstFault({ $0.database = 2 }) {
            $0[0] == "CLUSTER"
                ? slotsReply([(0, 16_383, "127.0.0.1", 1)]) : "-ERR SELECT is not allowed\r\n"
        }
        #expect(fault == .databaseInCluster)
    }

    @Test func `says that a password is not asked for`() throws {
        let fault = try firstFault({ $0.password = "p" }) {
            $0[0] == "AUTH" ? "-ERR AUTH <password> called without any password\r\n" : disabled
        }
        #expect(fault == .passwordNotAsked)
    }
}
