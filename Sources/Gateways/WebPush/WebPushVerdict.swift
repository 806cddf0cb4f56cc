// The table of web push: what each browser family's push service says, and what follows. The first
// row that fits decides: a sentence or code that a service is known for, then the bare status.
// Only 404 and 410 end a subscription (RFC 8030, section 7.3); a mismatch of VAPID keys suspends
// it, whatever status it comes with.

internal import Base
public import JSON

/// What an answer of a web push service means.
public enum WebPushVerdict {
    /// What follows from a row.
    internal enum Ruling {
        /// This push is refused for good; the subscription stays.
        case rejected(Fault)
        /// Our VAPID token or key is refused; the subscription stays.
        case credential
        /// The subscription was made with another key: it rests until it is registered again.
        case suspend
        case dead
        /// The service asks for less.
        case throttled
        /// The service failed.
        case later
        /// The service failed and may be asked again at once.
        case soon
    }

    internal struct Row {
        var service: WebPushService?
        var statuses: ClosedRange<Int> = 300...599
        /// Mozilla's number of the error.
        var errno: Int64?
        /// Apple's reason.
        var code: Reason?
        /// What the text contains.
        var sentence: StaticString?
        let ruling: Ruling
        /// What the result says; nil stands for Apple's own.
        var reason: Reason?
    }

    internal static let rows: [Row] = [
        // The three spellings of "another VAPID key than the subscription's".
        Row(
            statuses: 400...403, sentence: "VAPID public key mismatch", ruling: .suspend,
            reason: .vapidKeyMismatch),
        Row(
            statuses: 400...403,
            sentence: "do not correspond to the credentials used to create the subscription",
            ruling: .suspend, reason: .vapidKeyMismatch),
        Row(
            statuses: 400...403, sentence: "UnauthorizedRegistration", ruling: .suspend,
            reason: .vapidKeyMismatch),
        Row(statuses: 400...403, code: .vapidPkHashMismatch, ruling: .suspend),

        // Google, which has no codes.
        Row(
            service: .google, statuses: 400...400, sentence: "must be less than 4096 bytes",
            ruling: .rejected(.none), reason: .localPayloadTooLarge),

        // Mozilla's numbers.
        Row(statuses: 400...401, errno: 101, ruling: .rejected(.ours), reason: .requestRefused),
        Row(
            statuses: 400...413, errno: 104, ruling: .rejected(.none),
            reason: .localPayloadTooLarge),
        Row(statuses: 400...404, errno: 108, ruling: .suspend, reason: .subscriptionForeign),
        Row(statuses: 400...403, errno: 109, ruling: .credential, reason: .vapidRefused),
        Row(statuses: 400...401, errno: 110, ruling: .rejected(.ours), reason: .requestRefused),
        Row(statuses: 400...400, errno: 111, ruling: .rejected(.ours), reason: .ttlRefused),
        Row(statuses: 400...400, errno: 112, ruling: .rejected(.ours), reason: .ttlRefused),
        Row(statuses: 400...400, errno: 113, ruling: .rejected(.ours), reason: .topicRefused),
        Row(statuses: 503...503, errno: 202, ruling: .soon, reason: .serverError),

        // Apple's reasons.
        Row(statuses: 400...400, code: .badTTL, ruling: .rejected(.ours)),
        Row(statuses: 400...400, code: .badUrgency, ruling: .rejected(.ours)),
        Row(statuses: 400...400, code: .badWebPushTopic, ruling: .rejected(.ours)),
        Row(statuses: 400...400, code: .badWebPushRequest, ruling: .rejected(.ours)),
        Row(statuses: 400...404, code: .badPath, ruling: .rejected(.ours)),
        Row(statuses: 405...405, code: .methodNotAllowed, ruling: .rejected(.ours)),
        Row(statuses: 413...413, code: .payloadTooLarge, ruling: .rejected(.none)),
        Row(statuses: 400...403, code: .badAuthorizationHeader, ruling: .credential),
        Row(statuses: 400...403, code: .badJWTToken, ruling: .credential),
        Row(statuses: 400...403, code: .badVAPIDPublicKey, ruling: .credential),
        Row(code: .idleTimeout, ruling: .soon),
        Row(code: .shutdown, ruling: .later),
        Row(code: .serviceUnavailable, ruling: .later),
        Row(code: .internalServerError, ruling: .later),
        Row(statuses: 429...429, code: .tooManyRequests, ruling: .throttled),

        // Windows throttles with a status of its own.
        Row(service: .windows, statuses: 406...406, ruling: .throttled, reason: .throttled),
        Row(
            service: .windows, statuses: 400...400, sentence: "Ttl value conflicts",
            ruling: .rejected(.ours), reason: .ttlRefused),

        // Whatever service it is.
        Row(statuses: 300...399, ruling: .rejected(.config), reason: .redirected),
        Row(statuses: 401...401, ruling: .credential, reason: .vapidRefused),
        Row(statuses: 403...403, ruling: .credential, reason: .vapidRefused),
        Row(statuses: 404...404, ruling: .dead, reason: .subscriptionGone),
        Row(statuses: 410...410, ruling: .dead, reason: .subscriptionGone),
        Row(statuses: 405...405, ruling: .rejected(.config), reason: .endpointForeign),
        Row(statuses: 408...408, ruling: .later, reason: .serverError),
        Row(statuses: 413...413, ruling: .rejected(.none), reason: .localPayloadTooLarge),
        Row(statuses: 421...421, ruling: .soon, reason: .other),
        Row(statuses: 429...429, ruling: .throttled, reason: .throttled),
        Row(statuses: 400...499, ruling: .rejected(.ours), reason: .requestRefused),
        Row(statuses: 500...599, ruling: .later, reason: .serverError),
    ]

