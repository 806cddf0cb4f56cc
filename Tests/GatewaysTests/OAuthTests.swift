import Base
import Crypto
import Gateways
import JSON
import Testing

@Suite struct `Access tokens` {
    private static let pair = Result { try KeyPair.generate(for: .rs256) }

    private static func keyFile(_ change: (inout [String: String]) -> Void = { _ in }) throws
        -> [UInt8]
    {
        var fields = [
            "type": "service_account", "project_id": "demo-project", "private_key_id": "k1",
            "private_key": try pair.get().privateKeyPEM,
            "client_email": "push@demo-project.iam.gserviceaccount.com",
            "token_uri": "https://oauth2.googleapis.com/token",
        ]
        change(&fields)
        let writer = ByteWriter()
        writer.append("{")
        for (index, field) in fields.sorted(by: { $0.key < $1.key }).enumerated() {
            if index > 0 { writer.append(",") }
            writer.append(jsonString: field.key)
            writer.append(":")
            writer.append(jsonString: field.value)
        }
        writer.append("}")
        return writer.array
    }

    /// A source with its clock, and a token endpoint that answers as told.
    private struct Bench {
        let time = ManualTime()
        var source: OAuthTokenSource

        init(seed: UInt64 = 1) throws {
            let account = try ServiceAccount(json: try keyFile(), setting: "fcm.key_file")
            source = OAuthTokenSource(account, random: SeededRandom(seed: seed))
        }

        mutating func next() -> OAuthTokenSource.Action {
            source.next(at: time.monotonic, wall: time.wall)
        }

        mutating func fetch() throws -> TokenFetch {
            guard case .fetch(let fetch, _) = next() else {
                throw KeyError(setting: "test", problem: "no fetch was wanted")
            }
            return fetch
        }

        mutating func answer(
            _ fetch: TokenFetch, _ status: Int, _ body: String, date: String? = nil
        ) {
            Array(body.utf8).withUnsafeBytes {
                source.received(
                    GatewayAnswer(status: status, body: $0, date: date, now: time.wall),
                    for: fetch.number, at: time.monotonic)
            }
        }

        mutating func fetchToken(_ name: String = "ya29.a") throws {
            answer(
                try fetch(), 200,
                #"{"access_token":"\#(name)","expires_in":3599,"token_type":"Bearer"}"#)
        }

        /// The token that is used now, if any.
        mutating func used() -> String? {
            guard case .use(let token) = next() else { return nil }
            return String(decoding: token.header, as: UTF8.self)
        }
    }

    @Test func `the assertion has the claims that Google asks for, and its signature`() throws {
        var bench = try Bench()
        let form = String(decoding: try bench.fetch().body, as: UTF8.self)
        let prefix = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion="
        #expect(form.hasPrefix(prefix))
        let jwt = try #require(JWT(String(form.dropFirst(prefix.count))))
        #expect(
            String(decoding: jwt.header, as: UTF8.self)
                == #"{"alg":"RS256","typ":"JWT","kid":"k1"}"#)
        #expect(
            String(decoding: jwt.claims, as: UTF8.self)
                == #"{"iss":"push@demo-project.iam.gserviceaccount.com","#
                + #""scope":"https://www.googleapis.com/auth/firebase.messaging","#
                + #""aud":"https://oauth2.googleapis.com/token","#
                + #""iat":1735689600,"exp":1735693200}"#)
        let key = try VerifyingKey(
            pem: try Self.pair.get().publicKeyPEM, for: .rs256, setting: "key")
        #expect(jwt.isSigned(by: key))
    }

