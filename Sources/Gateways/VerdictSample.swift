// The verdict tables as a person reads them: an answer of each sort with what the table makes of
// it. Nothing here decides anything; the answers are put to the same functions as real ones.

public import Base

/// An answer of a gateway and what follows from it.
public struct VerdictSample: Sendable {
    /// The answer in words: status, code, sentence.
    public let answer: String
    /// What else has to be so; empty when nothing has.
    public let circumstance: String
    /// What the table says.
    public let verdict: Verdict

    internal init(_ answer: String, _ circumstance: String = "", _ verdict: Verdict) {
        self.answer = answer
        self.circumstance = circumstance
        self.verdict = verdict
    }
}

/// The answers that each gateway is known for, in the order of its table.
public enum VerdictSamples {
    /// The answers of a gateway.
    public static func of(_ gateway: Gateway) -> [VerdictSample] {
        switch gateway {
        case .apns: apnsSamples
        case .fcm: fcmSamples
        case .webpush: webPushSamples
        case .expo: expoSamples
        }
    }

    /// When the requests of the samples were sent: 2025-01-01.
    private static let now = UnixMillis(1_735_689_600_000)

    private static func before(_ time: UnixMillis, by span: TimeSpan) -> UnixMillis {
        UnixMillis(time.value - span.millis)
    }

    /// A request for a token of yesterday, tried once with a credential of that age.
    private static func sent(
        registered age: TimeSpan = .hours(24), credential: TimeSpan = .zero, attempts: Int = 1,
        refreshTried: Bool = false
    ) -> SentRequest {
        SentRequest(
            sentAt: now, registeredAt: before(now, by: age), credentialAge: credential,
            attempts: attempts,
            refreshTried: refreshTried)
    }

    private static func lend<Value>(
        _ status: Int, _ body: String, _ judge: (GatewayAnswer) -> Value
    ) -> Value {
        Array(body.utf8).withUnsafeBytes {
            judge(GatewayAnswer(status: status, body: $0, now: now))
        }
    }

    // MARK: APNs

    private static func apns(
        _ status: Int, _ reason: Reason, _ circumstance: String = "", _ request: SentRequest,
        timestamp: UnixMillis? = nil
    ) -> VerdictSample {
        let time = timestamp.map { ",\"timestamp\":\($0.value)" } ?? ""
        return VerdictSample(
            "\(status) `\(reason.rawValue)`", circumstance,
            lend(status, "{\"reason\":\"\(reason.rawValue)\"\(time)}") {
                APNsVerdict.judge($0, sent: request)
            })
    }

    private static var apnsSamples: [VerdictSample] {
        var samples: [VerdictSample] = []
        for row in APNsVerdict.rows {
            let (status, reason) = (row.status, row.reason)
            switch row.ruling {
            case .dead:
                samples += [
                    apns(status, reason, "registered before it", sent()),
                    apns(
                        status, reason, "registered after it, less than an hour ago",
                        sent(registered: .minutes(1)), timestamp: before(now, by: .minutes(2))),
                    apns(
                        status, reason, "registered after it, an hour ago or more",
                        sent(registered: .hours(2)), timestamp: before(now, by: .hours(3))),
                ]
            case .expiredProviderToken:
                samples += [
                    apns(
                        status, reason, "the provider token is old",
                        sent(credential: APNsLimits.tokenAgeMin)),
                    apns(status, reason, "it is young, or was replaced already", sent()),
                ]
            case .unrelatedKey:
                samples += [
                    apns(status, reason, "the first time", sent()),
                    apns(status, reason, "again", sent(attempts: 2)),
                ]
            default: samples.append(apns(status, reason, "", sent()))
            }
        }
        for status in [403, 421, 429, 400, 500] {
            let name = [400: "another 4xx", 500: "any other status"][status] ?? "\(status)"
            samples.append(
                VerdictSample(
                    name, "no known reason",
                    lend(status, "") { APNsVerdict.judge($0, sent: sent()) }))
        }
        return samples
    }

    // MARK: Web push

    private static var webPushSamples: [VerdictSample] {
        WebPushVerdict.rows.flatMap { row -> [VerdictSample] in
            let statuses =
                row.statuses.count == 1
                ? "\(row.statuses.lowerBound)"
                : "\(row.statuses.lowerBound) to \(row.statuses.upperBound)"
            var answer = statuses
            var body = ""
            if let code = row.code {
                answer += " `\(code.rawValue)`"
                body = "{\"reason\":\"\(code.rawValue)\"}"
            } else if let errno = row.errno {
                answer += ", errno \(errno)"
                body = "{\"errno\":\(errno)}"
            } else if let sentence = row.sentence {
                answer += ", \"\(sentence)\""
                body = sentence.description
            }
            let service = row.service ?? .other
            if row.service != nil { answer += " (\(service))" }
            func sample(_ circumstance: String, _ request: SentRequest) -> VerdictSample {
                VerdictSample(
                    answer, circumstance,
                    lend(row.statuses.lowerBound, body) {
                        WebPushVerdict.judge($0, of: service, sent: request)
                    })
            }
            switch row.ruling {
            case .dead:
                return [
                    sample("", sent()),
                    sample("a new subscription, the first time", sent(registered: .zero)),
                    sample("registered again meanwhile", sent(registered: .seconds(-1))),
                ]
            case .credential where row.statuses.lowerBound > 400:
                return [
                    sample(
                        "the VAPID token is old", sent(credential: WebPushLimits.tokenAgeMin)),
                    sample("it is young, or was replaced already", sent()),
                ]
            default: return [sample("", sent())]
            }
        }
    }

