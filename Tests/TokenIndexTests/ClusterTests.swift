// The index in a Redis Cluster: a bucket on its way to another node, a node that lost its data, a
// node that another one replaced; and in a single Redis that went away and came back.

import Base
import EventLoop
import Redis
import RedisServer
import Testing

@testable import TokenIndex

/// The node that had a user's bucket from the start.
private func home(of user: String, in cluster: RedisCluster) -> Int {
    let slot = Int(RedisSlot(of: RedisLayout(prefix: "").user(user, app: "app")).number)
    return cluster.servers.indices.first { cluster.slots(of: $0).contains(slot) } ?? 0
}

@Suite struct `The index while a bucket moves to another node` {
    @Test func `answers all the time, and applies what comes meanwhile`() throws {
        let cluster = try RedisStore.sharedCluster()
        let rig = try IndexRig(try RedisStore(cluster: nil))
        try rig.apply(upload("i1", "u1", token: "T1", at: 1))
        // Somebody without devices in the same bucket: nobody may take this for an answer too soon.
        let bucket = RedisLayout.bucket(of: "u1", app: "app")
        let nobody = try #require(
            (0..<100_000).map { "n\($0)" }
                .first { RedisLayout.bucket(of: $0, app: "app") == bucket })
        let move = SlotMove(
            "\(RedisSlot(of: "{b\(bucket)}").number)", in: cluster,
            from: home(of: "u1", in: cluster))

        /// Asks for both while the next step of the move is made.
        func load(_ token: String, _ step: () -> Void) throws {
            let tags = (0..<20).map { rig.startLookUp($0 % 2 == 0 ? "u1" : nobody) }
            rig.loop.turn(waitingUpTo: .zero)
            step()
            try rig.turn { tags.allSatisfy { rig.answer(of: $0) != nil } }
            for (index, tag) in tags.enumerated() {
                guard case .addresses(let found, _, _, _)? = rig.answer(of: tag) else {
                    Issue.record("no answer")
                    return
                }
                #expect(found.map(\.token) == (index % 2 == 0 ? [token] : []))
            }
        }
        try load("T1") { move.begin() }
        while let key = move.nextKey { try load("T1") { move.take([key]) } }
        // A script on two keys, of which one does not exist, has to wait for the end of the move.
        let change = rig.start(upload("i1", "u1", token: "T2", at: 2, version: 2))
        for _ in 0..<10 { rig.loop.turn(waitingUpTo: .milliseconds(20)) }
        #expect(rig.result(of: change) == nil)
        try load("T1") { move.finish() }
        try rig.turn { rig.result(of: change) == .applied }
        try load("T2") {}
        try rig.apply(upload("i1", "u1", token: "T3", at: 3, version: 3))
        try load("T3") {}
        // Nothing was taken for a loss.
        #expect(rig.assignments.count == 1 && rig.reader.isReady)
    }
}

@Suite struct `A node that a replica took over` {
    /// The unlink of the former user, the last write before the node died, is lost with it, and no
    /// marker was renewed since.
    @Test func `gives nobody back what another one was given`() throws {
        let cluster = try RedisStore.sharedCluster()
        let store = try RedisStore(cluster: nil)
        let rig = try IndexRig(store)
        let model = InMemoryTokenIndex()
        func apply(_ change: IndexChange, _ offset: Int64) throws {
            try rig.apply(change, at: place(offset))
            model.apply(change, at: place(offset))
        }
        try apply(upload("i1", "former", token: "T1", at: 1), 1)
        let server = cluster.servers[home(of: "former", in: cluster)]
        let layout = RedisLayout(prefix: store.prefix)
        let list = layout.user("former", app: "app")
        #expect(server.command("COPY", list, "\(list)/kept") == "1")
        try apply(upload("i1", "present", token: "T1", at: 2, version: 2), 2)
        #expect(try rig.ids("former") == [])
        server.command("RENAME", "\(list)/kept", list)
        server.command("DEL", layout.unlinked("former", app: "app"))
        #expect(try rig.ids("former") == ["app/i1"])
        server.command("CLIENT", "KILL", "TYPE", "normal")
        try rig.turn { (try? rig.ids("former")) == [] }
        #expect(try rig.ids("present") == ["app/i1"])
        #expect(try RedisIndexOperator(store.index).verify(against: model).isEqual)
    }
}

