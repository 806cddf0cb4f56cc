// The table of APNs: every documented pair of status and reason, and what follows from it. A
// pair that is not in the table is decided by its status alone, and a token is touched only by a
// pair that is: no damaged answer can end a registration.

internal import Base
public import JSON

/// What an answer of APNs means.
public enum APNsVerdict {
    /// What follows from a row.
    internal enum Ruling {
        /// This push is refused for good; the token stays.
        case rejected(Fault)
        /// Our credential or set-up is at fault; the token stays.
        case credential(Fault)
        /// The token belongs elsewhere: it rests until it is registered again.
        case suspend
        /// The token is dead, unless it was registered later.
        case dead
        case expiredProviderToken
        case unrelatedKey
        case idleTimeout
        case tokenUpdates
        case tokenBusy
        case serverError
        case shutdown
    }

    internal static let rows: [(status: Int, reason: Reason, ruling: Ruling)] = [
        (410, .unregistered, .dead),
        (410, .expiredToken, .dead),
        (400, .badDeviceToken, .suspend),
        (400, .deviceTokenNotForTopic, .suspend),
        (400, .badCollapseID, .rejected(.ours)),
        (400, .badExpirationDate, .rejected(.ours)),
        (400, .badMessageID, .rejected(.ours)),
        (400, .badPriority, .rejected(.ours)),
        (400, .duplicateHeaders, .rejected(.ours)),
        (400, .invalidPushType, .rejected(.ours)),
        (400, .missingDeviceToken, .rejected(.ours)),
        (400, .payloadEmpty, .rejected(.ours)),
        (404, .badPath, .rejected(.ours)),
        (405, .methodNotAllowed, .rejected(.ours)),
        (413, .payloadTooLarge, .rejected(.ours)),
        (400, .badTopic, .credential(.config)),
        (400, .missingTopic, .credential(.config)),
        (400, .topicDisallowed, .credential(.config)),
        (403, .topicDisallowed, .credential(.config)),
        (403, .badCertificate, .credential(.credential)),
        (403, .badCertificateEnvironment, .credential(.credential)),
        (403, .forbidden, .credential(.config)),
        (403, .invalidProviderToken, .credential(.credential)),
        (403, .missingProviderToken, .credential(.credential)),
        (403, .badEnvironmentKeyIDInToken, .credential(.credential)),
        (403, .badEnvironmentKeyInToken, .credential(.credential)),
        (403, .expiredProviderToken, .expiredProviderToken),
        (403, .unrelatedKeyIDInToken, .unrelatedKey),
        (400, .idleTimeout, .idleTimeout),
        (429, .tooManyProviderTokenUpdates, .tokenUpdates),
        (429, .tooManyRequests, .tokenBusy),
        (500, .internalServerError, .serverError),
        (503, .serviceUnavailable, .serverError),
        (503, .shutdown, .shutdown),
    ]

    /// Judges an answer. Pure; `parser` only lends its memory.
    public static func judge(
        _ answer: GatewayAnswer, sent: SentRequest,
        parser: JSONParser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
    ) -> Verdict {
        if (200...299).contains(answer.status) { return .accepted }
        let body = Body(answer.body, parser)
        let row = rows.first { $0.status == answer.status && $0.reason == body.reason }
        var verdict =
            row.map { rule($0.ruling, body, answer, sent) } ?? fallBack(answer, sent)
        verdict.reason = body.reason ?? .other
        if verdict.detail.isEmpty { verdict.detail = body.detail }
        return verdict
    }

    private static func rule(
        _ ruling: Ruling, _ body: Body, _ answer: GatewayAnswer, _ sent: SentRequest
    ) -> Verdict {
        var verdict = Verdict(.final(.rejected))
        switch ruling {
        case .rejected(let fault):
            verdict.fault = fault
        case .credential(let fault):
            verdict = credentialError(fault, answer, body)
        case .suspend:
            verdict.course = .final(.tokenSuspended)
            verdict.tokenAction = .suspend(asOf: sent.sentAt)
            verdict.countsForFuse = true
        case .dead:
            bury(&verdict, body.timestamp, answer, sent)
        case .expiredProviderToken:
            verdict = expired(body, answer, sent)
        case .unrelatedKey:
            verdict = unrelatedKey(body, answer, sent)
        case .idleTimeout:
            verdict.course = .retry(RetryAdvice(after: .zero, needsNewConnection: true))
            verdict.drainsConnection = true
        case .tokenUpdates:
            verdict.course = .retry(
                RetryAdvice(
                    after: APNsLimits.tokenUpdatesWait, scope: .connection,
                    needsNewConnection: sent.attempts > 1, keepsCredential: true))
            verdict.fault = .ours
        case .tokenBusy:
            verdict.course = .retry(
                RetryAdvice(
                    after: GatewayLimits.doubled(
                        APNsLimits.tokenBusyWait, attempts: sent.attempts),
                    scope: .token))
        case .serverError:
            verdict.course = .retry(RetryAdvice(after: APNsLimits.serverErrorWait))
        case .shutdown:
            verdict.course = .retry(
                RetryAdvice(after: APNsLimits.shutdownWait, needsNewConnection: true))
            verdict.drainsConnection = true
        }
        return verdict
    }

