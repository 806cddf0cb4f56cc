// The rules of `POST /push/<subscription>`: RFC 8030, 8188, 8291 and 8292, and each service's own
// words. A simulated browser decrypts what its subscription gets, if its keys are known.

internal import Base
internal import Crypto
internal import EventLoop
internal import HTTP2
internal import JSON

/// Judges web pushes to all services. Loop-confined.
final class WebPushJudge: Judge {
    private let facts: GatewayFacts
    private let loop: EventLoop
    private let readsMessageIDs: Bool
    private let tokens = VAPIDCheck()
    private let parser = JSONParser()
    private var sent: UInt64 = 0

    // What `read` found, for `judge`.
    private var authority = ""
    private var family = PushServiceFamily.other

    init(facts: GatewayFacts, readsMessageIDs: Bool, loop: EventLoop) {
        self.facts = facts
        self.readsMessageIDs = readsMessageIDs
        self.loop = loop
    }

    func read(_ request: ServerRequest, on connection: ServerConnection) -> RequestSubject {
        authority = request.text(":authority") ?? ""
        family = PushServiceFamily(authority: authority)
        var subject = RequestSubject()
        if let path = request.text(":path"), path.hasPrefix(Self.pathPrefix) {
            subject.token = String(path.dropFirst(Self.pathPrefix.count).prefix { $0 != "?" })
        }
        subject.topic = authority
        guard readsMessageIDs else { return subject }
        subject.collapseID = request.text("topic")
        subject.priority = request.text("urgency")
        subject.expiration = request.text("ttl")
        if let keys = facts.subscription(subject.token).0?.keys,
            let message = keys.decrypt(request.body.array)
        {
            subject.messageID = (try? parser.parse(message))?["bugle"]?["id"]?.string
        }
        return subject
    }

    func judge(
        _ request: ServerRequest, _ subject: RequestSubject, on connection: ServerConnection
    ) -> Judgement {
        do throws(WebPushFault) {
            guard let state = connection.state as? WebPushConnectionState else {
                throw .credentialMissing
            }
            guard request.value(":method")?.spells("POST") == true else { throw .methodNotAllowed }
            guard !subject.token.isEmpty else { throw .unknownPath }
            try checkFields(request)
            try checkBody(request)
            let claims = try tokens.claims(
                of: request.value("authorization"), origin: "https://\(authority)", state,
                at: loop.wall)
            // Apple takes no subject that leads nowhere; the others do not look at it.
            if family == .apple, !claims.hasPublicSubject { throw .credentialInvalid }
            // The key of the message must not be the one that identifies the sender (RFC 8292, 4).
            if request.bodyLength > 0,
                Base64URL.encode(request.body.bytes[21..<86]) == claims.key
            {
                throw .encodingInvalid
            }
            return try deliver(request, subject, claims)
        } catch {
            return error.judgement(of: family)
        }
    }

    func answer(
        _ fault: FaultAnswer, _ subject: RequestSubject, at now: UnixMillis
    ) -> Judgement {
        if let body = fault.body {
            return Judgement(
                response: ServerResponse(status: fault.status, fields: fault.fields, text: body),
                reason: fault.reason)
        }
        if (200..<300).contains(fault.status) { return accept(subject) }
        switch family {
        case .mozilla:
            return WebPushFault.mozilla(
                fault.status, Int(fault.reason) ?? 999, "Scripted answer", reason: fault.reason,
                fields: fault.fields)
        case .apple: return WebPushFault.apple(fault.status, fault.reason, fields: fault.fields)
        case .windows:
            return Judgement(
                response: ServerResponse(
                    status: fault.status,
                    fields: [ServerField("x-wns-error-description", fault.reason)] + fault.fields),
                reason: fault.reason)
        case .google, .other:
            return Judgement(
                response: ServerResponse(
                    status: fault.status,
                    fields: [ServerField("content-type", "text/plain")] + fault.fields,
                    text: fault.reason), reason: fault.reason)
        }
    }
}

// The single rules.
extension WebPushJudge {
    private static let pathPrefix = "/push/"
    private static let urgencies: Set<String> = ["very-low", "low", "normal", "high"]

    private func checkFields(_ request: ServerRequest) throws(WebPushFault) {
        guard let ttl = request.text("ttl") else { throw .ttlMissing }
        guard let seconds = Int64(ttl), ttl.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
            seconds <= Limits.webPushTimeToLiveSeconds
        else { throw .ttlInvalid }
        if let urgency = request.text("urgency"), !Self.urgencies.contains(urgency) {
            throw .urgencyInvalid
        }
        if let topic = request.value("topic"), !Self.isTopic(topic) { throw .topicInvalid }
        let isNotStored = request.value("x-wns-cache-policy")?.spells("no-cache") == true
        if family == .windows, seconds == 0, !isNotStored { throw .ttlConflict }
    }

    /// RFC 8030, section 5.4.
    private static func isTopic(_ topic: UnsafeRawBufferPointer) -> Bool {
        (1...32).contains(topic.count)
            && topic.allSatisfy { byte in
                (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte)
                    || (0x61...0x7A).contains(byte) || byte == 0x2D || byte == 0x5F
            }
    }

    private func checkBody(_ request: ServerRequest) throws(WebPushFault) {
        guard request.bodyLength <= Limits.webPushBodyBytes else { throw .tooLarge }
        // A push without a message has no coding (RFC 8030, section 5).
        if request.bodyLength == 0 { return }
        // The fields of the older coding must not come with the new one.
        guard request.value("content-encoding")?.spells("aes128gcm") == true,
            request.field("crypto-key") == nil, request.field("encryption") == nil
        else { throw .encodingInvalid }
        let body = request.body.bytes
        guard body.count >= 86 + 17, body[20] == 65,
            VerifyingKey(p256Point: Array(body[21..<86])) != nil
        else { throw .encodingInvalid }
        let recordSize = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
        guard recordSize >= 18, body.count - 86 <= recordSize else { throw .encodingInvalid }
    }

    private func deliver(
        _ request: ServerRequest, _ subject: RequestSubject, _ claims: VAPIDClaims
    ) throws(WebPushFault) -> Judgement {
        let (fact, policy) = facts.subscription(subject.token)
        guard let fact else {
            switch policy {
            case .accepted: return accept(subject)
            case .malformed: throw .unknownPath
            case .unregistered: throw .gone
            }
        }
        if fact.state == .gone { throw .gone }
        let isLarge = (request.bodyLength * 4 + 2) / 3 > Limits.webPushBodyBytes
        if fact.state == .bridged, isLarge { throw .tooLarge }
        if let key = fact.vapidKey, key != claims.key { throw .otherKey }
        var judgement = accept(subject)
        if request.bodyLength > 0, let keys = fact.keys,
            keys.decrypt(request.body.array) == nil
        {
            judgement.advisory = "a message that its browser cannot decrypt"
        }
        return judgement
    }

    private func accept(_ subject: RequestSubject) -> Judgement {
        sent += 1
        var fields = [ServerField("location", "https://\(authority)/message/\(sent)")]
        var body = ""
        switch family {
        case .apple:
            let digits = String(sent, radix: 16, uppercase: true)
            let padding = String(repeating: "0", count: max(12 - digits.count, 0))
            fields.append(ServerField("apns-id", "00000000-0000-4000-8000-\(padding)\(digits)"))
        case .mozilla: body = "{\"message-id\":\"m\(sent)\"}"
        default: break
        }
        return Judgement(response: ServerResponse(status: 201, fields: fields, text: body))
    }
}
