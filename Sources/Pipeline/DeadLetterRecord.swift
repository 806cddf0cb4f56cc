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
        outbox.addRecord(
            to: settings.deadLettersTopic,
            partition: settings.deadLettersKeepPartition ? input.position.partition : nil,
            key: outbox.bytes(copying: input.key),
            value: outbox.bytes(copying: value))
        for header in input.headers {
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
        if let value = input.value, value.count > Self.keptBytes {
            addText("bugle-truncated", String(value.count), to: outbox)
        }
    }

    private func addText(_ name: StaticString, _ text: String, to outbox: OutboxBatch) {
        outbox.addHeader(name, outbox.bytes(copying: text))
    }

    /// How much of a large value is kept, in bytes.
    static let keptBytes = 256 << 10
}
