// The table of FCM: the first row that fits decides. Rows that touch a token need a code, a
// sentence or a field that Google documents; a status alone, a page of HTML or half a JSON text
// never do.

internal import Base
public import JSON

/// What an answer of FCM means.
public enum FCMVerdict {
    /// The sentence by which a malformed token is told from a malformed payload.
    private static let badTokenSentence =
        "registration token is not a valid FCM registration token"

    /// Judges an answer. Pure; `parser` only lends its memory.
    public static func judge(
        _ answer: GatewayAnswer, sent: SentRequest,
        parser: JSONParser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
    ) -> Verdict {
        if (200...299).contains(answer.status) {
            var verdict = Verdict.accepted
            verdict.gatewayID = nameRange(in: answer.body)
            return verdict
        }
        let error = FCMError(answer.body, parser)
        var verdict =
            tokenVerdict(answer, error, sent) ?? credentialVerdict(answer, error, sent)
            ?? statusVerdict(answer, error, sent)
        if verdict.reason == nil {
            verdict.reason =
                (error.code ?? error.status).flatMap { Reason(gatewayCode: $0) } ?? .other
        }
        if verdict.detail.isEmpty { verdict.detail = error.detail }
        return verdict
    }

    // MARK: Rows about the token

    private static func tokenVerdict(
        _ answer: GatewayAnswer, _ error: FCMError, _ sent: SentRequest
    ) -> Verdict? {
        switch (answer.status, error.code, error.apnsReason) {
        case (404, "UNREGISTERED", _):
            return dead(sent, reason: .fcmUnregistered)
        case (400, _, .unregistered), (400, _, .expiredToken):
            return dead(sent, reason: error.apnsReason)
        case (400, _, .badDeviceToken), (400, _, .deviceTokenNotForTopic),
            (401, _, .badDeviceToken), (401, _, .deviceTokenNotForTopic),
            (403, _, .badDeviceToken), (403, _, .deviceTokenNotForTopic):
            return suspended(sent, reason: error.apnsReason)
        case (400, _, _) where isMalformedToken(error):
            var verdict = dead(sent, reason: .fcmInvalidArgument)
            verdict.countsForFuse = true
            return verdict
        case (403, "SENDER_ID_MISMATCH", _):
            return suspended(sent, reason: .fcmSenderIDMismatch)
        default:
            return nil
        }
    }

    private static func isMalformedToken(_ error: FCMError) -> Bool {
        if error.namesField { return error.namesAddress }
        return error.code == "INVALID_ARGUMENT" && error.message.contains(badTokenSentence)
    }

    /// FCM tells no time of death; a registration after the request was sent is another one.
    private static func dead(_ sent: SentRequest, reason: Reason?) -> Verdict {
        guard sent.registeredAt <= sent.sentAt else {
            var verdict = Verdict(.final(.rejected), reason: reason)
            verdict.detail = "dead before its last registration; the token stays"
            return verdict
        }
        var verdict = Verdict(.final(.tokenInvalid), reason: reason)
        verdict.tokenAction = .invalidate(asOf: sent.sentAt)
        return verdict
    }

    private static func suspended(_ sent: SentRequest, reason: Reason?) -> Verdict {
        var verdict = Verdict(.final(.tokenSuspended), reason: reason)
        verdict.tokenAction = .suspend(asOf: sent.sentAt)
        verdict.countsForFuse = true
        verdict.fault = .config
        return verdict
    }

    // MARK: Rows about the credential and the project

    private static func credentialVerdict(
        _ answer: GatewayAnswer, _ error: FCMError, _ sent: SentRequest
    ) -> Verdict? {
        switch (answer.status, error.code) {
        case (401, "THIRD_PARTY_AUTH_ERROR"):
            // The key that Firebase holds for APNs or Web Push; our access token is fine.
            var verdict = Verdict(.final(.credentialError))
            verdict.fault = .config
            return verdict
        case (401, _) where !sent.refreshTried:
            return Verdict(
                .retry(
                    RetryAdvice(
                        after: .zero, needsFreshCredential: true, exhausted: .credentialError)))
        case (401, _):
            var verdict = Verdict(.final(.credentialError))
            verdict.fault = isClockSkewed(answer) ? .clock : .credential
            return verdict
        case (403, _):
            var verdict = Verdict(.final(.credentialError))
            verdict.fault = .config
            return verdict
        default:
            return nil
        }
    }

    private static func isClockSkewed(_ answer: GatewayAnswer) -> Bool {
        answer.clockSkew.map { abs($0.nanos) >= GatewayLimits.clockSkewMin.nanos } ?? false
    }

    // MARK: Everything else, by status

    private static func statusVerdict(
        _ answer: GatewayAnswer, _ error: FCMError, _ sent: SentRequest
    ) -> Verdict {
        switch answer.status {
        case 429:
            return Verdict(
                .retry(
                    RetryAdvice(
                        after: wait(FCMLimits.quotaWait, answer, error, sent),
                        scope: error.isDeviceQuota
                            ? .token : error.isProjectQuota ? .project : .perhapsProject)))
        case 421:
            var verdict = Verdict(
                .retry(RetryAdvice(after: FCMLimits.failureWaitMin, needsNewConnection: true)))
            verdict.drainsConnection = true
            return verdict
        case 404:
            // Wrong project, or a front end at fault: the token is not what was not found.
            var verdict = later(answer, error, sent)
            verdict.fault = .config
            return verdict
        case 408:
            return later(answer, error, sent)
        case 400...499:
            var verdict = Verdict(.final(.rejected))
            verdict.fault = .ours
            return verdict
        default:
            return later(answer, error, sent)
        }
    }

    private static func later(
        _ answer: GatewayAnswer, _ error: FCMError, _ sent: SentRequest
    ) -> Verdict {
        Verdict(
            .retry(RetryAdvice(after: wait(FCMLimits.failureWaitMin, answer, error, sent))))
    }

    /// What the answer asks for, else a first wait that doubles; never under ten seconds.
    private static func wait(
        _ first: TimeSpan, _ answer: GatewayAnswer, _ error: FCMError, _ sent: SentRequest
    ) -> TimeSpan {
        let asked = max(answer.retryAfterWait ?? .zero, error.retryDelay ?? .zero)
        guard asked > .zero else {
            return GatewayLimits.doubled(first, attempts: sent.attempts)
        }
        return min(max(asked, FCMLimits.failureWaitMin), GatewayLimits.waitMax)
    }

    // MARK: Success

    /// Where the value of `name` stands in a success body. This is the hot path, so it looks for
    /// the one member instead of parsing; a body of another shape has no id, which harms nothing.
    private static func nameRange(in body: UnsafeRawBufferPointer) -> Range<Int>? {
        var index = 0
        func skipBlanks() {
            while index < body.count, body[index] <= 0x20 { index += 1 }
        }
        func skip(_ text: StaticString) -> Bool {
            skipBlanks()
            let literal = UnsafeRawBufferPointer(
                start: text.utf8Start, count: text.utf8CodeUnitCount)
            guard body[index...].starts(with: literal) else { return false }
            index += literal.count
            return true
        }
        guard skip("{"), skip("\"name\""), skip(":"), skip("\"") else { return nil }
        let start = index
        while index < body.count, body[index] != 0x22 {
            if body[index] == 0x5C || body[index] < 0x20 { return nil }
            index += 1
        }
        return index < body.count ? start..<index : nil
    }
}
