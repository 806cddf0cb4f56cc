// The pure parts of a cluster's client.

import Base
import Testing

@testable import Redis

/// Reads a reply from its bytes and lends it.
func withReply<Value>(_ text: String, _ body: (RedisReply) throws -> Value) throws -> Value {
    let reader = ReplyReader()
    try #require(Array(text.utf8).withUnsafeBytes { reader.feed($0) })
    guard case .reply = reader.next() else { throw RedisError.notTheProtocol }
    return try body(RedisReply(reader.storage, at: 0))
}

/// The bytes of an answer to `CLUSTER SLOTS`.
func slotsReply(_ ranges: [(first: Int, last: Int, host: String?, port: Int)]) -> String {
    var text = "*\(ranges.count)\r\n"
    for range in ranges {
        let host = range.host.map { "$\($0.utf8.count)\r\n\($0)\r\n" } ?? "$-1\r\n"
        text += "*3\r\n:\(range.first)\r\n:\(range.last)\r\n"
        text += "*4\r\n\(host):\(range.port)\r\n$2\r\nid\r\n*0\r\n"
    }
    return text
}

@Suite struct `The slot of a key` {
    @Test(
        arguments: [
            ("123456789", 12_739), ("tokens:u1", 6_917), ("tokens:u2", 11_110),
            ("tokens:{u1}", 4_574), ("meta:{u1}", 4_574), ("", 0),
        ] as [(String, UInt16)])
    func `is as the cluster computes it`(key: String, slot: UInt16) {
        #expect(RedisSlot(of: key).number == slot)
    }

    @Test func `is that of the first tag that is not empty`() {
        let slot = RedisSlot(of: "u1")
        #expect(RedisSlot(of: "a{u1}b{u2}") == slot && RedisSlot(of: "{u1") != slot)
        #expect(RedisSlot(of: "{}u1") != slot && RedisSlot(of: "{u1}{u2") == slot)
        #expect(RedisSlot(of: "a{{u1}}") == RedisSlot(of: "{u1"))
    }
}

@Suite struct `The map of a cluster` {
    let source = RedisEndpoint(host: "seed", port: 7000)

    @Test func `names the masters and takes the asked node's host for a missing one`() throws {
        let text = slotsReply([
            (0, 5_460, "10.0.0.1", 7001), (5_461, 10_922, "", 7002), (10_923, 16_000, nil, 7003),
            (16_001, 16_100, "?", 7004), (16_101, 16_200, "h", 0),
        ])
        let map = try #require(try withReply(text) { SlotMap($0, from: source) })
        #expect(
            map.ranges == [
                .init(slots: 0...5_460, master: .init(host: "10.0.0.1", port: 7001)),
                .init(slots: 5_461...10_922, master: .init(host: "seed", port: 7002)),
                .init(slots: 10_923...16_000, master: .init(host: "seed", port: 7003)),
            ])
        #expect(map.uncovered == RedisSlot.count - 16_001)
    }

    @Test(
        arguments: [
            "+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n:1\r\n:2\r\n",
            slotsReply([(5, 4, "h", 1)]), slotsReply([(0, 16_384, "h", 1)]),
            slotsReply([(-1, 4, "h", 1)]), slotsReply([(0, 1, "h", 70_000)]),
        ])
    func `is not read from anything else`(text: String) throws {
        #expect(try withReply(text) { SlotMap($0, from: source) } == nil)
    }

    @Test func `is corrected by redirections`() {
        let moved = Redirection("6917 127.0.0.1:7001", from: source)
        #expect(moved?.slot.number == 6_917)
        #expect(moved?.endpoint == RedisEndpoint(host: "127.0.0.1", port: 7001))
        #expect(Redirection("1 :7001", from: source)?.endpoint.host == "seed")
        #expect(Redirection("1 ::1:7001", from: source)?.endpoint.host == "::1")
        for text in [nil, "", "6917", "x h:1", "16384 h:1", "1 h", "1 h:0", "1 h:1 more"] {
            #expect(Redirection(text, from: source) == nil, "\(text ?? "nothing")")
        }
    }
}

@Suite struct `The refresh of the map` {
    @Test func `never asks twice at a time and keeps a distance`() {
        var random = SeededRandom(seed: 1)
        var refresh = MapRefresh()
        var now = MonotonicTime(nanos: 0)
        #expect(refresh.wanted(at: now) == .ask)
        #expect(refresh.wanted(at: now) == .none && refresh.waited(at: now) == .none)
        // It was wanted again meanwhile: once more, a little later.
        #expect(refresh.finished(isWhole: true, &random) == .wait(RedisLimits.mapGap))
        #expect(refresh.wanted(at: now) == .none)
        now = now + RedisLimits.mapGap
        #expect(refresh.waited(at: now) == .ask)
        #expect(refresh.finished(isWhole: true, &random) == .wait(RedisLimits.mapInterval))
        now = now + .milliseconds(40)
        #expect(refresh.wanted(at: now) == .wait(.milliseconds(60)))
        #expect(refresh.wanted(at: now) == .none)
        now = now + .milliseconds(60)
        #expect(refresh.waited(at: now) == .ask)
        #expect(refresh.finished(isWhole: true, &random) == .wait(RedisLimits.mapInterval))
        now = now + RedisLimits.mapInterval
        #expect(refresh.waited(at: now) == .ask)
    }

    @Test func `goes on with growing waits under a second while something is missing`() {
        var random = SeededRandom(seed: 7)
        var refresh = MapRefresh()
        let now = MonotonicTime(nanos: 0)
        #expect(refresh.wanted(at: now) == .ask)
        for attempt in 0..<10 {
            guard case .wait(let span) = refresh.finished(isWhole: false, &random) else {
                Issue.record("did not wait")
                return
            }
            let full = min(RedisLimits.mapGap * (1 << Int64(attempt)), RedisLimits.mapRetryMax)
            #expect(span >= full / 2 && span <= full && span < .seconds(1))
            #expect(refresh.waited(at: now) == .ask)
        }
        #expect(refresh.finished(isWhole: true, &random) == .wait(RedisLimits.mapInterval))
        #expect(refresh.failures == 0)
    }
}
