// The record of `push.events-dlt`: key, value and headers as received, and text headers that say
// why, where from and when.

internal import Base
internal import Kafka

/// A dead letter about to be written.
internal struct DeadLetterRecord {
    private let input: InputRecord
    private let refusal: Refusal
    private let settings: LaneSettings
    private let now: UnixMillis

    init(_ input: InputRecord, _ refusal: Refusal, settings: LaneSettings, now: UnixMillis) {
        self.input = input
        self.refusal = refusal
        self.settings = settings
        self.now = now
    }

    /// Adds the record to a batch.
    func add(to outbox: OutboxBatch) {
        let value = input.value.map { UnsafeRawBufferPointer(rebasing: $0.prefix(Self.keptBytes)) }
        let key = input.key.map {
            UnsafeRawBufferPointer(rebasing: $0.prefix(InputRecord.bytesBesideValueMax))
        }
        outbox.addRecord(
            to: settings.deadLettersTopic,
            partition: settings.deadLetterPartition(of: input.position.partition),
            key: outbox.bytes(copying: key),
            value: outbox.bytes(copying: value))
        var room = InputRecord.bytesBesideValueMax
        for header in input.headers {
            room -= header.name.utf8.count + (header.value?.count ?? 0)
            guard room >= 0 else { break }
            outbox.addHeader(
                name: outbox.bytes(copying: header.name), outbox.bytes(copying: header.value))
        }
        addText("bugle-error-code", refusal.code.rawValue, to: outbox)
        addText("bugle-error-reason", refusal.reason, to: outbox)
        addText("bugle-attempts", "0", to: outbox)
        addText("bugle-original-topic", input.position.topic, to: outbox)
        addText("bugle-original-partition", String(input.position.partition), to: outbox)
        addText("bugle-original-offset", String(input.position.offset), to: outbox)
        addText("bugle-original-timestamp", String(input.timestamp.value), to: outbox)
        addText("bugle-first-failed-at", String(now.value), to: outbox)
        addText("bugle-consumer-group", settings.group, to: outbox)
        let valueBytes = input.value?.count ?? 0
        if valueBytes > Self.keptBytes || input.bytesBesideValue > InputRecord.bytesBesideValueMax {
            addText("bugle-truncated", String(valueBytes), to: outbox)
        }
    }

    private func addText(_ name: StaticString, _ text: String, to outbox: OutboxBatch) {
        outbox.addHeader(name, outbox.bytes(copying: text))
    }

    /// How much of a large value is kept, in bytes.
    static let keptBytes = 256 << 10
}