@Suite struct `The index in a cluster` {
    /// Users of other slots in one turn, and changes of one user that touch several keys.
    @Test func `REDIS-06: never asks for keys of two slots in one command`() throws {
        let cluster = try RedisStore.sharedCluster()
        let store = try RedisStore(cluster: nil)
        let rig = try IndexRig(store)
        let users = (0..<60).map { "u\($0)" }
        #expect(Set(users.map { home(of: $0, in: cluster) }).count == 3)
        for user in users { rig.start(upload("i-\(user)", user, token: "T\(user)", at: 1)) }
        let tags = users.map { rig.startLookUp($0) }
        try rig.turn { tags.allSatisfy { rig.answer(of: $0) != nil } }
        // A token that goes from one user to the next, through all of them, and is removed.
        for (number, user) in users.enumerated() {
            let result = try rig.apply(
                upload("i-\(user)", user, token: "S", at: 10 + Int64(number), version: 2))
            #expect(result == .applied)
        }
        #expect(try rig.apply(verdict(.invalidate, "i-u59", token: "S", asOf: 99)) == .applied)
        #expect(try rig.apply(gone("i-u58")) == .applied)
        for user in users { #expect(try rig.ids(user) == [], "\(user)") }
        for server in cluster.servers {
            #expect(!server.command("INFO", "errorstats").contains("errorstat_CROSSSLOT"))
        }
    }

    @Test func `says so when a slot does not arrive, and goes on when it does`() throws {
        let cluster = try RedisStore.sharedCluster()
        let store = try RedisStore(cluster: nil)
        let rig = try IndexRig(store)
        let install = "stuck"
        var warnings: [String] = []
        let writer = RedisIndexWriter(
            store.index, on: rig.loop, observer: nil, warning: { warnings.append($0) })
        defer { writer.stop() }
        writer.refusalPatience = .milliseconds(600)
        let results = ResultLog()
        writer.delegate = results
        func apply(_ tag: UInt64, _ user: String, version: Int64) {
            writer.apply(
                upload(install, user, token: "T", at: version, version: version),
                at: place(version), tag: tag)
        }
        apply(1, "u-stuck", version: 1)
        try rig.turn { results.results[1] != nil }
        let bucket = RedisLayout.bucket(of: "u-stuck", app: "app")
        let move = SlotMove(
            "\(RedisSlot(of: "{b\(bucket)}").number)", in: cluster,
            from: home(of: "u-stuck", in: cluster))
        move.begin()
        if let key = move.nextKey { move.take([key]) }
        // The script that lists it touches three keys, of which some are on each side.
        apply(2, "u-stuck", version: 2)
        try rig.turn { warnings.contains { $0.contains("TRYAGAIN") } }
        #expect(warnings.contains { $0.contains("does not arrive") && $0.contains("fix") })
        #expect(results.results[2] == nil)
        while let key = move.nextKey { move.take([key]) }
        move.finish()
        try rig.turn { results.results[2] == .applied }
        #expect(try rig.ids("u-stuck") == ["app/stuck"])
    }
}

private final class ResultLog: IndexWriterDelegate {
    var results: [UInt64: ChangeResult] = [:]
    func changeFinished(tag: UInt64, _ result: ChangeResult) { results[tag] = result }
    func applyFrom(_ positions: [IndexTopicPosition]) {}
    func markersWritten() {}
}

/// Moves one slot, whatever other tests do with it meanwhile.
private struct SlotMove {
    private let slot: String
    private let cluster: RedisCluster
    private let source: RedisServer
    private let target: RedisServer

    init(_ slot: String, in cluster: RedisCluster, from home: Int, to next: Int? = nil) {
        self.slot = slot
        self.cluster = cluster
        source = cluster.servers[home]
        target = cluster.servers[next ?? (home + 1) % 3]
    }

