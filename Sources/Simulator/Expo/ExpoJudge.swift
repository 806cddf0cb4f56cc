// The rules of Expo's push service: `send` takes up to a hundred messages and answers with a ticket
// for each, `getReceipts` tells later what became of them.

internal import Base
internal import Compression
internal import EventLoop
internal import HTTP2
internal import JSON

/// What a connection to Expo remembers.
final class ExpoConnectionState {
    var last = LastCredential()
}

/// Why Expo refuses a whole request.
struct ExpoFault: Error {
    var status = 400
    var code: String
    var message: String
    /// A JSON object.
    var details = ""

    var judgement: Judgement {
        let extra = details.isEmpty ? "" : ",\"details\":\(details)"
        return Judgement(
            response: ServerResponse(
                status: status, fields: [ServerField("content-type", "application/json")],
                text: "{\"errors\":[{\"code\":\"\(code)\",\"message\":\"\(message)\"\(extra)}]}"),
            reason: code)
    }
}

/// Judges requests to Expo. Loop-confined.
final class ExpoJudge: Judge {
    private let facts: GatewayFacts
    private let loop: EventLoop
    private let parser = JSONParser(maximumBytes: 2 << 20)
    private let receipts = ExpoReceiptBook()
    /// What each project sent lately.
    private var rates: [String: ExpoRate] = [:]

    // What `read` found, for `judge`.
    private var isSend = false
    private var body: JSONValue?
    /// Keeps the memory of `body` when it came compressed.
    private var plain: [UInt8] = []

    init(facts: GatewayFacts, loop: EventLoop) {
        self.facts = facts
        self.loop = loop
    }

    func read(_ request: ServerRequest, on connection: ServerConnection) -> RequestSubject {
        let path = request.text(":path") ?? ""
        isSend = path == "/--/api/v2/push/send"
        if request.value("content-encoding")?.spells("gzip") == true {
            plain = Gzip.decompressed(request.body.bytes, limit: 1 << 20) ?? []
            body = try? parser.parse(plain)
        } else {
            body = try? parser.parse(request.body.bytes)
        }
        if let state = connection.state as? ExpoConnectionState {
            _ = state.last.isSame(
                as: request.value("authorization") ?? UnsafeRawBufferPointer(start: nil, count: 0))
        }
        var subject = RequestSubject()
        subject.topic = isSend ? "send" : "getReceipts"
        subject.isBookkeeping = !isSend
        for message in messages() {
            for token in ExpoMessageCheck.recipients(of: message) ?? [""] {
                subject.parts.append(
                    RequestSubject.Part(
                        token: token,
                        messageID: message["data"]?["bugle"]?["id"]?.string,
                        collapseID: (message["collapseId"] ?? message["tag"])?.string,
                        priority: message["priority"]?.string,
                        expiration: message["ttl"].map {
                            String(decoding: $0.source, as: UTF8.self)
                        }))
            }
        }
        subject.token = subject.parts.first?.token ?? ""
        return subject
    }

    func judge(
        _ request: ServerRequest, _ subject: RequestSubject, on connection: ServerConnection
    ) -> Judgement {
        do throws(ExpoFault) {
            guard request.value(":method")?.spells("POST") == true else {
                throw ExpoFault(status: 405, code: "METHOD_NOT_ALLOWED", message: "POST")
            }
            if let token = facts.expoAccessToken,
                request.value("authorization")?.bearerToken?.text != token
            {
                throw ExpoFault(
                    status: 401, code: "UNAUTHORIZED",
                    message: "You do not have permission to send to this project.")
            }
            switch request.text(":path") {
            case "/--/api/v2/push/send": return try send(subject)
            case "/--/api/v2/push/getReceipts": return try answerReceipts()
            default: throw ExpoFault(status: 404, code: "NOT_FOUND", message: "no such path")
            }
        } catch {
            return error.judgement
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
        var judgement = ExpoFault(
            status: fault.status, code: fault.reason, message: "Scripted answer."
        ).judgement
        judgement.response.fields += fault.fields
        return judgement
    }
}

// The single rules.
extension ExpoJudge {
    private func messages() -> [JSONValue] {
        guard isSend, let body else { return [] }
        guard body.isArray else { return [body] }
        var messages: [JSONValue] = []
        body.forEachElement { messages.append($0) }
        return messages
    }

    private func send(_ subject: RequestSubject) throws(ExpoFault) -> Judgement {
        guard let body, body.isArray || body.isObject else {
            throw ExpoFault(code: "VALIDATION_ERROR", message: "the body is no JSON")
        }
        let messages = messages()
        // Recipients count, not messages.
        let count = subject.parts.count
        guard count <= Limits.expoMessages else {
            throw ExpoFault(
                code: "PUSH_TOO_MANY_NOTIFICATIONS",
                message: "Too many notifications: \(count) were received.")
        }
        for message in messages { try ExpoMessageCheck.check(message) }
        try checkProjects(subject)
        let project = facts.expoProject(of: subject.token)
        guard rates[project, default: ExpoRate()].take(count, at: loop.wall) else {
            throw ExpoFault(
                status: 429, code: "TOO_MANY_REQUESTS",
                message: "More than \(Limits.expoPerSecond) notifications a second.")
        }
        let answer = ByteWriter(capacity: 4096)
        answer.append("{\"data\":[")
        var reasons: [String] = []
        for message in messages {
            let isTooBig = ExpoMessageCheck.size(of: message) > Limits.expoPayloadBytes
            for token in ExpoMessageCheck.recipients(of: message) ?? [] {
                if !reasons.isEmpty { answer.append(0x2C) }
                reasons.append(writeTicket(token, isTooBig: isTooBig, to: answer))
            }
        }
        answer.append("]}")
        var judgement = Judgement(
            response: ServerResponse(
                status: 200, fields: [ServerField("content-type", "application/json")],
                body: answer.array))
        judgement.partReasons = reasons
        return judgement
    }

