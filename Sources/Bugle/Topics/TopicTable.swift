// The topics that Bugle uses, as `topics/README.md` promises them: one table, compared with that
// page by a test.

internal import Config
internal import Pipeline

/// A topic as it should be.
internal struct WantedTopic: Equatable {
    /// How old records are dealt with.
    enum Cleanup: Equatable {
        /// They go after some days.
        case delete(afterDays: Int)
        /// The newest of each key stays; the null of a removed one goes after some days.
        case compact(nullsAfterDays: Int)
        /// The same where keys are written again every few seconds: in segments of some minutes,
        /// since the newest segment is never compacted.
        case compactSoon(nullsAfterDays: Int)
    }

    /// The name.
    var name: String
    /// The number of partitions.
    var partitions: Int32
    /// How old records are dealt with.
    var cleanup: Cleanup

    /// The settings as Kafka writes them.
    var settings: [(name: String, value: String)] {
        let size = ("max.message.bytes", String(TopicTable.batchBytes))
        switch cleanup {
        case .delete(let days):
            return [
                ("cleanup.policy", "delete"), size, ("retention.ms", Self.milliseconds(days)),
            ]
        case .compact(let days):
            return [
                ("cleanup.policy", "compact"), ("delete.retention.ms", Self.milliseconds(days)),
                size,
            ]
        case .compactSoon(let days):
            return [
                ("cleanup.policy", "compact"), ("delete.retention.ms", Self.milliseconds(days)),
                size, ("segment.ms", "600000"),
            ]
        }
    }

    private static func milliseconds(_ days: Int) -> String { String(days * 24 * 3600 * 1000) }
}

/// All topics of a configuration.
internal enum TopicTable {
    /// Partitions where nobody asks for another number.
    static let partitions: Int32 = 24
    /// Bytes of a record batch, Kafka's own default.
    static let batchBytes = 1_048_588

    /// The topics under their configured names, events first.
    ///
    /// What each process reads as a whole has one partition, whatever the others have.
    static func topics(_ names: Configuration.Topics, partitions: Int32) -> [WantedTopic] {
        func topic(_ name: String, _ cleanup: WantedTopic.Cleanup) -> WantedTopic {
            WantedTopic(name: name, partitions: partitions, cleanup: cleanup)
        }
        return names.events.map { topic($0.name, .delete(afterDays: 7)) } + [
            topic(names.devices, .compact(nullsAfterDays: 7)),
            topic(names.invalidations, .compact(nullsAfterDays: 7)),
            topic(names.users, .compact(nullsAfterDays: 7)),
            topic(names.results, .delete(afterDays: 35)),
            topic(names.deadLetters, .delete(afterDays: 14)),
            topic(names.receipts, .delete(afterDays: 35)),
            topic(names.tickets, .delete(afterDays: 7)),
        ] + RetryTier.allCases.map { topic($0.topic(of: names.retry), .delete(afterDays: 7)) }
            + ParkedTopics.names(of: names.parked).map { topic($0, .delete(afterDays: 7)) }
            + [
                WantedTopic(
                    name: names.control, partitions: 1, cleanup: .compact(nullsAfterDays: 7)),
                WantedTopic(
                    name: names.status, partitions: 1, cleanup: .compactSoon(nullsAfterDays: 7)),
            ]
    }
}
