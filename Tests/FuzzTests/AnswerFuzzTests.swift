// Everything that parses a gateway's answer: no crash, no hang, and no token touched unless a whole
// JSON text says so in a documented word.

import Base
import Foundation
import Testing

@testable import Gateways
@testable import HTTP2

@Suite(.serialized) struct `Fuzzing of answers` {
    private static let now = UnixMillis(1_735_689_600_000)
    private static let statuses = [
        200, 201, 204, 301, 400, 401, 403, 404, 405, 408, 410, 413, 421, 429, 500, 502, 503, 0, 999,
    ]
    private static let texts = [
        "0", "-5", "90", "7200", "abc", "99999999999999999999", "Wed, 01 Jan 2025 00:02:00 GMT",
        "Wed, 32 Foo 2025 99:99:99 GMT", "", " 5", "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994", "\u{0}", "1e9",
    ]

    static let apnsAnswers =
        [
            #"{"reason":"Unregistered","timestamp":1735689700000}"#,
            #"{"reason":"ExpiredToken","timestamp":1735689700000}"#,
            #"{"reason":"BadDeviceToken"}"#,
            #"{"reason":"DeviceTokenNotForTopic"}"#, #"{"reason":"TooManyRequests"}"#,
            #"{"reason":"ExpiredProviderToken"}"#, #"{"reason":"ChannelNotRegistered"}"#,
            #"{"reason":"InternalServerError"}"#, "",
        ]

    private static func fcmError(_ status: String, _ message: String, _ details: String) -> String {
        #"{"error":{"code":404,"message":"\#(message)","status":"\#(status)","details":[\#(details)]}}"#
    }

