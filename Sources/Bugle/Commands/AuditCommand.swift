internal import Base
internal import JSON
internal import Kafka

/// `bugle audit`: adds the ledger up again.
internal enum AuditCommand: Command {
    static let name = "audit"
    static let summary = "adds the ledger up from the topics: nothing missing, nothing doubled"
    static let synopsis =
        "audit --config FILE [--since TIME] [--from PLACES] [--list N] [--memory MIB]"
        + " [--patience SECONDS] [--json]"
    static let options: [Option] = [
        .config,
        .value("since", "TIME", "only events since then: RFC 3339, or how long ago (30m, 12h, 7d)"),
        .value(
            "from", "PLACES",
            "only events from these places on, TOPIC-PARTITION-OFFSET separated by commas"),
        .value("list", "N", "findings of each kind that are listed; default 100"),
        .value("memory", "MIB", "the most memory for the sum; default 1024"),
        .value(
            "patience", "SECONDS",
            "how long to look again for what seems to be missing; default 15"),
        .json,
    ]
    static let details = """
        Reads events, results, retries, parked events and dead letters, and what the group has
        committed, and holds them against each other: each event has one outcome for each of its
        targets or a dead letter, or is still waiting. Writes nothing, joins no group, and may run
        beside Bugle. Exit code 1 if something is missing, doubled or belongs to no event.

        It keeps 4 bytes for each offset of the events topics and 16 for each outcome: 1 GiB is
        enough for about 10 million events of 2.5 targets, growth included. "continue_from" in the
        JSON is what --from takes when only what came since is asked about.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        var scope = AuditScope()
        if let text = arguments.text("since") {
            scope.since = try Self.time(text, at: SystemTime.shared.wall)
        }
        if let text = arguments.text("from") { scope.from = try Self.places(text) }
        scope.listed = try arguments.integer("list", in: 0...100_000) ?? scope.listed
        if let mebibytes = try arguments.integer("memory", in: 1...1_000_000) {
            scope.bytes = mebibytes << 20
        }
        if let seconds = try arguments.integer("patience", in: 0...3600) {
            scope.patience = .seconds(Int64(seconds))
        }
        let configuration = try ConfigurationFile.load(arguments)
        let report = try AuditScan(configuration, scope).run()
        Terminal.print(arguments.has("json") ? AuditOutput.json(report) : AuditOutput.text(report))
        return report.isBalanced ? .ok : .failed
    }

    /// A moment, or the distance to one in the past.
    static func time(
        _ text: String, at now: UnixMillis, option: String = "since"
    ) throws(Failure) -> UnixMillis {
        if let time = RFC3339.parse(text) { return time }
        let units: [Character: Int64] = ["s": 1, "m": 60, "h": 3600, "d": 86_400]
        if let unit = text.last.flatMap({ units[$0] }), let count = Int64(text.dropLast()),
            (0...1_000_000).contains(count)
        {
            return UnixMillis(now.value - count * unit * 1000)
        }
        throw .usage("--\(option) \(text): expected a time such as 2026-11-30T12:00:00Z, or 12h")
    }

    /// `push.events-3-1200,push.events-4-17`.
    static func places(_ text: String) throws(Failure) -> [TopicPartition: Int64] {
        var places: [TopicPartition: Int64] = [:]
        for part in text.split(separator: ",") {
            let words = part.split(separator: "-", omittingEmptySubsequences: false)
            guard words.count >= 3, let offset = Int64(words[words.count - 1]), offset >= 0,
                let partition = Int32(words[words.count - 2]), partition >= 0
            else {
                throw .usage("--from \(part): expected TOPIC-PARTITION-OFFSET")
            }
            let topic = words.dropLast(2).joined(separator: "-")
            places[TopicPartition(topic, partition)] = offset
        }
        return places
    }
}
