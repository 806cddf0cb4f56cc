import Base
import HTTP2
import Simulator
import Testing

@Suite struct `Fault plans` {
    /// The statuses of `count` pushes on one connection, under a plan.
    private func run(
        _ plan: FaultPlan, _ count: Int = 6, token: (Int) -> String = { _ in Fixture.token },
        patience: Int = 300, linger: Int = 0
    ) throws -> (NodeTranscript, Journal) {
        let fixture = try Fixture { $0.faults = plan }
        let authorization = try fixture.providerToken()
        let transcript = fixture.run(
            .apnsProduction, linger: linger,
            (0..<count).map { index in
                var request = fixture.push(token: token(index), authorization: authorization)
                request.patience = patience
                return request
            })
        return (transcript, fixture.simulator.journal)
    }

    @Test func `answer by token, by number and in the gateway's own form`() throws {
        let gone = FaultAnswer(
            status: 410, reason: "Unregistered", timestamp: UnixMillis(1_735_689_700_000))
        let plan = FaultPlan(rules: [
            FaultRule("gone", FaultMatch(tokenPrefix: "dead"), .answer(gone)),
            FaultRule(
                "busy", FaultMatch(tokenPattern: "a?0*", skip: 1, count: 1),
                .answer(FaultAnswer(status: 503, reason: "ServiceUnavailable"))),
            FaultRule("page", FaultMatch(tokenPattern: "*ff"), .answer(.html(502))),
        ])
        let tokens = ["dead01", "aa0001", "aa0001", "aa0001", "00ff", "0000"]
        let (transcript, journal) = try run(plan) { tokens[$0] }
        #expect(transcript.answers.map(\.status) == [410, 200, 503, 200, 502, 200])
        #expect(
            transcript.answers[0].body == #"{"reason":"Unregistered","timestamp":1735689700000}"#)
        #expect(transcript.answers[4].fields["content-type"]?.hasPrefix("text/html") == true)
        #expect(journal.count(.apnsProduction, status: 410, reason: "Unregistered") == 1)
        #expect(journal.counters.accepted == 3)
    }

