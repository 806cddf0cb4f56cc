// Bursts in one lane whose clock the test turns: what is sent when.

import Base
import Crypto
import EventLoop
import Glibc
import JSON
import Routes
import Testing
import TokenIndex

@testable import Pipeline

private let chat = """
      chat:
        title: "{{payload.from}}"
        body: "{{payload.text|}}"
        collapse: "chat-{{payload.room|1}}"
        ttl: 1h
        coalesce: {window: 10s, first: FIRST, summary: {title: "{{count}} new", body: "last: {{payload.from}}"}}

    """

/// A user with a phone, and events for a lane with a route for bursts.
private final class Bursts {
    let world: OneLane
    let gateway: ScriptedGateway
    private let token = SHA256Digest(of: "phone").hex

    init(_ first: String, _ text: String = chat) throws {
        gateway = try ScriptedGateway()
        world = try OneLane(gateway)
        world.lane.replace(try routes(text.replacing("FIRST", with: first)), configurationHash: "")
        try world.register("phone", user: "u1", token: token)
    }

    /// An event at an offset, which is its id too.
    func publish(_ offset: Int64, type: String = "chat", _ more: String = "") throws {
        let lane = world.lane
        let event = lane.events.take()
        let value = Array(
            #"{"id":"e\#(offset)","type":"\#(type)","user_id":"u1","payload":{"from":"p\#(offset)"}\#(more)}"#
                .utf8)
        try value.withUnsafeBytes { bytes in
            let input = InputRecord(
                position: RecordPosition(topic: "push.events", partition: 0, offset: offset),
                timestamp: UnixMillis(lane.loop.wall.value - lag), key: nil, value: bytes,
                headers: [])
            event.source.take(input)
            event.timestamp = input.timestamp
            event.position = input.position
            event.envelope = try lane.settings.decoder.decode(input, with: event.parser)
        }
        event.offset = offset
        event.consumedAt = lane.loop.wall
        try lane.route(event)
        lane.admit(event)
        try turn()
    }

    /// By how many milliseconds the records are older than the clock.
    var lag: Int64 = 0

    /// Lets the lane do everything that it can do at this moment.
    func turn() throws {
        for _ in 0..<3 { world.lane.loop.turn(waitingUpTo: .zero) }
        try world.settle(held: 0)
    }

    func pass(_ span: TimeSpan) throws {
        world.time.advance(by: span)
        world.lane.loop.turn(waitingUpTo: .zero)
        try turn()
    }

    /// The lane's memory is lost, and the index is not.
    func crash() { world.lane.dropWindows() }

    var titles: [String] {
        gateway.seen.map { seen in
            let root = try? JSONParser().parse(seen.body)
            return root?["aps"]?["alert"]?["title"]?.string ?? "?"
        }
    }

    func leave(_ departure: Departure) throws {
        switch departure {
        case .moved: try world.register("phone", user: "u2", token: token)
        case .loggedOut: try world.register("phone", user: nil, token: token)
        case .unregistered: try world.register("phone", user: nil, token: nil)
        }
    }
}

/// How a phone ceases to be a user's.
enum Departure: CaseIterable { case moved, loggedOut, unregistered }

@Suite struct `A burst whose first event is held` {
    @Test func `is one push at the end of the window`() throws {
        let bursts = try Bursts("hold")
        for offset in 0..<5 as Range<Int64> {
            try bursts.publish(offset)
            try bursts.pass(.milliseconds(1_900))
        }
        #expect(bursts.gateway.seen.isEmpty)
        try bursts.pass(.milliseconds(490))
        #expect(bursts.gateway.seen.isEmpty)
        try bursts.pass(.milliseconds(20))
        #expect(bursts.titles == ["5 new"])
        let seen = bursts.gateway.seen[0]
        #expect(seen.collapseID == "chat-1" && seen.body.contains(#""body":"last: p4""#))
        try bursts.pass(.seconds(60))
        #expect(bursts.gateway.seen.count == 1)
        #expect(bursts.world.lane.windows.count == 0)
    }

