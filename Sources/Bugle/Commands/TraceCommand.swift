internal import Base
internal import Config
internal import JSON
internal import Kafka
internal import Pipeline

/// `bugle trace ID`: one event's story.
internal enum TraceCommand: Command {
    static let name = "trace"
    static let summary = "tells one event's story from the topics, in the order of time"
    static let synopsis = "trace --config FILE ID [--values] [--json]"
    static let options: [Option] = [
        .config, .flag("values", "show the records too: they hold content, and tokens"), .json,
    ]
    static let details = """
        ID is an event's id, a message_id (of a result, or the id in the payload that a device got),
        or the place of an event: push.events/3/1200. Reads the topics from their beginning, which
        takes a while where they are long: results, then events, retries, parked events and dead
        letters, then invalidations, receipts and acknowledgements. Exit 1 if nothing is found.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let text = try arguments.positional("ID")[0]
        let configuration = try ConfigurationFile.load(arguments)
        let cluster = try ClusterAccess(configuration)
        let topics = configuration.kafka.topics
        let events = Set(topics.events.map(\.name))
        let waiting = Set(
            RetryTier.allCases.map { $0.topic(of: topics.retry) }
                + ParkedTopics.names(of: topics.parked))
        let story = TraceStory(
            TraceKey(text, events: events), keepsValues: arguments.has("values"))
        let counts = try cluster.partitionCounts()
        func read(
            _ names: [String], _ body: (borrowing KafkaRecord) -> Void
        ) throws(Failure) {
            try scan(names.filter { (counts[$0] ?? 0) > 0 }.sorted(), cluster, body)
        }
        try read([topics.results]) { story.takeResult($0) }
        try read(Array(events) + Array(waiting) + [topics.deadLetters]) { record in
            if events.contains(record.topic) {
                story.takeEvent(record)
            } else {
                story.takeWaiting(record, isDeadLetter: record.topic == topics.deadLetters)
            }
        }
        try read([topics.invalidations, topics.receipts, topics.acks]) { record in
            switch record.topic {
            case topics.invalidations: story.takeInvalidation(record)
            case topics.receipts: story.takeReceipt(record)
            default: story.takeAck(record)
            }
        }
        guard !story.entries.isEmpty else {
            throw .failed(
                "\(text.printable): no topic knows it. It may be older than the topics keep, or "
                    + "its results may not be committed yet")
        }
        arguments.has("json") ? showJSON(story) : show(story)
        return .ok
    }

    private static func scan(
        _ names: [String], _ cluster: ClusterAccess, _ body: (borrowing KafkaRecord) -> Void
    ) throws(Failure) {
        guard !names.isEmpty else { return }
        let reader: TopicReader
        do throws(KafkaError) {
            reader = try TopicReader(cluster.configuration, topics: names, from: .beginning)
        } catch {
            throw cluster.failure(error, doing: "read \(names.joined(separator: ", "))")
        }
        let progress = ProgressLine()
        defer { progress.end() }
        _ = try reader.readWhole(body) { count in
            progress.show("\(count) records of \(names[0]) and others read")
            return true
        }
    }

    private static func show(_ story: TraceStory) {
        for entry in story.ordered {
            let fields = entry.fields.map { "\($0.0)=\($0.1.printable)" }
            Terminal.print(
                "\(RFC3339.text(entry.at))  \(entry.what.padded(to: 12))  \(entry.place)  "
                    + fields.joined(separator: " "))
            if let value = entry.value { Terminal.print("    \(value.printable)") }
        }
    }

    private static func showJSON(_ story: TraceStory) {
        for entry in story.ordered {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.integer("at", entry.at.value)
            object.string("what", entry.what)
            object.string("topic", entry.place.topic)
            object.integer("partition", Int64(entry.place.partition))
            object.integer("offset", entry.place.offset)
            object.name("fields")
            bytes.append("{")
            for (index, field) in entry.fields.enumerated() {
                if index > 0 { bytes.append(",") }
                bytes.append(jsonString: field.0)
                bytes.append(":")
                bytes.append(jsonString: field.1)
            }
            bytes.append("}")
            if let value = entry.value { object.string("value", value) }
            object.end()
            Terminal.print(bytes.text)
        }
    }
}
