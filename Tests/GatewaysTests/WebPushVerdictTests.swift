import Base
import Gateways
import Testing

@Suite struct `Web push verdicts` {
    struct Row: Sendable, CustomTestStringConvertible {
        let service: WebPushService
        let status: Int
        let body: String
        let note: String?
        let outcome: Outcome?
        let reason: Reason
        let fault: Fault
        let fuse: Bool
        var testDescription: String { "\(service.rawValue) \(status) \(note ?? body)" }

        init(
            _ service: WebPushService, _ status: Int, _ body: String, _ outcome: Outcome?,
            _ reason: Reason, _ fault: Fault = .none, fuse: Bool = false, note: String? = nil
        ) {
            self.service = service
            self.status = status
            self.body = body
            self.note = note
            self.outcome = outcome
            self.reason = reason
            self.fault = fault
            self.fuse = fuse
        }
    }

    /// Mozilla's JSON.
    private static func errno(_ code: Int, _ errno: Int, _ message: String = "words") -> String {
        #"{"code":\#(code),"errno":\#(errno),"error":"Name","message":"\#(message)"}"#
    }

    private static func apple(_ reason: String) -> String { #"{"reason":"\#(reason)"}"# }

    private static let mismatch =
        "the VAPID credentials in the authorization header do not correspond to the credentials "
        + "used to create the subscriptions"

    /// nil as an outcome stands for another attempt.
    private static let google: [Row] = [
        Row(
            .google, 400, "binary data passed in the request must be less than 4096 bytes",
            .rejected, .localPayloadTooLarge),
        Row(
            .google, 400, "UnauthorizedRegistration", .tokenSuspended, .vapidKeyMismatch, .config,
            fuse: true),
        Row(.google, 400, "words", .rejected, .requestRefused, .ours),
        Row(
            .google, 401, "Authorization header must be specified", .credentialError,
            .vapidRefused, .credential),
        Row(.google, 403, mismatch, .tokenSuspended, .vapidKeyMismatch, .config, fuse: true),
        Row(.google, 403, "words", .credentialError, .vapidRefused, .credential),
        Row(.google, 404, "<html>", .tokenInvalid, .subscriptionGone),
        Row(
            .google, 410, "push subscription has unsubscribed or expired", .tokenInvalid,
            .subscriptionGone),
        Row(.google, 413, "", .rejected, .localPayloadTooLarge),
        Row(.google, 429, "", nil, .throttled),
        Row(.google, 500, "", nil, .serverError),
        Row(.google, 503, "", nil, .serverError),
    ]

    private static let mozilla: [Row] = [
        Row(.mozilla, 400, errno(400, 101), .rejected, .requestRefused, .ours),
        Row(.mozilla, 404, errno(404, 102), .tokenInvalid, .subscriptionGone),
        Row(.mozilla, 410, errno(410, 103), .tokenInvalid, .subscriptionGone),
        Row(.mozilla, 413, errno(413, 104), .rejected, .localPayloadTooLarge),
        Row(.mozilla, 410, errno(410, 105), .tokenInvalid, .subscriptionGone),
        Row(.mozilla, 410, errno(410, 106), .tokenInvalid, .subscriptionGone),
        Row(
            .mozilla, 400, errno(400, 108), .tokenSuspended, .subscriptionForeign, .config,
            fuse: true),
        Row(.mozilla, 401, errno(401, 109), .credentialError, .vapidRefused, .credential),
        Row(
            .mozilla, 401, errno(401, 109, "VAPID public key mismatch"), .tokenSuspended,
            .vapidKeyMismatch, .config, fuse: true),
        Row(.mozilla, 400, errno(400, 110), .rejected, .requestRefused, .ours),
        Row(.mozilla, 400, errno(400, 111, "Missing TTL Header"), .rejected, .ttlRefused, .ours),
        Row(.mozilla, 400, errno(400, 112), .rejected, .ttlRefused, .ours),
        Row(.mozilla, 400, errno(400, 113), .rejected, .topicRefused, .ours),
        Row(.mozilla, 405, "", .rejected, .endpointForeign, .config),
        Row(.mozilla, 429, errno(429, 201), nil, .throttled),
        Row(.mozilla, 503, errno(503, 201), nil, .serverError),
        Row(.mozilla, 503, errno(503, 202), nil, .serverError),
        Row(.mozilla, 500, errno(500, 900), nil, .serverError),
        Row(.mozilla, 502, errno(502, 902), nil, .serverError),
        Row(.mozilla, 500, errno(500, 999), nil, .serverError),
        Row(.mozilla, 301, "", .rejected, .redirected, .config),
    ]

    private static let appleRows: [Row] = [
        Row(.apple, 400, apple("BadTtl"), .rejected, .badTTL, .ours),
        Row(.apple, 400, apple("BadUrgency"), .rejected, .badUrgency, .ours),
        Row(.apple, 400, apple("BadWebPushTopic"), .rejected, .badWebPushTopic, .ours),
        Row(.apple, 400, apple("BadWebPushRequest"), .rejected, .badWebPushRequest, .ours),
        Row(.apple, 404, apple("BadPath"), .rejected, .badPath, .ours),
        Row(.apple, 405, apple("MethodNotAllowed"), .rejected, .methodNotAllowed, .ours),
        Row(.apple, 413, apple("PayloadTooLarge"), .rejected, .payloadTooLarge),
        Row(
            .apple, 403, apple("BadAuthorizationHeader"), .credentialError,
            .badAuthorizationHeader, .credential),
        Row(.apple, 403, apple("BadJwtToken"), .credentialError, .badJWTToken, .credential),
        Row(
            .apple, 403, apple("BadVapidPublicKey"), .credentialError, .badVAPIDPublicKey,
            .credential),
        Row(
            .apple, 400, apple("VapidPkHashMismatch"), .tokenSuspended, .vapidPkHashMismatch,
            .config, fuse: true),
        Row(
            .apple, 403, apple("VapidPkHashMismatch"), .tokenSuspended, .vapidPkHashMismatch,
            .config, fuse: true),
        Row(.apple, 410, apple("Unregistered"), .tokenInvalid, .subscriptionGone),
        Row(.apple, 429, apple("TooManyRequests"), nil, .tooManyRequests),
        Row(.apple, 400, apple("IdleTimeout"), nil, .idleTimeout),
        Row(.apple, 503, apple("Shutdown"), nil, .shutdown),
        Row(.apple, 503, apple("ServiceUnavailable"), nil, .serviceUnavailable),
        Row(.apple, 500, apple("InternalServerError"), nil, .internalServerError),
        Row(.apple, 400, apple("SomethingNew"), .rejected, .requestRefused, .ours),
    ]

    private static let others: [Row] = [
        Row(.windows, 406, "", nil, .throttled),
        Row(.other, 406, "", .rejected, .requestRefused, .ours),
        Row(
            .windows, 400, "", .rejected, .ttlRefused, .ours,
            note: "Ttl value conflicts with X-WNS-Cache-Policy."),
        Row(.windows, 401, "", .credentialError, .vapidRefused, .credential),
        Row(.windows, 403, "", .credentialError, .vapidRefused, .credential),
        Row(.windows, 404, "", .tokenInvalid, .subscriptionGone),
        Row(.windows, 410, "", .tokenInvalid, .subscriptionGone),
        Row(.windows, 413, "", .rejected, .localPayloadTooLarge),
        Row(.other, 307, "", .rejected, .redirected, .config),
        Row(.other, 400, "", .rejected, .requestRefused, .ours),
        Row(.other, 408, "", nil, .serverError),
        Row(.other, 999, "", nil, .other),
    ]

    @Test(arguments: google + mozilla + appleRows + others)
    func `an answer means what its service's document says`(_ row: Row) {
        let verdict = web(row.status, row.body, of: row.service, note: row.note)
        #expect(verdict.outcome == row.outcome)
        #expect(verdict.reason == row.reason)
        #expect(verdict.fault == row.fault)
        #expect(verdict.countsForFuse == row.fuse)
        switch row.outcome {
        case .tokenInvalid: #expect(verdict.tokenAction == .invalidate(asOf: newYear))
        case .tokenSuspended: #expect(verdict.tokenAction == .suspend(asOf: newYear))
        default: #expect(verdict.tokenAction == .none)
        }
        if let note = row.note { #expect(verdict.detail == note) }
    }

    @Test func `WP-13: only 404 and 410 end a subscription`() {
        let dead = (100...599).filter { web($0, "").tokenAction != .none }
        #expect(dead == [404, 410])
        for status in [200, 201, 202, 204] { #expect(web(status, "").outcome == .accepted) }
    }

    @Test func `WP-18: the first wait is the service's, then ours, doubled`() {
        #expect(web(429, "", retryAfter: "37").advice?.minimumWait == .seconds(37))
        #expect(web(406, "", of: .windows, retryAfter: "30").advice?.minimumWait == .seconds(30))
        #expect(web(406, "", of: .windows).advice?.scope == .project)
        #expect(web(429, "").advice?.scope == .token)
        #expect(web(429, "").advice?.minimumWait == .seconds(60))
        let third = SentRequest(sentAt: newYear, registeredAt: UnixMillis(0), attempts: 3)
        #expect(web(503, "", sent: third).advice?.minimumWait == .seconds(40))
        let late = SentRequest(sentAt: newYear, registeredAt: UnixMillis(0), attempts: 12)
        #expect(web(503, "", sent: late).advice?.minimumWait == .minutes(15))
        #expect(
            web(503, Self.errno(503, 202), of: .mozilla).advice?.minimumWait == .zero)
    }

    @Test func `WP-24: an endpoint of an older API is refused once, with a word about it`() {
        let verdict = web(405, "Method Not Allowed", of: .mozilla)
        #expect(verdict.outcome == .rejected && verdict.advice == nil)
        #expect(verdict.reason == .endpointForeign && verdict.tokenAction == .none)
    }

    @Test func `WP-06: three spellings of another key are one class`() {
        let verdicts = [
            web(400, Self.apple("VapidPkHashMismatch"), of: .apple),
            web(403, Self.mismatch, of: .google),
            web(401, Self.errno(401, 109, "VAPID public key mismatch"), of: .mozilla),
        ]
        for verdict in verdicts {
            #expect(verdict.outcome == .tokenSuspended && verdict.countsForFuse)
        }
    }

    @Test func `a registration after the request was sent is another one`() {
        let sent = SentRequest(sentAt: newYear, registeredAt: newYear + .seconds(1))
        let verdict = web(410, "", sent: sent)
        #expect(verdict.outcome == .rejected && verdict.tokenAction == .none)
    }

    @Test func `a very young subscription is asked once more before it is dead`() {
        let young = SentRequest(sentAt: newYear, registeredAt: newYear + .seconds(-5))
        let first = web(410, "", of: .google, sent: young)
        #expect(first.outcome == nil && first.advice?.exhausted == .tokenInvalid)
        var second = young
        second.attempts = 2
        #expect(web(410, "", of: .google, sent: second).outcome == .tokenInvalid)
    }

    @Test func `an old VAPID token is replaced once, a young one is not to blame`() {
        func sent(_ age: TimeSpan, tried: Bool = false) -> SentRequest {
            SentRequest(
                sentAt: newYear, registeredAt: UnixMillis(0), credentialAge: age,
                refreshTried: tried)
        }
        let old = web(401, Self.errno(401, 109, "auth expired"), sent: sent(.hours(11)))
        #expect(old.advice?.needsFreshCredential == true)
        #expect(old.advice?.exhausted == .credentialError)
        #expect(web(401, "", sent: sent(.hours(11), tried: true)).outcome == .credentialError)
        #expect(web(401, "", sent: sent(.minutes(59))).outcome == .credentialError)
    }

    @Test func `a wrong clock is named`() {
        let verdict = web(
            401, "", date: "Wed, 01 Jan 2025 00:20:00 GMT")
        #expect(verdict.fault == .clock && verdict.detail.contains("1200 s behind"))
    }
}
