// The index in Redis when Redis is away, loses its data, or holds what it should not.

import Base
import EventLoop
import Redis
import RedisServer
import Testing

@testable import TokenIndex

/// Hears what a writer says of evictions.
private final class Notices: IndexWriterDelegate {
    var evicts: [Bool] = []

    func noticed(_ notice: IndexNotice) {
        if case .evicts(let isSo) = notice { evicts.append(isSo) }
    }

    func changeFinished(tag: UInt64, _ result: ChangeResult) {}
    func applyFrom(_ positions: [IndexTopicPosition]) {}
    func markersWritten() {}
}

@Suite struct `The index in Redis` {
    @Test func `answers a look-up made while Redis was away once it is back and filled`() throws {
        let server = try RedisServer()
        let rig = try IndexRig(try RedisStore(server: server))
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        server.kill()
        let tag = rig.startLookUp("u1")
        let change = rig.start(upload("i2", "u1", token: "T2", at: 1))
        try rig.turn {
            if case .disconnected = rig.reader.readiness { return true }
            return false
        }
        try server.start()
        // It came back empty: the look-up goes on waiting, and everything is asked for again.
        try rig.turn { rig.assignments.count == 2 && rig.result(of: change) != nil }
        #expect(rig.assignments[1].allSatisfy { $0.nextOffset == 0 })
        for _ in 0..<10 { rig.loop.turn(waitingUpTo: .milliseconds(20)) }
        #expect(rig.answer(of: tag) == nil && !rig.reader.isReady)
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        rig.writer.mark(rig.positions(5))
        try rig.turn { rig.answer(of: tag) != nil }
        #expect(try rig.ids("u1") == ["app/i1", "app/i2"])
        try rig.turn { rig.reader.isReady }
    }

    @Test func `notices a FLUSHALL before it believes an empty answer`() throws {
        let server = try RedisServer()
        let rig = try IndexRig(try RedisStore(server: server))
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        #expect(try rig.ids("u1") == ["app/i1"])
        try Operator(server).run("FLUSHALL")
        let tag = rig.startLookUp("u1")
        try rig.turn { rig.assignments.count == 2 }
        #expect(rig.answer(of: tag) == nil)
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        rig.writer.mark(rig.positions(5))
        try rig.turn { rig.answer(of: tag) != nil }
        guard case .addresses(let found, _, _, _)? = rig.answer(of: tag) else {
            Issue.record("not answered with addresses")
            return
        }
        #expect(found.count == 1)
    }

