// The table of Expo: tickets and receipts by their code, whole requests by code and status.

public import Base
public import JSON

/// What became of one message of a request.
public struct ExpoTicket: Sendable {
    /// What it means.
    public var verdict: Verdict
    /// By which its receipt is asked for; nil when there will be none.
    public var id: String?
}

/// What an answer to a request of several messages means.
public enum ExpoAnswer: Sendable {
    /// One ticket for each message, in the order of the request.
    case tickets([ExpoTicket])
    /// The request was refused or failed as a whole: every message meets this verdict.
    case whole(Verdict)
    /// The messages belong to several projects: nothing was sent. The tokens by project.
    case projects([String: [String]])
    /// A message is not as it should be, and nothing was sent: which one shows when the request is
    /// sent in halves. A single message meets the verdict.
    case halve(Verdict)
    /// Tickets and messages do not match: what was sent cannot be told.
    case unclear(detail: String)
}

/// A receipt: what APNs or FCM said later.
public struct ExpoReceipt: Sendable {
    /// Whether they took the message.
    public var isOK: Bool
    /// Expo's code; nil when they took it.
    public var reason: Reason?
    /// What becomes of the token.
    public var tokenAction: TokenAction
    /// Whom it blames.
    public var fault: Fault
}

/// What Expo's answers mean.
public enum ExpoVerdict {
    internal enum Ruling {
        case rejected(Fault)
        /// The credentials that Expo holds for APNs or FCM.
        case credential
        case dead
        /// The device got too many messages.
        case deviceBusy
        case later
    }

    internal static let rows: [(code: Reason, ruling: Ruling)] = [
        (.expoDeviceNotRegistered, .dead),
        (.expoMessageTooBig, .rejected(.none)),
        (.expoMessageRateExceeded, .deviceBusy),
        (.expoMismatchSenderID, .credential),
        (.expoInvalidCredentials, .credential),
        (.invalidProviderToken, .credential),
        (.expoDeveloperError, .rejected(.ours)),
        (.expoError, .later),
        (.expoProviderError, .later),
    ]

    // MARK: Requests

    /// Judges the answer to a request with `count` messages. `sent` belongs to one of them by
    /// position. Pure; `parser` only lends its memory.
    public static func judge(
        _ answer: GatewayAnswer, messages count: Int, sent: (Int) -> SentRequest,
        parser: JSONParser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
    ) -> ExpoAnswer {
        let body = try? parser.parse(answer.body)
        if let errors = body?["errors"], errors.isArray, errors.count > 0 {
            return refused(answer, errors, count, sent(0))
        }
        guard (200...299).contains(answer.status) else {
            return refused(answer, nil, count, sent(0))
        }
        guard let data = body?["data"] else {
            return .unclear(detail: "an answer without tickets")
        }
        var tickets: [ExpoTicket] = []
        if data.isArray {
            data.forEachElement { tickets.append(ticket($0, sent(min(tickets.count, count - 1)))) }
        } else {
            tickets.append(ticket(data, sent(0)))
        }
        guard tickets.count == count else {
            return .unclear(detail: "\(tickets.count) tickets for \(count) messages")
        }
        return .tickets(tickets)
    }

    private static func refused(
        _ answer: GatewayAnswer, _ errors: JSONValue?, _ count: Int, _ sent: SentRequest
    ) -> ExpoAnswer {
        var first: JSONValue?
        errors?.forEachElement { if first == nil { first = $0 } }
        let code = first?["code"]?.string ?? ""
        let reason = Reason(gatewayCode: code)
        let detail = AnswerDetail.clean(
            ExpoToken.redact(
                first?["message"]?.string
                    ?? String(decoding: answer.body.prefix(800), as: UTF8.self)))
        if reason == .expoTooManyExperienceIDs, let map = first?["details"], map.isObject {
            return .projects(projects(map))
        }
        var verdict = wholeVerdict(answer, reason, sent)
        verdict.reason = reason ?? fallBackReason(answer.status)
        verdict.detail = detail
        let isMalformed =
            reason == .expoTooManyNotifications || answer.status == 400 || answer.status == 413
        // What blames the credential, or the rate, is true of each half as well.
        return isMalformed && verdict.course == .final(.rejected)
            ? .halve(verdict) : .whole(verdict)
    }

    private static func projects(_ map: JSONValue) -> [String: [String]] {
        var projects: [String: [String]] = [:]
        map.forEachMember { name, tokens in
            var list: [String] = []
            tokens.forEachElement { if let token = $0.string { list.append(token) } }
            projects[String(decoding: name, as: UTF8.self)] = list
        }
        return projects
    }

