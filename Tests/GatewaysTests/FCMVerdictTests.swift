import Base
import Gateways
import Testing

/// Builds error bodies as Google does.
private enum Body {
    static let prefix = "type.googleapis.com/google."

    static func error(
        _ code: Int, _ status: String, _ details: [String] = [], message: String = "words"
    ) -> String {
        let joined = details.joined(separator: ",")
        return #"{"error":{"code":\#(code),"message":"\#(message)","status":"\#(status)","#
            + #""details":[\#(joined)]}}"#
    }

    static func fcm(_ code: String) -> String {
        #"{"@type":"\#(prefix)firebase.fcm.v1.FcmError","errorCode":"\#(code)"}"#
    }

    static func apns(_ status: Int, _ reason: String) -> String {
        #"{"@type":"\#(prefix)firebase.fcm.v1.ApnsError","statusCode":\#(status),"#
            + #""reason":"\#(reason)"}"#
    }

    static func badField(_ field: String) -> String {
        #"{"@type":"\#(prefix)rpc.BadRequest","fieldViolations":[{"field":"\#(field)"}]}"#
    }

    static func quota(_ subject: String) -> String {
        #"{"@type":"\#(prefix)rpc.QuotaFailure","violations":[{"subject":"\#(subject)"}]}"#
    }

    static let help = #"{"@type":"\#(prefix)rpc.Help"}"#
    static let badToken = "The registration token is not a valid FCM registration token"
}

@Suite struct `FCM verdicts` {
    struct Row: Sendable, CustomTestStringConvertible {
        let name: String
        let status: Int
        let body: String
        let outcome: Outcome?
        let reason: Reason
        let fault: Fault
        let fuse: Bool
        var testDescription: String { name }

        init(
            _ name: String, _ status: Int, _ body: String, _ outcome: Outcome?,
            _ reason: Reason = .other, _ fault: Fault = .none, fuse: Bool = false
        ) {
            self.name = name
            self.status = status
            self.body = body
            self.outcome = outcome
            self.reason = reason
            self.fault = fault
            self.fuse = fuse
        }
    }

    static let tokenRows = [
        Row(
            "unregistered", 404, Body.error(404, "NOT_FOUND", [Body.fcm("UNREGISTERED")]),
            .tokenInvalid, .fcmUnregistered),
        Row(
            "FCM-01: unregistered as the second entry", 404,
            Body.error(404, "NOT_FOUND", [Body.help, Body.fcm("UNREGISTERED")]), .tokenInvalid,
            .fcmUnregistered),
        Row(
            "unregistered, with what APNs said", 404,
            Body.error(
                404, "NOT_FOUND", [Body.apns(410, "Unregistered"), Body.fcm("UNREGISTERED")]),
            .tokenInvalid, .fcmUnregistered),
        Row(
            "dead behind an iOS registration", 400,
            Body.error(
                400, "INVALID_ARGUMENT",
                [Body.fcm("INVALID_ARGUMENT"), Body.apns(410, "Unregistered")],
                message: "APNs device token is disabled."),
            .tokenInvalid, .unregistered),
        Row(
            "expired behind an iOS registration", 400,
            Body.error(400, "INVALID_ARGUMENT", [Body.apns(410, "ExpiredToken")]), .tokenInvalid,
            .expiredToken),
        Row(
            "of another environment, 400", 400,
            Body.error(400, "INVALID_ARGUMENT", [Body.apns(400, "BadDeviceToken")]),
            .tokenSuspended, .badDeviceToken, .config, fuse: true),
        Row(
            "of another app, 401", 401,
            Body.error(
                401, "UNAUTHENTICATED",
                [Body.fcm("THIRD_PARTY_AUTH_ERROR"), Body.apns(400, "DeviceTokenNotForTopic")]),
            .tokenSuspended, .deviceTokenNotForTopic, .config, fuse: true),
        Row(
            "of another environment, 403", 403,
            Body.error(403, "PERMISSION_DENIED", [Body.apns(400, "BadDeviceToken")]),
            .tokenSuspended, .badDeviceToken, .config, fuse: true),
        Row(
            "FCM-05: malformed token by the sentence", 400,
            Body.error(
                400, "INVALID_ARGUMENT", [Body.fcm("INVALID_ARGUMENT")], message: Body.badToken),
            .tokenInvalid, .fcmInvalidArgument, fuse: true),
        Row(
            "FCM-05: malformed token by the field", 400,
            Body.error(400, "INVALID_ARGUMENT", [Body.badField("message.token")]), .tokenInvalid,
            .fcmInvalidArgument, fuse: true),
        Row(
            "FCM-06: of another project", 403,
            Body.error(
                403, "PERMISSION_DENIED", [Body.fcm("SENDER_ID_MISMATCH")],
                message: "SenderId mismatch"),
            .tokenSuspended, .fcmSenderIDMismatch, .config, fuse: true),
    ]