    @Test func `refuse, reset, cut and fall silent, before processing or after`() throws {
        let plan = FaultPlan(rules: [
            FaultRule("", FaultMatch(tokenPrefix: "01"), .refuse),
            FaultRule("", FaultMatch(tokenPrefix: "02"), .reset(codes: [7, 5], processed: false)),
            FaultRule("", FaultMatch(tokenPrefix: "03"), .reset(codes: [8], processed: true)),
            FaultRule("", FaultMatch(tokenPrefix: "04"), .withholdAnswer(processed: true)),
            FaultRule("", FaultMatch(tokenPrefix: "05"), .cut(processed: true)),
        ])
        let (transcript, journal) = try run(plan, 5) { "0\($0 + 1)" }
        #expect(transcript.answers.map(\.resetCode).prefix(3) == [7, 7, 8])
        #expect(transcript.answers.allSatisfy { $0.status == nil })
        #expect(transcript.events.contains("0 close"))
        #expect(
            journal.entries.map(\.fate) == [
                .notProcessed, .notProcessed, .unanswered, .unanswered, .unanswered,
            ])
        #expect(journal.entries.map(\.isAccepted) == [false, false, true, true, true])
        #expect(journal.accepted(messageID: "message-1") == 3)
    }

    @Test func `play dead and let new connections work`() throws {
        let plan = FaultPlan(rules: [
            FaultRule(
                "dead", FaultMatch(connection: 1, connectionRequest: 2),
                .playDead(processed: false, readingOn: true))
        ])
        let fixture = try Fixture { $0.faults = plan }
        let authorization = try fixture.providerToken()
        let requests = [0, 0, 0, 1].map { connection in
            var request = fixture.push(authorization: authorization)
            request.connection = connection
            request.patience = 200
            return request
        }
        let transcript = fixture.run(.apnsProduction, requests)
        #expect(transcript.answers.map(\.status) == [200, nil, nil, 200])
        #expect(!transcript.events.contains("0 close"))
        #expect(fixture.simulator.journal.entries.count == 3)
    }

    @Test func `send GOAWAY after a number of requests and let later streams be`() throws {
        let goAway = GoAwayFault(
            debug: #"{"reason":"Shutdown"}"#, lastStream: .current, isGraceful: true,
            closeAfter: .milliseconds(50))
        let plan = FaultPlan(rules: [
            FaultRule("away", FaultMatch(connectionRequest: 3), .goAway(goAway))
        ])
        let fixture = try Fixture { $0.faults = plan }
        let authorization = try fixture.providerToken()
        let requests = (0..<3).map { _ in fixture.push(authorization: authorization) }
        let transcript = fixture.run(.apnsProduction, linger: 200, requests)
        #expect(transcript.answers.map(\.status) == [200, 200, 200])
        #expect(transcript.events.contains("0 goaway 0 2147483647 "))
        #expect(transcript.events.contains(#"0 goaway 0 5 {"reason":"Shutdown"}"#))
    }

    @Test func `change settings and delay answers without holding up others`() throws {
        let plan = FaultPlan(rules: [
            FaultRule(
                "limit", FaultMatch(connectionRequest: 2),
                .changeSettings(SettingsChange(maxConcurrentStreams: 7))),
            FaultRule("slow", FaultMatch(tokenPrefix: "aa"), .delay(.fixed(.milliseconds(80)))),
        ])
        let fixture = try Fixture { options in
            options.faults = plan
            // The delays are real here.
            options.time = SystemTime.shared
        }
        let authorization = try fixture.providerToken()
        let requests = ["00", "aa", "bb"].map { token in
            var request = fixture.push(token: token, authorization: authorization)
            request.isParallel = token == "aa"
            return request
        }
        let transcript = fixture.run(.apnsProduction, linger: 100, requests)
        #expect(transcript.answers.map(\.status) == [200, 200, 200])
        #expect(transcript.events.contains("0 settings 7"))
    }

    @Test func `spoil TLS for the next connections`() throws {
        let plan = FaultPlan(rules: [
            FaultRule("tls", FaultMatch(.apnsProduction, count: 2), .accept(.breakTLS))
        ])
        let fixture = try Fixture { $0.faults = plan }
        let authorization = try fixture.providerToken()
        let requests = (0..<3).map { connection in
            var request = fixture.push(authorization: authorization)
            request.connection = connection
            request.patience = 300
            return request
        }
        let transcript = fixture.run(.apnsProduction, requests)
        #expect(transcript.answers.map(\.status) == [nil, nil, 200])
        let counters = fixture.simulator.journal.counters
        #expect(counters.connectionsAccepted[.apnsProduction] == 3)
        #expect(counters.connectionsOpened[.apnsProduction] == 1)
    }

    @Test func `spoil the token endpoint only when it is named`() throws {
        let fixture = try Fixture { options in
            options.faults = FaultPlan(rules: [
                FaultRule(
                    "grant", FaultMatch(.oauth, count: 1),
                    .answer(FaultAnswer(status: 400, reason: "invalid_grant"))),
                FaultRule("all", FaultMatch(), .answer(.html(500))),
            ])
        }
        let request = NodeRequest(path: "/token", body: "x")
        let answers = fixture.run(.oauth, [request, request]).answers
        #expect(answers.first?.body.contains("invalid_grant") == true)
        #expect(answers.last?.body.contains("invalid_request") == true)
    }

    @Test func `end at their time`() throws {
        let fixture = try Fixture { options in
            options.faults = FaultPlan(rules: [
                FaultRule(
                    "outage", FaultMatch(from: .seconds(10), until: .seconds(20)),
                    .answer(FaultAnswer(status: 503, reason: "Shutdown")))
            ])
        }
        let request = fixture.push(authorization: try fixture.providerToken())
        func status() -> Int? { fixture.run(.apnsProduction, [request]).answers.first?.status }
        #expect(status() == 200)
        fixture.time.advance(by: .seconds(15))
        fixture.simulator.wake()
        #expect(status() == 503)
        fixture.time.advance(by: .seconds(6))
        fixture.simulator.wake()
        #expect(status() == 200)
        fixture.simulator.setFaults(
            FaultPlan(rules: [FaultRule("", FaultMatch(), .answer(.html(502)))]))
        #expect(status() == 502)
    }

    @Test(arguments: [1, 2, 99] as [UInt64])
    func `do the same again with the same seed`(seed: UInt64) throws {
        let plan = FaultPlan(
            seed: seed,
            rules: [
                FaultRule(
                    "third", FaultMatch(probability: 0.3),
                    .answer(FaultAnswer(status: 500, reason: "InternalServerError")))
            ])
        let first = try run(plan, 40).0.answers.map(\.status)
        let second = try run(plan, 40).0.answers.map(\.status)
        #expect(first == second, "seed \(seed)")
        let failures = first.count { $0 == 500 }
        #expect((3...25).contains(failures), "seed \(seed)")
        #expect(plan.description.contains("seed \(seed)"))
    }
}

