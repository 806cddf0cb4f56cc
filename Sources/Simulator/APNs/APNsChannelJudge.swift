// The rules of the channels' management: create, read, delete and list, each with the credential of
// pushes and the app's bare bundle id in the path.

internal import Base
internal import EventLoop
internal import HTTP2
internal import JSON

/// Manages the channels of one environment. Loop-confined.
final class APNsChannelJudge: Judge {
    private let environment: GatewayEnvironment
    private let facts: GatewayFacts
    private let tokens: ProviderTokenCheck
    private let loop: EventLoop
    private let parser = JSONParser()
    private var headers = APNsHeaders()

    init(
        environment: GatewayEnvironment, facts: GatewayFacts, environmentReason: APNsReason,
        loop: EventLoop
    ) {
        self.environment = environment
        self.facts = facts
        self.loop = loop
        tokens = ProviderTokenCheck(
            facts: facts, environment: environment, environmentReason: environmentReason)
    }

    func read(_ request: ServerRequest, on connection: ServerConnection) -> RequestSubject {
        headers = APNsHeaders(request)
        var subject = RequestSubject()
        subject.isBookkeeping = true
        subject.requestID = headers.broadcastID.map { request.value(of: $0).text }
        subject.token = headers.channelID.map { request.value(of: $0).text } ?? ""
        return subject
    }

    func judge(
        _ request: ServerRequest, _ subject: RequestSubject, on connection: ServerConnection
    ) -> Judgement {
        guard let path = headers.path.map({ request.value(of: $0).text }),
            let (bundleID, isList) = Self.parts(of: path)
        else { return refuse(.badPath, subject) }
        if headers.hasDuplicates { return refuse(.duplicateHeaders, subject) }
        let authorization = headers.authorization.map { request.value(of: $0) }
        let sender: APNsSender
        switch tokens.sender(of: authorization, on: connection, at: loop.wall) {
        case .success(let value): sender = value
        case .failure(let fault): return refuse(fault.reason, subject)
        }
        if APNsPushType.bySuffix(of: bundleID) != nil { return refuse(.topicDisallowed, subject) }
        guard sender.mayUse(bundleID, bundleID: bundleID, facts: facts) else {
            return refuse(.topicMismatch, subject)
        }
        guard facts.hasBroadcasts(bundleID: bundleID) else {
            return refuse(.featureNotEnabled, subject)
        }
        let method = headers.method.map { request.value(of: $0).text } ?? ""
        switch (method, isList) {
        case ("GET", true): return list(bundleID, subject)
        case ("POST", false): return create(request, bundleID, subject)
        case ("GET", false): return read(bundleID, subject)
        case ("DELETE", false): return delete(bundleID, subject)
        default: return refuse(.methodNotAllowed, subject)
        }
    }

    private static func parts(of path: String) -> (bundleID: String, isList: Bool)? {
        let parts = path.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 5, parts[0].isEmpty, parts[1] == "1", parts[2] == "apps",
            !parts[3].isEmpty, parts[4] == "channels" || parts[4] == "all-channels"
        else { return nil }
        return (String(parts[3]), parts[4] == "all-channels")
    }

    // MARK: What can be asked

    private func create(
        _ request: ServerRequest, _ bundleID: String, _ subject: RequestSubject
    ) -> Judgement {
        guard let body = try? parser.parse(request.body.bytes), body.isObject else {
            return refuse(.badRequestPayload, subject)
        }
        guard let policy = body["message-storage-policy"]?.int64, policy == 0 || policy == 1,
            body.count == 2
        else { return refuse(.badRequestParams, subject) }
        guard body["push-type"]?.string == "LiveActivity" else {
            return refuse(.invalidPushType, subject)
        }
        guard
            let id = facts.addChannel(
                bundleID: bundleID, environment: environment, storagePolicy: Int(policy))
        else { return refuse(.cannotCreateChannelConfig, subject) }
        return answer(201, [ServerField("apns-channel-id", id)], subject)
    }

    private func read(_ bundleID: String, _ subject: RequestSubject) -> Judgement {
        if let reason = faultOfChannel(subject) { return refuse(reason, subject) }
        guard
            let channel = facts.channel(
                subject.token, bundleID: bundleID, environment: environment)
        else { return refuse(.channelNotRegistered, subject) }
        let body =
            "{\"message-storage-policy\":\(channel.storagePolicy),\"push-type\":\"LiveActivity\"}"
        return answer(200, [], subject, body)
    }

    private func delete(_ bundleID: String, _ subject: RequestSubject) -> Judgement {
        if let reason = faultOfChannel(subject) { return refuse(reason, subject) }
        let isDeleted = facts.removeChannel(
            subject.token, bundleID: bundleID, environment: environment)
        return isDeleted ? answer(204, [], subject) : refuse(.channelNotRegistered, subject)
    }

    private func list(_ bundleID: String, _ subject: RequestSubject) -> Judgement {
        let writer = ByteWriter()
        writer.append("{\"channels\":[")
        for (index, id) in facts.channels(bundleID: bundleID, environment: environment).enumerated()
        {
            if index > 0 { writer.append(0x2C) }
            writer.append(jsonString: id)
        }
        writer.append("]}")
        return answer(200, [], subject, writer.text)
    }

    private func faultOfChannel(_ subject: RequestSubject) -> APNsReason? {
        if headers.channelID == nil { return .missingChannelID }
        return APNsBroadcastJudge.isChannelID(subject.token) ? nil : .badChannelID
    }

    // MARK: Answers

    private func answer(
        _ status: Int, _ fields: [ServerField], _ subject: RequestSubject, _ body: String = ""
    ) -> Judgement {
        Judgement(
            response: ServerResponse(
                status: status, fields: fields + [echo(subject)], text: body))
    }

    private func refuse(_ reason: APNsReason, _ subject: RequestSubject) -> Judgement {
        Judgement(
            response: ServerResponse(
                status: reason.status, fields: [echo(subject)],
                text: "{\"reason\":\"\(reason.rawValue)\"}"),
            reason: reason.rawValue)
    }

    private func echo(_ subject: RequestSubject) -> ServerField {
        ServerField("apns-request-id", subject.requestID ?? "00000000-0000-4000-8000-000000000000")
    }

    func answer(
        _ fault: FaultAnswer, _ subject: RequestSubject, at now: UnixMillis
    ) -> Judgement {
        Judgement(
            response: ServerResponse(
                status: fault.status, fields: [echo(subject)] + fault.fields,
                text: fault.body ?? "{\"reason\":\"\(fault.reason)\"}"),
            reason: fault.reason)
    }
}
