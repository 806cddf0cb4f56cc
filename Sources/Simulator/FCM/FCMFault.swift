internal import Base
internal import HTTP2

/// An error of FCM or its front end in the form of google.rpc.Status.
struct FCMFault: Error {
    enum Detail {
        /// `google.firebase.fcm.v1.FcmError`.
        case fcm(String)
        /// `google.firebase.fcm.v1.ApnsError`: what APNs answered to FCM.
        case apns(status: Int, reason: String)
        /// `google.rpc.BadRequest` with one violation.
        case badRequest(field: String, description: String)
        /// `google.rpc.ErrorInfo` of the domain googleapis.com.
        case errorInfo(String)
        /// `google.rpc.QuotaFailure` with one violation.
        case quota(subject: String, description: String)
    }

    var code: Int
    var status: String
    var message: String
    var details: [Detail] = []
    var fields: [ServerField] = []

    /// FCM's error code when there is one, else the status.
    var reason: String {
        for case .fcm(let code) in details { return code }
        return status
    }

    var judgement: Judgement {
        let body = ByteWriter(capacity: 512)
        body.append("{\"error\":{\"code\":")
        body.append(decimal: Int64(code))
        body.append(",\"message\":")
        body.append(jsonString: message)
        body.append(",\"status\":")
        body.append(jsonString: status)
        if !details.isEmpty {
            body.append(",\"details\":[")
            for (index, detail) in details.enumerated() {
                if index > 0 { body.append(",") }
                Self.write(detail, to: body)
            }
            body.append("]")
        }
        body.append("}}")
        return Judgement(
            response: ServerResponse(
                status: code,
                fields: [ServerField("content-type", "application/json; charset=UTF-8")] + fields,
                body: body.array),
            reason: reason)
    }

    private static func write(_ detail: Detail, to body: ByteWriter) {
        func begin(_ type: String) {
            body.append("{\"@type\":")
            body.append(jsonString: "type.googleapis.com/" + type)
        }
        func member(_ name: StaticString, _ value: String) {
            body.append(",\"")
            body.append(name)
            body.append("\":")
            body.append(jsonString: value)
        }
        switch detail {
        case .fcm(let code):
            begin("google.firebase.fcm.v1.FcmError")
            member("errorCode", code)
        case .apns(let status, let reason):
            begin("google.firebase.fcm.v1.ApnsError")
            body.append(",\"statusCode\":")
            body.append(decimal: Int64(status))
            member("reason", reason)
        case .badRequest(let field, let description):
            begin("google.rpc.BadRequest")
            body.append(",\"fieldViolations\":[{\"field\":")
            body.append(jsonString: field)
            member("description", description)
            body.append("}]")
        case .errorInfo(let reason):
            begin("google.rpc.ErrorInfo")
            member("reason", reason)
            member("domain", "googleapis.com")
        case .quota(let subject, let description):
            begin("google.rpc.QuotaFailure")
            body.append(",\"violations\":[{\"subject\":")
            body.append(jsonString: subject)
            member("description", description)
            body.append("}]")
        }
        body.append("}")
    }
}

// The errors that the documents show, as they show them.
extension FCMFault {
    static func badRequest(_ message: String, field: String) -> FCMFault {
        FCMFault(
            code: 400, status: "INVALID_ARGUMENT", message: message,
            details: [.badRequest(field: field, description: message)])
    }

    static func invalidArgument(_ message: String, field: String? = nil) -> FCMFault {
        var fault = FCMFault(
            code: 400, status: "INVALID_ARGUMENT", message: message,
            details: [.fcm("INVALID_ARGUMENT")])
        if let field { fault.details.append(.badRequest(field: field, description: message)) }
        return fault
    }

    static var invalidToken: FCMFault {
        invalidArgument("The registration token is not a valid FCM registration token")
    }

    static var unregistered: FCMFault {
        FCMFault(
            code: 404, status: "NOT_FOUND", message: "Requested entity was not found.",
            details: [.fcm("UNREGISTERED")])
    }

    static var senderIDMismatch: FCMFault {
        FCMFault(
            code: 403, status: "PERMISSION_DENIED", message: "SenderId mismatch",
            details: [.fcm("SENDER_ID_MISMATCH")])
    }

    static var deviceTokenDisabled: FCMFault {
        FCMFault(
            code: 400, status: "INVALID_ARGUMENT", message: "APNs device token is disabled.",
            details: [.fcm("INVALID_ARGUMENT"), .apns(status: 410, reason: "Unregistered")])
    }

    static var thirdPartyCredential: FCMFault {
        FCMFault(
            code: 401, status: "UNAUTHENTICATED",
            message: "Auth error from APNS or Web Push Service",
            details: [
                .fcm("THIRD_PARTY_AUTH_ERROR"), .apns(status: 403, reason: "InvalidProviderToken"),
            ])
    }

    static var quotaExceeded: FCMFault {
        let message = "Quota exceeded for quota metric 'Messages sent'"
        return FCMFault(
            code: 429, status: "RESOURCE_EXHAUSTED", message: message,
            details: [
                .fcm("QUOTA_EXCEEDED"),
                .quota(subject: "messages per minute", description: message),
            ], fields: [ServerField("retry-after", "60")])
    }

    static var credentialMissing: FCMFault {
        FCMFault(
            code: 401, status: "UNAUTHENTICATED",
            message: "Request is missing required authentication credential. Expected OAuth 2 "
                + "access token, login cookie or other valid authentication credential.",
            details: [.errorInfo("CREDENTIALS_MISSING")],
            fields: [
                ServerField("www-authenticate", "Bearer realm=\"https://accounts.google.com/\"")
            ])
    }

    static func credentialInvalid(_ reason: String) -> FCMFault {
        FCMFault(
            code: 401, status: "UNAUTHENTICATED",
            message: "Request had invalid authentication credentials. Expected OAuth 2 access "
                + "token, login cookie or other valid authentication credential.",
            details: [.errorInfo(reason)],
            fields: [
                ServerField("www-authenticate", "Bearer realm=\"https://accounts.google.com/\"")
            ])
    }

    static var permissionDenied: FCMFault {
        FCMFault(
            code: 403, status: "PERMISSION_DENIED",
            message: "Permission 'cloudmessaging.messages.create' denied on the project")
    }

    static var projectNotFound: FCMFault {
        FCMFault(code: 404, status: "NOT_FOUND", message: "Requested entity was not found.")
    }

    static func named(_ reason: String, status: Int) -> FCMFault? {
        switch reason {
        case "UNREGISTERED": return .unregistered
        case "SENDER_ID_MISMATCH": return .senderIDMismatch
        case "QUOTA_EXCEEDED": return .quotaExceeded
        case "THIRD_PARTY_AUTH_ERROR": return .thirdPartyCredential
        case "INVALID_ARGUMENT": return .invalidToken
        case "ACCESS_TOKEN_EXPIRED": return .credentialInvalid(reason)
        case "UNAVAILABLE":
            return FCMFault(
                code: 503, status: reason, message: "The service is currently unavailable.",
                details: [.fcm(reason)])
        case "INTERNAL":
            return FCMFault(
                code: 500, status: reason, message: "Internal error encountered.",
                details: [.fcm(reason)])
        case "UNSPECIFIED_ERROR":
            return FCMFault(
                code: status, status: "UNKNOWN", message: "Unknown error.", details: [.fcm(reason)])
        default: return nil
        }
    }
}