    func begin() {
        let id = source.command("CLUSTER", "MYID")
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))
    }

    var nextKey: String? { keys(1).first }

    func take(_ keys: [String]) {
        guard !keys.isEmpty else { return }
        source.command(
            ["MIGRATE", "127.0.0.1", "\(target.port)", "", "0", "5000", "REPLACE", "KEYS"] + keys)
    }

    func finish() {
        let id = target.command("CLUSTER", "MYID")
        target.command("CLUSTER", "SETSLOT", slot, "NODE", id)
        // Refused while a key that was just written is there.
        repeat {
            take(keys(100))
        } while source.command("CLUSTER", "SETSLOT", slot, "NODE", id) != "OK"
        for server in cluster.servers { server.command("CLUSTER", "SETSLOT", slot, "NODE", id) }
    }

    private func keys(_ count: Int) -> [String] {
        source.command("CLUSTER", "GETKEYSINSLOT", slot, "\(count)")
            .split(separator: "\n").map(String.init)
    }
}

@Suite(.serialized) struct `The index in a cluster whose nodes fail` {
    // One for all tests: it takes seconds to form.
    private static nonisolated(unsafe) let cluster = Result<RedisCluster, SystemError> {
        () throws(SystemError) in
        try RedisCluster()
    }

    private static let users = (0..<30).map { "u\($0)" }

    private func fill(_ rig: IndexRig) throws {
        for user in Self.users { try rig.apply(upload(user, user, token: "T\(user)", at: 1)) }
    }

    /// Answers wait until everything was applied again, and are right then.
    private func expectHealing(_ rig: IndexRig, of node: Int, _ cluster: RedisCluster) throws {
        let tags = Self.users.map { rig.startLookUp($0) }
        let others = zip(Self.users, tags).filter { home(of: $0.0, in: cluster) != node }
        try rig.turn {
            rig.assignments.count == 2 && others.allSatisfy { rig.answer(of: $0.1) != nil }
        }
        #expect(others.count < tags.count)
        for (user, tag) in zip(Self.users, tags) where home(of: user, in: cluster) == node {
            #expect(rig.answer(of: tag) == nil, "\(user)")
        }
        #expect(rig.assignments[1].allSatisfy { $0.nextOffset == 0 })
        try fill(rig)
        rig.writer.mark(rig.positions(200))
        try rig.turn { tags.allSatisfy { rig.answer(of: $0) != nil } }
        for (user, tag) in zip(Self.users, tags) {
            guard case .addresses(let found, _, _, _)? = rig.answer(of: tag) else {
                Issue.record("no answer")
                return
            }
            #expect(found.map(\.addressID) == ["app/\(user)"])
        }
        try rig.turn { rig.reader.isReady }
    }

