// The rules of `POST /3/device/<token>`. Where the documents do not say which of several faults is
// named, the order is: method and path, header fields, credential, topic and type, the other
// fields, payload, token.

internal import Base
internal import EventLoop
internal import HTTP2
internal import JSON

/// Judges pushes to one APNs environment. Loop-confined.
final class APNsJudge: Judge {
    private let environment: GatewayEnvironment
    private let facts: GatewayFacts
    private let tokens: ProviderTokenCheck
    private let loop: EventLoop
    private let readsMessageIDs: Bool
    private let broadcasts: APNsBroadcastJudge
    private let parser = JSONParser()

    // What `read` found, for `judge`.
    private var headers = APNsHeaders()
    private var payload: JSONValue?
    /// The bundle id when the request is for a channel.
    private var broadcastApp: String?

    init(
        environment: GatewayEnvironment, facts: GatewayFacts, environmentReason: APNsReason,
        readsMessageIDs: Bool, loop: EventLoop
    ) {
        self.environment = environment
        self.facts = facts
        self.loop = loop
        self.readsMessageIDs = readsMessageIDs
        broadcasts = APNsBroadcastJudge(environment: environment, facts: facts)
        tokens = ProviderTokenCheck(
            facts: facts, environment: environment, environmentReason: environmentReason)
    }

    func read(_ request: ServerRequest, on connection: ServerConnection) -> RequestSubject {
        headers = APNsHeaders(request)
        payload = try? parser.parse(request.body.bytes)
        var subject = RequestSubject()
        if let path = headers.path.map({ request.value(of: $0) }),
            let token = Self.token(in: path)
        {
            subject.token = token.text.lowercased()
        }
        func text(_ field: ServerRequest.Field?) -> String? {
            field.map { request.value(of: $0).text }
        }
        broadcastApp = headers.path.flatMap {
            APNsBroadcastJudge.bundleID(in: request.value(of: $0))
        }
        if broadcastApp != nil { subject.token = text(headers.channelID) ?? "" }
        subject.requestID = text(
            broadcastApp == nil ? headers.requestID : headers.broadcastID)
        subject.topic = text(headers.topic)
        guard readsMessageIDs else { return subject }
        subject.messageID = payload?["bugle"]?["id"]?.string
        subject.collapseID = text(headers.collapseID)
        subject.priority = text(headers.priority)
        subject.expiration = text(headers.expiration)
        return subject
    }

    func judge(
        _ request: ServerRequest, _ subject: RequestSubject, on connection: ServerConnection
    ) -> Judgement {
        if let reason = faultOfTarget(request) { return refuse(reason, subject) }
        if headers.hasDuplicates { return refuse(.duplicateHeaders, subject) }
        let authorization = headers.authorization.map { request.value(of: $0) }
        let sender: APNsSender
        switch tokens.sender(of: authorization, on: connection, at: loop.wall) {
        case .success(let value): sender = value
        case .failure(let fault): return refuse(fault.reason, subject)
        }
        if let broadcastApp {
            let fault = broadcasts.fault(
                of: request, headers, payload, bundleID: broadcastApp, sender: sender)
            if let fault { return refuse(fault, subject) }
            var judgement = accept(subject)
            judgement.advisory = payload.flatMap {
                $0["aps"]?["event"]?.string == "start"
                    ? "a channel was told to start"
                    : APNsAdvice.advisory(on: $0, .liveactivity, request.body)
            }
            return judgement
        }
        let type: APNsPushType?
        switch pushType(request) {
        case .success(let value): type = value
        case .failure(let fault): return refuse(fault.reason, subject)
        }
        guard let topicText = subject.topic ?? sender.defaultTopic else {
            return refuse(.missingTopic, subject)
        }
        guard let topic = APNsTopic(topicText) else { return refuse(.badTopic, subject) }
        if let reason = faultOfTopic(topic, topicText, type, sender) {
            return refuse(reason, subject)
        }
        if let reason = faultOfFields(request, type) { return refuse(reason, subject) }
        if let reason = faultOfPayload(request, type) { return refuse(reason, subject) }
        if let refusal = faultOfToken(subject, topic) { return refusal }
        var judgement = accept(subject)
        judgement.advisory = payload.flatMap { APNsAdvice.advisory(on: $0, type, request.body) }
        return judgement
    }
}

// The single rules.
extension APNsJudge {
    private static let pathPrefix: StaticString = "/3/device"

    private static func token(in path: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        let length = pathPrefix.utf8CodeUnitCount
        guard path.count > length,
            UnsafeRawBufferPointer(rebasing: path[..<length])
                .spells(pathPrefix), path[length] == UInt8(ascii: "/")
        else { return nil }
        return UnsafeRawBufferPointer(rebasing: path[(length + 1)...])
    }

    private func faultOfTarget(_ request: ServerRequest) -> APNsReason? {
        guard let method = headers.method, request.value(of: method).spells("POST") else {
            return .methodNotAllowed
        }
        guard let path = headers.path.map({ request.value(of: $0) }) else { return .badPath }
        if broadcastApp != nil { return nil }
        if path.spells(Self.pathPrefix) || path.spells("/3/device/") { return .missingDeviceToken }
        guard let token = Self.token(in: path), !token.contains(UInt8(ascii: "/")) else {
            return .badPath
        }
        return nil
    }

    private func pushType(_ request: ServerRequest) -> Result<APNsPushType?, APNsFault> {
        guard let field = headers.pushType else { return .success(nil) }
        guard let type = APNsPushType(rawValue: request.value(of: field).text) else {
            return .failure(APNsFault(reason: .invalidPushType))
        }
        return .success(type)
    }