    private static func wholeVerdict(
        _ answer: GatewayAnswer, _ reason: Reason?, _ sent: SentRequest
    ) -> Verdict {
        switch (answer.status, reason) {
        case (429, _), (_, .expoTooManyRequests):
            let wait =
                answer.retryAfterWait
                ?? min(
                    GatewayLimits.doubled(ExpoLimits.throttledWait, attempts: sent.attempts),
                    ExpoLimits.throttledWaitMax)
            return Verdict(.retry(RetryAdvice(after: wait, scope: .project)))
        case (401, _), (403, _), (_, .expoUnauthorized), (_, .expoInvalidCredentials):
            var verdict = Verdict(.final(.credentialError))
            verdict.fault = .credential
            return verdict
        case (408, _), (500...599, _):
            return later(answer, sent)
        case (400...499, _):
            var verdict = Verdict(.final(.rejected))
            verdict.fault = .ours
            return verdict
        default:
            return later(answer, sent)
        }
    }

    private static func fallBackReason(_ status: Int) -> Reason {
        switch status {
        case 401, 403: .expoUnauthorized
        case 413: .localPayloadTooLarge
        case 429: .expoTooManyRequests
        case 500...599: .serverError
        default: .other
        }
    }

    private static func later(_ answer: GatewayAnswer, _ sent: SentRequest) -> Verdict {
        let wait =
            answer.retryAfterWait
            ?? GatewayLimits.doubled(ExpoLimits.failureWait, attempts: sent.attempts)
        return Verdict(.retry(RetryAdvice(after: wait)))
    }

    // MARK: Tickets and receipts

    private static func ticket(_ ticket: JSONValue, _ sent: SentRequest) -> ExpoTicket {
        if ticket["status"]?.string == "ok" {
            return ExpoTicket(verdict: .accepted, id: ticket["id"]?.string)
        }
        let (reason, ruling) = row(of: ticket)
        var verdict = Verdict(.final(.rejected), reason: reason ?? .other)
        verdict.detail = AnswerDetail.clean(ExpoToken.redact(ticket["message"]?.string ?? ""))
        switch ruling {
        case nil: break
        case .rejected(let fault): verdict.fault = fault
        case .credential:
            verdict.course = .final(.credentialError)
            verdict.fault = .config
        case .dead: bury(&verdict, sent)
        case .deviceBusy:
            verdict.course = .retry(
                RetryAdvice(
                    after: GatewayLimits.doubled(ExpoLimits.deviceWait, attempts: sent.attempts),
                    scope: .token))
        case .later:
            verdict.course = .retry(
                RetryAdvice(
                    after: GatewayLimits.doubled(ExpoLimits.failureWait, attempts: sent.attempts)))
        }
        return ExpoTicket(verdict: verdict)
    }

    private static func row(of entry: JSONValue) -> (reason: Reason?, ruling: Ruling?) {
        guard let code = entry["details"]?["error"]?.string,
            let reason = Reason(gatewayCode: code)
        else { return (nil, nil) }
        return (reason, rows.first { $0.code == reason }?.ruling)
    }

    private static func bury(_ verdict: inout Verdict, _ sent: SentRequest) {
        if sent.registeredAt <= sent.sentAt {
            verdict.course = .final(.tokenInvalid)
            verdict.tokenAction = .invalidate(asOf: sent.sentAt)
        } else {
            verdict.detail = "dead before its last registration; the token stays"
        }
    }

    /// Reads the answer to a question for receipts, by ticket; a receipt that is not there yet is
    /// left out. nil when the answer is none, so that all of them are to be asked for again.
    ///
    /// `sentAt` tells when the message of a ticket was sent: what is dead is dead as of then.
    public static func receipts(
        _ answer: GatewayAnswer, sentAt: (String) -> UnixMillis,
        parser: JSONParser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
    ) -> [String: ExpoReceipt]? {
        guard answer.status == 200, let data = (try? parser.parse(answer.body))?["data"],
            data.isObject
        else { return nil }
        var receipts: [String: ExpoReceipt] = [:]
        data.forEachMember { name, entry in
            let id = String(decoding: name, as: UTF8.self)
            receipts[id] = receipt(entry, sentAt: sentAt(id))
        }
        return receipts
    }

    private static func receipt(_ entry: JSONValue, sentAt: UnixMillis) -> ExpoReceipt? {
        switch entry["status"]?.string {
        case "ok": return ExpoReceipt(isOK: true, reason: nil, tokenAction: .none, fault: .none)
        case "error":
            let (reason, ruling) = row(of: entry)
            var receipt = ExpoReceipt(
                isOK: false, reason: reason ?? .other, tokenAction: .none, fault: .none)
            switch ruling {
            case .dead: receipt.tokenAction = .invalidate(asOf: sentAt)
            case .credential: receipt.fault = .config
            case .rejected(let fault): receipt.fault = fault
            default: break
            }
            return receipt
        default: return nil
        }
    }
}