    @Test func `fills an emptied node again before it believes an empty answer`() throws {
        let cluster = try Self.cluster.get()
        let rig = try IndexRig(try RedisStore(cluster: cluster))
        try fill(rig)
        for user in Self.users { #expect(try rig.ids(user) == ["app/\(user)"]) }
        cluster.servers[2].command("FLUSHALL")
        try expectHealing(rig, of: 2, cluster)
    }

    /// The bucket's marker has moved, the user's addresses have not: the marker proves nothing.
    @Test func `fills a node again that was emptied while a slot left it`() throws {
        let cluster = try Self.cluster.get()
        let store = try RedisStore(cluster: cluster)
        let rig = try IndexRig(store)
        try fill(rig)
        for user in Self.users { #expect(try rig.ids(user) == ["app/\(user)"]) }
        let user = try #require(Self.users.first { home(of: $0, in: cluster) == 0 })
        let bucket = RedisLayout.bucket(of: user, app: "app")
        let slot = "\(RedisSlot(of: "{b\(bucket)}").number)"
        let move = SlotMove(slot, in: cluster, from: 0, to: 1)
        move.begin()
        move.take([store.index.layout.marker(bucket)])
        cluster.servers[0].command("FLUSHALL")
        let tags = Self.users.map { rig.startLookUp($0) }
        try rig.turn { rig.assignments.count > 1 }
        for (other, tag) in zip(Self.users, tags) where home(of: other, in: cluster) == 0 {
            #expect(rig.answer(of: tag) == nil, "\(other)")
        }
        #expect(rig.assignments[1].allSatisfy { $0.nextOffset == 0 })
        move.finish()
        var rounds: Int
        repeat {
            rounds = rig.assignments.count
            let marks = rig.marks
            try fill(rig)
            rig.writer.mark(rig.positions(200))
            try rig.turn { rig.marks > marks || rig.assignments.count > rounds }
        } while rig.assignments.count > rounds
        try rig.turn { tags.allSatisfy { rig.answer(of: $0) != nil } }
        for (user, tag) in zip(Self.users, tags) {
            guard case .addresses(let found, _, _, _)? = rig.answer(of: tag) else {
                Issue.record("no answer")
                return
            }
            #expect(found.map(\.addressID) == ["app/\(user)"])
        }
        // Back, so that the next test finds the cluster as it was.
        let back = SlotMove(slot, in: cluster, from: 1, to: 0)
        back.begin()
        while let key = back.nextKey { back.take([key]) }
        back.finish()
    }

    @Test func `goes on for other users while a node is away, and fills the next one`() throws {
        let cluster = try Self.cluster.get()
        let rig = try IndexRig(try RedisStore(cluster: cluster))
        try fill(rig)
        try rig.turn { rig.reader.isReady }
        cluster.servers[1].kill()
        let gone = "127.0.0.1:\(cluster.servers[1].port)"
        try rig.turn { "\(rig.reader.readiness)".contains(gone) }
        for user in Self.users where home(of: user, in: cluster) != 1 {
            #expect(try rig.ids(user) == ["app/\(user)"])
        }
        #expect(!rig.reader.isReady)
        try cluster.replace(1)
        try expectHealing(rig, of: 1, cluster)
    }
}

@Suite struct `The index in one Redis` {
    @Test func `goes on by itself within a second of Redis' return`() throws {
        let server = try RedisServer(arguments: ["--appendonly", "yes"])
        let rig = try IndexRig(try RedisStore(server: server))
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        server.kill()
        let tags = (0..<10).map { _ in rig.startLookUp("u1") }
        let change = rig.start(upload("i2", "u1", token: "T2", at: 1))
        try rig.turn { "\(rig.reader.readiness)".contains("Connection refused") }
        try server.start()
        let returned = SystemTime.shared.monotonic
        try rig.turn {
            tags.allSatisfy { rig.answer(of: $0) != nil } && rig.result(of: change) != nil
        }
        #expect(SystemTime.shared.monotonic - returned < .seconds(1))
        for tag in tags {
            guard case .addresses(let found, _, _, _)? = rig.answer(of: tag) else {
                Issue.record("no answer")
                return
            }
            #expect(found.contains { $0.addressID == "app/i1" })
        }
        // Users whose bucket was renewed are answered; all of them soon are.
        try rig.turn { rig.reader.isReady }
        // It kept its data, so nothing has to be applied from the start.
        try rig.turn { rig.assignments.count == 2 }
        #expect(rig.assignments[1].allSatisfy { $0.nextOffset == 100 })
    }

    @Test func `asks for a turn's look-ups in one write`() throws {
        let server = try RedisServer()
        let rig = try IndexRig(try RedisStore(server: server))
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        func statistics(_ name: String) -> Int {
            server.command("INFO", "stats").split(whereSeparator: \.isNewline)
                .first { $0.hasPrefix("\(name):") }
                .flatMap { Int($0.dropFirst(name.count + 1)) } ?? 0
        }
        let before = (statistics("total_reads_processed"), statistics("total_commands_processed"))
        let tags = (0..<64).map { _ in rig.startLookUp("u1") }
        rig.loop.turn(waitingUpTo: .zero)
        let after = (statistics("total_reads_processed"), statistics("total_commands_processed"))
        // Beside them only what asks for the statistics, and renewals of markers.
        #expect(after.1 - before.1 >= 128 && after.0 - before.0 < 24)
        try rig.turn { tags.allSatisfy { rig.answer(of: $0) != nil } }
    }

    @Test func `leaves other users alone when a marker has the wrong type`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        try rig.apply(upload("i2", "u2", token: "T2", at: 1))
        let bucket = RedisLayout.bucket(of: "u1", app: "app")
        server.command("SET", RedisLayout(prefix: store.prefix).marker(bucket), "no hash")
        let tag = rig.startLookUp("u1")
        #expect(try rig.ids("u2") == ["app/i2"])
        for _ in 0..<20 { rig.loop.turn(waitingUpTo: .milliseconds(20)) }
        #expect(rig.answer(of: tag) == nil && "\(rig.reader.readiness)".contains("WRONGTYPE"))
    }
}