    private func faultOfTopic(
        _ topic: APNsTopic, _ text: String, _ type: APNsPushType?, _ sender: APNsSender
    ) -> APNsReason? {
        guard sender.mayUse(text, bundleID: topic.bundleID, facts: facts) else {
            return .topicDisallowed
        }
        return type.flatMap { topic.fault(for: $0) }
    }

    private func faultOfFields(_ request: ServerRequest, _ type: APNsPushType?) -> APNsReason? {
        let priority = headers.priority.map { request.value(of: $0).text } ?? "10"
        guard ["10", "5", "1"].contains(priority) else { return .badPriority }
        if type == .background && priority == "10" { return .badPriority }
        if let field = headers.requestID, !Self.isCanonicalUUID(request.value(of: field)) {
            return .badMessageID
        }
        if let field = headers.expiration, !Self.isDate(request.value(of: field)) {
            return .badExpirationDate
        }
        if let field = headers.collapseID, field.valueLength > Limits.apnsCollapseBytes {
            return .badCollapseID
        }
        return nil
    }

    private func faultOfPayload(_ request: ServerRequest, _ type: APNsPushType?) -> APNsReason? {
        if request.bodyLength == 0 { return .payloadEmpty }
        if request.bodyLength > (type?.payloadLimit ?? Limits.apnsPayloadBytes) {
            return .payloadTooLarge
        }
        return payload?.isObject == true ? nil : .badRequestPayload
    }

    private func faultOfToken(_ subject: RequestSubject, _ topic: APNsTopic) -> Judgement? {
        let token = subject.token.utf8
        guard token.count >= 2, token.count % 2 == 0, token.allSatisfy({ Hex.value($0) != nil })
        else { return refuse(.badDeviceToken, subject) }
        let (fact, policy) = facts.apnsToken(subject.token)
        guard let fact else {
            switch policy {
            case .accepted: return nil
            case .malformed: return refuse(.badDeviceToken, subject)
            case .unregistered: return refuse(.unregistered, subject, timestamp: loop.wall)
            }
        }
        if fact.environment != environment { return refuse(.badDeviceToken, subject) }
        if !fact.topics.isEmpty, !fact.topics.contains(topic.bundleID) {
            return refuse(.deviceTokenNotForTopic, subject)
        }
        switch fact.state {
        case .live: return nil
        case .unregistered(let time): return refuse(.unregistered, subject, timestamp: time)
        case .expired(let time): return refuse(.expiredToken, subject, timestamp: time)
        }
    }

    /// Eight, four, four, four and twelve lower-case digits.
    private static func isCanonicalUUID(_ text: UnsafeRawBufferPointer) -> Bool {
        guard text.count == 36 else { return false }
        for index in 0..<36 {
            let byte = text[index]
            if index == 8 || index == 13 || index == 18 || index == 23 {
                if byte != UInt8(ascii: "-") { return false }
            } else if !((0x30...0x39).contains(byte) || (0x61...0x66).contains(byte)) {
                return false
            }
        }
        return true
    }

    private static func isDate(_ text: UnsafeRawBufferPointer) -> Bool {
        (1...18).contains(text.count) && text.allSatisfy { (0x30...0x39).contains($0) }
    }
}

// The answers.
extension APNsJudge {
    private var idField: String { broadcastApp == nil ? "apns-id" : "apns-request-id" }

    private func accept(_ subject: RequestSubject) -> Judgement {
        var fields = [ServerField(idField, subject.requestID ?? newID())]
        if environment == .sandbox { fields.append(ServerField("apns-unique-id", newID())) }
        return Judgement(response: ServerResponse(status: 200, fields: fields))
    }

    private func refuse(
        _ reason: APNsReason, _ subject: RequestSubject, timestamp: UnixMillis? = nil
    ) -> Judgement {
        refuse(status: reason.status, reason.rawValue, subject, timestamp: timestamp)
    }

    private func refuse(
        status: Int, _ reason: String, _ subject: RequestSubject, timestamp: UnixMillis?,
        fields extra: [ServerField] = []
    ) -> Judgement {
        var body = "{\"reason\":\"\(reason)\""
        if let timestamp { body += ",\"timestamp\":\(timestamp.value)" }
        body += "}"
        var fields = [ServerField(idField, echo(subject))]
        if !extra.contains(where: { $0.name == "content-type" }) {
            fields.append(ServerField("content-type", "application/json"))
        }
        return Judgement(
            response: ServerResponse(status: status, fields: fields + extra, text: body),
            reason: reason)
    }

    /// The request's id, or a new one when it has none that can be sent back.
    private func echo(_ subject: RequestSubject) -> String {
        guard let id = subject.requestID, UUIDBytes(id) != nil else { return newID() }
        return id
    }

    private func newID() -> String {
        UUIDBytes(
            high: loop.random.next() & ~0xF000 | 0x4000,
            low: loop.random.next() & ~(0b11 << 62) | (0b10 << 62)
        ).text
    }

    func answer(
        _ fault: FaultAnswer, _ subject: RequestSubject, at now: UnixMillis
    ) -> Judgement {
        if fault.body == nil, fault.status != 200 {
            let timestamp = fault.status == 410 ? fault.timestamp ?? now : fault.timestamp
            return refuse(
                status: fault.status, fault.reason, subject, timestamp: timestamp,
                fields: fault.fields)
        }
        let fields = [ServerField(idField, echo(subject))] + fault.fields
        return Judgement(
            response: ServerResponse(
                status: fault.status, fields: fields, text: fault.body ?? ""),
            reason: fault.reason)
    }
}

/// A reason as an error, for `Result`.
struct APNsFault: Error {
    let reason: APNsReason
}
