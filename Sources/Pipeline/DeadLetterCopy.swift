// Copies in the dead-letter topic of events that were good and came to nothing: retries used up, or
// too late. Only for routes that want them; the results say what happened in any case.

internal import Base
internal import EventLoop
internal import Gateways
internal import Kafka
internal import Routes

extension Lane {
    /// Leaves one copy of an event of which a target was given up.
    func keepCopyOfUnsent(_ event: EventInFlight) {
        let settlements = event.targets.compactMap(\.settlement)
        if let failed = settlements.first(where: { $0.outcome == .failed }) {
            keepCopy(of: event, .failed, failed.reason, detail: failed.detail)
        } else if let expired = settlements.first(where: { $0.outcome == .expired }) {
            keepCopy(of: event, .expired, expired.reason, detail: expired.detail)
        }
    }

    /// Leaves a copy, if the event's route wants it.
    func keepCopy(
        of event: EventInFlight, _ code: DeadLetterCode, _ reason: Reason?, detail: String
    ) {
        guard event.routed?.route.keepsDeadLetters == true else { return }
        metrics.deadLettered(code)
        event.source.add(
            to: outbox, settings.deadLettersTopic,
            partition: settings.deadLetterPartition(of: event.position.partition),
            limit: DeadLetterRecord.keptBytes)
        func add(_ name: StaticString, _ text: String) {
            outbox.addHeader(name, outbox.bytes(copying: text))
        }
        let why = [reason?.rawValue ?? "", detail].filter { !$0.isEmpty }.joined(separator: ": ")
        add("bugle-error-code", code.rawValue)
        add("bugle-error-reason", String((why.isEmpty ? code.rawValue : why).prefix(512)))
        add("bugle-attempts", String(event.targets.map(\.attempts).max() ?? 0))
        add("bugle-original-topic", event.position.topic)
        add("bugle-original-partition", String(event.position.partition))
        add("bugle-original-offset", String(event.position.offset))
        add("bugle-original-timestamp", String(event.timestamp.value))
        add(
            "bugle-first-failed-at",
            String((event.reentry?.firstFailedAt ?? loop.wall).value))
        add("bugle-consumer-group", settings.group)
        if event.source.valueBytes > DeadLetterRecord.keptBytes {
            add("bugle-truncated", String(event.source.valueBytes))
        }
    }
}