    static let otherRows = [
        Row(
            "FCM-04: bad value", 400,
            Body.error(400, "INVALID_ARGUMENT", [Body.badField("message.data[0].value")]),
            .rejected, .fcmInvalidArgument, .ours),
        Row(
            "FCM-04: bad value, with the sentence about tokens", 400,
            Body.error(
                400, "INVALID_ARGUMENT",
                [Body.fcm("INVALID_ARGUMENT"), Body.badField("message.data[0].value")],
                message: Body.badToken),
            .rejected, .fcmInvalidArgument, .ours),
        Row(
            "FCM-04: too large", 400,
            Body.error(
                400, "INVALID_ARGUMENT", [Body.fcm("INVALID_ARGUMENT")],
                message: "Message is too large"),
            .rejected, .fcmInvalidArgument, .ours),
        Row(
            "400 without an FCM error", 400,
            Body.error(400, "INVALID_ARGUMENT", message: Body.badToken), .rejected,
            .fcmInvalidArgument, .ours),
        Row(
            "AUTH-16: the key in Firebase", 401,
            Body.error(401, "UNAUTHENTICATED", [Body.fcm("THIRD_PARTY_AUTH_ERROR")]),
            .credentialError, .fcmThirdPartyAuthError, .config),
        Row(
            "AUTH-16: the key in Firebase, as APNs put it", 401,
            Body.error(
                401, "UNAUTHENTICATED",
                [Body.apns(403, "InvalidProviderToken"), Body.fcm("THIRD_PARTY_AUTH_ERROR")]),
            .credentialError, .fcmThirdPartyAuthError, .config),
        Row(
            "FCM-06: no permission", 403, Body.error(403, "PERMISSION_DENIED"), .credentialError,
            .googlePermissionDenied, .config),
        Row("403 as a page", 403, "<html>", .credentialError, .other, .config),
        Row(
            "404 without an FCM error", 404, Body.error(404, "NOT_FOUND"), nil, .googleNotFound,
            .config),
        Row(
            "FCM-02: 404 as a page", 404, "<html><title>Error 404</title></html>", nil, .other,
            .config),
        Row("FCM-02: half a JSON text", 404, #"{"error":{"code":40"#, nil, .other, .config),
        Row("FCM-02: 502 as a page", 502, "<html>", nil),
        Row(
            "500", 500, Body.error(500, "INTERNAL", [Body.fcm("INTERNAL")]), nil, .fcmInternal),
        Row("503", 503, Body.error(503, "UNAVAILABLE"), nil, .fcmUnavailable),
        Row("504", 504, "", nil),
        Row(
            "429", 429, Body.error(429, "RESOURCE_EXHAUSTED", [Body.fcm("QUOTA_EXCEEDED")]), nil,
            .fcmQuotaExceeded),
        Row(
            "unspecified, 400", 400,
            Body.error(400, "UNKNOWN", [Body.fcm("UNSPECIFIED_ERROR")]), .rejected,
            .fcmUnspecifiedError, .ours),
        Row(
            "unspecified, 404", 404,
            Body.error(404, "UNKNOWN", [Body.fcm("UNSPECIFIED_ERROR")]), nil,
            .fcmUnspecifiedError, .config),
        Row(
            "unregistered with the wrong status", 400,
            Body.error(400, "NOT_FOUND", [Body.fcm("UNREGISTERED")]), .rejected,
            .fcmUnregistered, .ours),
    ]

    @Test(arguments: tokenRows + otherRows)
    func `every row has its outcome`(row: Row) {
        let verdict = fcm(row.status, row.body)
        #expect(verdict.outcome == row.outcome)
        #expect(verdict.reason == row.reason)
        #expect(verdict.fault == row.fault)
        #expect(verdict.countsForFuse == row.fuse)
        switch row.outcome {
        case .tokenInvalid: #expect(verdict.tokenAction == .invalidate(asOf: newYear))
        case .tokenSuspended: #expect(verdict.tokenAction == .suspend(asOf: newYear))
        default: #expect(verdict.tokenAction == .none)
        }
    }

    @Test func `the order of the details does not matter`() {
        let entries = [
            Body.help, Body.fcm("INVALID_ARGUMENT"), Body.apns(410, "Unregistered"),
        ]
        for first in entries {
            let others = entries.filter { $0 != first }
            for order in [[first] + others, [first] + others.reversed()] {
                let verdict = fcm(400, Body.error(400, "INVALID_ARGUMENT", order))
                #expect(verdict.outcome == .tokenInvalid)
            }
        }
    }

    @Test func `a registration after the request was sent stays`() {
        let verdict = fcm(
            404, Body.error(404, "NOT_FOUND", [Body.fcm("UNREGISTERED")]),
            sent: SentRequest(sentAt: newYear, registeredAt: at(1)))
        #expect(verdict.outcome == .rejected)
        #expect(verdict.tokenAction == .none)
        #expect(verdict.reason == .fcmUnregistered)
    }

    @Test func `AUTH-14: an expired access token is replaced once`() {
        let expired = #"{"@type":"\#(Body.prefix)rpc.ErrorInfo","reason":"ACCESS_TOKEN_EXPIRED"}"#
        let body = Body.error(401, "UNAUTHENTICATED", [expired])
        let first = fcm(401, body)
        #expect(
            first.advice
                == RetryAdvice(
                    after: .zero, needsFreshCredential: true, exhausted: .credentialError))
        #expect(first.reason == .googleUnauthenticated)
        let second = fcm(
            401, body,
            sent: SentRequest(
                sentAt: newYear, registeredAt: newYear, attempts: 2, refreshTried: true))
        #expect(second.outcome == .credentialError)
        #expect(second.fault == .credential)
        #expect(second.tokenAction == .none)
    }

