internal import Base
internal import Config
internal import Kafka

/// `bugle topics plan|apply`: the topics of a configuration.
internal enum TopicsCommand: Command {
    static let name = "topics"
    static let summary = "shows which topics are missing or differ; creates the missing ones"
    static let synopsis =
        "topics plan|apply --config FILE [--partitions N] [--replicas N]"
        + " [--replication N] [--acls] [--json]"
    static let options: [Option] = [
        .config,
        .value(
            "partitions", "N", "partitions of each new topic; default those of the events topic"),
        .value("replicas", "N", "plan: how many partitions so many Bugle replicas want"),
        .value("replication", "N", "copies of each new topic; default the broker's own"),
        .flag("acls", "plan: print the commands that grant the rights"),
        .json,
    ]
    static let details = """
        plan changes nothing. apply creates what is missing and never alters a topic that exists:
        what differs is shown, with the command that changes it.
        """

    private static let timeout = TimeSpan.seconds(10)

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let action = try arguments.positional("plan or apply")[0]
        guard action == "plan" || action == "apply" else {
            throw .usage("\(action): expected plan or apply")
        }
        let configuration = try ConfigurationFile.load(arguments)
        let asked = try arguments.integer("partitions", in: 1...10_000)
        let replication = try arguments.integer("replication", in: 1...100) ?? -1
        let replicas = try arguments.integer("replicas", in: 1...1_000)
        for name in ["replicas", "acls"] where action == "apply" && arguments.has(name) {
            throw .usage("--\(name): only for plan")
        }
        let advice = replicas.map {
            PartitionAdvice(replicas: $0, lanes: configuration.lanes.number)
        }
        let cluster = try ClusterAccess(configuration)
        let counts = try cluster.partitionCounts()
        let there = configuration.kafka.topics.events.compactMap { counts[$0.name] }.first {
            $0 > 0
        }
        let plan = try makePlan(
            cluster, configuration.kafka.topics,
            (asked ?? (there == nil ? advice?.recommended : nil)).map { Int32($0) })
        if action == "apply" { try create(plan.missing, Int32(replication), cluster) }
        show(plan, isApplied: action == "apply", asJSON: arguments.has("json"))
        guard !arguments.has("json") else { return .ok }
        if let advice { show(advice, there.map { Int($0) }) }
        if arguments.has("acls") || replicas != nil { showRights(configuration) }
        return .ok
    }

    private static func show(_ advice: PartitionAdvice, _ there: Int?) {
        Terminal.print("")
        Terminal.print(
            "\(advice.replicas) replicas of \(advice.lanes) lanes: \(advice.recommended) partitions give "
                + "each lane equally many, with room to double")
        guard let there else { return }
        Terminal.print(
            advice.objection(to: there)
                ?? "the \(there) partitions that are there suit \(advice.replicas) replicas; their "
                + "number cannot be changed without moving users")
    }

    private static func showRights(_ configuration: Configuration) {
        for plan in AccessPlan.all(configuration) {
            Terminal.print("")
            Terminal.print("# \(plan.principal): put your own name for User:\(plan.principal)")
            for command in plan.commands(brokers: configuration.kafka.brokers) {
                Terminal.print(command)
            }
        }
    }

    private static func makePlan(
        _ cluster: ClusterAccess, _ names: Configuration.Topics, _ asked: Int32?
    ) throws(Failure) -> TopicPlan {
        let partitions = try cluster.partitionCounts()
        let known = names.events.compactMap { partitions[$0.name] }.first { $0 > 0 }
        let topics = TopicTable.topics(
            names, partitions: asked ?? known ?? TopicTable.partitions)
        let existing = topics.map(\.name).filter { (partitions[$0] ?? 0) > 0 }
        // Some brokers describe no settings; the plan then compares what there is.
        let settings =
            existing.isEmpty
            ? [:] : (try? cluster.admin.topicSettings(existing, timeout: timeout)) ?? [:]
        return TopicPlan(topics, partitions: partitions, settings: settings)
    }

    private static func create(
        _ topics: [WantedTopic], _ replicas: Int32, _ cluster: ClusterAccess
    ) throws(Failure) {
        guard !topics.isEmpty else { return }
        let new = topics.map { topic in
            NewTopic(
                topic.name, partitions: topic.partitions, replicas: replicas,
                settings: Dictionary(
                    topic.settings.map { ($0.name, $0.value) }, uniquingKeysWith: { $1 }))
        }
        let failures: [String: KafkaError]
        do throws(KafkaError) {
            failures = try cluster.admin.createTopics(new, timeout: timeout)
        } catch {
            throw cluster.failure(error, doing: "create topics")
        }
        // Somebody else may have created one meanwhile.
        let lines = failures.filter { $0.value.kind != .alreadyExists }.map { name, error in
            "\(name) was not created: \(error)"
        }
        if !lines.isEmpty { throw .failed(lines.sorted()) }
    }

    private static func show(_ plan: TopicPlan, isApplied: Bool, asJSON: Bool) {
        let created = isApplied ? Set(plan.missing.map(\.name)) : []
        if asJSON {
            let bytes = ByteWriter()
            plan.writeJSON(to: bytes, created: created)
            Terminal.print(bytes.text)
            return
        }
        let width = plan.entries.map(\.topic.name.count).max() ?? 0
        for entry in plan.entries {
            let state =
                switch entry.state {
                case .missing: isApplied ? "created" : "missing"
                case .present: "there"
                case .drifted: "differs"
                }
            let settings = entry.topic.settings.map { "\($0.name)=\($0.value)" }
            Terminal.print(
                "\(state.padded(to: 8)) \(entry.topic.name.padded(to: width))  "
                    + "\(entry.topic.partitions) partitions  \(settings.joined(separator: " "))")
        }
        for difference in plan.drift { Terminal.note("differs: \(difference)") }
        if !isApplied && !plan.missing.isEmpty {
            Terminal.note("bugle topics apply creates what is missing")
        }
    }
}
