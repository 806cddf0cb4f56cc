// Traces: an event that came with one is a part of it, and its results say so; what is exported
// beside that is decided here, once for each event.

internal import Base
internal import EventLoop
internal import Gateways
internal import Kafka
internal import TokenIndex

extension Lane {
    /// Finds an event's trace, or begins one for a share of those that have none.
    func beginTrace(_ event: EventInFlight, _ input: InputRecord) {
        event.trace = nil
        if !input.headers.isEmpty,
            let header = input.header("traceparent") ?? input.header("ce_traceparent"),
            let context = TraceContext(
                traceparent: header, span: newSpan(), records: settings.traces != nil)
        {
            event.trace = context
            return
        }
        guard let traces = settings.traces, traces.sample > 0,
            Double.random(in: 0..<1, using: &loop.random) < traces.sample
        else { return }
        event.trace = TraceContext(
            root: newSpan(), loop.random.next(), span: newSpan())
    }

    private func newSpan() -> UInt64 { max(loop.random.next(), 1) }

    /// Adds our span to the result that was added last.
    func addTrace(of event: EventInFlight) {
        if let trace = event.trace { addHeader(of: trace) }
    }

    /// The same for an event that is over and left its trace.
    func addHeader(of trace: TraceContext) {
        outbox.addHeader("traceparent", outbox.bytes { trace.write(to: $0) })
    }

    /// Hands an event over for which another one is sent, when it is exported.
    func endTrace(of folded: HeldEvent, app: String) {
        guard let trace = folded.trace, trace.isRecorded, let traces = settings.traces else {
            return
        }
        traces.offer(
            TracedEvent(
                context: trace, topic: folded.position.topic,
                partition: folded.position.partition, offset: folded.position.offset,
                eventID: folded.id, eventType: folded.tracedType, app: app,
                consumedAt: folded.consumedAt, askedAt: nil, fannedOutAt: nil,
                endedAt: loop.wall, outcome: .coalesced, targets: []))
    }

    /// Hands an event over that ends here, when it is exported.
    func endTrace(_ event: EventInFlight, outcome: Outcome? = nil) {
        guard let trace = event.trace, trace.isRecorded, let traces = settings.traces,
            let envelope = event.envelope
        else { return }
        traces.offer(
            TracedEvent(
                context: trace, topic: event.position.topic, partition: event.position.partition,
                offset: event.position.offset, eventID: envelope.id, eventType: envelope.type,
                app: event.app?.name ?? "", consumedAt: event.consumedAt,
                askedAt: event.askedAt, fannedOutAt: event.fannedOutAt, endedAt: loop.wall,
                outcome: outcome,
                targets: event.targets.compactMap { target in
                    guard let address = target.address else { return nil }
                    return TracedEvent.Target(
                        gateway: address.gateway, environment: address.environment,
                        messageID: target.messageID, sentAt: target.sentAt,
                        answeredAfter: target.gatewayTime, status: target.settlement?.status ?? 0,
                        outcome: target.settlement?.outcome,
                        reason: target.settlement?.reason?.rawValue, attempts: target.attempts)
                }))
    }
}
