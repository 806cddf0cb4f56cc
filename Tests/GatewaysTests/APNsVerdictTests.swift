import Base
import Gateways
import Testing

@Suite struct `APNs verdicts` {
    /// The documented table, written down once more and independently.
    static let final: [(status: Int, reason: String, outcome: Outcome, fault: Fault)] = [
        (400, "BadCollapseId", .rejected, .ours),
        (400, "BadDeviceToken", .tokenSuspended, .none),
        (400, "BadExpirationDate", .rejected, .ours),
        (400, "BadMessageId", .rejected, .ours),
        (400, "BadPriority", .rejected, .ours),
        (400, "BadTopic", .credentialError, .config),
        (400, "DeviceTokenNotForTopic", .tokenSuspended, .none),
        (400, "DuplicateHeaders", .rejected, .ours),
        (400, "InvalidPushType", .rejected, .ours),
        (400, "MissingDeviceToken", .rejected, .ours),
        (400, "MissingTopic", .credentialError, .config),
        (400, "PayloadEmpty", .rejected, .ours),
        (400, "TopicDisallowed", .credentialError, .config),
        (403, "BadCertificate", .credentialError, .credential),
        (403, "BadCertificateEnvironment", .credentialError, .credential),
        (403, "Forbidden", .credentialError, .config),
        (403, "InvalidProviderToken", .credentialError, .credential),
        (403, "MissingProviderToken", .credentialError, .credential),
        (403, "BadEnvironmentKeyIdInToken", .credentialError, .credential),
        (403, "BadEnvironmentKeyInToken", .credentialError, .credential),
        (404, "BadPath", .rejected, .ours),
        (405, "MethodNotAllowed", .rejected, .ours),
        (410, "ExpiredToken", .tokenInvalid, .none),
        (410, "Unregistered", .tokenInvalid, .none),
        (413, "PayloadTooLarge", .rejected, .ours),
    ]

