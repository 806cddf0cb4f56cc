// An explanation as lines for a person and as JSON for a machine.

internal import Base
internal import Gateways
internal import JSON
internal import Pipeline

internal enum ExplanationText {
    /// What the command knows beside the explanation.
    struct Surroundings {
        let now: UnixMillis
        /// When the event happened.
        let eventTime: UnixMillis
        /// Whether the event's own words show anything; nil when they do not tell.
        let isVisible: Bool?
        /// Devices that it does not go to whatever it says, and why.
        let notSent: [(addressID: String, obstacle: String)]
    }

    /// Lines for a person.
    static func lines(_ explanation: Explanation, _ surroundings: Surroundings) -> [String] {
        var lines = [
            "event     \(explanation.type.printable) for \(audience(of: explanation))"
                + " in \(explanation.app)",
            "route     \(explanation.route ?? "none") (\(explanation.choice))",
            "kind      \(kind(of: explanation, surroundings)), priority"
                + " \(explanation.priority.rawValue)",
            "expires   \(expiry(of: explanation, surroundings))",
        ]
        if let key = explanation.collapseKey {
            lines.append("collapse  \(key.printable)")
        }
        lines += self.lines(explanation.folding)
        for obstacle in explanation.obstacles { lines.append("but       \(obstacle.printable)") }
        if explanation.targets.isEmpty { lines.append("no device is meant: no_devices") }
        for target in explanation.targets { lines += self.lines(target) }
        for (id, obstacle) in notSent(explanation, surroundings) {
            lines += ["", "\(id.printable)", "  not sent: \(obstacle.printable)"]
        }
        for id in explanation.passedOver {
            lines += ["", "\(id.printable): not meant by the route's kind, only or except"]
        }
        return lines
    }

    /// Devices that get nothing, whatever the event says.
    private static func notSent(
        _ explanation: Explanation, _ surroundings: Surroundings
    ) -> [(addressID: String, obstacle: String)] {
        surroundings.notSent
            + explanation.notPreferred.map {
                ($0.addressID, "the install gets one push, through \($0.reachedThrough)")
            }
    }

    /// The kind, in words where it follows from the content.
    private static func kind(
        of explanation: Explanation, _ surroundings: Surroundings
    ) -> String {
        if let kind = explanation.kind { return kind.rawValue }
        return switch surroundings.isVisible {
        case true?: "alert: its own words are shown"
        case false?: "silent: nothing to display"
        case nil: "as its content for each gateway says"
        }
    }

    private static func expiry(
        of explanation: Explanation, _ surroundings: Surroundings
    ) -> String {
        let text = RFC3339.text(explanation.expiresAt)
        guard explanation.expiresAt <= surroundings.now else { return text }
        let ago = AgoText.text(since: explanation.expiresAt, at: surroundings.now)
        let time = RFC3339.text(surroundings.eventTime)
        return "\(text): expired \(ago): the event's time is \(time)"
    }

    private static func text(_ span: TimeSpan) -> String {
        span.millis % 1000 == 0 ? "\(span.millis / 1000) s" : "\(span.millis) ms"
    }

    /// What other events of the user do to it.
    private static func lines(_ folding: Explanation.Folding) -> [String] {
        var lines: [String] = []
        func add(_ text: String) { lines.append("          \(text)") }
        if let id = folding.collapseID {
            add("collapse id \(id.printable): per device one push with it is under way at a time;")
            add(
                "a newer event replaces this one while it waits or is to be tried again (coalesced)"
            )
        }
        if let window = folding.window {
            let place = folding.waitsInTopic ? "a retry topic" : "memory"
            add(
                folding.sendsFirst
                    ? "burst: the first event goes at once; later ones wait up to \(text(window)) in \(place),"
                    : "burst: it waits \(text(window)) in \(place) for others with its key,")
            add("and the latest is sent for all of them (coalesced)")
        } else if let hindrance = folding.hindrance {
            add("burst: not gathered: \(hindrance)")
        }
        if let span = folding.copiesKnownFor {
            add("copies with its source and id within \(text(span)) are suppressed (duplicate)")
        }
        if let time = folding.waitsUntil { add("waits until \(RFC3339.text(time)), as it says") }
        return lines
    }

    private static func audience(of explanation: Explanation) -> String {
        explanation.to.map { "\($0.kind.rawValue) \($0.name.printable)" }
            ?? explanation.userID?.printable ?? ""
    }