    @Test func `a hundred pushes at once make one call`() throws {
        var bench = try Bench()
        let fetch = try bench.fetch()
        for _ in 0..<99 {
            guard case .wait(let time) = bench.next() else {
                Issue.record("a second call was wanted")
                return
            }
            #expect(time > bench.time.monotonic)
        }
        bench.answer(fetch, 200, #"{"access_token":"ya29.a","expires_in":3599}"#)
        #expect(bench.used() == "Bearer ya29.a")
        #expect(bench.source.fetchCount == 1)
    }

    @Test func `a token is replaced at 80 to 90 percent while the old one serves`() throws {
        for seed in 0..<20 as Range<UInt64> {
            var bench = try Bench(seed: seed)
            try bench.fetchToken()
            var seconds: Int64 = 0
            while bench.used() != nil {
                bench.time.advance(by: .seconds(1))
                seconds += 1
                // `used` asked; the first answer that is no token is the fetch.
            }
            #expect((2879...3240).contains(seconds))
            #expect(bench.used() == "Bearer ya29.a")
            #expect(bench.source.fetchCount == 2)
        }
    }

    @Test func `AUTH-14: a refused token is replaced once for all who had it`() throws {
        var bench = try Bench()
        try bench.fetchToken()
        for _ in 0..<100 { bench.source.refuse(1, at: bench.time.monotonic) }
        let fetch = try bench.fetch()
        for _ in 0..<100 { bench.source.refuse(1, at: bench.time.monotonic) }
        bench.answer(fetch, 200, #"{"access_token":"ya29.b","expires_in":3599}"#)
        #expect(bench.used() == "Bearer ya29.b")
        #expect(bench.source.fetchCount == 2)
        // A cause that no new token cures does not flood the endpoint.
        bench.source.refuse(2, at: bench.time.monotonic)
        #expect(bench.used() == "Bearer ya29.b")
        bench.time.advance(by: .seconds(60))
        bench.source.refuse(2, at: bench.time.monotonic)
        #expect(bench.used() == nil)
    }

    @Test func `AUTH-15: a refused grant is asked for fewer than ten times a minute`() throws {
        for seed in 0..<20 as Range<UInt64> {
            for status in [400, 503] {
                var bench = try Bench(seed: seed)
                for _ in 0..<600 {
                    if case .fetch(let fetch, _) = bench.next() {
                        let words = "Token must be in a reasonable timeframe."
                        bench.answer(
                            fetch, status,
                            #"{"error":"invalid_grant","error_description":"\#(words)"}"#)
                    }
                    bench.time.advance(by: .milliseconds(100))
                }
                #expect((3..<10).contains(bench.source.fetchCount))
                #expect(bench.source.fault?.fault == (status == 400 ? .clock : Fault.none))
            }
        }
    }

    @Test func `every refusal of the token endpoint is explained`() throws {
        let rows: [(Int, String, String, Fault, Reason)] = [
            (400, "invalid_grant", "Invalid JWT Signature.", .credential, .oauthInvalidGrant),
            (
                400, "invalid_grant", "Invalid grant: account not found", .credential,
                .oauthInvalidGrant
            ),
            (
                400, "invalid_grant", "Token has been expired or revoked.", .credential,
                .oauthInvalidGrant
            ),
            (
                400, "invalid_grant", "No account is associated with this key.", .credential,
                .oauthInvalidGrant
            ),
            (
                400, "invalid_grant",
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable"
                    + " timeframe. Check your iat and exp values in the JWT claim.",
                .clock, .oauthInvalidGrant
            ),
            (
                400, "invalid_grant", "Invalid JWT: iat (issued at) is not set.", .ours,
                .oauthInvalidGrant
            ),
            (
                400, "invalid_grant", "Invalid JWT: exp (expiration time) is not set.", .ours,
                .oauthInvalidGrant
            ),
            (
                400, "invalid_grant", "Invalid JWT: Failed audience check.", .ours,
                .oauthInvalidGrant
            ),
            (
                400, "invalid_scope", "Invalid OAuth scope or ID token audience provided.", .ours,
                .oauthInvalidScope
            ),
            (400, "invalid_request", "Bad Request", .ours, .oauthInvalidRequest),
            (401, "unauthorized_client", "", .credential, .oauthUnauthorizedClient),
            (401, "invalid_client", "", .credential, .oauthInvalidClient),
            (401, "disabled_client", "", .credential, .oauthDisabledClient),
            (401, "deleted_client", "", .credential, .oauthDeletedClient),
            (404, "", "", .config, .other),
        ]
        for (status, code, words, fault, reason) in rows {
            var bench = try Bench()
            bench.answer(
                try bench.fetch(), status,
                #"{"error":"\#(code)","error_description":"\#(words)"}"#)
            #expect(bench.source.fault?.fault == fault, "\(code) \(words)")
            #expect(bench.source.fault?.reason == reason)
            #expect(bench.source.fault?.explanation.isEmpty == false)
        }
    }

    @Test func `answers that are no answers fail without blame, and the old token serves`() throws {
        var bench = try Bench()
        try bench.fetchToken()
        bench.time.advance(by: .minutes(55))
        for (status, body) in [
            (200, ""), (200, "{}"), (200, #"{"access_token":"a b"}"#), (503, "<html>"), (302, ""),
        ] {
            let fetch = try bench.fetch()
            bench.answer(fetch, status, body)
            #expect(bench.source.fault?.fault == Fault.none)
            #expect(bench.used() == "Bearer ya29.a")
            bench.time.advance(by: .seconds(40))
        }
        bench.time.advance(by: .minutes(5))
        guard case .fetch(let fetch, meanwhile: nil) = bench.next() else {
            Issue.record("an expired token was kept")
            return
        }
        bench.answer(fetch, 200, #"{"access_token":"ya29.b","expires_in":3599}"#)
        #expect(bench.source.fault == nil)
        #expect(bench.used() == "Bearer ya29.b")
    }

    @Test func `a call without an answer is given up, and its late answer ignored`() throws {
        var bench = try Bench()
        let lost = try bench.fetch()
        bench.time.advance(by: .seconds(31))
        #expect(bench.used() == nil)
        #expect(bench.source.fault?.reason == .answerTimeout)
        bench.answer(lost, 200, #"{"access_token":"late","expires_in":3599}"#)
        #expect(bench.used() == nil)
        bench.time.advance(by: .seconds(2))
        let refused = try bench.fetch()
        bench.source.failed(refused.number, detail: "refused", at: bench.time.monotonic)
        #expect(bench.source.fault?.reason == .connectionFailed)
    }

    @Test func `a key file that cannot be used is refused by the name of its setting`() throws {
        let broken: [(inout [String: String]) -> Void] = [
            { $0["type"] = "authorized_user" }, { $0["project_id"] = nil },
            { $0["project_id"] = "a/../b" }, { $0["client_email"] = "" },
            { $0["private_key"] = nil }, { $0["private_key"] = "nonsense" },
            { $0["token_uri"] = "http://example.com" }, { $0["token_uri"] = "https://a:b" },
        ]
        for change in broken {
            let file = try Self.keyFile(change)
            let error = #expect(throws: KeyError.self) {
                try ServiceAccount(json: file, setting: "fcm.key_file")
            }
            #expect(error?.description.hasPrefix("fcm.key_file") == true)
            #expect(error?.description.contains("BEGIN PRIVATE") == false)
        }
        #expect(throws: KeyError.self) {
            try ServiceAccount(json: Array("not json".utf8), setting: "fcm.key_file")
        }
    }

    @Test func `a token endpoint's address comes apart`() {
        let plain = TokenEndpoint("https://oauth2.googleapis.com/token")
        #expect(plain?.host == "oauth2.googleapis.com")
        #expect(plain?.port == 443)
        #expect(plain?.path == "/token")
        let local = TokenEndpoint("https://[::1]:8443")
        #expect(local?.host == "::1")
        #expect(local?.port == 8443)
        #expect(local?.path == "/")
        for bad in ["", "https://", "https://:1/", "https://a:0/", "https://a@b/", "https://a b/"] {
            #expect(TokenEndpoint(bad) == nil)
        }
    }
}