    @Test func `every final row has its outcome`() {
        for row in Self.final {
            let verdict = apns(row.status, #"{"reason":"\#(row.reason)"}"#)
            let name = Comment(rawValue: "\(row.status) \(row.reason)")
            #expect(verdict.outcome == row.outcome, name)
            #expect(verdict.fault == row.fault, name)
            #expect(verdict.countsForFuse == (row.outcome == .tokenSuspended), name)
            #expect(verdict.reason?.rawValue == row.reason, name)
            #expect(verdict.detail == row.reason, name)
            switch row.outcome {
            case .tokenInvalid:
                #expect(verdict.tokenAction == .invalidate(asOf: newYear), name)
            case .tokenSuspended:
                #expect(verdict.tokenAction == .suspend(asOf: newYear), name)
            default: #expect(verdict.tokenAction == .none, name)
            }
        }
    }

    @Test(arguments: [400, 403], ["BadTopic", "MissingTopic", "TopicDisallowed"])
    func `APNS-10: a topic that is refused as such is our fault and no token's`(
        status: Int, reason: String
    ) {
        let verdict = apns(status, #"{"reason":"\#(reason)"}"#)
        #expect(verdict.outcome == .credentialError)
        #expect(verdict.tokenAction == .none && !verdict.countsForFuse)
        #expect(verdict.reason?.rawValue == reason)
    }

    @Test func `every row that may be tried again says how`() {
        func advice(_ status: Int, _ reason: String, attempts: Int = 1) -> RetryAdvice? {
            let sent = SentRequest(
                sentAt: newYear, registeredAt: UnixMillis(0), credentialAge: .minutes(50),
                attempts: attempts)
            let verdict = apns(status, #"{"reason":"\#(reason)"}"#, sent: sent)
            #expect(verdict.tokenAction == .none)
            #expect(verdict.reason?.rawValue == reason)
            return verdict.advice
        }
        #expect(advice(400, "IdleTimeout") == RetryAdvice(after: .zero, needsNewConnection: true))
        #expect(
            advice(403, "ExpiredProviderToken")
                == RetryAdvice(
                    after: .zero, needsFreshCredential: true, exhausted: .credentialError))
        #expect(
            advice(403, "UnrelatedKeyIdInToken")
                == RetryAdvice(
                    after: .zero, needsNewConnection: true, exhausted: .credentialError))
        #expect(
            advice(429, "TooManyProviderTokenUpdates")
                == RetryAdvice(after: .seconds(60), scope: .connection, keepsCredential: true))
        #expect(advice(429, "TooManyRequests") == RetryAdvice(after: .seconds(60), scope: .token))
        #expect(
            advice(429, "TooManyRequests", attempts: 3)
                == RetryAdvice(after: .seconds(240), scope: .token))
        #expect(advice(429, "TooManyRequests", attempts: 99)?.minimumWait == .hours(1))
        #expect(advice(500, "InternalServerError") == RetryAdvice(after: .minutes(15)))
        #expect(advice(503, "ServiceUnavailable") == RetryAdvice(after: .minutes(15)))
        #expect(advice(503, "Shutdown")?.needsNewConnection == true)
        #expect(apns(503, #"{"reason":"Shutdown"}"#).drainsConnection)
    }

    @Test func `200 is accepted and says nothing else`() {
        let verdict = apns(200, "")
        #expect(verdict.outcome == .accepted)
        #expect(verdict.reason == nil)
        #expect(verdict.detail == "")
        #expect(verdict.fault == .none)
    }

    @Test func `APNS-01: only a registration that is not younger dies`() {
        let body = #"{"reason":"Unregistered","timestamp":1735689700000}"#
        func verdict(_ registered: Int64, _ body: String) -> Verdict {
            apns(
                410, body,
                sent: SentRequest(
                    sentAt: UnixMillis(1_735_689_750_000), registeredAt: UnixMillis(registered)),
                now: UnixMillis(1_735_689_751_000))
        }
        let time = UnixMillis(1_735_689_700_000)
        let older = verdict(1_735_689_600_000, body)
        #expect(older.outcome == .tokenInvalid)
        #expect(older.tokenAction == .invalidate(asOf: time))
        #expect(older.gatewayTime == time)
        let younger = verdict(1_735_689_800_000, body)
        #expect(younger.outcome == .rejected)
        #expect(younger.tokenAction == .none)
        #expect(younger.reason == .unregistered)
        #expect(verdict(1_735_689_700_000, body).outcome == .tokenInvalid)
        // Registered again between sending and the answer.
        let meanwhile = verdict(1_735_689_750_500, #"{"reason":"Unregistered"}"#)
        #expect(meanwhile.outcome == .rejected)
        #expect(meanwhile.tokenAction == .none)
    }

    @Test func `APNS-01: a token that is dead still an hour after its registration dies`() {
        let body = #"{"reason":"Unregistered","timestamp":1735689700000}"#
        func verdict(sentAfter age: Int64) -> Verdict {
            let registered = Int64(1_735_689_800_000)
            return apns(
                410, body,
                sent: SentRequest(
                    sentAt: UnixMillis(registered + age), registeredAt: UnixMillis(registered)),
                now: UnixMillis(registered + age + 50))
        }
        #expect(verdict(sentAfter: 3_599_999).tokenAction == .none)
        let zombie = verdict(sentAfter: 3_600_000)
        #expect(zombie.outcome == .tokenInvalid && zombie.reason == .unregistered)
        #expect(zombie.tokenAction == .invalidate(asOf: UnixMillis(1_735_693_400_000)))
        #expect(zombie.gatewayTime == UnixMillis(1_735_689_700_000))
    }

    @Test(arguments: [
        "1735689700", "\"1735689700000\"", "1735689700000.5", "-1", "null", "{}", "true",
        "99999999999999", "99999999999999999999999",
    ])
    func `APNS-01: a timestamp that cannot be true gives way to the time of sending`(
        timestamp: String
    ) {
        let verdict = apns(
            410, #"{"reason":"ExpiredToken","timestamp":\#(timestamp)}"#,
            sent: SentRequest(sentAt: at(50), registeredAt: at(40)), now: at(51))
        #expect(verdict.tokenAction == .invalidate(asOf: at(50)))
        #expect(verdict.gatewayTime == nil)
    }

    @Test func `AUTH-13: an unknown reason is decided by the status and kept in the detail`() {
        let rows: [(Int, String, Outcome?)] = [
            (403, #"{"reason":"SomethingNew"}"#, .credentialError),
            (400, #"{"reason":"SomethingNew"}"#, .rejected),
            (403, "", .credentialError), (400, "<html>", .rejected),
            (410, #"{"reason":"SomethingNew"}"#, .rejected), (410, "", .rejected),
            (400, #"{"reason":"Unregistered"}"#, .rejected),
            (410, #"{"reason":"BadDeviceToken"}"#, .rejected),
            (429, #"{"reason":"SomethingNew"}"#, nil), (500, "<html>", nil), (302, "", nil),
        ]
        for (status, body, outcome) in rows {
            let verdict = apns(status, body)
            #expect(verdict.outcome == outcome, "\(status) \(body)")
            #expect(verdict.tokenAction == .none)
        }
        #expect(apns(403, #"{"reason":"SomethingNew"}"#).reason == .other)
        #expect(apns(403, #"{"reason":"SomethingNew"}"#).detail == "SomethingNew")
        // Our own codes are not a gateway's.
        #expect(apns(400, #"{"reason":"malformed_token"}"#).reason == .other)
    }

    @Test func `AUTH-05: a young token that expired blames the clock and is not replaced`() {
        func verdict(
            _ age: TimeSpan, refreshTried: Bool = false, date: String? = nil
        ) -> Verdict {
            apns(
                403, #"{"reason":"ExpiredProviderToken"}"#,
                sent: SentRequest(
                    sentAt: newYear, registeredAt: newYear, credentialAge: age,
                    refreshTried: refreshTried),
                date: date)
        }
        let young = verdict(.minutes(19))
        #expect(young.outcome == .credentialError)
        #expect(young.fault == .clock)
        #expect(young.detail.contains("clock"))
        #expect(verdict(.minutes(20)).advice?.needsFreshCredential == true)
        #expect(verdict(.minutes(30), refreshTried: true).outcome == .credentialError)
        let told = verdict(.zero, date: "Tue, 31 Dec 2024 23:00:00 GMT")
        #expect(told.detail.contains("3600 s ahead"))
        let invalid = apns(
            403, #"{"reason":"InvalidProviderToken"}"#, date: "Wed, 01 Jan 2025 01:00:00 GMT")
        #expect(invalid.fault == .clock)
        #expect(invalid.detail.contains("3600 s behind"))
    }

    @Test func `AUTH-07: too many token updates asks for the same token, later elsewhere`() {
        func advice(_ attempts: Int) -> RetryAdvice? {
            apns(
                429, #"{"reason":"TooManyProviderTokenUpdates"}"#,
                sent: SentRequest(sentAt: newYear, registeredAt: newYear, attempts: attempts)
            ).advice
        }
        #expect(advice(1)?.keepsCredential == true)
        #expect(advice(1)?.needsFreshCredential == false)
        #expect(advice(1)?.needsNewConnection == false)
        #expect(advice(2)?.needsNewConnection == true)
    }

    @Test func `an unrelated key gets one new connection`() {
        let body = #"{"reason":"UnrelatedKeyIdInToken"}"#
        let second = SentRequest(sentAt: newYear, registeredAt: newYear, attempts: 2)
        #expect(apns(403, body).advice?.needsNewConnection == true)
        #expect(apns(403, body).drainsConnection)
        #expect(apns(403, body, sent: second).outcome == .credentialError)
    }
}