    /// Judges an answer of a service. Pure; `parser` only lends its memory.
    public static func judge(
        _ answer: GatewayAnswer, of service: WebPushService, sent: SentRequest,
        parser: JSONParser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
    ) -> Verdict {
        if (200...299).contains(answer.status) { return .accepted }
        let body = Body(answer, parser)
        guard let row = rows.first(where: { fits($0, answer, body, service) }) else {
            var verdict = Verdict(
                .retry(RetryAdvice(after: WebPushLimits.failureWait)), reason: .other)
            verdict.detail = body.detail
            return verdict
        }
        var verdict = rule(row.ruling, answer, body, service, sent)
        verdict.reason = row.reason ?? row.code
        if verdict.detail.isEmpty { verdict.detail = body.detail }
        return verdict
    }

    private static func fits(
        _ row: Row, _ answer: GatewayAnswer, _ body: Body, _ service: WebPushService
    ) -> Bool {
        guard row.statuses.contains(answer.status) else { return false }
        if let wanted = row.service, wanted != service { return false }
        if let errno = row.errno, errno != body.errno { return false }
        if let code = row.code, code != body.code { return false }
        if let sentence = row.sentence, !body.text.contains(sentence.description) { return false }
        return true
    }

    private static func rule(
        _ ruling: Ruling, _ answer: GatewayAnswer, _ body: Body, _ service: WebPushService,
        _ sent: SentRequest
    ) -> Verdict {
        switch ruling {
        case .rejected(let fault):
            var verdict = Verdict(.final(.rejected))
            verdict.fault = fault
            return verdict
        case .credential: return credentialError(answer, body, sent)
        case .suspend:
            var verdict = Verdict(.final(.tokenSuspended))
            verdict.tokenAction = .suspend(asOf: sent.sentAt)
            verdict.countsForFuse = true
            verdict.fault = .config
            return verdict
        case .dead: return dead(sent)
        case .throttled:
            // Google, Mozilla and Apple limit a subscription, Windows a sender.
            return Verdict(
                .retry(
                    RetryAdvice(
                        after: wait(WebPushLimits.throttledWait, answer, sent),
                        scope: service == .windows ? .project : .token)))
        case .later:
            return Verdict(
                .retry(RetryAdvice(after: wait(WebPushLimits.failureWait, answer, sent))))
        case .soon:
            return Verdict(
                .retry(RetryAdvice(after: answer.retryAfterWait ?? .zero, needsNewConnection: true))
            )
        }
    }

    /// A subscription is dead if it was registered before the request was sent. A very young one
    /// gets a second chance: a service may not know it everywhere yet.
    private static func dead(_ sent: SentRequest) -> Verdict {
        guard sent.registeredAt <= sent.sentAt else {
            var verdict = Verdict(.final(.rejected))
            verdict.detail = "dead before its last registration; the subscription stays"
            return verdict
        }
        var verdict = Verdict(.final(.tokenInvalid))
        verdict.tokenAction = .invalidate(asOf: sent.sentAt)
        let age = sent.sentAt - sent.registeredAt
        if age < WebPushLimits.youngSubscription, sent.attempts == 1 {
            verdict.course = .retry(
                RetryAdvice(after: WebPushLimits.youngSubscriptionWait, exhausted: .tokenInvalid))
        }
        return verdict
    }

    /// A token that is old enough is replaced, once. The subscription is never touched.
    private static func credentialError(
        _ answer: GatewayAnswer, _ body: Body, _ sent: SentRequest
    ) -> Verdict {
        if answer.status == 401 || answer.status == 403, !sent.refreshTried,
            sent.credentialAge >= WebPushLimits.tokenAgeMin
        {
            return Verdict(
                .retry(
                    RetryAdvice(
                        after: .zero, needsFreshCredential: true, exhausted: .credentialError)))
        }
        var verdict = Verdict(.final(.credentialError))
        verdict.fault = .credential
        if let skew = answer.clockSkew, abs(skew.nanos) >= GatewayLimits.clockSkewMin.nanos {
            verdict.fault = .clock
            verdict.detail = AnswerDetail.clean(
                "\(body.detail): this machine's clock is \(abs(skew.millis) / 1000) s "
                    + (skew > .zero ? "behind" : "ahead of") + " the service's")
        }
        return verdict
    }

    /// What the answer asks for, else a first wait that doubles.
    private static func wait(
        _ first: TimeSpan, _ answer: GatewayAnswer, _ sent: SentRequest
    ) -> TimeSpan {
        answer.retryAfterWait
            ?? min(
                GatewayLimits.doubled(first, attempts: sent.attempts),
                WebPushLimits.failureWaitMax)
    }
}

extension WebPushVerdict {
    /// An error body, as far as it can be read: Mozilla's JSON, Apple's JSON, text, or nothing but
    /// a header field.
    private struct Body {
        var errno: Int64?
        var code: Reason?
        /// What sentences are looked for in.
        var text: String
        var detail: String

        init(_ answer: GatewayAnswer, _ parser: JSONParser) {
            let window = UnsafeRawBufferPointer(rebasing: answer.body.prefix(4096))
            text = String(decoding: window, as: UTF8.self)
            detail = AnswerDetail.clean(window)
            if let note = answer.note {
                text += note
                detail = AnswerDetail.clean(note)
            }
            guard let object = try? parser.parse(answer.body), object.isObject else { return }
            errno = object["errno"]?.int64
            code = object["reason"]?.string.flatMap { Reason(gatewayCode: $0) }
            if let words = object["message"]?.string ?? object["reason"]?.string {
                detail = AnswerDetail.clean(words)
            }
        }
    }
}