    /// The token is dead if it was registered no later than APNs saw it dead. Without a credible
    /// time, the time of sending stands in: what was registered after that is not what was sent to.
    private static func bury(
        _ verdict: inout Verdict, _ timestamp: UnixMillis?, _ answer: GatewayAnswer,
        _ sent: SentRequest
    ) {
        let isCredible = timestamp.map {
            $0 >= APNsLimits.timestampMin && $0 <= answer.now + APNsLimits.timestampSkewMax
        }
        verdict.gatewayTime = isCredible == true ? timestamp : nil
        let dead = verdict.gatewayTime ?? sent.sentAt
        if sent.registeredAt <= dead {
            verdict.course = .final(.tokenInvalid)
            verdict.tokenAction = .invalidate(asOf: dead)
        } else if sent.sentAt - sent.registeredAt >= APNsLimits.renewalSpan {
            verdict.course = .final(.tokenInvalid)
            verdict.tokenAction = .invalidate(asOf: sent.sentAt)
            verdict.detail = "dead before its last registration, and still an hour after it"
        } else {
            verdict.detail = "dead before its last registration; the token stays"
        }
    }

    /// A provider token that is old enough is replaced, once. A young one cannot be too old:
    /// then this machine's clock is wrong, and minting more would only add 429s.
    private static func expired(
        _ body: Body, _ answer: GatewayAnswer, _ sent: SentRequest
    ) -> Verdict {
        guard sent.credentialAge >= APNsLimits.tokenAgeMin, !sent.refreshTried else {
            return credentialError(.clock, answer, body)
        }
        return Verdict(
            .retry(
                RetryAdvice(
                    after: .zero, needsFreshCredential: true, exhausted: .credentialError)))
    }

    private static func unrelatedKey(
        _ body: Body, _ answer: GatewayAnswer, _ sent: SentRequest
    ) -> Verdict {
        var verdict = credentialError(.credential, answer, body)
        if sent.attempts == 1 {
            verdict.course = .retry(
                RetryAdvice(after: .zero, needsNewConnection: true, exhausted: .credentialError))
            verdict.fault = .ours
        }
        verdict.drainsConnection = true
        return verdict
    }

    private static func credentialError(
        _ fault: Fault, _ answer: GatewayAnswer, _ body: Body
    ) -> Verdict {
        var verdict = Verdict(.final(.credentialError))
        verdict.fault = fault
        guard fault != .config, let skew = answer.clockSkew,
            abs(skew.nanos) >= GatewayLimits.clockSkewMin.nanos
        else {
            if fault == .clock {
                verdict.detail = AnswerDetail.clean("\(body.detail): check this machine's clock")
            }
            return verdict
        }
        verdict.fault = .clock
        verdict.detail = AnswerDetail.clean(
            "\(body.detail): this machine's clock is \(abs(skew.millis) / 1000) s "
                + (skew > .zero ? "behind" : "ahead of") + " the gateway's")
        return verdict
    }

    /// What a status says on its own.
    private static func fallBack(_ answer: GatewayAnswer, _ sent: SentRequest) -> Verdict {
        switch answer.status {
        case 403:
            var verdict = Verdict(.final(.credentialError))
            verdict.fault = .credential
            return verdict
        case 421:
            var verdict = Verdict(
                .retry(RetryAdvice(after: .zero, needsNewConnection: true)))
            verdict.drainsConnection = true
            return verdict
        case 429:
            let wait = GatewayLimits.doubled(APNsLimits.tokenBusyWait, attempts: sent.attempts)
            return Verdict(.retry(RetryAdvice(after: wait, scope: .token)))
        case 400...499:
            return Verdict(.final(.rejected))
        default:
            return Verdict(.retry(RetryAdvice(after: APNsLimits.serverErrorWait)))
        }
    }
}

extension APNsVerdict {
    /// An error body, as far as it can be read.
    private struct Body {
        var reason: Reason?
        var timestamp: UnixMillis?
        var detail: String

        init(_ bytes: UnsafeRawBufferPointer, _ parser: JSONParser) {
            guard let object = try? parser.parse(bytes), let code = object["reason"]?.string else {
                detail = AnswerDetail.clean(bytes)
                return
            }
            reason = Reason(gatewayCode: code)
            timestamp = object["timestamp"]?.int64.map { UnixMillis($0) }
            detail = AnswerDetail.clean(code)
        }
    }
}
