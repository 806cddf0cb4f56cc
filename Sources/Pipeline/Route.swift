// Route: what an event becomes. The route of its type makes its content, and what it brings itself
// is merged last. Without a route it brings all of it, at its top level or inside its payload;
// otherwise the default notification speaks for it; otherwise it is a dead letter.

internal import Base
internal import EventLoop
internal import JSON
internal import Routes

extension Lane {
    /// Finds the app and the content, or says why there is none.
    func route(_ event: EventInFlight) throws(Refusal) {
        guard let envelope = event.envelope else { return }
        guard let app = app(named: envelope.app) else {
            throw envelope.refusal(.unknownApp, unknownApp(envelope.app))
        }
        event.app = app
        event.routed = try contents.route(
            envelope, app: app.name, event.eventClass, in: routes, count: event.burst?.count ?? 1)
        if event.routed != nil { return }
        try envelope.takeContentFromPayload()
        if !envelope.content.isExplicit {
            guard let standIn = defaultNotification else {
                throw envelope.refusal(.noRoute, routes.noRoute(for: envelope.type))
            }
            envelope.content.notification = standIn.value
        }
        try contents.checkAddresses(of: envelope, app: app.name, in: routes)
    }

    private func unknownApp(_ name: String?) -> String {
        let known = apps.map(\.name).joined(separator: ", ")
        return name == nil
            ? "app is missing and several are configured: \(known)"
            : "the app is not configured; known are: \(known)"
    }
}

extension RouteTable {
    /// What a dead letter says of an event without content.
    func noRoute(for type: String) -> String {
        let nearest = nearestPattern(to: type).map { "; the nearest is \($0)" } ?? ""
        return "the event has no notification, data, apns or fcm, and no route is for its type"
            + nearest
    }
}

extension EventEnvelope {
    /// A refusal that names the event and its user.
    func refusal(_ code: DeadLetterCode, _ reason: String) -> Refusal {
        var refusal = Refusal(code, reason)
        refusal.userID = resultUserID
        refusal.eventID = id
        refusal.eventType = type
        return refusal
    }

    /// Looks for content in the payload of an event that brings none at its top level; refuses
    /// what is too large, as it would be there.
    internal func takeContentFromPayload() throws(Refusal) {
        guard !content.isExplicit else { return }
        do throws(Refusal) {
            try content.takeFromPayload()
        } catch {
            throw refusal(error.code, error.reason)
        }
    }
}

extension EventContent {
    /// CloudEvents and bare envelopes carry only data: content is looked for in it, under the
    /// same names, and a payload with a title or a body is a notification itself.
    internal mutating func takeFromPayload() throws(Refusal) {
        guard let payload else { return }
        func object(_ name: StaticString) throws(Refusal) -> JSONValue? {
            guard let value = payload[name], value.isObject else { return nil }
            try EventFields.refuseLarge(value, "payload.\(name)")
            return value
        }
        notification = try object("notification")
        if notification == nil, payload["title"]?.string != nil || payload["body"]?.string != nil {
            // Of any size: its known words are taken, and what else it holds goes nowhere.
            notification = payload
        }
        data = try object("data")
        apns = try object("apns")
        fcm = try object("fcm")
    }
}

/// The notification of events that bring no content of their own; parsed once per lane.
internal final class DefaultNotification {
    private let parser = JSONParser()
    let value: JSONValue

    /// A fixed text: nothing of the event is shown, so nothing of it can leak.
    init?(title: String, body: String?) {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("title", title)
        if let body { object.string("body", body) }
        object.end()
        guard let value = try? parser.parse(bytes.bytes) else { return nil }
        self.value = value
    }
}
