// Every documented rule of `messages:send` and of the token endpoint.

import Base
import Crypto
import JSON
import Simulator
import Testing

/// A fixture with an account, and what its holder sends.
private final class FCMFixture {
    let fixture: Fixture
    let account: SimulatedServiceAccount
    private let signer: SigningKey

    init(_ change: (inout SimulatorOptions) -> Void = { _ in }) throws {
        fixture = try Fixture(change)
        account = try fixture.simulator.makeServiceAccount(projectID: Fixture.project)
        let file = try JSONParser().parse(account.json)
        signer = try SigningKey(
            pem: file["private_key"]?.string ?? "", for: .rs256, setting: "test")
    }

    func assertion(
        _ change: [String: String?] = [:], signedBy other: SigningKey? = nil
    ) throws -> String {
        var claims: [String: String] = [
            "iss": "\"\(account.email)\"",
            "scope": "\"https://www.googleapis.com/auth/firebase.messaging\"",
            "aud": "\"\(fixture.simulator.tokenURI)\"", "iat": "\(fixture.now)",
            "exp": "\(fixture.now + 3600)",
        ]
        for (name, value) in change { claims[name] = value }
        let body = claims.map { "\"\($0.key)\":\($0.value)" }.joined(separator: ",")
        return try JWT.signed(
            header: #"{"alg":"RS256","typ":"JWT"}"#, claims: "{\(body)}", with: other ?? signer)
    }

    func tokenRequest(_ assertion: String) -> NodeRequest {
        NodeRequest(
            path: "/token", fields: [("content-type", "application/x-www-form-urlencoded")],
            body: "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion="
                + assertion)
    }

    func accessToken() throws -> String {
        let request = tokenRequest(try assertion())
        let answer = try #require(fixture.run(.oauth, [request]).answers.first)
        return try #require(try JSONParser().parse(answer.body)["access_token"]?.string)
    }

    func send(
        _ message: String, authorization: String?, project: String = Fixture.project
    ) -> NodeRequest {
        var fields = [("content-type", "application/json")]
        if let authorization { fields.append(("authorization", authorization)) }
        return NodeRequest(
            path: "/v1/projects/\(project)/messages:send", fields: fields, body: message)
    }
}

/// What the google.rpc.Status of an answer says.
private struct Status {
    var code: Int64?
    var status: String?
    var message: String?
    var fcmCode: String?
    var apnsReason: String?
    var field: String?
    var errorInfo: String?

    init(_ answer: NodeAnswer) {
        guard let error = (try? JSONParser().parse(answer.body))?["error"] else { return }
        code = error["code"]?.int64
        status = error["status"]?.string
        message = error["message"]?.string
        error["details"]?.forEachElement { detail in
            let type = detail["@type"]?.string ?? ""
            if type.hasSuffix("FcmError") { fcmCode = detail["errorCode"]?.string }
            if type.hasSuffix("ApnsError") { apnsReason = detail["reason"]?.string }
            if type.hasSuffix("ErrorInfo") { errorInfo = detail["reason"]?.string }
            detail["fieldViolations"]?.forEachElement { field = $0["field"]?.string }
        }
    }
}

@Suite struct `The simulated FCM` {
    @Test func `accepts a correct message and records it`() throws {
        let fcm = try FCMFixture()
        let token = try fcm.accessToken()
        let message = """
            {"message":{"token":"\(Fixture.registration)","notification":{"title":"a"},
            "data":{"k":"v","bugle":"{\\"id\\":\\"message-7\\"}"},
            "android":{"priority":"HIGH","ttl":"3600s","collapse_key":"c",
            "notification":{"tag":"t"}},
            "apns":{"headers":{"apns-priority":"10"},"payload":{"aps":{}}}}}
            """
        let trial = #"{"validate_only":true,"message":{"topic":"news"}}"#
        let answers = fcm.fixture.run(
            .fcm,
            [
                fcm.send(message, authorization: "Bearer " + token),
                fcm.send(trial, authorization: "Bearer " + token),
            ]
        ).answers
        #expect(answers.map(\.status) == [200, 200])
        let name = try JSONParser().parse(answers[0].body)["name"]?.string ?? ""
        #expect(name.hasPrefix("projects/demo-project/messages/0:"))
        #expect(answers[1].body.contains("fake_message_id"))
        let entry = try #require(fcm.fixture.simulator.journal.entries.dropFirst().first)
        #expect(entry.service == .fcm)
        #expect(entry.token == Fixture.registration)
        #expect(entry.messageID == "message-7")
        #expect(entry.collapseID == "c")
        #expect(entry.priority == "HIGH")
        #expect(entry.expiration == "3600s")
        #expect(fcm.fixture.simulator.journal.counters.pushes == 2)
        #expect(fcm.fixture.simulator.journal.counters.tokenRequests == 1)
    }

