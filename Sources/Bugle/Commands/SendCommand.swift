internal import Base
internal import Config
internal import JSON
internal import Kafka
internal import Pipeline
internal import Routes

/// `bugle send EVENT.json`: publishes one event as a well-behaved producer would.
internal enum SendCommand: Command {
    static let name = "send"
    static let summary = "publishes one event, with the key and partition that it needs"
    static let synopsis = "send --config FILE EVENT.json [--yes] [--json]"
    static let options: [Option] = [
        .config, .flag("yes", "do not ask before a real user is notified"), .json,
    ]
    static let details = """
        EVENT.json is checked as by validate --config, routes included, and not published if it
        would reach nobody; - is standard input, and then --yes is needed. An event with "mode":
        "validate" reaches no device and is sent without asking.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let path = try arguments.positional("EVENT.json")[0]
        let configuration = try ConfigurationFile.load(arguments)
        let file = try EventFile(path)
        let routes = try ConfigurationFile.routes(of: configuration)
        let judgement: EventJudgement
        do throws(EventFault) {
            judgement = try .of(file, (configuration, routes), nil, at: SystemTime.shared.wall)
        } catch {
            throw error.failure(file)
        }
        for warning in judgement.warnings { Terminal.note("warning: \(warning.printable)") }
        let event = judgement.summary
        let topic = configuration.kafka.topics.events[0].name
        if !event.isValidation {
            let unasked =
                event.isBroadcast ? "real users would be notified" : "a real user would be notified"
            // What is on standard input cannot be an answer as well.
            if path == "-", !arguments.has("yes") {
                throw .usage(unasked + "; say --yes if that is meant")
            }
            try Confirmation.ask(
                event.isBroadcast
                    ? "Send \(event.type.printable) to everybody behind its topic or channel?"
                    : "Send \(event.type.printable) to user \(event.userID.printable)?", arguments,
                unasked: unasked, refused: "nothing was sent")
        }
        let cluster = try ClusterAccess(configuration)
        guard let count = try cluster.partitionCounts()[topic], count > 0 else {
            throw .failed("\(topic) does not exist; bugle topics apply creates it")
        }
        let (place, offset) = try publish(
            file, event.isBroadcast ? nil : event.userID, topic, cluster)
        if arguments.has("json") {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.string("topic", place.topic)
            object.integer("partition", Int64(place.partition))
            object.integer("offset", offset)
            object.end()
            Terminal.print(bytes.text)
        } else {
            Terminal.print("\(place.topic) partition \(place.partition) offset \(offset)")
        }
        return .ok
    }

    private static func publish(
        _ file: EventFile, _ userID: String?, _ topic: String, _ cluster: ClusterAccess
    ) throws(Failure) -> (TopicPartition, Int64) {
        do throws(KafkaError) {
            let producer = try TopicProducer(cluster.configuration)
            let sent = try producer.sendAndWait(
                to: topic, key: userID.map { Array($0.utf8) }, value: file.bytes)
            return (sent.place, sent.offset)
        } catch {
            throw cluster.failure(error, doing: "publish to \(topic)")
        }
    }
}