    private static func lines(_ target: Explanation.Target) -> [String] {
        let place = [
            target.gateway.rawValue, target.environment.rawValue, target.platform,
            target.locale ?? "no locale", "token \(target.tokenName)",
        ].filter { !$0.isEmpty && $0 != "none" }
        let head = [
            "", "\(target.addressID.printable) (\(place.joined(separator: ", ").printable))",
        ]
        switch target.answer {
        case .suppressed(let reason): return head + ["  suppressed: \(reason)"]
        case .rejected(let reason, let detail):
            return head + ["  rejected: \(reason): \(detail.printable)"]
        case .expired: return head + ["  expired"]
        case .request(let request):
            let fields = request.fields.map { "  \($0.name): \($0.value.printable)" }
            let size =
                "  \(request.bodyBytes) bytes"
                + (request.notes.isEmpty ? "" : "; \(request.notes)")
            let secret = request.secret.map { ["  encrypted in it: \($0.printable)"] } ?? []
            let doubts = request.doubts.map { "  warning: it seems to hold \($0)" }
            return head + fields + ["", "  \(request.body.printable)"] + secret + [size] + doubts
        }
    }

    /// One line of JSON.
    static func json(_ explanation: Explanation, _ surroundings: Surroundings) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("type", explanation.type)
        object.string("user_id", orNull: explanation.userID)
        object.string("app", explanation.app)
        object.string("route", orNull: explanation.route)
        object.string("choice", explanation.choice)
        object.string(
            "kind",
            orNull: explanation.kind?.rawValue
                ?? surroundings.isVisible.map { $0 ? "alert" : "silent" })
        object.string("priority", explanation.priority.rawValue)
        object.string("collapse_key", orNull: explanation.collapseKey)
        object.integer("expires_at", explanation.expiresAt.value)
        object.name("folding")
        write(explanation.folding, to: bytes)
        object.name("obstacles")
        list(explanation.obstacles, to: bytes) { bytes.append(jsonString: $0) }
        object.name("targets")
        list(explanation.targets, to: bytes) { write($0, to: bytes) }
        object.list("not_sent", notSent(explanation, surroundings)) { bytes, device in
            var inner = JSONObjectWriter(bytes)
            inner.string("address_id", device.addressID)
            inner.string("obstacle", device.obstacle)
            inner.end()
        }
        object.name("passed_over")
        list(explanation.passedOver, to: bytes) { bytes.append(jsonString: $0) }
        object.end()
        return bytes.text
    }

    private static func write(_ folding: Explanation.Folding, to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.string("collapse_id", orNull: folding.collapseID)
        if let window = folding.window {
            object.integer("window_ms", window.millis)
            object.string("first", folding.sendsFirst ? "send" : "hold")
            object.bool("waits_in_retry_topic", folding.waitsInTopic)
        }
        if let hindrance = folding.hindrance { object.string("not_gathered", hindrance) }
        if let span = folding.copiesKnownFor { object.integer("copies_ms", span.millis) }
        if let time = folding.waitsUntil { object.integer("waits_until", time.value) }
        object.end()
    }

    private static func write(_ target: Explanation.Target, to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.string("address_id", target.addressID)
        object.string("gateway", target.gateway.rawValue)
        object.string("environment", target.environment.rawValue)
        object.string("platform", target.platform)
        object.string("locale", orNull: target.locale)
        object.string("token_hash", target.tokenName)
        switch target.answer {
        case .suppressed(let reason):
            object.string("outcome", Outcome.suppressed.rawValue)
            object.string("reason", reason)
        case .rejected(let reason, let detail):
            object.string("outcome", Outcome.rejected.rawValue)
            object.string("reason", reason)
            object.string("detail", detail)
        case .expired: object.string("outcome", Outcome.expired.rawValue)
        case .request(let request):
            object.name("request")
            var sent = JSONObjectWriter(bytes)
            sent.name("headers")
            list(request.fields, to: bytes) { field in
                bytes.append("[")
                bytes.append(jsonString: field.name)
                bytes.append(",")
                bytes.append(jsonString: field.value)
                bytes.append("]")
            }
            sent.string("body", request.body)
            if let secret = request.secret { sent.string("encrypted", secret) }
            sent.integer("body_bytes", Int64(request.bodyBytes))
            if !request.notes.isEmpty { sent.string("notes", request.notes) }
            sent.name("doubts")
            list(request.doubts, to: bytes) { bytes.append(jsonString: $0) }
            sent.end()
        }
        object.end()
    }

    private static func list<Element>(
        _ elements: [Element], to bytes: ByteWriter, _ write: (Element) -> Void
    ) {
        bytes.append("[")
        for (index, element) in elements.enumerated() {
            if index > 0 { bytes.append(",") }
            write(element)
        }
        bytes.append("]")
    }
}