@Suite struct `Fault plans in files` {
    @Test func `say the same as in code`() throws {
        let text = """
            {"seed": 7, "rules": [
              {"name": "gone", "token_prefix": "dead", "effect": {"answer":
                {"status": 410, "reason": "Unregistered", "timestamp_ms": 5,
                 "headers": {"Retry-After": "1"}}}},
              {"service": "fcm", "probability": 0.01, "effect": {"html": 502}},
              {"service": ["apns-production", "apns-sandbox"], "skip": 99, "count": 1, "every": 2,
                "effect": {"go_away": {"code": 11, "debug": "x", "last_stream": "current",
                  "graceful": true, "close_after_ms": 1.5}}},
              {"connection": 1, "connection_request": 3, "from_ms": 10, "until_ms": 20,
                "effect": {"delay_lognormal_ms": {"median": 40, "sigma": 0.4}}},
              {"effect": {"delay_ms": [1, 2]}}, {"effect": {"delay_ms": 5}},
              {"effect": {"reset": {"codes": [7, 5], "processed": false}}},
              {"effect": {"settings": {"max_concurrent_streams": 1}}},
              {"effect": "refuse"}, {"effect": "cut_before"}, {"effect": "break_tls"},
              {"effect": {"play_dead": {"reading_on": false}}}]}
            """
        let plan = try FaultPlan(json: Array(text.utf8))
        let expected = FaultPlan(
            seed: 7,
            rules: [
                FaultRule(
                    "gone", FaultMatch(tokenPrefix: "dead"),
                    .answer(
                        FaultAnswer(
                            status: 410, reason: "Unregistered",
                            fields: [ServerField("retry-after", "1")], timestamp: UnixMillis(5)))),
                FaultRule("", FaultMatch(.fcm, probability: 0.01), .answer(.html(502))),
                FaultRule(
                    "", FaultMatch(.apnsProduction, .apnsSandbox, skip: 99, count: 1, every: 2),
                    .goAway(
                        GoAwayFault(
                            code: 11, debug: "x", lastStream: .current, isGraceful: true,
                            closeAfter: .microseconds(1500)))),
                FaultRule(
                    "",
                    FaultMatch(
                        connection: 1, connectionRequest: 3, from: .milliseconds(10),
                        until: .milliseconds(20)),
                    .delay(.lognormal(median: .milliseconds(40), sigma: 0.4))),
                FaultRule("", FaultMatch(), .delay(.uniform(.milliseconds(1), .milliseconds(2)))),
                FaultRule("", FaultMatch(), .delay(.fixed(.milliseconds(5)))),
                FaultRule("", FaultMatch(), .reset(codes: [7, 5], processed: false)),
                FaultRule(
                    "", FaultMatch(), .changeSettings(SettingsChange(maxConcurrentStreams: 1))),
                FaultRule("", FaultMatch(), .refuse),
                FaultRule("", FaultMatch(), .cut(processed: false)),
                FaultRule("", FaultMatch(), .accept(.breakTLS)),
                FaultRule("", FaultMatch(), .playDead(processed: true, readingOn: false)),
            ])
        #expect(plan == expected)
    }

    @Test(arguments: [
        ("{", "the fault plan is not JSON"),
        (#"{"rule": []}"#, #""rule" is not known; known are rules, seed"#),
        (#"{"rules": {}}"#, "rules: an array is needed"),
        (#"{"rules": [{}]}"#, "rules[0].effect: missing"),
        (#"{"rules": [{"effect": "explode"}]}"#, #"rules[0].effect: "explode" is no effect"#),
        (#"{"rules": [{"effect": {"html": 9}}]}"#, "rules[0].effect.html: an integer from 200"),
        (#"{"rules": [{"effect": {}}]}"#, "rules[0].effect: exactly one effect is needed"),
        (
            #"{"rules": [{"service": "apns", "effect": "refuse"}]}"#,
            "rules[0].service: one of apns-production, apns-sandbox, fcm, oauth, webpush, expo, apns-channels, apns-channels-sandbox is needed"
        ),
        (
            #"{"rules": [{"probability": 2, "effect": "refuse"}]}"#,
            "rules[0].probability: a number from 0.0 to 1.0 is needed"
        ),
        (
            #"{"rules": [{"effect": {"answer": {"reason": "x"}}}]}"#,
            "rules[0].effect.answer.status: missing"
        ),
    ])
    func `say what is wrong and where`(text: String, problem: String) {
        let error = #expect(throws: FaultPlanError.self) {
            try FaultPlan(json: Array(text.utf8))
        }
        #expect(error?.description.hasPrefix(problem) == true, "\(error?.description ?? "")")
    }
}
