internal import Base
internal import Config
internal import Kafka

/// `bugle tail`: follows results and dead letters.
internal enum TailCommand: Command {
    static let name = "tail"
    static let awaitsSignals = true
    static let summary = "follows results and dead letters, one line each"
    static let synopsis =
        "tail --config FILE | --brokers HOST:PORT [--from-beginning] [--until-end] [--json]"
    static let options: [Option] = [
        .config,
        .value("brokers", "HOST:PORT", "a cluster with the default topics, instead of --config"),
        .flag("from-beginning", "start with the oldest record"),
        .flag("until-end", "stop where the topics end now"),
        .json,
    ]
    static let details = """
        Shows no token and no content. --json writes each result as it is and of each dead letter
        the headers that say why.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        var results = "push.results"
        var deadLetters = "push.events-dlt"
        let cluster: ClusterAccess
        if let brokers = arguments.text("brokers") {
            cluster = try ClusterAccess(KafkaConfiguration(bootstrapServers: brokers))
        } else if ConfigurationFile.isNamed(arguments) {
            let configuration = try ConfigurationFile.load(arguments)
            results = configuration.kafka.topics.results
            deadLetters = configuration.kafka.topics.deadLetters
            cluster = try ClusterAccess(configuration)
        } else {
            throw .usage(
                "say --config FILE or --brokers HOST:PORT, or set \(ConfigurationFile.variable)")
        }
        let counts = try cluster.partitionCounts()
        for topic in [results, deadLetters] where (counts[topic] ?? 0) == 0 {
            throw .failed("\(topic) does not exist; bugle topics apply creates it")
        }
        let untilEnd = arguments.has("until-end")
        let fromBeginning = untilEnd || arguments.has("from-beginning")
        let reader: TopicReader
        do throws(KafkaError) {
            reader = try TopicReader(
                cluster.configuration, topics: [results, deadLetters],
                from: fromBeginning ? .beginning : .end)
        } catch {
            throw cluster.failure(error, doing: "read \(results)")
        }
        follow(reader, deadLetters, asJSON: arguments.has("json"), untilEnd: untilEnd)
        return .ok
    }

    private static func follow(
        _ reader: TopicReader, _ deadLetters: String, asJSON: Bool, untilEnd: Bool
    ) {
        let lines = TailLine()
        reader.onFault = { place, error in Terminal.note("\(place): \(error)") }
        while ProcessSignals.wait(upTo: .zero) == nil {
            reader.read(max: 1000, timeout: .milliseconds(200)) { record in
                if record.topic == deadLetters {
                    var headers: [String: String] = [:]
                    record.forEachHeader { name, value in
                        headers[String(decoding: name, as: UTF8.self)] = value.map {
                            String(decoding: $0, as: UTF8.self)
                        }
                    }
                    Terminal.print(
                        asJSON
                            ? TailLine.deadLetterJSON(headers)
                            : TailLine.deadLetter(
                                headers, record.timestampMillis.map(UnixMillis.init)))
                } else if let value = record.value {
                    Terminal.print(
                        asJSON ? String(decoding: value, as: UTF8.self) : lines.result(value))
                }
            }
            if untilEnd && reader.isAtEnd { return }
        }
    }
}
