// Expo through the whole pipeline: requests of many messages, targets that settle one by one, and
// receipts that come later.

import Base
import Gateways
import HTTP2
import JSON
import Simulator
import Telemetry
import Testing
import TokenIndex

@testable import Pipeline

@Suite(.serialized) struct `Expo, end to end` {
    private func world(
        faults: [FaultRule] = [], lanes: Int = 1, receiptWait: TimeSpan = .minutes(15)
    ) throws -> (Simulator, World) {
        var options = SimulatorOptions()
        options.faults = FaultPlan(rules: faults)
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: lanes)
        world.settings.receiptWait = receiptWait
        return (simulator, world)
    }

    private func register(_ install: String, user: String, token: String, _ world: World) throws {
        try world.registerExpo(install, user: user, token: "ExponentPushToken[\(token)]")
    }

    /// The results by install.
    private func results(_ world: World, atLeast count: Int) throws -> [String: TopicRecord] {
        let records = try world.records(of: "push.results", atLeast: count)
        return Dictionary(
            records.map { ($0.text("install_id") ?? "", $0) }, uniquingKeysWith: { $1 })
    }

    /// The sizes of the requests that were received.
    private func requests(_ simulator: Simulator) -> [Int] {
        let streams = Dictionary(grouping: simulator.journal.entries.filter { $0.service == .expo })
        {
            "\($0.connection) \($0.stream)"
        }
        return streams.values.map(\.count).sorted()
    }

    /// More than the pace lets out within the second for which a look-up is believed.
    @Test func `a backlog goes out at the pace, and does not grow old in turns`() throws {
        let (_, world) = try world()
        for user in 0..<8 {
            try register("i\(user)", user: "u\(user)", token: "token-\(user)", world)
        }
        for number in 0..<1_600 { try world.publish(id: "e\(number)", user: "u\(number % 8)") }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 1_600)
        #expect(world.stop())
        #expect(results.count { $0.text("outcome") == "accepted" } == 1_600)
    }

    /// Each part of a refused request waits for the one before: parts that were looked up again
    /// meanwhile must not spoil whole requests anew.
    @Test func `a message that spoils its request is found, however slow the gateway is`() throws {
        let (_, world) = try world(
            faults: [FaultRule("slow", FaultMatch(.expo), .delay(.fixed(.milliseconds(250))))],
            lanes: 4)
        for user in 0..<40 {
            try register("i\(user)", user: "u\(user)", token: "token-\(user)", world)
        }
        for number in 0..<400 {
            let spoilt = number == 7 ? #","expo":{"badge":"many"}"# : ""
            try world.publish(id: "e\(number)", user: "u\(number % 40)", extra: spoilt)
        }
        try world.flush()
        try world.start()
        let results = try world.records(of: "push.results", atLeast: 400)
        #expect(world.stop())
        #expect(results.count { $0.text("outcome") == "accepted" } == 399)
        #expect(results.count { $0.text("outcome") == "rejected" } == 1)
    }

    @Test func `EXPO-02: 250 tokens of a user are few requests of at most 100, 250 results`() throws
    {
        let (simulator, world) = try world()
        for number in 0..<250 {
            try register("i\(number)", user: "u1", token: "token-\(number)", world)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1", extra: #","data":{"order":7}"#)
        try world.flush()
        let results = try results(world, atLeast: 250)
        #expect(results.count == 250)
        let tickets = Set(results.values.compactMap { $0.text("gateway_id") })
        #expect(tickets.count == 250)
        for (install, result) in results {
            #expect(result.text("outcome") == "accepted" && result.text("targets") == "250")
            let token = "ExponentPushToken[token-\(install.dropFirst())]"
            let entry = try #require(simulator.journal.entries(token: token).first)
            // Tickets and messages are matched by position.
            #expect(entry.messageID == result.text("message_id"))
        }
        let sizes = requests(simulator)
        #expect(sizes.reduce(0, +) == 250 && sizes.allSatisfy { $0 <= 100 })
        #expect(sizes.count <= 6)
        #expect(simulator.journal.counters.violations.isEmpty)
        #expect(world.stop())
    }

    @Test func `one bad message fails alone`() throws {
        let (_, world) = try world()
        let codes = [
            "DeviceNotRegistered": "token_invalid", "MessageTooBig": "rejected",
            "MismatchSenderId": "credential_error", "InvalidCredentials": "credential_error",
            "DeveloperError": "rejected",
        ]
        for code in codes.keys { try register(code, user: "u1", token: "\(code)-1", world) }
        for number in 0..<20 {
            try register("good-\(number)", user: "u1", token: "good-\(number)", world)
        }
        try world.registerExpo("malformed", user: "u1", token: "ExponentPushToken[")
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 26)
        #expect(results.count == 26)
        for (code, outcome) in codes {
            #expect(results[code]?.text("outcome") == outcome, "\(code)")
            #expect(results[code]?.text("reason") == code)
        }
        for number in 0..<20 {
            #expect(results["good-\(number)"]?.text("outcome") == "accepted")
            #expect(results["good-\(number)"]?.text("attempts") == "1")
        }
        #expect(results["malformed"]?.text("reason") == "malformed_token")
        let invalidations = try world.records(of: "push.invalidations", atLeast: 2)
        #expect(
            Set(invalidations.compactMap { $0.text("install_id") })
                == ["DeviceNotRegistered", "malformed"])
        #expect(world.stop())
    }

    @Test func `a message that spoils its request is found, and the others are sent once`() throws {
        let (simulator, world) = try world()
        for number in 0..<30 {
            try register("i\(number)", user: "u\(number)", token: "token-\(number)", world)
        }
        try world.start()
        for number in 0..<30 {
            // A member that Expo does not know makes it refuse the request as a whole.
            let extra = number == 17 ? #","expo":{"unheard":"of"}"# : ""
            try world.publish(id: "e\(number)", user: "u\(number)", extra: extra)
        }
        try world.flush()
        let results = try results(world, atLeast: 30)
        #expect(results["i17"]?.text("outcome") == "rejected")
        #expect(results["i17"]?.text("reason") == "VALIDATION_ERROR")
        #expect(results.values.count { $0.text("outcome") == "accepted" } == 29)
        for number in 0..<30 where number != 17 {
            #expect(
                simulator.journal.accepted(token: "ExponentPushToken[token-\(number)]") == 1)
        }
        #expect(world.stop())
    }

    @Test func `EXPO-01: tokens of two projects are sent apart`() throws {
        let (simulator, world) = try world()
        for number in 0..<6 {
            let token = "ExponentPushToken[token-\(number)]"
            simulator.facts.setExpoToken(token, project: number < 4 ? "@acme/app" : "@dev/app")
            try register("i\(number)", user: "u1", token: "token-\(number)", world)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 6)
        #expect(results.values.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(requests(simulator) == [2, 4, 6])
        #expect(world.stop())
    }

    @Test func `a request that fails as a whole is tried again`() throws {
        let (simulator, world) = try world(
            faults: [
                FaultRule(
                    "busy", FaultMatch(.expo, count: 1),
                    .answer(
                        FaultAnswer(
                            status: 429, reason: "TOO_MANY_REQUESTS",
                            fields: [ServerField("retry-after", "1")])))
            ])
        for number in 0..<10 {
            try register("i\(number)", user: "u1", token: "token-\(number)", world)
        }
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 10)
        #expect(results.values.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(results.values.allSatisfy { $0.text("attempts") == "2" })
        #expect(simulator.journal.counters.accepted == 10)
        #expect(world.stop())
    }

    @Test func `an answer that is lost leads to one more attempt`() throws {
        let (simulator, world) = try world(
            faults: [FaultRule("cut", FaultMatch(.expo, count: 1), .cut(processed: true))])
        try register("a", user: "u1", token: "a", world)
        try register("b", user: "u1", token: "b", world)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 2)
        #expect(results.values.allSatisfy { $0.text("outcome") == "accepted" })
        #expect(results.values.allSatisfy { $0.text("ambiguous") == "true" })
        #expect(simulator.journal.accepted(token: "ExponentPushToken[a]") == 2)
        #expect(world.stop())
    }

    @Test func `EXPO-04: receipts are asked for later and end what is dead`() throws {
        let (simulator, world) = try world(receiptWait: .milliseconds(300))
        try register("fine", user: "u1", token: "fine", world)
        try register("late", user: "u1", token: "late-1", world)
        try register("dead", user: "u1", token: "receipt-DeviceNotRegistered-1", world)
        try register("foreign", user: "u1", token: "receipt-MismatchSenderId-1", world)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 4)
        #expect(results.values.allSatisfy { $0.text("outcome") == "accepted" })
        let receipts = try world.records(of: "push.receipts", atLeast: 4)
        let byResult = Dictionary(
            receipts.map { ($0.text("result_id") ?? "", $0) },
            uniquingKeysWith: { first, _ in first })
        #expect(receipts.count == 4 && byResult.count == 4)
        for (install, status, reason) in [
            ("fine", "ok", nil), ("late", "ok", nil), ("dead", "error", "DeviceNotRegistered"),
            ("foreign", "error", "MismatchSenderId"),
        ] as [(String, String, String?)] {
            let result = try #require(results[install])
            let receipt = try #require(byResult[result.text("result_id") ?? ""])
            #expect(receipt.text("status") == status && receipt.text("reason") == reason)
            #expect(receipt.text("message_id") == result.text("message_id"))
            #expect(receipt.key == "u1")
        }
        let invalidations = try world.records(of: "push.invalidations", atLeast: 1)
        #expect(invalidations.count == 1)
        let verdict = try #require(invalidations.first)
        #expect(verdict.text("install_id") == "dead" && verdict.text("origin") == "receipt")
        #expect(verdict.text("as_of") == results["dead"]?.text("sent_at"))
        #expect(verdict.text("reason") == "DeviceNotRegistered")
        // The late one was asked for twice.
        #expect(simulator.journal.counters.receiptRequests >= 2)
        #expect(world.stop())
    }

    @Test func `a receipt takes nothing from a device that registered after the push`() throws {
        let (_, world) = try world(receiptWait: .milliseconds(300))
        let token = "receipt-DeviceNotRegistered-1"
        try register("phone", user: "u1", token: token, world)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let result = try #require(try results(world, atLeast: 1)["phone"])
        try world.registerExpo(
            "phone", user: "u1", token: "ExponentPushToken[\(token)]",
            registeredAt: SystemTime.shared.wall.value)
        let verdicts = try world.records(of: "push.invalidations", atLeast: 1)
        #expect(verdicts.map { $0.text("verdict") } == ["invalidate"])
        #expect(verdicts.map { $0.text("as_of") } == [result.text("sent_at")])
        for verdict in verdicts { try world.apply(verdict: verdict) }
        let kept = world.index.addresses(app: "shop", userID: "u1").addresses
        #expect(kept.map(\.addressID) == ["shop/phone"])
        #expect(world.stop())
    }

    @Test func `a receipt that never comes is asked for no more, and said to be unknown once`()
        throws
    {
        let (simulator, world) = try world(receiptWait: .milliseconds(200))
        world.settings.receiptAgeMax = .seconds(1)
        simulator.facts.setExpoToken(
            "ExponentPushToken[never]", ExpoTokenFate(asksBeforeReceipt: 1_000))
        try register("never", user: "u1", token: "never", world)
        try register("fine", user: "u1", token: "fine", world)
        try world.start()
        try world.publish(id: "e1", user: "u1")
        try world.flush()
        let results = try results(world, atLeast: 2)
        let receipts = try world.records(of: "push.receipts", atLeast: 2)
        func status(_ install: String) -> [String?] {
            receipts.filter { $0.text("result_id") == results[install]?.text("result_id") }
                .map { $0.text("status") }
        }
        #expect(status("never") == ["unknown"] && status("fine") == ["ok"])
        #expect(receipts.allSatisfy { $0.text("reason") == nil && $0.key == "u1" })
        #expect(receipts.count == 2 && simulator.journal.counters.receiptRequests > 1)
        #expect(world.registry.sum(of: "bugle_expo_receipts_total") > 2)
        #expect(world.stop())
        #expect(try world.records(of: "push.receipts", atLeast: 3, within: .seconds(1)).count == 2)
        #expect(try world.records(of: "push.invalidations", atLeast: 1, within: .zero).isEmpty)
    }

    @Test func `a restart loses no ticket and asks for none twice`() throws {
        let (_, world) = try world(receiptWait: .seconds(2))
        for number in 0..<5 {
            try register("i\(number)", user: "u\(number)", token: "token-\(number)", world)
        }
        try world.start()
        for number in 0..<5 { try world.publish(id: "e\(number)", user: "u\(number)") }
        try world.flush()
        #expect(try world.records(of: "push.expo-tickets", atLeast: 5).count == 5)
        #expect(world.stop())
        try world.start()
        let receipts = try world.records(of: "push.receipts", atLeast: 5)
        #expect(Set(receipts.compactMap { $0.text("result_id") }).count == 5)
        #expect(receipts.count == 5)
        #expect(world.stop())
    }
}