    @Test func `is an ordinary push when nothing else comes`() throws {
        let bursts = try Bursts("hold")
        try bursts.publish(0)
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["p0"])
    }

    @Test(arguments: Departure.allCases)
    func `ID-03: goes to nobody who left the phone meanwhile`(departure: Departure) throws {
        let bursts = try Bursts("hold")
        try bursts.publish(0)
        try bursts.pass(.seconds(2))
        try bursts.leave(departure)
        try bursts.pass(.seconds(20))
        #expect(bursts.gateway.seen.isEmpty)
    }

    @Test func `keeps the route that it began with`() throws {
        let bursts = try Bursts("hold")
        try bursts.publish(0)
        bursts.world.lane.replace(
            try routes("  chat: {title: other, ttl: 1h}\n"), configurationHash: "")
        try bursts.publish(1)
        #expect(bursts.titles == ["other"])
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["other", "p0"])
    }

    @Test func `ends before its latest event expires`() throws {
        let bursts = try Bursts("hold")
        try bursts.publish(0)
        try bursts.publish(1, #","ttl":5"#)
        try bursts.pass(.milliseconds(3_900))
        #expect(bursts.gateway.seen.isEmpty)
        try bursts.pass(.milliseconds(200))
        #expect(bursts.titles == ["2 new"])
    }

    /// As `chat`, with a window that is longer than a lane keeps one.
    private static let longChat = chat.replacing("window: 10s", with: "window: 60s")

    @Test(arguments: [("hold", ["5 new"]), ("send", ["p0", "5 new"])])
    func `gathers before a short-lived event expires, however long its window is`(
        first: String, sent: [String]
    ) throws {
        let bursts = try Bursts(first, Self.longChat)
        for offset in 0..<5 as Range<Int64> {
            try bursts.publish(offset, #","ttl":20"#)
            try bursts.pass(.milliseconds(1_900))
        }
        // The latest came at 7.6 s, and the window ends a second before it expires.
        try bursts.pass(.milliseconds(17_000))
        #expect(bursts.titles == sent.dropLast())
        try bursts.pass(.milliseconds(200))
        #expect(bursts.titles == sent)
        #expect(bursts.world.lane.windows.count == 0)
    }

    @Test func `stays no longer in the lane than events do, though its window is longer`() throws {
        let bursts = try Bursts("hold", Self.longChat)
        for offset in 0..<4 as Range<Int64> {
            try bursts.publish(offset, #","ttl":20"#)
            try bursts.pass(.milliseconds(9_000))
        }
        #expect(bursts.titles == ["4 new"])
    }

    @Test func `holds nothing that must not wait, and nothing that has no key`() throws {
        let bursts = try Bursts(
            "hold",
            chat
                + "  nokey: {title: n, ttl: 1h, collapse: '{{payload.room|}}', coalesce: {first: hold}}\n"
        )
        try bursts.publish(0, #","ttl":0"#)
        #expect(bursts.titles == ["p0"])
        try bursts.publish(1, #","mode":"validate""#)
        try bursts.publish(2, type: "nokey")
        #expect(bursts.titles == ["p0", "n"] && bursts.world.lane.windows.count == 0)
    }

    @Test func `is of one room, and of one set of devices`() throws {
        let bursts = try Bursts("hold")
        try bursts.publish(0)
        try bursts.publish(1, #","collapse_key":"other""#)
        try bursts.publish(2, #","except":{"install_ids":["pad"]}"#)
        try bursts.publish(3, #","except":{"install_ids":["pad"]}"#)
        #expect(bursts.world.lane.windows.count == 3)
        try bursts.pass(.seconds(11))
        #expect(Set(bursts.titles) == ["p0", "p1", "2 new"])
        #expect(Set(bursts.gateway.seen.map(\.collapseID)) == ["chat-1", "other"])
    }

    /// Routes with the same collapse key: one push for both only where it reaches whom both are for.
    @Test(
        arguments: [
            ("title: other, importance: high, sound: s", true), ("title: y, preference: p", false),
            ("title: y, addresses: [liveactivity]", false), ("title: y, android_channel: c", false),
            ("title: y, encrypt: true, fallback: {title: z}", false), ("kind: silent", false),
            ("title: y, quiet_hours: suppress", false), ("kind: raw, apns: {}", false),
        ] as [(String, Bool)])
    func `is of all routes that are for the same people and devices`(
        other: String, isShared: Bool
    ) throws {
        func route(_ settings: String) -> String {
            "{\(settings), ttl: 1h, collapse: k, coalesce: {window: 10s, first: FIRST}}\n"
        }
        let bursts = try Bursts(
            "hold", "  chat: \(route("title: x"))  other: \(route(other))")
        try bursts.publish(0)
        try bursts.publish(1, type: "other")
        try bursts.publish(2, type: "other")
        #expect(bursts.world.lane.windows.count == (isShared ? 1 : 2))
    }

    @Test func `has the furthest cursor of its log`() throws {
        let bursts = try Bursts(
            "hold", "  sync: {kind: hint, ttl: 1h, coalesce: {window: 1s, first: FIRST}}\n")
        for (offset, seq) in [(0, 7), (1, 9), (2, 8)] as [(Int64, Int)] {
            try bursts.publish(offset, type: "sync", #","cursor":{"log":"a","seq":\#(seq)}"#)
        }
        try bursts.publish(3, type: "sync", #","cursor":{"log":"b","seq":1}"#)
        try bursts.pass(.seconds(2))
        let cursors = bursts.gateway.seen.map(\.body).map { body in
            (try? JSONParser().parse(body))?["bugle"]?["cursor"]?["seq"]?.int64
        }
        #expect(Set(cursors) == [9, 1])
    }

    /// The log and position in what was sent last.
    private func lastCursor(_ bursts: Bursts) -> String? {
        let root = bursts.gateway.seen.last.flatMap { try? JSONParser().parse($0.body) }
        let cursor = root?["bugle"]?["cursor"]
        return cursor.map { "\($0["log"]?.string ?? "?") \($0["seq"]?.int64 ?? -1)" }
    }

    @Test(
        arguments: [
            (["a 7", "a 9", ""], "a 9"), (["a 9", "b 3", "b 1", ""], "b 3"),
            (["a 9", "b 3"], "b 3"),
            (["a 9", "a 7"], "a 9"), (["", ""], nil),
        ] as [([String], String?)])
    func `carries the cursors of those folded, of one log`(cursors: [String], sent: String?) throws
    {
        let bursts = try Bursts("hold")
        for (offset, cursor) in cursors.enumerated() {
            let parts = cursor.split(separator: " ")
            try bursts.publish(
                Int64(offset), type: "chat",
                parts.isEmpty
                    ? "" : #","cursor":{"log":"\#(parts[0])","seq":\#(parts[1])}"#)
        }
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["\(cursors.count) new"])
        #expect(lastCursor(bursts) == sent)
    }
}

@Suite struct `A burst whose first event is sent` {
    @Test func `is two pushes with one identity, the second for all`() throws {
        let bursts = try Bursts("send")
        for offset in 0..<5 as Range<Int64> {
            try bursts.publish(offset)
            #expect(bursts.titles == ["p0"])
            try bursts.pass(.milliseconds(1_900))
        }
        try bursts.pass(.milliseconds(600))
        #expect(bursts.titles == ["p0", "5 new"])
        #expect(bursts.gateway.seen.map(\.collapseID) == ["chat-1", "chat-1"])
        #expect(Set(bursts.gateway.seen.map(\.messageID)).count == 2)
        try bursts.publish(5)
        #expect(bursts.titles == ["p0", "5 new", "p5"])
    }

    @Test(arguments: Departure.allCases)
    func `ID-03: has no second push for who left the phone meanwhile`(departure: Departure) throws {
        let bursts = try Bursts("send")
        for offset in 0..<3 as Range<Int64> { try bursts.publish(offset) }
        try bursts.pass(.seconds(2))
        try bursts.leave(departure)
        try bursts.pass(.seconds(20))
        #expect(bursts.titles == ["p0"])
    }

    @Test func `is one push when nothing else comes, and the next one begins anew`() throws {
        let bursts = try Bursts("send")
        try bursts.publish(0)
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["p0"] && bursts.world.lane.windows.count == 0)
        try bursts.publish(1)
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["p0", "p1"])
    }

    @Test(arguments: [0, 4, 30] as [Int64])
    func `stays two pushes when the lane's memory is lost`(seconds: Int64) throws {
        let bursts = try Bursts("send")
        for offset in 0..<3 as Range<Int64> { try bursts.publish(offset) }
        bursts.crash()
        try bursts.pass(.seconds(seconds))
        #expect(bursts.titles == ["p0"])
        // The records are as old as they are, whenever they are read again.
        bursts.lag = seconds * 1_000
        for offset in 1..<3 as Range<Int64> { try bursts.publish(offset) }
        bursts.lag = 0
        if seconds < 10 { try bursts.publish(3) }
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["p0", seconds < 10 ? "4 new" : "3 new"])
    }

    @Test func `repeats its first push when that was not committed`() throws {
        let bursts = try Bursts("send")
        for offset in 0..<3 as Range<Int64> { try bursts.publish(offset) }
        bursts.crash()
        for offset in 0..<3 as Range<Int64> { try bursts.publish(offset) }
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["p0", "p0", "3 new"])
        #expect(bursts.gateway.seen[0].messageID == bursts.gateway.seen[1].messageID)
    }

    @Test func `repeats its last push when that was not committed, and begins no other`() throws {
        let bursts = try Bursts("send")
        for offset in 0..<4 as Range<Int64> { try bursts.publish(offset) }
        try bursts.pass(.seconds(11))
        #expect(bursts.titles == ["p0", "4 new"])
        bursts.crash()
        bursts.lag = 11_000
        for offset in 1..<4 as Range<Int64> { try bursts.publish(offset) }
        bursts.lag = 0
        try bursts.publish(4)
        #expect(bursts.titles == ["p0", "4 new"], "what comes late is gathered first")
        try bursts.pass(.seconds(3))
        #expect(bursts.titles == ["p0", "4 new", "5 new"])
    }
}

@Suite struct `The memory of windows` {
    /// A window for each user, with a record as chats have them.
    @Test func `is bounded by bytes for a hundred thousand windows`() throws {
        let gateway = try ScriptedGateway()
        let world = try OneLane(gateway)
        let lane = world.lane
        lane.replace(try routes(chat.replacing("FIRST", with: "hold")), configurationHash: "")
        let text = String(repeating: "x", count: 120)
        let count = 100_000
        let before = residentBytes()
        for number in 0..<count {
            let event = lane.events.take()
            let value = Array(
                #"{"id":"message-\#(number)","type":"chat","user_id":"user-\#(number)","source":"chat","payload":{"from":"Ada","text":"\#(text)"}}"#
                    .utf8)
            try value.withUnsafeBytes { bytes in
                let input = InputRecord(
                    position: RecordPosition(
                        topic: "push.events", partition: Int32(number % 24),
                        offset: Int64(number / 24)),
                    timestamp: lane.loop.wall, key: nil, value: bytes, headers: [])
                event.source.take(input)
                event.position = input.position
                event.envelope = try lane.settings.decoder.decode(input, with: event.parser)
            }
            event.consumedAt = lane.loop.wall
            try lane.route(event)
            lane.admit(event)
        }
        let after = residentBytes()
        #expect(lane.windows.count == count && lane.windows.memberCount == count)
        #expect(lane.windows.hasRoom, "they fit the bound that is set for a process")
        let estimate = lane.windows.bytes / count
        let measured = (after - before) / count
        print("\(count) windows: \(estimate) bytes each as estimated, \(measured) as measured")
        #expect(estimate < 1_100)
        #expect(measured < estimate * 3 / 2, "the bound of bytes is one of memory")
        lane.dropWindows()
        #expect(lane.windows.bytes == 0)
    }

    private func residentBytes() -> Int {
        guard let file = fopen("/proc/self/statm", "r") else { return 0 }
        defer { fclose(file) }
        var buffer = [CChar](repeating: 0, count: 128)
        guard fgets(&buffer, 128, file) != nil else { return 0 }
        let text = String(
            decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return (text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 4_096
    }
}
