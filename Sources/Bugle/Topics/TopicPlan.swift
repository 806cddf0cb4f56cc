internal import Base
internal import JSON
internal import Kafka

/// What is there compared with what should be. Pure.
internal struct TopicPlan: Equatable {
    /// What a topic is like.
    enum State: Equatable {
        /// It does not exist.
        case missing
        /// It exists and is as it should be, as far as the broker shows.
        case present
        /// It exists and differs; a sentence for each difference.
        case drifted([String])
    }

    /// One topic.
    struct Entry: Equatable {
        var topic: WantedTopic
        var state: State
    }

    /// The topics in the order of the table.
    let entries: [Entry]

    /// Compares topics with the cluster; `settings` holds what the broker shows of them.
    init(
        _ topics: [WantedTopic], partitions: [String: Int32],
        settings: [String: [String: String]]
    ) {
        entries = topics.map { topic in
            guard let count = partitions[topic.name], count > 0 else {
                return Entry(topic: topic, state: .missing)
            }
            var drift: [String] = []
            if count != topic.partitions {
                drift.append(
                    "has \(count) partitions, wanted \(topic.partitions): all topics of one "
                        + "installation need the same number; create it anew under another name")
            }
            let shown = settings[topic.name] ?? [:]
            for (name, value) in topic.settings {
                guard let actual = shown[name], actual != value else { continue }
                drift.append(
                    "\(name) is \(actual), wanted \(value): kafka-configs --alter --topic "
                        + "\(topic.name) --add-config \(name)=\(value)")
            }
            return Entry(topic: topic, state: drift.isEmpty ? .present : .drifted(drift))
        }
    }

    /// The topics to create.
    var missing: [WantedTopic] { entries.filter { $0.state == .missing }.map(\.topic) }

    /// Every difference with the topic's name before it.
    var drift: [String] {
        entries.flatMap { entry -> [String] in
            guard case .drifted(let differences) = entry.state else { return [] }
            return differences.map { "\(entry.topic.name) \($0)" }
        }
    }

    /// The plan as one object.
    func writeJSON(to bytes: ByteWriter, created: Set<String>) {
        var object = JSONObjectWriter(bytes)
        object.name("topics")
        bytes.append("[")
        for (index, entry) in entries.enumerated() {
            if index > 0 { bytes.append(",") }
            write(entry, isCreated: created.contains(entry.topic.name), to: bytes)
        }
        bytes.append("]")
        object.end()
    }

    private func write(_ entry: Entry, isCreated: Bool, to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.string("name", entry.topic.name)
        object.integer("partitions", Int64(entry.topic.partitions))
        object.name("settings")
        var settings = JSONObjectWriter(bytes)
        for (name, value) in entry.topic.settings {
            switch name {
            case "cleanup.policy": settings.string("cleanup.policy", value)
            case "retention.ms": settings.string("retention.ms", value)
            case "delete.retention.ms": settings.string("delete.retention.ms", value)
            case "segment.ms": settings.string("segment.ms", value)
            default: settings.string("max.message.bytes", value)
            }
        }
        settings.end()
        var differences: [String] = []
        switch entry.state {
        case .missing: object.string("state", isCreated ? "created" : "missing")
        case .present: object.string("state", "present")
        case .drifted(let found):
            object.string("state", "drifted")
            differences = found
        }
        object.name("drift")
        bytes.append("[")
        for (index, difference) in differences.enumerated() {
            if index > 0 { bytes.append(",") }
            bytes.append(jsonString: difference)
        }
        bytes.append("]")
        object.end()
    }
}