    @Test func `distrusts a bucket whose marker fell behind and resumes from there`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        rig.writer.renew(rig.positions(200), asOf: nil)
        let key = "\(store.prefix){b17}:m"
        let administrator = try Operator(server)
        try rig.turn { (try? administrator.run("HGET", key, "d0")) == "200" }
        try administrator.run("HSET", key, "d0", "150")
        try rig.turn { rig.assignments.count == 2 }
        let offsets = rig.assignments[1].sorted { $0.topic.rawValue < $1.topic.rawValue }
        #expect(offsets.map(\.nextOffset) == [150, 200])
        #expect(try administrator.run("HGET", key, "c") == "0")
        rig.writer.mark(rig.positions(210))
        try rig.turn { (try? administrator.run("HEXISTS", key, "c")) == "1" }
    }

    /// A writer that was replaced and does not know it yet takes `c` away and restores nothing.
    /// As a writer leaves it that was replaced and does not know it yet.
    @Test func `trusts a bucket again that another's renewal has left as it was`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        let key = "\(store.prefix){b17}:m"
        let administrator = try Operator(server)
        let assigned = rig.assignments.count
        try administrator.run("HDEL", key, "c")
        try rig.turn { (try? administrator.run("HEXISTS", key, "c")) == "1" }
        #expect(rig.assignments.count == assigned)
        try rig.turn { rig.reader.isReady }
    }

    /// Topics forget null records after 7 days.
    @Test(arguments: [(5, 100), (7, 0)] as [(Int64, Int64)])
    func `reads everything again when nobody wrote for too long`(days: Int64, next: Int64) throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        rig.writer.stop()
        let stamp = rig.loop.wall.value - days * 24 * 3_600_000
        let age = """
            for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*:m')) do
              redis.call('HSET', key, 'sd0', ARGV[2])
            end
            return 'done'
            """
        #expect(
            try Operator(server).run("EVAL", age, "0", store.prefix, String(stamp)) == "done")
        let successor = try IndexRig(store, isComplete: false)
        try successor.takeCharge()
        #expect(successor.assignments.last?.map(\.nextOffset) == [next, next])
    }

    @Test func `resumes a successor from what the markers say`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let first = try IndexRig(store)
        let second = try IndexRig(store, isComplete: false)
        _ = first
        second.writer.assign(IndexRig.partitions, of: 2)
        try second.turn { second.assignments.count == 1 }
        #expect(second.assignments[0].allSatisfy { $0.nextOffset == 100 })
        try second.turn { second.reader.isReady }
    }

    @Test func `is complete only when every writer has marked its partitions`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store, isComplete: false)
        let other = try IndexRig(store, isComplete: false)
        for (rig, partition) in [(rig, Int32(0)), (other, 1)] {
            rig.writer.assign(
                [.init(.devices, partition), .init(.invalidations, partition)], of: 4)
            try rig.turn { rig.assignments.count == 1 }
            #expect(!rig.reader.isReady)
            rig.writer.mark([])
            try rig.turn { rig.marks == 1 }
        }
        try rig.turn { rig.reader.isReady }
    }

    @Test func `REDIS-09: repeats a look-up at once when an idle connection was cut`() throws {
        let server = try RedisServer()
        let rig = try IndexRig(try RedisStore(server: server))
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        #expect(try rig.ids("u1") == ["app/i1"])
        try Operator(server).run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        #expect(try rig.ids("u1") == ["app/i1"])
    }

    @Test func `loses one user only when a key has the wrong type`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        try rig.apply(upload("i1", "u1", token: "T1", at: 1))
        try rig.apply(upload("i2", "u2", token: "T2", at: 1))
        let administrator = try Operator(server)
        let key = try administrator.run(
            "EVAL", "return redis.call('KEYS', ARGV[1])[1]", "0", "\(store.prefix)*:u:app:u1")
        #expect(key.hasSuffix(":u:app:u1"))
        try administrator.run("SET", key, "not a hash")
        guard case .unavailable(.unreadable(let text)) = try rig.lookUp("u1") else {
            Issue.record("answered from a key that is not a hash")
            return
        }
        #expect(text == "WRONGTYPE")
        #expect(try rig.ids("u2") == ["app/i2"])
        let result = try rig.apply(upload("i1", "u1", token: "T1", at: 2, version: 2))
        #expect(result == .refused("Redis refuses it: WRONGTYPE"))
        #expect(try rig.apply(upload("i2", "u2", token: "T3", at: 2, version: 2)) == .applied)
        try rig.turn { rig.reader.isReady }
        // The install goes to another user, and so does its token, through another install.
        let refused = ChangeResult.refused("Redis refuses it: WRONGTYPE")
        #expect(try rig.apply(upload("i1", "u3", token: "T1", at: 3, version: 3)) == refused)
        #expect(try rig.ids("u3") == ["app/i1"])
        try administrator.run("DEL", key)
        try rig.apply(upload("i4", "u1", token: "T4", at: 3))
        try administrator.run("SET", key, "not a hash")
        #expect(try rig.apply(upload("i5", "u3", token: "T4", at: 4)) == refused)
        #expect(try rig.ids("u3") == ["app/i1", "app/i5"])
    }

    /// Then the former user's list may still have the entry.
    @Test func `gives nobody a device that a user cannot be told to have lost`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        try rig.apply(upload("i1", "u1", token: "T1", at: 1))
        let layout = RedisLayout(prefix: store.prefix)
        try Operator(server).run("SET", layout.unlinked("u1", app: "app"), "not a hash")
        let result = try rig.apply(upload("i1", "u2", token: "T1", at: 2, version: 2))
        #expect(result == .refused("Redis refuses it: WRONGTYPE"))
        #expect(try rig.ids("u2") == [])
    }

    @Test func `does not believe an entry that names another user`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        try rig.apply(upload("i1", "u1", token: "T1", at: 1))
        try rig.apply(upload("i2", "u2", token: "T2", at: 1))
        let swap = """
            local a, b = redis.call('KEYS', ARGV[1] .. '*:u:app:u1')[1],
              redis.call('KEYS', ARGV[1] .. '*:u:app:u2')[1]
            redis.call('HSET', a, 'app/i2', redis.call('HGET', b, 'app/i2'))
            return 'done'
            """
        #expect(try Operator(server).run("EVAL", swap, "0", store.prefix) == "done")
        guard case .unavailable(.unreadable) = try rig.lookUp("u1") else {
            Issue.record("handed out another user's device")
            return
        }
    }

    @Test func `REDIS-08: hands out the newest of 100,000 and answers others meanwhile`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        try rig.apply(upload("i1", "crowd", token: "T", at: 5_000_000))
        try rig.apply(upload("i2", "u2", token: "T2", at: 1))
        // Copies under other ids, each registered at a time of its own: bytes 44 to 51 of the
        // stored form. Beyond the first ones they lie where a writer puts them.
        let fill = """
            local key = redis.call('KEYS', ARGV[1] .. '*:u:app:crowd')[1]
            local further = key:gsub('}:u:', '}:v:')
            local value = redis.call('HGET', key, 'app/i1')
            local colon = value:find(':')
            local head, tail = value:sub(1, colon + 44), value:sub(colon + 53)
            redis.call('HSET', key, '', '+')
            for n = 1, 99999 do
              redis.call('HSET', n < 2047 and key or further, 'app/x' .. n,
                head .. struct.pack('<I8', n) .. tail)
            end
            return 'done'
            """
        #expect(try Operator(server).run("EVAL", fill, "0", store.prefix) == "done")
        let crowd = rig.startLookUp("crowd")
        var others = 0
        var longest = TimeSpan.zero
        while rig.answer(of: crowd) == nil {
            let askedAt = rig.loop.now
            let other = rig.startLookUp("u2")
            try rig.turn { rig.answer(of: other) != nil }
            longest = max(longest, rig.loop.now - askedAt)
            others += 1
        }
        // Each passed the crowd's pages: there were many in the time that those took.
        #expect(others > 10)
        #expect(longest < .seconds(2), "\(longest)")
        guard case .addresses(let found, let dropped, _, _)? = rig.answer(of: crowd) else {
            Issue.record("not answered with addresses")
            return
        }
        #expect(found.count == 1_000 && dropped == 99_000)
        #expect(found.contains { $0.addressID == "app/i1" })
        #expect(found.allSatisfy { $0.registeredAt.value > 99_000 })
    }

    /// A scan may bring the same address twice: a hundredth of them here, the last one included.
    @Test func `REDIS-08: hands out an address once that pages repeat`() throws {
        for limit in [1_000, 200_000] {
            var found = NewestAddresses(limit: limit)
            for number in 0..<100_000 {
                for _ in 0..<(number % 100 == 99 ? 2 : 1) {
                    guard
                        case .registration(.registered(let address)) =
                            upload("i\(number)", "u", token: "t\(number)", at: Int64(number))
                    else { return }
                    found.insert(address)
                }
            }
            let ids = found.finish().map(\.addressID)
            #expect(Set(ids).count == ids.count)
            #expect(ids.contains("app/i99999"))
            #expect(limit == 1_000 ? ids.count >= 990 : ids.count == 100_000)
        }
    }

    @Test func `REDIS-12: warns of a server that evicts, repeats a write it refused`() throws {
        let server = try RedisServer(
            arguments: ["--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"])
        let store = try RedisStore(server: server)
        let loop = try EventLoop(name: "warnings")
        var warnings: [String] = []
        let writer = store.index.writer(on: loop, warning: { warnings.append($0) })
        let notices = Notices()
        writer.delegate = notices
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while notices.evicts.isEmpty, SystemTime.shared.monotonic < deadline {
            loop.turn(waitingUpTo: .milliseconds(50))
        }
        writer.stop()
        #expect(notices.evicts == [true])
        #expect(warnings[0].contains("allkeys-lru") && warnings[0].contains("noeviction"))

        let administrator = try Operator(server)
        try administrator.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
        let rig = try IndexRig(store)
        try rig.apply(upload("i1", "u1", token: "T", at: 1))
        try administrator.run("CONFIG", "SET", "maxmemory", "1")
        let change = rig.start(verdict(.invalidate, "i1", token: "T", asOf: 2))
        for _ in 0..<20 { rig.loop.turn(waitingUpTo: .milliseconds(20)) }
        #expect(rig.result(of: change) == nil)
        try administrator.run("CONFIG", "SET", "maxmemory", "0")
        try rig.turn { rig.result(of: change) != nil }
        #expect(rig.result(of: change) == .applied)
        #expect(try rig.ids("u1") == [])
    }

    @Test func `asks for 32 users and more in one pipeline under load`() throws {
        let server = try RedisServer()
        let rig = try IndexRig(try RedisStore(server: server))
        for user in 0..<50 {
            try rig.apply(upload("i\(user)", "u\(user)", token: "T\(user)", at: 1))
        }
        let administrator = try Operator(server)
        /// How often the server read from a connection since it started.
        func reads() throws -> Int {
            let lines = try administrator.run("INFO", "stats").split(whereSeparator: \.isNewline)
            let line = try #require(lines.first { $0.hasPrefix("total_reads_processed:") })
            return try #require(line.split(separator: ":").last.flatMap { Int($0) })
        }
        // As many events as a lane works on at once, and another for each that is done.
        let (atOnce, total) = (256, 20_000)
        let before = try reads()
        var open: [UInt64] = []
        var asked = 0
        while asked < total || !open.isEmpty {
            while open.count < atOnce, asked < total {
                open.append(rig.startLookUp("u\(asked % 60)"))
                asked += 1
            }
            let first = open[0]
            try rig.turn { rig.answer(of: first) != nil }
            open.removeAll { rig.answer(of: $0) != nil }
        }
        let after = try reads()
        let depth = total / (after - before)
        #expect(depth >= 32, "\(depth) look-ups in one read of the server")
    }

    @Test func `refuses more look-ups than may wait, and keeps those that do`() throws {
        let server = try RedisServer()
        let rig = try IndexRig(try RedisStore(server: server), isComplete: false)
        let tags = (0..<IndexLimits.lookUpsOpen).map { rig.startLookUp("u\($0)") }
        let refused = rig.startLookUp("one more")
        try rig.turn { rig.answer(of: refused) != nil }
        guard case .unavailable(.tooManyWaiting)? = rig.answer(of: refused) else {
            Issue.record("taken")
            return
        }
        try rig.markComplete()
        try rig.turn { tags.allSatisfy { rig.answer(of: $0) != nil } }
    }
}