    @Test func `wants a valid credential for the project`() throws {
        let fcm = try FCMFixture()
        let token = try fcm.accessToken()
        let message = #"{"message":{"topic":"news"}}"#
        fcm.fixture.simulator.facts.addProject("other")
        let answers = fcm.fixture.run(
            .fcm,
            [
                fcm.send(message, authorization: nil),
                fcm.send(message, authorization: "Basic x"),
                fcm.send(message, authorization: "Bearer ya29.nonsense"),
                fcm.send(message, authorization: "Bearer " + token, project: "other"),
                fcm.send(message, authorization: "Bearer " + token, project: "nowhere"),
                NodeRequest(path: "/v1/demo-project/messages:send", body: message),
                fcm.send(message, authorization: "Bearer " + token),
            ]
        ).answers
        #expect(answers.map(\.status) == [401, 401, 401, 403, 404, 404, 200])
        #expect(
            answers.prefix(5).map { Status($0).status } == [
                "UNAUTHENTICATED", "UNAUTHENTICATED", "UNAUTHENTICATED", "PERMISSION_DENIED",
                "NOT_FOUND",
            ])
        #expect(answers.prefix(5).allSatisfy { Status($0).fcmCode == nil })
        #expect(answers[5].fields["content-type"]?.hasPrefix("text/html") == true)
        fcm.fixture.time.advance(by: .seconds(3600))
        fcm.fixture.simulator.wake()
        let late = fcm.fixture.run(.fcm, [fcm.send(message, authorization: "Bearer " + token)])
        #expect(late.answers.first.map { Status($0).errorInfo } == "ACCESS_TOKEN_EXPIRED")
    }

