// OTLP/HTTP in JSON (OpenTelemetry protocol 1.x, section "JSON Protobuf Encoding"): ids as hex, enums as
// numbers, 64-bit integers as text. Pure.

internal import Base
internal import JSON
internal import Pipeline

/// Writes an export request.
internal struct OTLPWriter {
    let instance: String

    private enum Kind: Int64 {
        case `internal` = 1
        case client = 3
        case consumer = 5
    }

    /// Spans of a number of events: one for the event, one for its look-up, one for each request.
    static func spanCount(_ events: [TracedEvent]) -> Int {
        events.reduce(0) { sum, event in
            sum + 1 + (event.askedAt != nil && event.fannedOutAt != nil ? 1 : 0)
                + event.targets.count { $0.sentAt != nil }
        }
    }

    /// Writes one request with all spans of some events.
    func write(_ events: [TracedEvent], to bytes: ByteWriter) {
        bytes.append(#"{"resourceSpans":[{"resource":{"attributes":["#)
        text("service.name", "bugle", to: bytes)
        bytes.append(",")
        text("service.version", Program.version, to: bytes)
        bytes.append(",")
        text("service.instance.id", instance, to: bytes)
        bytes.append(#"]},"scopeSpans":[{"scope":{"name":"bugle","version":"#)
        bytes.append(jsonString: Program.version)
        bytes.append(#"},"spans":["#)
        var isFirst = true
        for event in events { write(event, &isFirst, to: bytes) }
        bytes.append("]}]}]}")
    }

    private func write(_ event: TracedEvent, _ isFirst: inout Bool, to bytes: ByteWriter) {
        let context = event.context
        begin(
            "\(event.topic) process", .consumer, context, span: context.span,
            parent: context.parent, event.consumedAt.nanos, event.endedAt.nanos, &isFirst, bytes)
        text("messaging.system", "kafka", to: bytes)
        for (name, value) in [
            ("messaging.operation.name", "process"), ("messaging.operation.type", "process"),
            ("messaging.destination.name", event.topic),
            ("messaging.destination.partition.id", String(event.partition)),
            ("bugle.event_id", event.eventID), ("bugle.event_type", event.eventType),
            ("bugle.app", event.app),
        ] {
            bytes.append(",")
            text(name, value, to: bytes)
        }
        bytes.append(",")
        number("messaging.kafka.offset", event.offset, to: bytes)
        if let outcome = event.outcome {
            bytes.append(",")
            text("bugle.outcome", outcome.rawValue, to: bytes)
        }
        end(isError: event.outcome?.outcomeClass == .error, to: bytes)
        if let asked = event.askedAt, let known = event.fannedOutAt {
            begin(
                "look up addresses", .internal, context, span: Self.child(of: context.span, 0),
                parent: context.span, asked.nanos, known.nanos, &isFirst, bytes)
            number("bugle.targets", Int64(event.targets.count), to: bytes)
            end(isError: false, to: bytes)
        }
        for (index, target) in event.targets.enumerated() {
            write(target, index, of: event, &isFirst, to: bytes)
        }
    }

    private func write(
        _ target: TracedEvent.Target, _ index: Int, of event: TracedEvent, _ isFirst: inout Bool,
        to bytes: ByteWriter
    ) {
        guard let sentAt = target.sentAt else { return }
        let context = event.context
        begin(
            "send \(target.gateway.rawValue)", .client, context,
            span: Self.child(of: context.span, index + 1), parent: context.span, sentAt.nanos,
            sentAt.nanos + target.answeredAfter.nanos, &isFirst, bytes)
        text("bugle.gateway", target.gateway.rawValue, to: bytes)
        var attributes = [
            ("bugle.environment", target.environment.rawValue),
            ("bugle.message_id", target.messageID.text),
            ("bugle.outcome", target.outcome?.rawValue ?? "postponed"),
        ]
        if let reason = target.reason { attributes.append(("bugle.reason", reason)) }
        for (name, value) in attributes {
            bytes.append(",")
            text(name, value, to: bytes)
        }
        bytes.append(",")
        number("bugle.attempts", Int64(target.attempts), to: bytes)
        if target.status > 0 {
            bytes.append(",")
            number("http.response.status_code", Int64(target.status), to: bytes)
        }
        end(isError: target.outcome?.outcomeClass == .error, to: bytes)
    }

    // MARK: Parts

    private func begin(
        _ name: String, _ kind: Kind, _ context: TraceContext, span: UInt64, parent: UInt64,
        _ start: Int64, _ end: Int64, _ isFirst: inout Bool, _ bytes: ByteWriter
    ) {
        if !isFirst { bytes.append(",") }
        isFirst = false
        bytes.append(#"{"traceId":""#)
        TraceContext.append(context.traceHigh, to: bytes)
        TraceContext.append(context.traceLow, to: bytes)
        bytes.append(#"","spanId":""#)
        TraceContext.append(span, to: bytes)
        if parent != 0 {
            bytes.append(#"","parentSpanId":""#)
            TraceContext.append(parent, to: bytes)
        }
        bytes.append(#"","name":"#)
        bytes.append(jsonString: name)
        bytes.append(#","kind":"#)
        bytes.append(decimal: kind.rawValue)
        bytes.append(#","startTimeUnixNano":""#)
        bytes.append(decimal: start)
        bytes.append(#"","endTimeUnixNano":""#)
        bytes.append(decimal: max(end, start))
        bytes.append(#"","attributes":["#)
    }

    /// Closes a span; an error is the only status that we set.
    private func end(isError: Bool, to bytes: ByteWriter) {
        bytes.append(isError ? #"],"status":{"code":2}}"# : #"],"status":{}}"#)
    }

    private func text(_ name: String, _ value: String, to bytes: ByteWriter) {
        bytes.append(#"{"key":"#)
        bytes.append(jsonString: name)
        bytes.append(#","value":{"stringValue":"#)
        bytes.append(jsonString: value)
        bytes.append("}}")
    }

    private func number(_ name: String, _ value: Int64, to bytes: ByteWriter) {
        bytes.append(#"{"key":"#)
        bytes.append(jsonString: name)
        bytes.append(#","value":{"intValue":""#)
        bytes.append(decimal: value)
        bytes.append(#""}}"#)
    }

    /// The id of a span below another: derived, so that nobody has to keep it, and never zero.
    static func child(of span: UInt64, _ index: Int) -> UInt64 {
        var value = span &+ UInt64(index + 1) &* 0x9E37_79B9_7F4A_7C15
        value = (value ^ value >> 30) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ value >> 27) &* 0x94D0_49BB_1331_11EB
        return max(value ^ value >> 31, 1)
    }
}

extension UnixMillis {
    fileprivate var nanos: Int64 { TimeSpan.milliseconds(value).nanos }
}
