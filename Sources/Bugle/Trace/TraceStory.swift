// One event's story, put together from the topics: what was published, where it waited, what came of
// each target, and what was said of it later. No token and no content, unless asked for.

internal import Base
internal import JSON
internal import Kafka

/// One thing that happened.
internal struct TraceEntry {
    /// When, by the clock of whoever wrote it.
    var at: UnixMillis
    /// What: `published`, `waits`, `dead_letter`, `result`, `invalidation`, `receipt`, `ack`.
    var what: String
    /// Where it is written.
    var place: EventOrigin
    /// Names and values for a person.
    var fields: [(String, String)]
    /// The record's value, when it was asked for.
    var value: String?
}

/// Collects the entries, topic by topic.
internal final class TraceStory {
    private(set) var key: TraceKey
    private(set) var entries: [TraceEntry] = []
    private let keepsValues: Bool
    private let parser = JSONParser()

    init(_ key: TraceKey, keepsValues: Bool) {
        self.key = key
        self.keepsValues = keepsValues
    }

    /// Everything in the order of time; what happened in one millisecond in the order of the
    /// topics.
    var ordered: [TraceEntry] {
        entries.enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }
            .map(\.element)
    }

    // MARK: Results first: they know the event by all its names

    func takeResult(_ record: borrowing KafkaRecord) {
        guard let value = record.value, let root = try? parser.parse(value),
            let topic = root["input_topic"]?.string,
            let partition = root["input_partition"]?.int64.flatMap({ Int32(exactly: $0) }),
            let offset = root["input_offset"]?.int64
        else { return }
        let origin = EventOrigin(topic, partition, offset)
        let messageID = root["message_id"]?.string
        guard
            key.means(eventID: root["event_id"]?.string, at: origin)
                || key.means(messageID: messageID, resultID: nil)
        else { return }
        key.learn(origin: origin, messageID: messageID, resultID: root["result_id"]?.string)
        var fields = Self.fields(
            root,
            [
                "outcome", "reason", "status", "detail", "gateway", "environment", "install_id",
                "token_hash", "attempts", "ambiguous", "gateway_id", "gateway_ms", "collapse_id",
                "route", "message_id", "replica", "config_hash",
            ])
        for name in ["consumed_at", "fanout_at", "first_sent_at", "sent_at"] as [StaticString] {
            if let time = root[name]?.int64 {
                fields.append(("\(name)", RFC3339.text(UnixMillis(time))))
            }
        }
        if let targets = root["targets"]?.int64, let index = root["target_index"]?.int64 {
            fields.append(("target", "\(index &+ 1) of \(targets)"))
        }
        add(record, "result", at: root["settled_at"]?.int64, fields)
    }

    // MARK: The event, and where it waited

    func takeEvent(_ record: borrowing KafkaRecord) {
        let origin = EventOrigin(record.topic, record.partition, record.offset)
        let id = eventID(of: record)
        guard key.means(eventID: id.id, at: origin) else { return }
        key.learn(origin: origin)
        var fields = [("event_id", id.id ?? "none"), ("type", id.type ?? "unreadable")]
        if let source = id.source { fields.append(("source", source)) }
        let replay = record.withHeader("bugle-replay-of") { String(decoding: $0, as: UTF8.self) }
        if let replay { fields.append(("replay_of", replay)) }
        add(record, "published", at: nil, fields)
    }

    func takeWaiting(_ record: borrowing KafkaRecord, isDeadLetter: Bool) {
        func text(_ name: StaticString) -> String? {
            record.withHeader(name) { String(decoding: $0, as: UTF8.self) }
        }
        var origin: EventOrigin?
        if let topic = text("bugle-original-topic"),
            let partition = text("bugle-original-partition").flatMap({ Int32($0) }),
            let offset = text("bugle-original-offset").flatMap({ Int64($0) })
        {
            origin = EventOrigin(topic, partition, offset)
        }
        guard key.means(eventID: eventID(of: record).id, at: origin) else { return }
        key.learn(origin: origin)
        var fields = [("reason", text("bugle-error-code") ?? "unknown")]
        if let detail = text("bugle-error-reason") { fields.append(("detail", detail)) }
        if let attempts = text("bugle-attempts") { fields.append(("attempts", attempts)) }
        if let time = text("bugle-not-before").flatMap({ Int64($0) }), !isDeadLetter {
            fields.append(("not_before", RFC3339.text(UnixMillis(time))))
        }
        if let pending = text("bugle-pending") { fields.append(("open_targets", pending)) }
        add(record, isDeadLetter ? "dead_letter" : "waits", at: nil, fields)
    }

    // MARK: What was said later

    func takeInvalidation(_ record: borrowing KafkaRecord) {
        guard let value = record.value, let root = try? parser.parse(value) else { return }
        guard
            key.means(messageID: nil, resultID: root["result_id"]?.string)
        else { return }
        add(
            record, "invalidation", at: nil,
            Self.fields(
                root, ["verdict", "reason", "origin", "install_id", "gateway", "token_hash"]))
    }

    func takeReceipt(_ record: borrowing KafkaRecord) {
        guard let value = record.value, let root = try? parser.parse(value),
            key.means(
                messageID: root["message_id"]?.string, resultID: root["result_id"]?.string)
        else { return }
        add(record, "receipt", at: root["at"]?.int64, Self.fields(root, ["status", "reason"]))
    }

    func takeAck(_ record: borrowing KafkaRecord) {
        guard let value = record.value, let root = try? parser.parse(value),
            key.means(messageID: root["message_id"]?.string, resultID: nil)
        else { return }
        add(record, "ack", at: root["ts"]?.int64, Self.fields(root, ["type", "install_id"]))
    }

    // MARK: Parts

    private func add(
        _ record: borrowing KafkaRecord, _ what: String, at: Int64?, _ fields: [(String, String)]
    ) {
        let value = keepsValues ? record.value.map { String(decoding: $0, as: UTF8.self) } : nil
        entries.append(
            TraceEntry(
                at: UnixMillis(at ?? record.timestampMillis ?? 0), what: what,
                place: EventOrigin(record.topic, record.partition, record.offset), fields: fields,
                value: value))
    }

    private func eventID(
        of record: borrowing KafkaRecord
    ) -> (id: String?, type: String?, source: String?) {
        func header(_ name: StaticString) -> String? {
            record.withHeader(name) { String(decoding: $0, as: UTF8.self) }
        }
        if let id = header("ce_id") { return (id, header("ce_type"), header("ce_source")) }
        guard let value = record.value, let root = parser.event(in: value) else {
            return (nil, nil, nil)
        }
        return (
            root["id"]?.identifier, root["type"]?.string ?? root["event_type"]?.string,
            root["source"]?.string
        )
    }

    private static func fields(
        _ root: JSONValue, _ names: [StaticString]
    ) -> [(String, String)] {
        names.compactMap { name in
            guard let value = root[name], !value.isNull else { return nil }
            let text = value.string ?? String(decoding: value.source, as: UTF8.self)
            return text.isEmpty ? nil : ("\(name)", text)
        }
    }
}