    static let fcmAnswers = [
        fcmError(
            "NOT_FOUND", "Requested entity was not found.",
            #"{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}"#
        ),
        fcmError(
            "INVALID_ARGUMENT", "APNs device token is disabled.",
            #"{"@type":"x/google.firebase.fcm.v1.ApnsError","statusCode":410,"reason":"Unregistered"}"#
        ),
        fcmError(
            "INVALID_ARGUMENT",
            "The registration token is not a valid FCM registration token",
            #"{"@type":"x/google.firebase.fcm.v1.FcmError","errorCode":"INVALID_ARGUMENT"}"#),
        fcmError(
            "INVALID_ARGUMENT", "Invalid value",
            #"{"@type":"x/google.rpc.BadRequest","fieldViolations":[{"field":"message.token","description":"x"}]}"#
        ),
        fcmError(
            "PERMISSION_DENIED", "SenderId mismatch",
            #"{"@type":"x/google.firebase.fcm.v1.FcmError","errorCode":"SENDER_ID_MISMATCH"}"#),
        fcmError(
            "RESOURCE_EXHAUSTED", "Quota exceeded",
            #"{"@type":"x/google.rpc.QuotaFailure","violations":[{"subject":"device:a"}]},"#
                + #"{"@type":"x/google.rpc.RetryInfo","retryDelay":"37.5s"}"#),
        #"{"name":"projects/demo/messages/0:1500415314455276%31bd1c9631bd1c96"}"#,
        "<html><title>502 Bad Gateway</title></html>",
    ]

    static let webAnswers = [
        #"{"code":410,"errno":103,"error":"Gone","message":"x"}"#,
        #"{"reason":"VapidPkHashMismatch"}"#,
        #"{"code":404,"errno":108,"error":"x","message":"VAPID public key mismatch"}"#,
        #"{"reason":"BadJwtToken"}"#, "push subscription has unsubscribed or expired.\n",
        "the key in the authorization header does not correspond to the sender ID", "",
    ]

    static let expoAnswers = [
        #"{"data":[{"status":"ok","id":"1"},{"status":"error","message":"m","details":{"error":"DeviceNotRegistered"}}]}"#,
        #"{"data":{"status":"ok","id":"1"}}"#,
        #"{"errors":[{"code":"PUSH_TOO_MANY_EXPERIENCE_IDS","message":"m","details":{"@a/b":["ExponentPushToken[x]"]}}]}"#,
        #"{"data":{"1":{"status":"ok"},"2":{"status":"error","details":{"error":"DeviceNotRegistered"}}}}"#,
        #"{"errors":[{"code":"UNAUTHORIZED","message":"m"}]}"#,
    ]

    static let oauthAnswers = [
        #"{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}"#,
        #"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#,
        #"{"error":"invalid_grant","error_description":"Invalid JWT: Token must be a short-lived token"}"#,
    ]

    /// The words by which a gateway ends or suspends a registration; subscriptions of browsers die
    /// by their status.
    private static let deadly = [
        "Unregistered", "ExpiredToken", "BadDeviceToken", "DeviceTokenNotForTopic", "UNREGISTERED",
        "SENDER_ID_MISMATCH", "message.token", "message.fid", "DeviceNotRegistered",
        "MismatchSenderId", "VapidPkHashMismatch",
    ]
    private static let sentence = "registration token is not a valid FCM registration token"

    private static let words =
        deadly + [
            "\"reason\":", "\"error\":", "\"details\":", "\"@type\":", "\"errorCode\":",
            "\"FcmError\"", "x.ApnsError", "\"status\":", "\"data\":", "\"timestamp\":",
            "1735689700", "\"fieldViolations\":", sentence,
        ]

    /// What a sound reader finds in a whole JSON text: whether any string in it is a deadly word.
    private func mayTouch(_ body: [UInt8]) -> Bool {
        guard let value = wholeJSON(body) else { return false }
        return strings(in: value).contains { text in
            Self.deadly.contains(text) || text.contains(Self.sentence)
        }
    }

    /// The sentences and the code by which push services say that a subscription was made with
    /// another key; what they write is not always JSON.
    private func isMismatch(_ body: [UInt8]) -> Bool {
        let text = String(decoding: body, as: UTF8.self)
        if Self.mismatches.contains(where: { text.contains($0) }) { return true }
        guard let object = wholeJSON(body) as? [String: Any] else { return false }
        if strings(in: object).contains("VapidPkHashMismatch") { return true }
        return (object["errno"] as? NSNumber)?.doubleValue == 108
    }

    private static let mismatches = [
        "VAPID public key mismatch", "UnauthorizedRegistration",
        "do not correspond to the credentials used to create the subscription",
    ]

    private func strings(in value: Any) -> [String] {
        switch value {
        case let text as String: [text]
        case let list as [Any]: list.flatMap { strings(in: $0) }
        case let object as [String: Any]: object.values.flatMap { strings(in: $0) }
        default: []
        }
    }

    private func answer<Value>(
        _ body: [UInt8], _ status: Int, _ random: inout SeededRandom,
        _ judge: (GatewayAnswer, SentRequest) -> Value
    ) -> Value {
        let retryAfter =
            Bool.random(using: &random) ? Self.texts.randomElement(using: &random) : nil
        let date = Bool.random(using: &random) ? Self.texts.randomElement(using: &random) : nil
        let sent = SentRequest(
            sentAt: Self.now,
            registeredAt: UnixMillis(Int64.random(in: 0...1 << 42, using: &random)),
            credentialAge: .seconds(Int64.random(in: 0...5000, using: &random)),
            attempts: Int.random(in: 1...5, using: &random),
            refreshTried: Bool.random(using: &random))
        return body.withUnsafeBytes {
            judge(
                GatewayAnswer(
                    status: status, body: $0, retryAfter: retryAfter, date: date, now: Self.now),
                sent)
        }
    }

    /// What is wrong with a verdict on a body, or nil.
    private func problem(_ verdict: Verdict, _ body: [UInt8], mayTouch: Bool) -> String? {
        let touches =
            verdict.tokenAction != .none || verdict.course == .final(.tokenInvalid)
            || verdict.course == .final(.tokenSuspended)
        if touches, !mayTouch { return "a token was touched by \(text(body))" }
        if verdict.detail.utf8.count > GatewayLimits.detailBytes { return "a long detail" }
        if verdict.detail.unicodeScalars.contains(where: { $0.value < 0x20 }) {
            return "a detail with control characters"
        }
        if case .retry(let advice) = verdict.course,
            advice.minimumWait > GatewayLimits.waitMax || advice.minimumWait < .zero
        {
            return "a wait of \(advice.minimumWait)"
        }
        return nil
    }

    private func text(_ body: [UInt8]) -> String {
        String(decoding: body.prefix(400), as: UTF8.self)
    }

    @Test func `APNs, of devices and of channels`() {
        let mutator = Mutator(Self.apnsAnswers, words: Self.words)
        FuzzRun.feed("apns") { random in
            let body = mutator.next(&random)
            let status = Self.statuses.randomElement(using: &random) ?? 0
            let mayTouch = (status == 400 || status == 410) && self.mayTouch(body)
            let device = self.answer(body, status, &random) { APNsVerdict.judge($0, sent: $1) }
            if let problem = self.problem(device, body, mayTouch: mayTouch) { return problem }
            _ = GoAwayReason(debugData: body)
            let channel = self.answer(body, status, &random) {
                APNsBroadcastVerdict.judge($0, sent: $1)
            }
            return self.problem(channel, body, mayTouch: false)
        }
    }

    @Test func `FCM`() {
        let mutator = Mutator(Self.fcmAnswers, words: Self.words)
        FuzzRun.feed("fcm") { random in
            let body = mutator.next(&random)
            let status = Self.statuses.randomElement(using: &random) ?? 0
            let mayTouch = (400...404).contains(status) && self.mayTouch(body)
            let verdict = self.answer(body, status, &random) { FCMVerdict.judge($0, sent: $1) }
            if let range = verdict.gatewayID, range.upperBound > body.count {
                return "an id behind the end"
            }
            return self.problem(verdict, body, mayTouch: mayTouch)
        }
    }

    @Test func `the token endpoint`() {
        let grants = Mutator(
            Self.oauthAnswers,
            words: [
                "\"access_token\":", "\"expires_in\":", "\"error\":", "\"invalid_grant\"", "3599",
                "\"error_description\":", "\"Invalid JWT: \"", "\"token_type\":\"Bearer\"",
            ])
        FuzzRun.feed("oauth") { random in
            let status = Self.statuses.randomElement(using: &random) ?? 0
            let grant = grants.next(&random)
            let reply = self.answer(grant, status, &random) { answer, _ in OAuthReply(answer) }
            guard case .token(_, let life) = reply.meaning else { return nil }
            if !isWholeJSON(grant) || status != 200 { return "a token from \(self.text(grant))" }
            return life <= FCMLimits.tokenLifeMax ? nil : "a life of \(life)"
        }
    }

    @Test func `push services of browsers`() {
        let mutator = Mutator(
            Self.webAnswers, words: Self.words + Self.mismatches + ["\"errno\":", "108", "103"])
        FuzzRun.feed("webpush") { random in
            let body = mutator.next(&random)
            let status = Self.statuses.randomElement(using: &random) ?? 0
            let service = WebPushService.allCases.randomElement(using: &random) ?? .other
            let verdict = self.answer(body, status, &random) {
                WebPushVerdict.judge($0, of: service, sent: $1)
            }
            // Subscriptions end by the status alone (RFC 8030, section 7.3), and rest for a mismatch
            // of keys, which has a name at each service.
            let mayEnd = status == 404 || status == 410
            let mayRest = (400...404).contains(status) && self.isMismatch(body)
            if case .invalidate = verdict.tokenAction, !mayEnd {
                return "a subscription ended by \(status) \(self.text(body))"
            }
            if verdict.course == .final(.tokenInvalid), !mayEnd {
                return "a subscription called dead by \(status) \(self.text(body))"
            }
            return self.problem(verdict, body, mayTouch: mayEnd || mayRest)
        }
    }

    @Test func `Expo's tickets and receipts`() {
        let mutator = Mutator(Self.expoAnswers, words: Self.words)
        FuzzRun.feed("expo") { random in
            let body = mutator.next(&random)
            let status = Self.statuses.randomElement(using: &random) ?? 0
            let count = Int.random(in: 1...3, using: &random)
            let mayTouch = self.mayTouch(body)
            let verdicts: [Verdict] = self.answer(body, status, &random) { answer, sent in
                switch ExpoVerdict.judge(answer, messages: count, sent: { _ in sent }) {
                case .tickets(let tickets): tickets.map(\.verdict)
                case .whole(let verdict), .halve(let verdict): [verdict]
                case .projects, .unclear: []
                }
            }
            for verdict in verdicts {
                if let problem = self.problem(verdict, body, mayTouch: mayTouch) { return problem }
            }
            let receipts = self.answer(body, status, &random) { answer, _ in
                ExpoVerdict.receipts(answer, sentAt: { _ in Self.now }) ?? [:]
            }
            let touches = receipts.values.contains { $0.tokenAction != .none }
            return touches && !mayTouch ? "a receipt touched a token: \(self.text(body))" : nil
        }
    }

    @Test func `proofs of credentials`() {
        let mutator = Mutator(
            Self.apnsAnswers + Self.fcmAnswers + Self.expoAnswers, words: Self.words)
        FuzzRun.feed("proofs") { random in
            let body = mutator.next(&random)
            let status = Self.statuses.randomElement(using: &random) ?? 0
            let verdicts = self.answer(body, status, &random) { answer, _ in
                [
                    CredentialProof.judgeAPNs(answer, topic: "com.example.app"),
                    CredentialProof.judgeFCM(answer, projectID: "demo", account: "a@demo"),
                    CredentialProof.judgeExpo(answer),
                ]
            }
            for verdict in verdicts {
                switch verdict {
                case .proven:
                    // A failure of the service, or a throttle, proves nothing.
                    if status == 429 || status >= 500 || status == 0 {
                        return "a proof by \(status) \(self.text(body))"
                    }
                case .refused(_, let words), .unclear(let words):
                    if words.isEmpty || words.utf8.count > 2 * GatewayLimits.detailBytes + 200 {
                        return "\(words.utf8.count) bytes of words"
                    }
                    if words.unicodeScalars.contains(where: { $0.value < 0x20 }) {
                        return "words with control characters"
                    }
                }
            }
            return nil
        }
    }

    @Test func `waits and dates`() {
        let mutator = Mutator(Self.texts + ["Fri, 31 Dec 1999 23:59:59 GMT"])
        FuzzRun.feed("retry-after") { random in
            let text = String(decoding: mutator.next(&random).prefix(200), as: UTF8.self)
            let wait = GatewayAnswer(
                status: 429, body: UnsafeRawBufferPointer(start: nil, count: 0), retryAfter: text,
                date: text, now: Self.now
            ).retryAfterWait
            guard let wait else { return nil }
            return wait >= GatewayLimits.retryAfterMin && wait <= GatewayLimits.waitMax
                ? nil : "a wait of \(wait) from \(text)"
        }
    }

    // MARK: HTTP/1.1

    static let plainAnswers = [
        "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nRetry-After: 5\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 410 Gone\r\nConnection: close\r\n\r\n",
        "HTTP/1.0 500 Oops\r\n\r\nbroken", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ]

    @Test func `HTTP/1.1 answers, in pieces`() {
        let mutator = Mutator(
            Self.plainAnswers,
            words: [
                "HTTP/1.1 ", "Content-Length: ", "\r\n\r\n", "chunked", "Transfer-Encoding: ",
                "410",
            ])
        FuzzRun.feed("http1") { random in
            let bytes = mutator.next(&random)
            let session = HTTP1Session()
            let exchange = Exchange()
            let request = OutboundRequest()
            for (name, value): (StaticString, String) in [
                (":method", "POST"), (":scheme", "https"), (":authority", "h"), (":path", "/"),
            ] { request.add(name, value) }
            exchange.request = request
            guard (try? session.open(exchange, request)) != nil else { return "no request" }
            var rest = bytes[...]
            var isSound = true
            while !rest.isEmpty, isSound, session.recorder.ended.isEmpty {
                let piece = Array(rest.prefix(Int.random(in: 1...64, using: &random)))
                rest = rest.dropFirst(piece.count)
                isSound = piece.withUnsafeBytes { session.receive($0) }
            }
            if isSound, session.recorder.ended.isEmpty { session.inputEnded() }
            if session.recorder.ended.count > 1 { return "two answers to one request" }
            guard exchange.isComplete else { return nil }
            if exchange.responseBody.count > Limits.responseBodyBytesMax { return "a long body" }
            return (200...999).contains(exchange.status) ? nil : "status \(exchange.status)"
        }
    }
}
