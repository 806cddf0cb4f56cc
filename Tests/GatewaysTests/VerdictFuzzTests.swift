import Base
import Gateways
import Testing

@Suite struct `Damaged answers` {
    private static let pieces = [
        "{", "}", "[", "]", "\"", ":", ",", "{\"reason\":", "\"Unregistered\"", "\"ExpiredToken\"",
        "\"timestamp\":", "1735689700000", "{\"error\":", "{\"details\":[", "\"@type\":",
        "\"FcmError\"", "\"errorCode\":", "\"UNREGISTERED\"", "null", "\u{0}", "<html>", "\\",
        "\u{FFFD}", "9999999999999999999999", "-", "true", "\"message\":", "\"\\ud800\"",
    ]
    private static let statuses = [
        200, 204, 301, 400, 401, 403, 404, 405, 410, 413, 429, 500, 503, 0, 999,
    ]

    @Test func `no answer that is not whole JSON touches a token`() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededRandom(seed: seed)
        for _ in 0..<20_000 {
            let count = Int.random(in: 0..<12, using: &random)
            // What is open at the end is no JSON text, whatever came before.
            var body = ""
            for _ in 0..<count { body += Self.pieces.randomElement(using: &random) ?? "" }
            body += "{"
            let status = Self.statuses.randomElement(using: &random) ?? 0
            // Web push subscriptions die by their status alone, so those two are left out.
            let webStatus = status == 404 || status == 410 ? 400 : status
            if !isHarmless(apns(status, body)) || !isHarmless(fcm(status, body))
                || !isHarmless(web(webStatus, body)) || !isHarmless(expo(status, body))
            {
                Issue.record("\(status) \(body), seed \(seed)")
                return
            }
        }
    }

    @Test func `no cut of a real answer touches a token`() {
        let answers = [
            #"{"reason":"Unregistered","timestamp":1735689700000}"#,
            #"{"error":{"details":[{"@type":"x/a.FcmError","errorCode":"UNREGISTERED"}]}}"#,
        ]
        #expect(!isHarmless(apns(410, answers[0])))
        #expect(!isHarmless(fcm(404, answers[1])))
        for answer in answers {
            for length in 0..<answer.utf8.count {
                let cut = String(answer.prefix(length))
                for status in [400, 404, 410] {
                    #expect(isHarmless(apns(status, cut)))
                    #expect(isHarmless(fcm(status, cut)))
                }
            }
        }
    }

    @Test func `random bytes never touch a token and never crash`() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededRandom(seed: seed)
        for _ in 0..<2_000 {
            let count = Int.random(in: 0..<300, using: &random)
            let bytes = (0..<count).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            let status = Int.random(in: 100...599, using: &random)
            bytes.withUnsafeBytes { body in
                let answer = GatewayAnswer(
                    status: status, body: body, retryAfter: "x", date: "y", now: newYear)
                let sent = SentRequest(sentAt: newYear, registeredAt: newYear)
                for verdict in [
                    APNsVerdict.judge(answer, sent: sent), FCMVerdict.judge(answer, sent: sent),
                ] where !isHarmless(verdict) || verdict.detail.utf8.count > 200 {
                    Issue.record("\(status), seed \(seed)")
                }
            }
        }
    }

    @Test func `details are cut between characters and hold no control characters`() {
        let long = String(repeating: "é", count: 150)
        #expect(
            apns(400, #"{"reason":"\u001b\#(long)"}"#).detail
                == String(repeating: "é", count: 100))
        #expect(apns(400, "\u{1B}[31mred\r\n\u{85}\u{7F}").detail == "[31mred")
    }

    private func isHarmless(_ answer: ExpoAnswer) -> Bool {
        switch answer {
        case .tickets(let tickets): tickets.allSatisfy { isHarmless($0.verdict) }
        case .whole(let verdict), .halve(let verdict): isHarmless(verdict)
        case .projects, .unclear: true
        }
    }

    private func isHarmless(_ verdict: Verdict) -> Bool {
        verdict.tokenAction == .none && verdict.outcome != .tokenInvalid
            && verdict.outcome != .tokenSuspended
    }
}
