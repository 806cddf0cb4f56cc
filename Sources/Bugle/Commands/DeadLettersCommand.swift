internal import Base
internal import Config
internal import Glibc
internal import JSON
internal import Kafka

/// `bugle dlt list` and `bugle dlt replay`: what could not be pushed, and once more.
internal enum DeadLettersCommand: Command {
    static let name = "dlt"
    static let summary = "lists dead letters, or publishes their events again"
    static let synopsis =
        "dlt list|replay --config FILE [--reason CODE] [--type TYPE] [--since TIME] [--until TIME]"
        + " [--limit N] [--rate N] [--dry-run] [--yes] [--json]"
    static let options: [Option] = [
        .config,
        .value("reason", "CODE", "only those with this bugle-error-code"),
        .value("type", "TYPE", "only events of this type"),
        .value("since", "TIME", "only those written since then: RFC 3339, or how long ago (12h)"),
        .value("until", "TIME", "only those written before then"),
        .value("limit", "N", "at most so many, the oldest first of each partition; default 1000"),
        .value("rate", "N", "replay: events a second; default 100"),
        .flag("dry-run", "replay: say what would be published, and publish nothing"),
        .flag("yes", "replay: do not ask before real users are notified"),
        .json,
    ]
    static let details = """
        list shows when, why, and which event, but no content. Both look at the dead letters of
        this configuration's group only: others may share the topic.

        replay publishes key, value and headers as they were on the topic they came from, with the
        header bugle-replay-of: the place of the first event. It is a new event, for all devices of
        its user. Replays of one dead letter are pushed once: Bugle remembers for 7 days, in Redis
        and after the results are committed, which was; a further one ends suppressed, duplicate. So
        a replay that broke off is simply run again. Dead letters that were cut, have no value or
        came from no events topic are left out, and of several for one event all but one.
        """

