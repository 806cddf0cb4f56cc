// How the push services of the browsers answer: the rules are one RFC's, the words are each
// service's own. The host's name says which one is meant.

internal import Base
internal import HTTP2

/// The push services that one listener plays, by the host of the request.
enum PushServiceFamily: String, CaseIterable {
    case google, mozilla, apple, windows
    /// What keeps to RFC 8030 and says no more.
    case other

    /// `mozilla.localhost:7446` is Mozilla's.
    init(authority: String) {
        let name = authority.prefix { $0 != "." && $0 != ":" }
        self = Self(rawValue: name.lowercased()) ?? .other
    }

    /// The names that certificates have to have.
    static let hosts = allCases.map { "\($0.rawValue).localhost" }
}

/// Why a push service refuses a message.
enum WebPushFault: Error, Equatable {
    case methodNotAllowed, unknownPath, gone
    case ttlMissing, ttlInvalid, ttlConflict, urgencyInvalid, topicInvalid
    case encodingInvalid, tooLarge
    case credentialMissing, credentialInvalid, otherKey

    /// The answer of a service.
    func judgement(of family: PushServiceFamily) -> Judgement {
        switch family {
        case .google: text(google.status, google.text)
        case .mozilla: mozillaJudgement
        case .apple: appleJudgement
        case .windows: windowsJudgement
        case .other: text(plainStatus, "\(self)")
        }
    }

    /// RFC 8030 and RFC 8292, where they name a status.
    private var plainStatus: Int {
        switch self {
        case .methodNotAllowed: 405
        case .unknownPath: 404
        case .gone: 410
        case .tooLarge: 413
        case .credentialMissing: 401
        case .credentialInvalid, .otherKey: 403
        default: 400
        }
    }

    private func text(_ status: Int, _ text: String) -> Judgement {
        Judgement(
            response: ServerResponse(
                status: status, fields: [ServerField("content-type", "text/plain")], text: text),
            reason: "\(self)")
    }

    private var google: (status: Int, text: String) {
        switch self {
        case .gone: (410, "push subscription has unsubscribed or expired.\n")
        case .tooLarge:
            (400, "the binary data passed in the request must be less than 4096 bytes.\n")
        case .credentialMissing: (401, "Authorization header must be specified.\n")
        case .otherKey:
            (
                403,
                "the VAPID credentials in the authorization header do not correspond to the "
                    + "credentials used to create the subscriptions.\n"
            )
        default: (plainStatus, "invalid request: \(self)\n")
        }
    }

    private var mozillaJudgement: Judgement {
        let (status, errno, message): (Int, Int, String) =
            switch self {
            case .methodNotAllowed: (405, 0, "Method Not Allowed")
            case .unknownPath: (404, 102, "Request did not validate")
            case .gone: (410, 106, "Subscription has expired or been cancelled")
            case .ttlMissing: (400, 111, "Missing TTL Header, see: https://errno.invalid")
            case .ttlInvalid, .ttlConflict: (400, 112, "Invalid TTL header value")
            case .topicInvalid: (400, 113, "Invalid Topic header value")
            case .encodingInvalid, .urgencyInvalid: (400, 110, "Invalid crypto headers")
            case .tooLarge: (413, 104, "This message is intended for a constrained device")
            case .credentialMissing, .credentialInvalid: (401, 109, "Invalid authorization")
            case .otherKey: (401, 109, "VAPID public key mismatch")
            }
        return Self.mozilla(status, errno, message, reason: "\(self)")
    }

    static func mozilla(
        _ status: Int, _ errno: Int, _ message: String, reason: String,
        fields: [ServerField] = []
    ) -> Judgement {
        Judgement(
            response: ServerResponse(
                status: status, fields: [ServerField("content-type", "application/json")] + fields,
                text: "{\"code\":\(status),\"errno\":\(errno),\"error\":\"Error\","
                    + "\"message\":\"\(message)\"}"),
            reason: reason)
    }

    private var appleJudgement: Judgement {
        let (status, reason): (Int, String) =
            switch self {
            case .methodNotAllowed: (405, "MethodNotAllowed")
            case .unknownPath: (404, "BadPath")
            case .gone: (410, "Unregistered")
            case .ttlMissing, .ttlInvalid, .ttlConflict: (400, "BadTtl")
            case .urgencyInvalid: (400, "BadUrgency")
            case .topicInvalid: (400, "BadWebPushTopic")
            case .encodingInvalid: (400, "BadWebPushRequest")
            case .tooLarge: (413, "PayloadTooLarge")
            case .credentialMissing: (403, "BadAuthorizationHeader")
            case .credentialInvalid: (403, "BadJwtToken")
            case .otherKey: (400, "VapidPkHashMismatch")
            }
        return Self.apple(status, reason)
    }

    static func apple(_ status: Int, _ reason: String, fields: [ServerField] = []) -> Judgement {
        Judgement(
            response: ServerResponse(
                status: status, fields: [ServerField("content-type", "application/json")] + fields,
                text: "{\"reason\":\"\(reason)\"}"),
            reason: reason)
    }

    /// Windows says why in header fields and has no body.
    private var windowsJudgement: Judgement {
        let words =
            self == .ttlConflict ? "Ttl value conflicts with X-WNS-Cache-Policy." : "\(self)"
        return Judgement(
            response: ServerResponse(
                status: plainStatus,
                fields: [
                    ServerField("x-wns-status", "dropped"),
                    ServerField("x-wns-notificationstatus", "dropped"),
                    ServerField("x-wns-error-description", words),
                ]), reason: "\(self)")
    }
}