    // MARK: Expo

    private static var expoSamples: [VerdictSample] {
        var samples = ExpoVerdict.rows.map { row in
            VerdictSample(
                "ticket `\(row.code.rawValue)`", "",
                ticket(
                    "{\"data\":[{\"status\":\"error\",\"details\":{\"error\":\""
                        + "\(row.code.rawValue)\"}}]}"))
        }
        samples.append(
            VerdictSample(
                "ticket with another error", "",
                ticket("{\"data\":[{\"status\":\"error\",\"details\":{\"error\":\"New\"}}]}")))
        for (status, code) in [
            (429, Reason.expoTooManyRequests), (401, .expoUnauthorized),
            (400, .expoValidationError),
            (400, .expoTooManyNotifications), (413, .localPayloadTooLarge), (503, .serverError),
        ] {
            let isExpos = Reason(gatewayCode: code.rawValue) != nil
            let body = isExpos ? "{\"errors\":[{\"code\":\"\(code.rawValue)\"}]}" : ""
            let answer = lend(status, body) {
                ExpoVerdict.judge($0, messages: 1, sent: { _ in sent() })
            }
            let name = isExpos ? "request \(status) `\(code.rawValue)`" : "request \(status)"
            switch answer {
            case .whole(let verdict): samples.append(VerdictSample(name, "", verdict))
            case .halve(let verdict):
                samples.append(VerdictSample(name, "alone in its request", verdict))
            case .tickets, .projects, .unclear: break
            }
        }
        return samples
    }

    private static func ticket(_ body: String) -> Verdict {
        let answer = lend(200, body) {
            ExpoVerdict.judge($0, messages: 1, sent: { _ in sent() })
        }
        guard case .tickets(let tickets) = answer, let ticket = tickets.first else {
            preconditionFailure("a list of one ticket is one")
        }
        return ticket.verdict
    }

    // MARK: FCM

    private static func fcm(
        _ status: Int, _ code: String? = nil, apns: Reason? = nil, field: String? = nil,
        name: String? = nil, message: String = "", _ circumstance: String = "",
        _ request: SentRequest = sent(), quotaOf subject: String? = nil
    ) -> VerdictSample {
        let prefix = "{\"@type\":\"type.googleapis.com/google.firebase.fcm.v1."
        var details: [String] = []
        if let code { details.append(prefix + "FcmError\",\"errorCode\":\"\(code)\"}") }
        if let apns { details.append(prefix + "ApnsError\",\"reason\":\"\(apns.rawValue)\"}") }
        if let field {
            details.append(
                "{\"@type\":\"google.rpc.BadRequest\",\"fieldViolations\":[{\"field\":\""
                    + "\(field)\"}]}")
        }
        if let subject {
            details.append(
                "{\"@type\":\"google.rpc.QuotaFailure\",\"violations\":[{\"subject\":\""
                    + "\(subject)\"}]}")
        }
        let body =
            details.isEmpty
            ? ""
            : "{\"error\":{\"message\":\"\(message)\",\"details\":["
                + details.joined(separator: ",") + "]}}"
        var answer = name ?? "\(status)"
        if let code { answer += " `\(code)`" }
        if let apns { answer += " and APNs' `\(apns.rawValue)`" }
        if let field { answer += " for `\(field)`" }
        return VerdictSample(
            answer, circumstance, lend(status, body) { FCMVerdict.judge($0, sent: request) })
    }

    private static var fcmSamples: [VerdictSample] {
        [
            fcm(404, "UNREGISTERED"),
            fcm(404, "UNREGISTERED", "registered again meanwhile", sent(registered: .seconds(-1))),
            fcm(400, "INVALID_ARGUMENT", field: "message.token"),
            fcm(400, "INVALID_ARGUMENT", field: "message.data"),
            fcm(
                400, "INVALID_ARGUMENT",
                message: "The registration token is not a valid FCM registration token",
                "with the sentence about the registration token"),
            fcm(400, "INVALID_ARGUMENT", "any other"),
            fcm(403, "SENDER_ID_MISMATCH"),
            fcm(400, "INVALID_ARGUMENT", apns: .unregistered),
            fcm(400, "INVALID_ARGUMENT", apns: .badDeviceToken),
            fcm(401, "THIRD_PARTY_AUTH_ERROR", apns: .badDeviceToken),
            fcm(401, "THIRD_PARTY_AUTH_ERROR"),
            fcm(401, nil, name: "401", "the first time"),
            fcm(401, nil, name: "401", "with a new access token", sent(refreshTried: true)),
            fcm(403, nil, name: "another 403"),
            fcm(404, nil, name: "another 404"),
            fcm(429, "QUOTA_EXCEEDED", "of the project"),
            fcm(429, "QUOTA_EXCEEDED", "of one device", quotaOf: "device:1"),
            fcm(408, nil, name: "408"),
            fcm(421, nil, name: "421"),
            fcm(400, nil, name: "another 4xx"),
            fcm(500, "INTERNAL"),
            fcm(503, "UNAVAILABLE"),
            fcm(500, nil, name: "any other status"),
        ]
    }
}