    private static let timeout = TimeSpan.seconds(30)

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let action = try arguments.positional("list or replay")[0]
        guard action == "list" || action == "replay" else {
            throw .usage("\(action): expected list or replay")
        }
        let isReplay = action == "replay"
        for name in ["rate", "dry-run", "yes"] where !isReplay && arguments.has(name) {
            throw .usage("--\(name): only for replay")
        }
        let limit = try arguments.integer("limit", in: 1...100_000) ?? 1_000
        let rate = try arguments.integer("rate", in: 1...100_000) ?? 100
        let configuration = try ConfigurationFile.load(arguments)
        let filter = try filter(arguments, configuration.kafka.group)
        let cluster = try ClusterAccess(configuration)
        var selection = LetterSelection(
            filter, limit: limit, events: Set(configuration.kafka.topics.events.map(\.name)),
            forReplay: isReplay)
        try read(configuration.kafka.topics.deadLetters, cluster, into: &selection, isReplay)
        if !isReplay {
            arguments.has("json") ? showJSON(selection.letters) : show(selection)
            return .ok
        }
        tell(selection, asJSON: arguments.has("json"))
        if arguments.has("dry-run") || selection.letters.isEmpty {
            if !arguments.has("json") { show(selection) }
            return finish(0, selection, arguments)
        }
        try Confirmation.ask(
            "Publish \(selection.letters.count) events again? Their users are notified.",
            arguments, unasked: "real users would be notified", refused: "nothing was published")
        try replay(selection.letters, rate, cluster)
        return finish(selection.letters.count, selection, arguments)
    }

    private static func filter(
        _ arguments: Arguments, _ group: String
    ) throws(Failure) -> LetterFilter {
        let now = SystemTime.shared.wall
        var filter = LetterFilter(
            group: group, code: arguments.text("reason"), type: arguments.text("type"))
        if let text = arguments.text("since") {
            filter.since = try AuditCommand.time(text, at: now, option: "since")
        }
        if let text = arguments.text("until") {
            filter.until = try AuditCommand.time(text, at: now, option: "until")
        }
        return filter
    }

    // MARK: Reading

    private static func read(
        _ topic: String, _ cluster: ClusterAccess, into selection: inout LetterSelection,
        _ keepsValues: Bool
    ) throws(Failure) {
        guard (try cluster.partitionCounts()[topic] ?? 0) > 0 else {
            throw .failed("\(topic) does not exist; bugle topics apply creates it")
        }
        let reader: TopicReader
        do throws(KafkaError) {
            reader = try TopicReader(cluster.configuration, topics: [topic], from: .beginning)
        } catch {
            throw cluster.failure(error, doing: "read \(topic)")
        }
        let parser = JSONParser()
        let progress = ProgressLine()
        defer { progress.end() }
        var found = selection
        _ = try reader.readWhole(atOnce: 1_000) { record in
            found.add(StoredLetter(record, parser: parser, keepsValue: keepsValues))
        } while: { count in
            progress.show("\(count) dead letters read")
            return true
        }
        selection = found
    }

    // MARK: Writing

    private static func replay(
        _ letters: [StoredLetter], _ rate: Int, _ cluster: ClusterAccess
    ) throws(Failure) {
        let progress = ProgressLine()
        defer { progress.end() }
        let start = SystemTime.shared.monotonic
        do throws(KafkaError) {
            let producer = try TopicProducer(cluster.configuration)
            for (count, letter) in letters.enumerated() {
                guard let origin = letter.origin, let root = letter.root else { continue }
                let due = start + .microseconds(Int64(count) * 1_000_000 / Int64(rate))
                let wait = due - SystemTime.shared.monotonic
                if wait > .milliseconds(1) { poll(nil, 0, Int32(clamping: wait.millis)) }
                try producer.send(
                    to: origin.place.topic, partition: origin.place.partition, key: letter.key,
                    value: letter.value,
                    headers: letter.headers + [TopicProducer.Header("bugle-replay-of", root)])
                progress.show("\(count + 1) of \(letters.count) published")
            }
            try producer.flush(timeout: timeout)
        } catch {
            throw cluster.failure(error, doing: "publish all events; run it again")
        }
    }

    // MARK: Telling

    private static func tell(_ selection: LetterSelection, asJSON: Bool) {
        guard !asJSON else { return }
        for (reason, count) in selection.hindered.sorted(by: { $0.key < $1.key }) {
            Terminal.note("\(count) left out: \(reason)")
        }
        if selection.repeated > 0 {
            Terminal.note("\(selection.repeated) left out: another one is for the same event")
        }
    }

    private static func finish(
        _ published: Int, _ selection: LetterSelection, _ arguments: Arguments
    ) -> ExitCode {
        guard arguments.has("json") else {
            Terminal.print("\(published) events published again")
            return .ok
        }
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.integer("published", Int64(published))
        object.integer("selected", Int64(selection.letters.count))
        object.integer("matching", Int64(selection.matching))
        object.integer("repeated", Int64(selection.repeated))
        object.integer(
            "not_replayable", Int64(selection.hindered.values.reduce(0, +)))
        object.end()
        Terminal.print(bytes.text)
        return .ok
    }

    private static func show(_ selection: LetterSelection) {
        for letter in selection.letters {
            var parts = [
                RFC3339.text(letter.time), letter.code.printable.padded(to: 15),
                (letter.root ?? "unknown origin").printable,
            ]
            if let type = letter.type { parts.append(type.printable) }
            if let id = letter.eventID { parts.append(id.printable) }
            parts.append(letter.reason.printable)
            Terminal.print(parts.joined(separator: "  "))
        }
        let rest = selection.matching - selection.letters.count
        if rest > 0 { Terminal.note("\(rest) more; --limit shows them") }
    }

    private static func showJSON(_ letters: [StoredLetter]) {
        for letter in letters {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            let place = letter.place
            object.string("place", "\(place.topic)-\(place.partition)-\(letter.offset)")
            object.integer("time", letter.time.value)
            object.string("reason", letter.code)
            object.string("detail", letter.reason)
            object.string("replay_of", orNull: letter.root)
            object.string("type", orNull: letter.type)
            object.string("event_id", orNull: letter.eventID)
            object.bool("truncated", letter.isCut)
            object.end()
            Terminal.print(bytes.text)
        }
    }
}
