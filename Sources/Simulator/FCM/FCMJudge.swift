// The rules of `POST /v1/projects/<project>/messages:send`.

internal import Base
internal import EventLoop
internal import HTTP2
internal import JSON

/// What a connection to FCM remembers.
final class FCMConnectionState {
    var last = LastCredential()
    var grant: AccessGrant?
    var idlePings = 0
}

/// Judges messages to FCM. Loop-confined.
final class FCMJudge: Judge {
    private let facts: GatewayFacts
    private let accessTokens: AccessTokens
    private let loop: EventLoop
    private let readsMessageIDs: Bool
    private let parser = JSONParser()
    private let blockParser = JSONParser()
    private var sent: UInt64 = 0

    // What `read` found, for `judge`.
    private var project: String?
    private var body: JSONValue?

    init(
        facts: GatewayFacts, accessTokens: AccessTokens, readsMessageIDs: Bool, loop: EventLoop
    ) {
        self.facts = facts
        self.accessTokens = accessTokens
        self.readsMessageIDs = readsMessageIDs
        self.loop = loop
    }

    func read(_ request: ServerRequest, on connection: ServerConnection) -> RequestSubject {
        project = request.value(":path").flatMap(Self.project)
        body = try? parser.parse(request.body.bytes)
        var subject = RequestSubject()
        subject.topic = project
        guard let message = body?["message"] else { return subject }
        for name: StaticString in ["token", "fid", "topic", "condition"] {
            guard let value = message[name]?.string else { continue }
            subject.token = value
            break
        }
        guard readsMessageIDs else { return subject }
        if let block = message["data"]?["bugle"]?.stringBytes {
            subject.messageID = (try? blockParser.parse(block))?["id"]?.string
        }
        let android = message["android"]
        subject.collapseID = android.flatMap {
            FCMSchema.member($0, "collapse_key", "collapseKey")?.string
        }
        subject.priority = android?["priority"]?.string
        subject.expiration = android?["ttl"]?.string
        return subject
    }

    func judge(
        _ request: ServerRequest, _ subject: RequestSubject, on connection: ServerConnection
    ) -> Judgement {
        guard let project, request.value(":method")?.spells("POST") == true else {
            return answer(.html(404), subject, at: loop.wall)
        }
        do throws(FCMFault) {
            try checkCredential(request, project, connection)
            try checkRequest()
            let target = try FCMMessageCheck.target(of: try message())
            try FCMMessageCheck.check(try message(), for: target)
            guard facts.takeQuota(project, at: loop.wall) else { throw .quotaExceeded }
            try check(target, project)
            let isTrial = body.flatMap { FCMSchema.member($0, "validate_only", "validateOnly") }
            return accept(project, isTrial: isTrial?.bool == true)
        } catch {
            return error.judgement
        }
    }

    func answer(
        _ fault: FaultAnswer, _ subject: RequestSubject, at now: UnixMillis
    ) -> Judgement {
        if fault.body == nil {
            if var error = FCMFault.named(fault.reason, status: fault.status) {
                error.code = fault.status
                error.fields = fault.fields.isEmpty ? error.fields : fault.fields
                return error.judgement
            }
            if fault.status == 200 { return accept(project ?? "project", isTrial: false) }
            let status = fault.reason.isEmpty ? Self.status(of: fault.status) : fault.reason
            return FCMFault(
                code: fault.status, status: status, message: "Scripted answer.",
                fields: fault.fields
            ).judgement
        }
        return Judgement(
            response: ServerResponse(
                status: fault.status, fields: fault.fields, text: fault.body ?? ""),
            reason: fault.reason)
    }
}

// The single rules.
extension FCMJudge {
    /// The project in `/v1/projects/<project>/messages:send`, with or without a query.
    private static func project(in path: UnsafeRawBufferPointer) -> String? {
        let bare = path.text.split(separator: "?", maxSplits: 1).first ?? ""
        let parts = bare.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 5, parts[0].isEmpty, parts[1] == "v1", parts[2] == "projects",
            !parts[3].isEmpty, parts[4] == "messages:send"
        else { return nil }
        return String(parts[3])
    }

