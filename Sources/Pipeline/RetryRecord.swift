// A record of a retry or parking topic, schema `topics/push.events-retry.schema.json`: the event as received,
// and in text headers where it came from, why it waits, until when, and which targets are open.

internal import Base
internal import JSON
internal import Kafka

/// Writes the retry records of one event.
internal struct RetryRecord {
    private let event: EventInFlight
    private let settings: LaneSettings
    private let now: UnixMillis

    init(_ event: EventInFlight, _ settings: LaneSettings, now: UnixMillis) {
        self.event = event
        self.settings = settings
        self.now = now
    }

    /// The topic in which something waits.
    func topic(for postponement: Postponement) -> OutputTopic {
        if let place = postponement.place, let topic = settings.waitingTopics.parked[place] {
            return topic
        }
        let tier = settings.tiers.fitting(postponement.notBefore - now)
        return settings.waitingTopics.retry[tier.rawValue]
    }

    /// Adds one record, to the partition the event was read from.
    func add(
        _ pending: ArraySlice<PendingTarget>, isFannedOut: Bool, postponement: Postponement,
        to outbox: OutboxBatch
    ) {
        guard let partition = event.partition?.assignment.place.partition else { return }
        event.source.add(to: outbox, topic(for: postponement), partition: partition)
        func add(_ name: StaticString, _ text: String) {
            outbox.addHeader(name, outbox.bytes(copying: text))
        }
        add("bugle-error-code", postponement.code)
        add("bugle-error-reason", String(postponement.detail.prefix(Self.reasonCharacters)))
        add("bugle-attempts", String(pending.map(\.attempts).max() ?? 0))
        add("bugle-original-topic", event.position.topic)
        add("bugle-original-partition", String(event.position.partition))
        add("bugle-original-offset", String(event.position.offset))
        add("bugle-original-timestamp", String(event.timestamp.value))
        add("bugle-first-failed-at", String((event.reentry?.firstFailedAt ?? now).value))
        add("bugle-consumer-group", settings.group)
        add("bugle-not-before", String(postponement.notBefore.value))
        if let until = event.windowUntil { add("bugle-window-until", String(until.value)) }
        if let burst = event.burst {
            add("bugle-burst", String(burst.count))
            if burst.foldedCount > 0 {
                add("bugle-folded-count", String(burst.foldedCount))
                outbox.addHeader(
                    "bugle-folded",
                    burst.names.withUnsafeBytes { outbox.bytes(copying: $0) })
            }
        }
        if let cursor = event.carriedCursor {
            outbox.addHeader("bugle-cursor", outbox.bytes { cursor.write(to: $0) })
        }
        guard isFannedOut else { return }
        add("bugle-targets", String(event.targetCount))
        add(
            "bugle-fanout-at",
            String((event.fannedOutAt ?? event.reentry?.fannedOutAt ?? now).value))
        outbox.addHeader(
            "bugle-pending",
            list(pending, outbox) { bytes, target in bytes.append(jsonString: target.addressID) })
        outbox.addHeader(
            "bugle-pending-state",
            list(pending, outbox) { bytes, target in target.write(to: bytes) })
    }

    /// Targets that one record has room for, of all that wait in the same place. Topics take about a
    /// mebibyte with the event in it, and a record that none takes would stop every commit.
    static func parts(of pending: [PendingTarget]) -> [ArraySlice<PendingTarget>] {
        var parts: [ArraySlice<PendingTarget>] = []
        var start = 0
        var bytes = 0
        for (index, target) in pending.enumerated() {
            let size = target.bytesMax
            if bytes + size > pendingBytesMax, index > start {
                parts.append(pending[start..<index])
                start = index
                bytes = 0
            }
            bytes += size
        }
        parts.append(pending[start...])
        return parts
    }

    /// What the lists of a record may take, in bytes.
    private static let pendingBytesMax = 384 << 10

    private func list(
        _ pending: ArraySlice<PendingTarget>, _ outbox: OutboxBatch,
        _ write: (ByteWriter, PendingTarget) -> Void
    ) -> ByteRange {
        outbox.bytes { bytes in
            bytes.append(0x5B)
            for (index, target) in pending.enumerated() {
                if index > 0 { bytes.append(0x2C) }
                write(bytes, target)
            }
            bytes.append(0x5D)
        }
    }

    /// The schema's bound, with room to spare.
    private static let reasonCharacters = 200
}