    private func checkProjects(_ subject: RequestSubject) throws(ExpoFault) {
        var tokens: [String: [String]] = [:]
        for part in subject.parts {
            tokens[facts.expoProject(of: part.token), default: []].append(part.token)
        }
        guard tokens.count > 1 else { return }
        let details = ByteWriter()
        for (index, (project, tokens)) in tokens.sorted(by: { $0.key < $1.key }).enumerated() {
            details.append(index == 0 ? "{" : ",")
            details.append(jsonString: project)
            details.append(":[")
            for (index, token) in tokens.enumerated() {
                if index > 0 { details.append(0x2C) }
                details.append(jsonString: token)
            }
            details.append("]")
        }
        details.append("}")
        throw ExpoFault(
            code: "PUSH_TOO_MANY_EXPERIENCE_IDS",
            message: "All push notification messages in the same request must be for the same "
                + "project.", details: details.text)
    }

    /// Writes the ticket of a message; returns the error's code, empty for none.
    private func writeTicket(
        _ token: String, isTooBig: Bool, to answer: ByteWriter
    ) -> String {
        let fate = facts.expoFate(of: token)
        let code = isTooBig ? "MessageTooBig" : fate.ticket
        guard code.isEmpty else {
            answer.append("{\"status\":\"error\",\"message\":")
            answer.append(jsonString: "\"\(token)\" is not taken: \(code)")
            answer.append(",\"details\":{\"error\":")
            answer.append(jsonString: code)
            answer.append(",\"expoPushToken\":")
            answer.append(jsonString: token)
            answer.append("}}")
            return code
        }
        answer.append("{\"status\":\"ok\",\"id\":")
        answer.append(jsonString: receipts.add(fate, at: loop.wall))
        answer.append("}")
        return ""
    }

    private func answerReceipts() throws(ExpoFault) -> Judgement {
        guard let ids = body?["ids"], ids.isArray else {
            throw ExpoFault(code: "VALIDATION_ERROR", message: "ids is required")
        }
        guard ids.count <= Limits.expoReceipts else {
            throw ExpoFault(code: "PUSH_TOO_MANY_RECEIPTS", message: "too many receipts")
        }
        let answer = ByteWriter()
        answer.append("{\"data\":{")
        var isFirst = true
        ids.forEachElement { id in
            guard let id = id.string, let code = receipts.receipt(id, at: loop.wall) else { return }
            if !isFirst { answer.append(0x2C) }
            isFirst = false
            answer.append(jsonString: id)
            if code.isEmpty {
                answer.append(":{\"status\":\"ok\"}")
            } else {
                answer.append(":{\"status\":\"error\",\"message\":\"\(code)\"")
                answer.append(",\"details\":{\"error\":")
                answer.append(jsonString: code)
                answer.append("}}")
            }
        }
        answer.append("}}")
        return Judgement(
            response: ServerResponse(
                status: 200, fields: [ServerField("content-type", "application/json")],
                body: answer.array))
    }
}

/// What a project may still send: a bucket that refills evenly within a second.
private struct ExpoRate {
    private var left = Double(Limits.expoPerSecond)
    private var countedAt: UnixMillis?

    mutating func take(_ count: Int, at now: UnixMillis) -> Bool {
        let rate = Double(Limits.expoPerSecond)
        if let countedAt { left = min(left + max((now - countedAt).seconds, 0) * rate, rate) }
        countedAt = now
        guard left >= Double(count) else { return false }
        left -= Double(count)
        return true
    }
}

/// The receipts of the tickets that were handed out. Loop-confined.
private final class ExpoReceiptBook {
    private var receipts: [String: (code: String, readyAt: UnixMillis, asksBefore: Int)] = [:]
    private var count: UInt64 = 0

    func add(_ fate: ExpoTokenFate, at now: UnixMillis) -> String {
        count += 1
        if receipts.count >= Limits.expoReceiptsKept {
            receipts = receipts.filter { now - $0.value.readyAt < Limits.expoReceiptLife }
        }
        let id = UUIDBytes(
            high: UInt64(bitPattern: now.value) << 16 | 0x4000, low: 0x8000_0000_0000_0000 | count
        ).text
        receipts[id] = (fate.receipt, now, fate.asksBeforeReceipt)
        return id
    }

    /// The code in a receipt, empty for a good one; nil when there is none.
    func receipt(_ id: String, at now: UnixMillis) -> String? {
        guard var receipt = receipts[id], now - receipt.readyAt < Limits.expoReceiptLife else {
            return nil
        }
        guard receipt.asksBefore == 0 else {
            receipt.asksBefore -= 1
            receipts[id] = receipt
            return nil
        }
        return receipt.code
    }
}
