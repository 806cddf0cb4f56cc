import Base
import Crypto
import Simulator
import Testing

@Suite struct `The simulated APNs' provider tokens` {
    @Test func `are refused when missing, malformed, strange or badly signed`() throws {
        let fixture = try Fixture()
        let stranger = try KeyPair.generate(for: .es256)
        let good = try fixture.providerToken()
        let foreign = try JWT.signed(
            header: #"{"alg":"ES256","kid":"KEY0000001"}"#,
            claims: "{\"iss\":\"TEAM000001\",\"iat\":\(fixture.now)}",
            with: SigningKey(pem: stranger.privateKeyPEM, for: .es256, setting: "test"))
        let rows: [(String?, Int, String)] = [
            (nil, 403, "MissingProviderToken"),
            ("Basic abc", 403, "MissingProviderToken"),
            ("bearer abc", 403, "InvalidProviderToken"),
            ("bearer \(good.dropLast(4))AAAA", 403, "InvalidProviderToken"),
            ("bearer " + foreign, 403, "InvalidProviderToken"),
            (
                "bearer " + (try fixture.providerToken(algorithm: "RS256")), 403,
                "InvalidProviderToken"
            ),
            (
                "bearer " + (try fixture.providerToken(keyID: "OTHERKEY01")), 403,
                "InvalidProviderToken"
            ),
            (
                "bearer " + (try fixture.providerToken(teamID: "OTHERTEAM1")), 403,
                "InvalidProviderToken"
            ),
            (
                "bearer " + (try fixture.providerToken(issuedAt: "\"now\"")), 403,
                "InvalidProviderToken"
            ),
            (
                "bearer " + (try fixture.providerToken(issuedAt: "\(fixture.now - 3601)")), 403,
                "ExpiredProviderToken"
            ),
            (
                "bearer " + (try fixture.providerToken(issuedAt: "\(fixture.now + 3601)")), 403,
                "ExpiredProviderToken"
            ),
            ("Bearer " + good, 200, ""),
        ]
        let answers = fixture.run(
            .apnsProduction,
            rows.enumerated().map { index, row in
                var request = fixture.push(
                    row.0.map { ["authorization": $0] } ?? ["authorization": nil],
                    authorization: "")
                request.connection = index
                return request
            }
        ).answers
        try #require(answers.count == rows.count)
        for (answer, row) in zip(answers, rows) {
            #expect(answer.status == row.1, "\(row.2)")
            #expect(reason(answer) ?? "" == row.2)
        }
    }

    @Test func `expire an hour after they were issued, on an open connection too`() throws {
        let fixture = try Fixture()
        let token = try fixture.providerToken()
        let edge = try fixture.providerToken(issuedAt: "\(fixture.now - 3600)")
        #expect(try statuses(fixture, [token, edge]) == [200, 200])
        fixture.time.advance(by: .seconds(3601))
        fixture.simulator.wake()
        #expect(try statuses(fixture, [token]) == [403])
    }

    @Test func `must be 20 minutes apart on a connection`() throws {
        let fixture = try Fixture()
        let first = try fixture.providerToken(issuedAt: "\(fixture.now - 3000)")
        let early = try fixture.providerToken(issuedAt: "\(fixture.now - 1801)")
        let later = try fixture.providerToken(issuedAt: "\(fixture.now - 1800)")
        let answers = answers(fixture, [first, early, first, later, first])
        #expect(answers.map(\.status) == [200, 429, 200, 200, 200])
        #expect(answers.map { reason($0) ?? "" }[1] == "TooManyProviderTokenUpdates")
        #expect(fixture.simulator.journal.authorizations.count == 3)
    }

    @Test func `bind a connection to a team and a key`() throws {
        let fixture = try Fixture()
        let other = try fixture.simulator.makeAPNsKey(keyID: "KEY0000002")
        let foreign = try fixture.simulator.makeAPNsKey(teamID: "TEAM000002", keyID: "KEY0000003")
        let answers = answers(
            fixture,
            [
                try fixture.providerToken(), try fixture.providerToken(other),
                try fixture.providerToken(foreign),
            ])
        #expect(answers.map(\.status) == [200, 403, 403])
        #expect(answers.map { reason($0) ?? "" } == ["", "UnrelatedKeyIdInToken", "Forbidden"])
    }

    @Test(arguments: [false, true])
    func `of a key for one environment fail in the other`(isDocumented: Bool) throws {
        let fixture = try Fixture { $0.apnsDocumentedKeyReason = isDocumented }
        let key = try fixture.simulator.makeAPNsKey(
            keyID: "SANDBOXKEY", environments: [.sandbox])
        let request = fixture.push(authorization: try fixture.providerToken(key))
        let wrong = try #require(fixture.run(.apnsProduction, [request]).answers.first)
        #expect(wrong.status == 403)
        #expect(
            reason(wrong)
                == (isDocumented ? "BadEnvironmentKeyIdInToken" : "BadEnvironmentKeyInToken"))
        #expect(fixture.run(.apnsSandbox, [request]).answers.first?.status == 200)
    }

    @Test func `of unknown keys are taken where everybody is welcome`() throws {
        let fixture = try Fixture { $0.unknownCredentials = .accepted }
        let strange = try fixture.providerToken(keyID: "STRANGER01", teamID: "STRANGERS1")
        #expect(try statuses(fixture, [strange]) == [200])
    }

    @Test func `open the gate of a connection`() throws {
        let fixture = try Fixture()
        let token = try fixture.providerToken()
        let refused = fixture.push(["authorization": "bearer x"], authorization: "")
        let good = fixture.push(authorization: token)
        let transcript = fixture.run(.apnsProduction, linger: 100, [refused, good, good])
        #expect(
            transcript.events.prefix(3) == ["0 connected h2", "0 settings 1", "0 settings 1000"])
        #expect(transcript.answers.map(\.status) == [403, 200, 200])
    }

    private func answers(_ fixture: Fixture, _ tokens: [String]) -> [NodeAnswer] {
        fixture.run(.apnsProduction, tokens.map { fixture.push(authorization: $0) }).answers
    }

    private func statuses(_ fixture: Fixture, _ tokens: [String]) throws -> [Int] {
        // A connection of its own for each, so that they do not have to keep their distance.
        let requests = tokens.enumerated().map { index, token in
            var request = fixture.push(authorization: token)
            request.connection = index
            return request
        }
        return fixture.run(.apnsProduction, requests).answers.map { $0.status ?? 0 }
    }
}