    private func checkCredential(
        _ request: ServerRequest, _ project: String, _ connection: ServerConnection
    ) throws(FCMFault) {
        guard let state = connection.state as? FCMConnectionState,
            let authorization = request.value("authorization")
        else { throw .credentialMissing }
        let isSame = state.last.isSame(as: authorization)
        guard let token = authorization.bearerToken else { throw .credentialMissing }
        // A token may be issued after it was first tried.
        if !isSame || state.grant == nil { state.grant = accessTokens.grant(for: token.text) }
        guard let grant = state.grant, accessTokens.stands(grant) else {
            state.grant = nil
            if facts.unknownCredentials == .accepted { return }
            throw .credentialInvalid("ACCESS_TOKEN_TYPE_UNSUPPORTED")
        }
        if grant.expiresAt <= loop.wall { throw .credentialInvalid("ACCESS_TOKEN_EXPIRED") }
        guard facts.hasProject(project) else { throw .projectNotFound }
        if let projects = grant.projects, !projects.contains(project) { throw .permissionDenied }
    }

    private func checkRequest() throws(FCMFault) {
        guard let body, body.isObject else {
            throw .badRequest("Invalid JSON payload received. Unexpected token.", field: "")
        }
        try FCMSchema.checkFields(of: body, FCMSchema.request, at: "")
        try FCMSchema.checkBool(
            FCMSchema.member(body, "validate_only", "validateOnly"), at: "validate_only")
    }

    private func message() throws(FCMFault) -> JSONValue {
        guard let message = body?["message"], message.isObject else {
            throw .invalidArgument("Message is not set.", field: "message")
        }
        return message
    }

    private func check(_ target: FCMTarget, _ project: String) throws(FCMFault) {
        switch target {
        case .topic, .condition: return
        case .installation(let fid):
            let (fact, policy) = facts.fcmToken(fid)
            if fact == nil && policy != .accepted { throw .unregistered }
            try check(fact, project)
        case .token(let token):
            let (fact, policy) = facts.fcmToken(token)
            guard let fact else {
                guard Self.isWellFormed(token) else { throw .invalidToken }
                switch policy {
                case .accepted: return
                case .malformed: throw .invalidToken
                case .unregistered: throw .unregistered
                }
            }
            try check(fact, project)
        }
    }

    private func check(_ fact: FCMToken?, _ project: String) throws(FCMFault) {
        guard let fact else { return }
        if fact.projectID != project { throw .senderIDMismatch }
        switch fact.state {
        case .live: return
        case .unregistered: throw .unregistered
        case .deviceTokenDisabled: throw .deviceTokenDisabled
        case .thirdPartyCredentialBad: throw .thirdPartyCredential
        }
    }

    /// Google does not define the form; these are the characters its tokens have.
    private static func isWellFormed(_ token: String) -> Bool {
        (8...Limits.fcmTokenBytes).contains(token.utf8.count)
            && token.utf8.allSatisfy { byte in
                (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte)
                    || (0x61...0x7A).contains(byte) || ":-_.%".utf8.contains(byte)
            }
    }

    private func accept(_ project: String, isTrial: Bool) -> Judgement {
        sent += 1
        let id =
            isTrial
            ? "fake_message_id"
            : "0:\(loop.wall.value * 1000 + Int64(sent % 1000))%\(String(sent, radix: 16))31bd1c96"
        return Judgement(
            response: ServerResponse(
                status: 200,
                fields: [ServerField("content-type", "application/json; charset=UTF-8")],
                text: "{\"name\":\"projects/\(project)/messages/\(id)\"}"))
    }

    private static func status(of code: Int) -> String {
        switch code {
        case 400: "INVALID_ARGUMENT"
        case 401: "UNAUTHENTICATED"
        case 403: "PERMISSION_DENIED"
        case 404: "NOT_FOUND"
        case 429: "RESOURCE_EXHAUSTED"
        case 500: "INTERNAL"
        case 503: "UNAVAILABLE"
        default: "UNKNOWN"
        }
    }
}
