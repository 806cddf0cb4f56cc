// The order of pushes with one collapse key, in one lane whose clock the test turns.

import Base
import Crypto
import EventLoop
import Gateways
import JSON
import Synchronization
import Testing
import TokenIndex

@testable import Pipeline

/// A user with devices, and events with a collapse key.
private final class Updates {
    let world: OneLane
    let gateway: ScriptedGateway
    private var offset: Int64 = 0

    init(
        devices: [String] = ["phone"],
        _ script: @escaping @Sendable (_ token: String, _ attempt: Int) -> GatewayAction
    ) throws {
        gateway = try ScriptedGateway(script)
        world = try OneLane(gateway)
        for device in devices {
            try world.register(device, user: "u1", token: SHA256Digest(of: device).hex)
        }
        world.lane.replace(
            try routes("  sync: {kind: hint, ttl: 1h}\n"), configurationHash: "")
    }

    /// An event whose title is its number.
    @discardableResult
    func publish(
        key: String? = "score", type: String = "t", user: String = "u1", _ more: String = ""
    ) throws -> EventInFlight {
        offset += 1
        let member = key.map { #","collapse_key":"\#($0)""# } ?? ""
        let words = type == "t" ? #","notification":{"title":"\#(offset)"}"# : ""
        return try put(
            #"{"id":"e\#(offset)","type":"\#(type)","user_id":"\#(user)"\#(member)\#(words)\#(more)}"#,
            at: offset)
    }

    /// An event that comes back from a retry topic with one open target.
    func comeBack(_ number: Int64, device: String = "phone") throws -> EventInFlight {
        let position = RecordPosition(topic: "push.events", partition: 0, offset: number)
        var pending = PendingTarget(
            addressID: "shop/\(device)", index: 0, gateway: "apns", environment: "production",
            platform: "ios", appVersion: nil, tokenHash: "0123abcd")
        pending.attempts = 1
        let now = world.lane.loop.wall
        let reentry = Reentry(
            origin: position, timestamp: now, firstFailedAt: now, notBefore: now, targets: 1,
            fannedOutAt: now, pending: [pending])
        return try put(
            #"{"id":"e\#(number)","type":"t","user_id":"u1","collapse_key":"score","notification":{"title":"\#(number)"}}"#,
            at: number, reentry)
    }

    private func put(
        _ text: String, at offset: Int64, _ reentry: Reentry? = nil
    ) throws -> EventInFlight {
        let lane = world.lane
        let event = lane.events.take()
        let value = Array(text.utf8)
        try value.withUnsafeBytes { bytes in
            let input = InputRecord(
                position: RecordPosition(topic: "push.events", partition: 0, offset: offset),
                timestamp: lane.loop.wall, key: nil, value: bytes, headers: [])
            event.source.take(input)
            event.timestamp = input.timestamp
            event.position = input.position
            event.envelope = try lane.settings.decoder.decode(input, with: event.parser)
        }
        event.reentry = reentry
        event.offset = offset
        event.consumedAt = lane.loop.wall
        try lane.route(event)
        lane.admit(event)
        try world.turn { lane.lookUpsOpen == 0 }
        lane.loop.turn(waitingUpTo: .zero)
        return event
    }

    func sees(_ count: Int) throws { try world.turn { gateway.seen.count >= count } }

    func pass(_ span: TimeSpan) {
        world.time.advance(by: span)
        world.lane.loop.turn(waitingUpTo: .zero)
    }

    func ends(_ event: EventInFlight) throws -> TargetInFlight {
        let target = try #require(event.targets.first)
        try world.turn { target.settlement != nil || target.postponement != nil }
        return target
    }

    /// What the device got, by number, in the order in which the gateway saw it.
    var numbers: [Int] {
        gateway.seen.map { seen in
            let root = try? JSONParser().parse(seen.body)
            return root?["aps"]?["alert"]?["title"]?.string.flatMap { Int($0) } ?? -1
        }
    }
}

private let busy = #"{"reason":"Shutdown"}"#

@Suite struct `Pushes with one collapse key` {
    @Test func `go one by one, and the newest of those that wait is sent`() throws {
        let updates = try Updates { _, attempt in attempt == 1 ? .hold : .answer(200, "") }
        let first = try updates.publish()
        try updates.sees(1)
        let second = try updates.publish()
        let third = try updates.publish()
        let fourth = try updates.publish()
        #expect(updates.numbers == [1], "one is under way")
        for (event, newer) in [(second, "e3"), (third, "e4")] {
            let target = try updates.ends(event)
            #expect(target.settlement?.outcome == .coalesced)
            #expect(target.foldedInto?.id == newer && target.attempts == 0)
        }
        updates.gateway.release()
        #expect(try updates.ends(first).settlement?.outcome == .accepted, "it was on the wire")
        #expect(try updates.ends(fourth).settlement?.outcome == .accepted)
        #expect(updates.numbers == [1, 4])
    }