@Suite struct `The pace of Expo` {
    @Test(arguments: [1, 2, 4]) func `never exceeds a project's rate in any second`(lanes: Int) {
        var pace = ExpoPace(rate: 600, lanes: lanes)
        var now = MonotonicTime(nanos: 1_000_000_000_000)
        var sent: [(MonotonicTime, Int)] = []
        for _ in 0..<5000 {
            let taken = pace.take(100, at: now)
            if taken > 0 { sent.append((now, taken)) }
            now = now + .milliseconds(1)
        }
        for (start, _) in sent {
            let inSecond = sent.filter { $0.0 >= start && $0.0 < start + .seconds(1) }
            #expect(inSecond.reduce(0) { $0 + $1.1 } <= 600 / lanes)
        }
        // And does not fall far below it.
        #expect(sent.reduce(0) { $0 + $1.1 } >= 5 * 450 / lanes)
    }

    @Test func `says when there is room again`() {
        var pace = ExpoPace(rate: 600, lanes: 1)
        let start = MonotonicTime(nanos: 1_000_000_000_000)
        let first = pace.take(100, at: start)
        let second = pace.take(50, at: start)
        #expect(first == 100 && second == 0)
        let next = pace.next(50)
        #expect(next > start && next < start + .milliseconds(200))
        let third = pace.take(50, at: next)
        #expect(third == 50)
    }
}