    @Test func `FCM-07: the wait is what the answer asks for, else a minute`() {
        let body = Body.error(429, "RESOURCE_EXHAUSTED", [Body.quota("device:tokA")])
        func wait(_ retryAfter: String?, date: String? = nil, attempts: Int = 1) -> TimeSpan? {
            fcm(
                429, body,
                sent: SentRequest(sentAt: newYear, registeredAt: newYear, attempts: attempts),
                retryAfter: retryAfter, date: date
            ).advice?.minimumWait
        }
        #expect(wait("90") == .seconds(90))
        #expect(wait(" 90") == .seconds(90))
        for date in [
            "Wed, 01 Jan 2025 00:02:00 GMT", "Wednesday, 01-Jan-25 00:02:00 GMT",
            "Wed Jan  1 00:02:00 2025",
        ] {
            #expect(wait(date) == .seconds(120))
        }
        #expect(
            wait("Wed, 01 Jan 2025 00:02:00 GMT", date: "Wed, 01 Jan 2025 00:01:00 GMT")
                == .seconds(60))
        #expect(wait(nil) == .seconds(60))
        #expect(wait(nil, attempts: 2) == .seconds(120))
        #expect(wait("0") == .seconds(10))
        #expect(wait("Wed, 01 Jan 2020 00:02:00 GMT") == .seconds(10))
        for garbage in ["-5", "abc", "", "1.5", "90 seconds", "Wed, 32 Jan 2025 00:02:00 GMT"] {
            #expect(wait(garbage) == .seconds(60), "\(garbage)")
        }
        #expect(wait("7200") == .hours(1))
        #expect(wait("99999999999999999999999") == .hours(1))
    }

    @Test func `FCM-07: a device's quota slows that device, any other the project`() {
        func scope(_ subject: String) -> RetryAdvice.Scope? {
            fcm(429, Body.error(429, "RESOURCE_EXHAUSTED", [Body.quota(subject)])).advice?.scope
        }
        #expect(scope("device:tokA") == .token)
        #expect(scope("project:demo") == .project)
        #expect(fcm(429, "").advice?.scope == .perhapsProject)
    }

    @Test func `FCM-08: failures wait ten seconds at least, and longer each time`() {
        func wait(_ attempts: Int, _ retryAfter: String? = nil, _ body: String = "") -> TimeSpan? {
            fcm(
                503, body,
                sent: SentRequest(sentAt: newYear, registeredAt: newYear, attempts: attempts),
                retryAfter: retryAfter
            ).advice?.minimumWait
        }
        #expect(wait(1) == .seconds(10))
        #expect(wait(2) == .seconds(20))
        #expect(wait(3) == .seconds(40))
        #expect(wait(1, "3") == .seconds(10))
        #expect(wait(1, "30") == .seconds(30))
        let info = #"{"@type":"\#(Body.prefix)rpc.RetryInfo","retryDelay":"36.2s"}"#
        #expect(wait(1, nil, Body.error(503, "UNAVAILABLE", [info])) == .seconds(37))
    }

    @Test func `success names the message, in whatever layout`() {
        for body in [
            #"{"name":"projects/demo/messages/0:15%31"}"#,
            "{\n  \"name\": \"projects/demo/messages/0:15%31\"\n}\n",
        ] {
            let verdict = fcm(200, body)
            #expect(verdict.outcome == .accepted)
            let bytes = Array(body.utf8)
            let name = verdict.gatewayID.map { String(decoding: bytes[$0], as: UTF8.self) }
            #expect(name == "projects/demo/messages/0:15%31")
        }
        for body in ["", "{", #"{"name":"#, #"{"name":"open"#, "[]", #"{"name":1}"#, "<html>"] {
            #expect(fcm(200, body).outcome == .accepted)
            #expect(fcm(200, body).gatewayID == nil)
        }
    }
}