    @Test func `do not wait for those of another key, user or device, nor without a key`() throws {
        let updates = try Updates(devices: ["phone", "pad"]) { token, attempt in
            token == SHA256Digest(of: "phone").hex && attempt == 1 ? .hold : .answer(200, "")
        }
        try updates.world.register("other", user: "u2", token: SHA256Digest(of: "other").hex)
        let first = try updates.publish()
        try updates.sees(2)
        let pad = try #require(first.targets.first { $0.address?.installID == "pad" })
        try updates.world.turn { pad.settlement != nil }
        try updates.publish(key: "another")
        try updates.publish(key: nil)
        try updates.publish(key: nil)
        try updates.publish(user: "u2")
        let rehearsal = try updates.publish(#","mode":"validate""#)
        #expect(rehearsal.targets.allSatisfy { $0.settlement?.outcome == .accepted })
        try updates.sees(9)
        let newer = try updates.publish()
        try updates.sees(10)
        #expect(updates.numbers.last == 7)
        #expect(updates.gateway.seen.last?.token == SHA256Digest(of: "pad").hex)
        #expect(newer.targets.count { $0.settlement == nil } == 1)
    }

    @Test func `give way while they rest before another attempt`() throws {
        let updates = try Updates { _, attempt in
            attempt == 1 ? .answer(503, busy) : .answer(200, "")
        }
        let first = try updates.publish()
        try updates.sees(1)
        try updates.world.turn { first.targets[0].timer != nil }
        let second = try updates.publish()
        let third = try updates.publish()
        #expect(updates.numbers == [1], "the gateway's wait is everybody's")
        updates.pass(.seconds(6))
        #expect(try updates.ends(third).settlement?.outcome == .accepted)
        #expect(updates.numbers == [1, 3])
        let folded = try updates.ends(first)
        #expect(folded.settlement?.outcome == .coalesced && folded.foldedInto?.id == "e3")
        #expect(folded.attempts == 1)
        #expect(try updates.ends(second).foldedInto?.id == "e3")
    }

    @Test func `are not sent again after a lost answer when something newer waits`() throws {
        let updates = try Updates { _, attempt in attempt == 1 ? .cut : .answer(200, "") }
        let first = try updates.publish()
        try updates.sees(1)
        try updates.world.turn { first.targets[0].timer != nil }
        let second = try updates.publish()
        updates.pass(.seconds(6))
        #expect(try updates.ends(second).settlement?.outcome == .accepted)
        let folded = try updates.ends(first)
        #expect(folded.settlement?.outcome == .coalesced && folded.wasAmbiguous)
        #expect(updates.numbers == [1, 2])
    }

    @Test func `wait no longer than for an answer that never comes`() throws {
        let updates = try Updates { _, attempt in attempt == 1 ? .hold : .answer(200, "") }
        let first = try updates.publish()
        try updates.sees(1)
        let second = try updates.publish()
        // The deadline of a request, then the wait before it would be sent again.
        var spans = 0
        while second.targets[0].settlement == nil, spans < 90 {
            updates.pass(.seconds(1))
            for _ in 0..<20 { updates.world.lane.loop.turn(waitingUpTo: .milliseconds(1)) }
            spans += 1
        }
        #expect(second.targets[0].settlement?.outcome == .accepted)
        #expect(spans <= 40, "\(spans) s")
        #expect(try updates.ends(first).settlement?.outcome == .coalesced)
        #expect(updates.numbers.last == 2)
    }

    @Test func `end when their time is over, and the next one goes`() throws {
        let updates = try Updates { _, attempt in
            attempt == 1 ? .answer(503, busy) : .answer(200, "")
        }
        let first = try updates.publish(#","ttl":2"#)
        try updates.sees(1)
        try updates.world.turn {
            first.targets[0].timer != nil || first.targets[0].settlement != nil
        }
        let second = try updates.publish()
        updates.pass(.seconds(6))
        #expect(try updates.ends(second).settlement?.outcome == .accepted)
        #expect(try updates.ends(first).settlement?.outcome == .expired)
    }

    @Test func `go to nobody who left the phone while they waited`() throws {
        let updates = try Updates { _, attempt in attempt == 1 ? .hold : .answer(200, "") }
        try updates.publish()
        try updates.sees(1)
        let second = try updates.publish()
        try updates.world.register(
            "phone", user: "u2", token: SHA256Digest(of: "phone").hex)
        updates.pass(.milliseconds(1_100))
        updates.gateway.release()
        let target = try updates.ends(second)
        #expect(target.settlement?.outcome == .suppressed)
        #expect(target.settlement?.reason == .superseded)
        #expect(updates.numbers == [1])
    }

    @Test func `keep the furthest cursor of their log`() throws {
        let updates = try Updates { _, attempt in attempt == 1 ? .hold : .answer(200, "") }
        func hint(_ seq: Int) throws -> EventInFlight {
            try updates.publish(key: nil, type: "sync", #","cursor":{"log":"a","seq":\#(seq)}"#)
        }
        _ = try hint(1)
        try updates.sees(1)
        let second = try hint(9)
        let third = try hint(8)
        #expect(try updates.ends(second).settlement?.outcome == .coalesced)
        updates.gateway.release()
        #expect(try updates.ends(third).settlement?.outcome == .accepted)
        let cursor = (try? JSONParser().parse(updates.gateway.seen[1].body))?["bugle"]?["cursor"]
        #expect(cursor?["seq"]?.int64 == 9)
    }
}

@Suite struct `A push that waits for a retry` {
    private let later = #"{"reason":"TooManyRequests"}"#
    /// Asks for a quarter of an hour, and says nothing about the token.
    private let failing = #"{"reason":"InternalServerError"}"#
    private let phone = SHA256Digest(of: "phone").hex

    /// A first push that is put off.
    private func putOff() throws -> Updates {
        let updates = try Updates { [failing, phone] token, attempt in
            token == phone && attempt == 1 ? .answer(500, failing) : .answer(200, "")
        }
        let first = try updates.publish()
        try updates.sees(1)
        let target = try updates.ends(first)
        #expect(target.postponement != nil && target.settlement == nil)
        return updates
    }

    @Test func `is folded into a newer one when it comes back`() throws {
        let updates = try putOff()
        let second = try updates.publish()
        #expect(try updates.ends(second).settlement?.outcome == .accepted)
        let back = try updates.comeBack(1)
        let target = try updates.ends(back)
        #expect(target.settlement?.outcome == .coalesced)
        #expect(target.foldedInto?.id == "e2" && target.foldedInto?.position.offset == 2)
        #expect(updates.numbers == [1, 2])
    }

    @Test func `is sent when nothing newer came, to each device by itself`() throws {
        let updates = try putOff()
        try updates.world.register("pad", user: "u1", token: SHA256Digest(of: "pad").hex)
        let second = try updates.publish(#","only":{"install_ids":["pad"]}"#)
        #expect(try updates.ends(second).settlement?.outcome == .accepted)
        #expect(try updates.ends(try updates.comeBack(1)).settlement?.outcome == .accepted)
        #expect(updates.numbers == [1, 2, 1])
    }

    @Test func `is not put off when a newer one waits for it`() throws {
        let updates = try Updates { [later] _, attempt in
            attempt == 1 ? .answer(503, busy) : .answer(429, later)
        }
        let first = try updates.publish()
        try updates.sees(1)
        try updates.world.turn { first.targets[0].timer != nil }
        updates.pass(.seconds(6))
        try updates.sees(2)
        let target = try updates.ends(first)
        #expect(target.postponement != nil)
    }

    @Test func `does not keep one that must not be stored`() throws {
        let updates = try Updates { [later] _, attempt in
            attempt == 1 ? .hold : .answer(429, later)
        }
        let first = try updates.publish()
        try updates.sees(1)
        let second = try updates.publish()
        let third = try updates.publish(#","ttl":0"#)
        #expect(try updates.ends(second).foldedInto?.id == "e3")
        updates.gateway.release()
        #expect(try updates.ends(first).settlement?.outcome == .accepted)
        // It has one attempt, and nothing of it is stored.
        #expect(try updates.ends(third).settlement?.outcome == .failed)
        #expect(updates.numbers == [1, 3])
    }
}
