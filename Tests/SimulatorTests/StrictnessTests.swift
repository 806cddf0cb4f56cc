// What a careless client gets to feel, frame by frame.

import Base
import HTTP2
import Simulator
import Testing

@Suite struct `A careless client` {
    private static let path = "/3/device/" + Fixture.token

    private func connect(_ fixture: Fixture, _ service: SimulatedService) throws -> RawClient {
        try #require(
            try RawClient(
                port: fixture.simulator.port(of: service), caPEM: fixture.simulator.authorityPEM))
    }

    @Test func `that opens a second stream before the gate is open loses the connection`() throws {
        let fixture = try Fixture { options in
            options.faults = FaultPlan(rules: [
                FaultRule("silence", FaultMatch(), .withholdAnswer(processed: true))
            ])
        }
        let client = try connect(fixture, .apnsProduction)
        _ = client.frames { $0.type == 4 && $0.flags == 1 }
        client.request(stream: 1, path: Self.path)
        client.request(stream: 3, path: Self.path)
        let goAway = client.frames { $0.type == 7 }.last
        #expect(goAway?.type == 7)
        #expect(goAway?.word(at: 4) == ErrorCode.protocolError.value)
        #expect(
            fixture.simulator.journal.counters.violations == [
                "apns-production: more streams than the limit": 1
            ])
    }

    @Test func `that does not wait for the first SETTINGS is refused and told on`() throws {
        let fixture = try Fixture { options in
            options.faults = FaultPlan(rules: [
                FaultRule("silence", FaultMatch(), .withholdAnswer(processed: true))
            ])
        }
        let client = try connect(fixture, .apnsProduction)
        client.request(stream: 1, path: Self.path)
        client.request(stream: 3, path: Self.path)
        let reset = client.frames { $0.type == 3 }.last
        #expect(reset?.stream == 3)
        #expect(reset?.word(at: 0) == ErrorCode.refusedStream.value)
        let words = "apns-production: streams before the first SETTINGS were acknowledged"
        #expect(fixture.simulator.journal.counters.violations == [words: 1])
    }

    @Test func `sees each code of a repeated reset`() throws {
        let fixture = try Fixture { options in
            options.faults = FaultPlan(rules: [
                FaultRule("twice", FaultMatch(), .reset(codes: [7, 5], processed: false))
            ])
        }
        let client = try connect(fixture, .apnsProduction)
        client.request(stream: 1, path: Self.path)
        var resets = 0
        let frames = client.frames { frame in
            if frame.type == 3 { resets += 1 }
            return resets == 2
        }
        #expect(frames.filter { $0.type == 3 }.map { $0.word(at: 0) } == [7, 5])
    }

    @Test func `that sends PRIORITY to APNs is told on`() throws {
        let fixture = try Fixture()
        let client = try connect(fixture, .apnsProduction)
        client.frame(type: 2, stream: 1, [0, 0, 0, 0, 16])
        client.request(stream: 1, path: Self.path, body: "x")
        _ = client.frames { $0.type == 1 }
        #expect(
            fixture.simulator.journal.counters.violations == ["apns-production: PRIORITY frame": 1])
    }

    @Test func `that pings an idle FCM connection twice is told to calm down`() throws {
        let fixture = try Fixture()
        let client = try connect(fixture, .fcm)
        client.frame(type: 6, [1, 2, 3, 4, 5, 6, 7, 8])
        let answer = client.frames { $0.type == 6 }.last
        #expect(answer?.flags == 1)
        #expect(answer?.payload == [1, 2, 3, 4, 5, 6, 7, 8])
        client.frame(type: 6, [1, 2, 3, 4, 5, 6, 7, 8])
        let goAway = client.frames { $0.type == 7 }.last
        #expect(goAway?.word(at: 4) == ErrorCode.enhanceYourCalm.value)
        #expect(
            goAway.map { String(decoding: $0.payload[8...], as: UTF8.self) } == "too_many_pings")
        #expect(client.frames { _ in false }.isEmpty)
    }

    @Test func `may ping APNs as it likes, until PING is ignored`() throws {
        let fixture = try Fixture()
        let client = try connect(fixture, .apnsProduction)
        for _ in 0..<3 {
            client.frame(type: 6, [0, 0, 0, 0, 0, 0, 0, 1])
            #expect(client.frames { $0.type == 6 }.last?.flags == 1)
        }
        fixture.simulator.onConnections(of: .apnsProduction) { connection in
            connection.ignorePings(true)
            connection.ping()
        }
        let ping = client.frames { $0.type == 6 }.last
        #expect(ping?.flags == 0)
        client.frame(type: 6, [0, 0, 0, 0, 0, 0, 0, 1])
        client.request(stream: 1, path: Self.path)
        #expect(!client.frames { $0.type == 1 }.contains { $0.type == 6 })
        #expect(fixture.simulator.journal.counters.pings[.apnsProduction] == 4)
    }

    @Test func `that goes on after GOAWAY is not heard`() throws {
        let fixture = try Fixture()
        let client = try connect(fixture, .apnsProduction)
        client.request(stream: 1, path: Self.path)
        _ = client.frames { $0.type == 1 }
        fixture.simulator.onConnections(of: .apnsProduction) {
            $0.goAway(lastStream: 1, debug: #"{"reason":"Shutdown"}"#)
        }
        let goAway = client.frames { $0.type == 7 }.last
        #expect(goAway?.word(at: 0) == 1)
        client.request(stream: 3, path: Self.path)
        client.frame(type: 6, [0, 0, 0, 0, 0, 0, 0, 1])
        let frames = client.frames { $0.type == 6 }
        #expect(!frames.contains { $0.stream == 3 })
        #expect(fixture.simulator.journal.entries.count == 1)
        #expect(
            fixture.simulator.journal.counters.advisories == [
                "apns-production: request after GOAWAY": 1
            ])
    }

    @Test func `that idles too long at FCM is sent away`() throws {
        let fixture = try Fixture { $0.fcmIdleTimeout = .seconds(240) }
        let client = try connect(fixture, .fcm)
        client.frame(type: 6, [0, 0, 0, 0, 0, 0, 0, 1])
        _ = client.frames { $0.type == 6 }
        fixture.time.advance(by: .seconds(241))
        fixture.simulator.wake()
        let goAway = client.frames { $0.type == 7 }.last
        #expect(goAway?.word(at: 4) == ErrorCode.noError.value)
        #expect(
            goAway.map { String(decoding: $0.payload[8...], as: UTF8.self) } == "session_timed_out")
    }

    @Test func `meets a limit that falls with a rejection and rises with a success`() throws {
        let fixture = try Fixture { $0.apnsLowersLimitOnRejection = true }
        let client = try connect(fixture, .apnsProduction)
        let fields = [
            ("authorization", "bearer " + (try fixture.providerToken())),
            ("apns-topic", Fixture.topic), ("apns-push-type", "alert"),
        ]
        var limits: [UInt32] = []
        func push(_ stream: UInt32, _ token: String) {
            client.request(
                stream: stream, path: "/3/device/" + token, fields, body: Fixture.payload)
            // The PING's answer comes after everything that the push brought about.
            var isAnswered = false
            client.frame(type: 6, [0, 0, 0, 0, 0, 0, 0, 1])
            var isPinged = false
            let frames = client.frames { frame in
                if frame.type == 1 { isAnswered = true }
                if frame.type == 6 { isPinged = true }
                return isAnswered && isPinged
            }
            for frame in frames where frame.type == 4 && frame.flags == 0 {
                for offset in stride(from: 0, to: frame.payload.count, by: 6)
                where frame.payload[offset + 1] == 3 {
                    limits.append(frame.word(at: offset + 2))
                }
            }
        }
        push(1, "aa")
        push(3, "zz")
        push(5, "zz")
        push(7, "aa")
        client.frame(type: 6, [0, 0, 0, 0, 0, 0, 0, 2])
        push(9, "aa")
        #expect(limits == [1, 1000, 1, 1000])
    }
}