    @Test func `forgets revoked access tokens`() throws {
        let fcm = try FCMFixture()
        let token = try fcm.accessToken()
        fcm.fixture.simulator.revokeAccessTokens()
        let request = fcm.send(#"{"message":{"topic":"a"}}"#, authorization: "Bearer " + token)
        #expect(fcm.fixture.run(.fcm, [request]).answers.first?.status == 401)
    }

    @Test func `refuses malformed messages and names the field`() throws {
        let fcm = try FCMFixture()
        let token = "Bearer " + (try fcm.accessToken())
        let target = #""token":"\#(Fixture.registration)""#
        func text(_ count: Int) -> String { String(repeating: "x", count: count) }
        let rows: [(String, String?, String?)] = [
            ("{", nil, ""),
            ("[]", nil, ""),
            ("{}", "INVALID_ARGUMENT", "message"),
            (#"{"message":{}}"#, "INVALID_ARGUMENT", "message"),
            (#"{"message":{\#(target),"topic":"a"}}"#, nil, "message"),
            (#"{"message":{\#(target),"colour":"red"}}"#, nil, "message"),
            (#"{"massage":{}}"#, nil, ""),
            (#"{"message":{\#(target),"data":{"k":12}}}"#, nil, "message.data[0].value"),
            (#"{"message":{\#(target),"data":{"a":"b","k":{}}}}"#, nil, "message.data[1].value"),
            (#"{"message":{\#(target),"data":{"from":"x"}}}"#, "INVALID_ARGUMENT", "message.data"),
            (
                #"{"message":{\#(target),"data":{"message_type":"x"}}}"#, "INVALID_ARGUMENT",
                "message.data"
            ),
            (
                #"{"message":{\#(target),"data":{"google.x":"x"}}}"#, "INVALID_ARGUMENT",
                "message.data"
            ),
            (#"{"message":{\#(target),"data":{"gcm.y":"x"}}}"#, "INVALID_ARGUMENT", "message.data"),
            (#"{"message":{\#(target),"android":{"ttl":"1h"}}}"#, nil, "message.android.ttl"),
            (#"{"message":{\#(target),"android":{"ttl":3600}}}"#, nil, "message.android.ttl"),
            (#"{"message":{\#(target),"android":{"ttl":"-1s"}}}"#, nil, "message.android.ttl"),
            (
                #"{"message":{\#(target),"android":{"ttl":"2419201s"}}}"#, "INVALID_ARGUMENT",
                "message.android.ttl"
            ),
            (
                #"{"message":{\#(target),"android":{"priority":"URGENT"}}}"#, nil,
                "message.android.priority"
            ),
            (
                #"{"message":{\#(target),"apns":{"headers":{"apns-priority":10}}}}"#, nil,
                "message.apns.headers[0].value"
            ),
            (
                #"{"message":{\#(target),"apns":{"payload":"x"}}}"#, nil, "message.apns.payload"
            ),
            (
                #"{"message":{\#(target),"notification":{"title":1}}}"#, nil,
                "message.notification.title"
            ),
            (
                #"{"message":{\#(target),"webpush":{"fcm_options":{"link":"http://a"}}}}"#,
                "INVALID_ARGUMENT", "message.webpush.fcm_options.link"
            ),
            (
                #"{"message":{\#(target),"fcm_options":{"analytics_label":"a b"}}}"#,
                "INVALID_ARGUMENT", "message.fcm_options.analytics_label"
            ),
            (#"{"message":{"topic":"/topics/a"}}"#, "INVALID_ARGUMENT", "message.topic"),
            (#"{"message":{"condition":"a in topics"}}"#, "INVALID_ARGUMENT", "message.condition"),
            (
                #"{"message":{\#(target),"data":{"k":"\#(text(4096))"}}}"#, "INVALID_ARGUMENT",
                "message"
            ),
            (
                #"{"message":{"topic":"a","data":{"k":"\#(text(2048))"}}}"#, "INVALID_ARGUMENT",
                "message"
            ),
            (#"{"message":{"token":"(null)"}}"#, "INVALID_ARGUMENT", nil),
        ]
        let answers = fcm.fixture.run(.fcm, rows.map { fcm.send($0.0, authorization: token) })
            .answers
        try #require(answers.count == rows.count)
        for (answer, row) in zip(answers, rows) {
            let status = Status(answer)
            #expect(answer.status == 400, "\(row.0.prefix(80))")
            #expect(status.status == "INVALID_ARGUMENT", "\(row.0.prefix(80))")
            #expect(status.fcmCode == row.1, "\(row.0.prefix(80))")
            #expect(status.field == row.2, "\(row.0.prefix(80))")
        }
        #expect(
            Status(answers[7]).message
                == "Invalid value at 'message.data[0].value' (TYPE_STRING), 12")
    }

    @Test func `types what Android shows, and one kind of it`() throws {
        let fcm = try FCMFixture()
        let token = "Bearer " + (try fcm.accessToken())
        let target = #""token":"\#(Fixture.registration)""#
        let lights =
            #"{"color":{"red":1,"green":0.5,"alpha":0},"light_on_duration":"1s","#
            + #""lightOffDuration":"0.5s"}"#
        let good = [
            ##""color":"#1a2B3c""##, #""bodyLocArgs":["a"]"#, #""sticky":true"#,
            #""event_time":"2026-01-01T00:00:00Z""#, #""vibrate_timings":["0.5s","1s"]"#,
            #""notification_priority":"PRIORITY_MAX""#, #""visibility":"SECRET""#,
            #""proxy":"DENY""#, #""notification_count":3"#, #""light_settings":\#(lights)"#,
        ]
        let bad: [(String, String)] = [
            (#""color":"red""#, "color"), (##""color":"#12345""##, "color"),
            (#""body_loc_args":"a""#, "body_loc_args"), (#""body_loc_args":[1]"#, "body_loc_args"),
            (#""sticky":"true""#, "sticky"), (#""tag":7"#, "tag"),
            (#""event_time":"tomorrow""#, "event_time"),
            (#""vibrate_timings":[500]"#, "vibrate_timings"),
            (#""notification_priority":"URGENT""#, "notification_priority"),
            (#""visibility":"HIDDEN""#, "visibility"), (#""proxy":"MAYBE""#, "proxy"),
            (#""notification_count":1.5"#, "notification_count"),
            (#""notification_count":3000000000"#, "notification_count"),
            (#""light_settings":{"color":{}}"#, "light_settings"),
            (
                #""light_settings":{"color":{"red":2},"light_on_duration":"1s","#
                    + #""light_off_duration":"1s"}"#, "light_settings"
            ),
        ]
        func first(_ members: String) -> String {
            #"{"message":{\#(target),"android":{"notification":{\#(members)}}}}"#
        }
        func second(_ android: String) -> String {
            #"{"message":{\#(target),"android_v2":{\#(android)}}}"#
        }
        let kinds: [(String, Int)] = [
            (#""background_sync":{}"#, 200),
            (#""remote_notification":{"notification":{"title":"t","id":4}}"#, 200),
            (#""ttl":"3s","backgroundSync":{}"#, 200), (#""ttl":"3s""#, 400),
            (#""background_sync":{},"remote_notification":{"notification":{}}"#, 400),
            (#""remote_notification":{}"#, 400), (#""background_sync":{"x":1}"#, 400),
            (#""remote_notification":{"notification":{"proxy":"DENY"}}"#, 400),
            (#""background_sync":{},"priority":"HIGH""#, 400),
        ]
        let requests =
            good.map(first) + bad.map { first($0.0) } + [first(#""id":4"#)]
            + kinds.map { second($0.0) }
        let answers = fcm.fixture.run(.fcm, requests.map { fcm.send($0, authorization: token) })
            .answers
        try #require(answers.count == requests.count)
        for (answer, request) in zip(answers, requests).prefix(good.count) {
            #expect(answer.status == 200, "\(request)")
        }
        for (answer, row) in zip(answers.dropFirst(good.count), bad) {
            #expect(answer.status == 400, "\(row.0)")
            #expect(Status(answer).field == "message.android.notification.\(row.1)", "\(row.0)")
        }
        #expect(answers[good.count + bad.count].status == 400)
        #expect(answers.suffix(kinds.count).map(\.status) == kinds.map(\.1))
    }

    @Test func `types what is for Apple devices and browsers`() throws {
        let fcm = try FCMFixture()
        let token = "Bearer " + (try fcm.accessToken())
        let target = #""token":"\#(Fixture.registration)""#
        func silent(_ priority: String, _ aps: String = #""content-available":1"#) -> String {
            #""apns":{"headers":{"apns-priority":"\#(priority)"},"payload":{"aps":{\#(aps)}}}"#
        }
        let rows: [(String, Int)] = [
            (silent("5"), 200), (silent("10"), 400),
            (silent("10", #""content-available":1,"alert":"x""#), 200),
            (#""notification":{"title":"t"},"# + silent("10"), 200),
            (#""apns":{"live_activity_token":7}"#, 400),
            (#""apns":{"live_activity_token":"ab"}"#, 200),
            (#""apns":{"fcm_options":{"image":"https://a/b","analytics_label":"l"}}"#, 200),
            (#""apns":{"fcm_options":{"link":"x"}}"#, 400),
            (#""webpush":{"notification":"x"}"#, 400),
            (#""webpush":{"notification":{"title":"t"}}"#, 200),
            (#""webpush":{"fcm_options":{"link":"https://a","analytics_label":"l l"}}"#, 400),
            (#""webpush":{"fcm_options":{"link":7}}"#, 400),
            (#""webpush":{"fcm_options":{"url":"https://a"}}"#, 400),
            (#""android":{"restricted_package_name":7}"#, 400),
            (#""android":{"collapse_key":"a","collapseKey":"a"}"#, 400),
            (#""android":{"notification":{"channelId":"a","channel_id":"b"}}"#, 400),
        ]
        let answers = fcm.fixture.run(
            .fcm,
            rows.map { fcm.send("{\"message\":{\(target),\($0.0)}}", authorization: token) }
        ).answers
        try #require(answers.count == rows.count)
        for (answer, row) in zip(answers, rows) { #expect(answer.status == row.1, "\(row.0)") }
    }

    @Test func `tells its time, and so does the token endpoint`() throws {
        let fcm = try FCMFixture()
        let token = "Bearer " + (try fcm.accessToken())
        let request = fcm.send(#"{"message":{"topic":"a"}}"#, authorization: token)
        let date = try #require(fcm.fixture.run(.fcm, [request]).answers.first?.fields["date"])
        #expect(date.hasSuffix(" GMT") && date.utf8.count == 29, "\(date)")
        let other = fcm.fixture.run(.oauth, [fcm.tokenRequest("x")]).answers.first
        #expect(other?.fields["date"] == date)
        let push = fcm.fixture.push(authorization: try fcm.fixture.providerToken())
        #expect(
            fcm.fixture.run(.apnsProduction, [push]).answers.first?.fields["date"] == nil)
    }

    @Test func `accepts what is at the limits`() throws {
        let fcm = try FCMFixture()
        let token = "Bearer " + (try fcm.accessToken())
        let target = #""token":"\#(Fixture.registration)""#
        let rows = [
            #"{"message":{\#(target),"data":{"k":"\#(String(repeating: "x", count: 4095))"}}}"#,
            #"{"message":{"topic":"a","data":{"k":"\#(String(repeating: "x", count: 2047))"}}}"#,
            #"{"message":{\#(target),"android":{"ttl":"2419200s"}}}"#,
            #"{"message":{\#(target),"android":{"ttl":"3.5s","directBootOk":true}}}"#,
            #"{"message":{\#(target),"data":{"collapse_key":"x"}}}"#,
            #"{"message":{"condition":"'foo' in topics && ('bar' in topics || 'baz' in topics)"}}"#,
            #"{"validateOnly":false,"message":{"fid":"cAbCdEfGhIjKlMnOpQrStU"}}"#,
        ]
        let answers = fcm.fixture.run(.fcm, rows.map { fcm.send($0, authorization: token) }).answers
        #expect(answers.map(\.status) == rows.map { _ in 200 })
    }

    @Test func `knows live, gone and foreign registrations`() throws {
        let fcm = try FCMFixture()
        let facts = fcm.fixture.simulator.facts
        let token = "Bearer " + (try fcm.accessToken())
        facts.setFCMToken("gone:1", projectID: Fixture.project, .unregistered)
        facts.setFCMToken("foreign:1", projectID: "other")
        facts.setFCMToken("disabled:1", projectID: Fixture.project, .deviceTokenDisabled)
        facts.setFCMToken("third:1", projectID: Fixture.project, .thirdPartyCredentialBad)
        facts.setFCMToken("live:1", projectID: Fixture.project)
        facts.unknownTokens = .unregistered
        let targets = [
            #""token":"gone:1""#, #""token":"foreign:1""#, #""token":"disabled:1""#,
            #""token":"third:1""#, #""token":"live:1""#, #""token":"unknown:1234""#,
            #""token":"bad token""#, #""fid":"cAbCdEfGhIjKlMnOpQrStU""#,
        ]
        let answers = fcm.fixture.run(
            .fcm, targets.map { fcm.send("{\"message\":{\($0)}}", authorization: token) }
        ).answers
        #expect(answers.map(\.status) == [404, 403, 400, 401, 200, 404, 400, 404])
        #expect(
            answers.map { Status($0).fcmCode } == [
                "UNREGISTERED", "SENDER_ID_MISMATCH", "INVALID_ARGUMENT", "THIRD_PARTY_AUTH_ERROR",
                nil, "UNREGISTERED", "INVALID_ARGUMENT", "UNREGISTERED",
            ])
        #expect(Status(answers[2]).apnsReason == "Unregistered")
        #expect(Status(answers[2]).message == "APNs device token is disabled.")
        #expect(Status(answers[6]).field == nil)
    }

    @Test func `holds a project to its quota`() throws {
        let fcm = try FCMFixture()
        fcm.fixture.simulator.facts.addProject(Fixture.project, messagesPerMinute: 2)
        let token = "Bearer " + (try fcm.accessToken())
        let request = fcm.send(#"{"message":{"topic":"a"}}"#, authorization: token)
        let answers = fcm.fixture.run(.fcm, [request, request, request]).answers
        #expect(answers.map(\.status) == [200, 200, 429])
        #expect(answers.last.map { Status($0).fcmCode } == "QUOTA_EXCEEDED")
        #expect(answers.last?.fields["retry-after"] == "60")
        fcm.fixture.time.advance(by: .seconds(30))
        fcm.fixture.simulator.wake()
        #expect(fcm.fixture.run(.fcm, [request, request]).answers.map(\.status) == [200, 429])
    }
}

@Suite struct `The simulated token endpoint` {
    @Test func `issues tokens for good assertions`() throws {
        let fcm = try FCMFixture()
        let now = fcm.fixture.now
        let rows: [[String: String?]] = [
            [:], ["aud": "\"https://oauth2.googleapis.com/token\""],
            ["iat": "\(now + 300)", "exp": "\(now + 3900)"],
            ["iat": "\(now - 3600)", "exp": "\(now)"],
            ["scope": "\"openid https://www.googleapis.com/auth/cloud-platform\""],
        ]
        let answers = fcm.fixture.run(
            .oauth, try rows.map { fcm.tokenRequest(try fcm.assertion($0)) }
        ).answers
        #expect(answers.map(\.status) == rows.map { _ in 200 })
        let parser = JSONParser()
        for answer in answers {
            let value = try parser.parse(answer.body)
            #expect(value["expires_in"]?.int64 == 3599)
            #expect(value["token_type"]?.string == "Bearer")
        }
    }

    @Test func `refuses bad assertions in the form of RFC 6749`() throws {
        let fcm = try FCMFixture()
        let now = fcm.fixture.now
        let stranger = try SigningKey(
            pem: KeyPair.generate(for: .rs256).privateKeyPEM, for: .rs256, setting: "test")
        func bad(_ change: [String: String?]) throws -> NodeRequest {
            fcm.tokenRequest(try fcm.assertion(change))
        }
        let skew = "Invalid JWT: Token must be a short-lived token (60 minutes)"
        let rows: [(NodeRequest, String, String)] = [
            (
                fcm.tokenRequest(try fcm.assertion(signedBy: stranger)), "invalid_grant",
                "Invalid JWT Signature."
            ),
            (
                try bad(["iss": "\"nobody@example.com\""]), "invalid_grant",
                "Invalid grant: account not found"
            ),
            (try bad(["iat": nil]), "invalid_grant", "Invalid JWT: iat (issued at) is not set."),
            (
                try bad(["exp": nil]), "invalid_grant",
                "Invalid JWT: exp (expiration time) is not set."
            ),
            (
                try bad(["aud": "\"https://example.com\""]), "invalid_grant",
                "Invalid JWT: Failed audience check."
            ),
            (try bad(["iat": "\(now - 7200)", "exp": "\(now - 3600)"]), "invalid_grant", skew),
            (try bad(["iat": "\(now + 301)", "exp": "\(now + 3901)"]), "invalid_grant", skew),
            (try bad(["exp": "\(now + 3601)"]), "invalid_grant", skew),
            (
                try bad(["scope": "\"email\""]), "invalid_scope",
                "Invalid OAuth scope or ID token audience provided."
            ),
            (fcm.tokenRequest("abc"), "invalid_grant", "Invalid JWT"),
            (
                NodeRequest(path: "/token", body: "grant_type=x"), "invalid_request", "Bad Request"
            ),
        ]
        let answers = fcm.fixture.run(.oauth, rows.map(\.0)).answers
        try #require(answers.count == rows.count)
        let parser = JSONParser()
        for (answer, row) in zip(answers, rows) {
            #expect(answer.status == 400, "\(row.2)")
            let value = try parser.parse(answer.body)
            #expect(value["error"]?.string == row.1, "\(row.2)")
            #expect(value["error_description"]?.string?.hasPrefix(row.2) == true, "\(row.2)")
        }
    }

    @Test func `turns disabled and deleted accounts away`() throws {
        let fcm = try FCMFixture()
        let facts = fcm.fixture.simulator.facts
        let request = fcm.tokenRequest(try fcm.assertion())
        facts.setServiceAccount(email: fcm.account.email, isDisabled: true)
        let disabled = fcm.fixture.run(.oauth, [request]).answers.first
        #expect(disabled?.status == 401)
        #expect(disabled?.body.contains("disabled_client") == true)
        facts.removeServiceAccount(email: fcm.account.email)
        let deleted = fcm.fixture.run(.oauth, [request]).answers.first
        #expect(deleted?.body.contains("account not found") == true)
    }
}
