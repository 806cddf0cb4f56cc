// The order of pushes with one collapse key in the whole pipeline: over lanes, retry topics, a stop
// and a start.

import Base
import JSON
import Synchronization
import Testing

@testable import Pipeline

/// Answers at random, the same for a seed and a request.
private func fate(_ seed: UInt64, _ token: String, _ attempt: Int) -> GatewayAction {
    let name = token.utf8.reduce(seed &* 31) { $0 &* 33 &+ UInt64($1) }
    var random = SeededRandom(seed: name &+ UInt64(attempt) &* 7_919)
    return switch Int.random(in: 0..<10, using: &random) {
    case 0..<3: .answer(503, #"{"reason":"Shutdown"}"#)
    case 3: .cut
    default: .answer(200, "")
    }
}

extension TopicRecord {
    fileprivate var number: Int { Int(text("event_id")?.dropFirst() ?? "") ?? -1 }

    /// The event that was sent for this one.
    fileprivate var newer: Int? {
        guard let value, let into = (try? JSONParser().parse(value))?["folded_into"] else {
            return nil
        }
        return into["event_id"]?.string.flatMap { Int($0.dropFirst()) }
    }
}

@Suite(.serialized) struct `The order of pushes, end to end` {
    private static let users = ["ada", "grace", "alan"]

    private func publish(_ numbers: Range<Int>, to world: World, _ random: inout SeededRandom)
        throws
        -> [Int: String]
    {
        var places: [Int: String] = [:]
        for number in numbers {
            let user = Self.users[Int.random(in: 0..<3, using: &random)]
            let key = "score-\(Int.random(in: 0..<2, using: &random))"
            places[number] = "\(user) \(key)"
            try world.publish(
                #"{"id":"e\#(number)","type":"t","user_id":"\#(user)","collapse_key":"\#(key)","notification":{"title":"\#(number)"}}"#,
                key: user)
        }
        try world.flush()
        return places
    }

    @Test(arguments: [1, 2, 3, 4] as [UInt64])
    func `is kept through retries and lost answers, and every target has one outcome`(
        seed: UInt64
    ) throws {
        var random = SeededRandom(seed: seed)
        let gateway = try ScriptedGateway { fate(seed, $0, $1) }
        let world = try World(gateway)
        // What the gateway asks to wait is more than a lane keeps.
        world.settings.retry.longestWait = .milliseconds(50)
        world.settings.retry.attempts = 6
        for user in Self.users {
            for device in ["phone", "pad"] { try world.register("\(user)-\(device)", user: user) }
        }
        var places = try publish(0..<60, to: world, &random)
        try world.start()
        places.merge(try publish(60..<120, to: world, &random)) { $1 }
        let results = try world.records(of: "push.results", atLeast: 240, within: .seconds(60))
        #expect(world.stop())

        #expect(results.count == 240, "seed \(seed)")
        let names = results.compactMap { $0.text("result_id") }
        #expect(Set(names).count == names.count, "seed \(seed)")
        for result in results where result.text("outcome") == "coalesced" {
            let newer = try #require(result.newer)
            #expect(newer > result.number && places[newer] == places[result.number])
            #expect(result.text("install_id") != nil && result.text("outcome_class") == "policy")
        }
        #expect(results.contains { $0.text("outcome") == "coalesced" }, "seed \(seed)")
        #expect(results.contains { $0.text("outcome") == "accepted" }, "seed \(seed)")

        var shown: [String: [Int]] = [:]
        for seen in gateway.seen {
            let alert = (try? JSONParser().parse(seen.body))?["aps"]?["alert"]
            let number = try #require(alert?["title"]?.string.flatMap { Int($0) })
            shown["\(seen.token) \(seen.collapseID)", default: []].append(number)
        }
        for (place, numbers) in shown {
            #expect(numbers == numbers.sorted(), "\(place), seed \(seed)")
        }
        for (place, numbers) in Dictionary(grouping: places.keys, by: { places[$0] ?? "" }) {
            let words = place.split(separator: " ")
            for device in ["phone", "pad"] {
                let token = World.token(of: "\(words[0])-\(device)")
                let newest = results.first {
                    $0.number == numbers.max()
                        && $0.text("install_id") == "\(words[0])-\(device)"
                }
                // A cut takes other requests of its connection along; two of them end a push.
                guard newest?.text("outcome") == "accepted" else { continue }
                #expect(shown["\(token) \(words[1])"]?.last == numbers.max(), "\(place)")
            }
        }
    }

    @Test func `holds over a stop and a start, with nothing but the note to remember by`() throws {
        let first = Atomic<Bool>(true)
        let gateway = try ScriptedGateway { _, _ in
            first.exchange(false, ordering: .relaxed)
                ? .answer(503, #"{"reason":"Shutdown"}"#) : .answer(200, "")
        }
        let world = try World(gateway)
        world.settings.retry.longestWait = .milliseconds(50)
        // The retry topic lets it go after ten seconds, when the newer one has long been read.
        world.settings.retryDivisor = 1
        try world.register("phone", user: "ada")
        try world.start()
        let event =
            #"{"id":"ID","type":"t","user_id":"ada","collapse_key":"k","notification":{"title":"ID"}}"#
        try world.publish(event.replacing("ID", with: "e1"), key: "ada")
        try world.flush()
        _ = try world.records(of: "push.events-retry-10s", atLeast: 1)
        #expect(world.stop())
        try world.publish(event.replacing("ID", with: "e2"), key: "ada")
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 2)
        #expect(world.stop())
        #expect(results.map { $0.text("event_id") } == ["e2", "e1"])
        #expect(results.map { $0.text("outcome") } == ["accepted", "coalesced"])
        #expect(results.last?.newer == 2 && results.last?.text("attempts") == "1")
        #expect(gateway.seen.count == 2)
    }

    @Test func `lets a stop finish what waits`() throws {
        let gateway = try ScriptedGateway { _, attempt in attempt == 1 ? .hold : .answer(200, "") }
        let world = try World(gateway)
        try world.register("phone", user: "ada")
        try world.start()
        var random = SeededRandom(seed: 1)
        _ = random.next()
        for number in 1...3 {
            try world.publish(
                #"{"id":"e\#(number)","type":"t","user_id":"ada","collapse_key":"k","notification":{"title":"t"}}"#,
                key: "ada")
        }
        try world.flush()
        #expect(world.eventually { gateway.seen.count == 1 })
        let results = { try world.records(of: "push.results", atLeast: 1) }
        #expect(try results().map { $0.text("event_id") } == ["e2"])
        gateway.release()
        #expect(world.stop())
        let all = try world.records(of: "push.results", atLeast: 3)
        #expect(
            Set(all.map { "\($0.number) \($0.text("outcome") ?? "")" }) == [
                "1 accepted", "2 coalesced", "3 accepted",
            ])
        #expect(try world.committed() == 3)
    }
}
