// Who needs which rights, as the table in `topics/README.md` has it, in the words of Kafka's own tool;
// and how many partitions a number of replicas wants. Pure.

internal import Base
internal import Config
internal import Pipeline

/// The rights of one principal.
internal struct AccessPlan: Equatable {
    /// What somebody may do with something.
    struct Right: Equatable {
        /// `topic`, `group` or `transactional-id`.
        var resource: String
        var name: String
        /// Whether `name` is the beginning of names.
        var isPrefix = false
        var operations: [String]
    }

    let principal: String
    let rights: [Right]

    /// What the principals of a configuration need.
    static func all(_ configuration: Configuration) -> [AccessPlan] {
        let topics = configuration.kafka.topics
        let group = configuration.kafka.group
        let events = topics.events.map(\.name)
        let waiting =
            RetryTier.allCases.map { $0.topic(of: topics.retry) }
            + ParkedTopics.names(of: topics.parked)
        func topic(_ names: [String], _ operations: String...) -> [Right] {
            names.map { Right(resource: "topic", name: $0, operations: operations) }
        }
        let bugle =
            topic(
                events + [topics.devices, topics.users, topics.control, topics.acks], "Read",
                "Describe")
            + topic(
                waiting + [topics.tickets, topics.invalidations, topics.status], "Read", "Write",
                "Describe")
            + topic([topics.results, topics.deadLetters, topics.receipts], "Write", "Describe")
            + [group, group + "-index"].map {
                Right(resource: "group", name: $0, operations: ["Read", "Describe"])
            }
            + (configuration.kafka.commit == .transactional
                ? [
                    Right(
                        resource: "transactional-id", name: group + "-", isPrefix: true,
                        operations: ["Write", "Describe"])
                ] : [])
        // Everything that `bugle index`, `dlt`, `audit`, `trace` and the levers do.
        let operators =
            topic(
                events + [topics.control, topics.devices, topics.users, topics.invalidations],
                "Read", "Write", "Describe")
            + topic(
                waiting + [
                    topics.status, topics.results, topics.deadLetters, topics.receipts,
                    topics.acks,
                ], "Read", "Describe")
            + [Right(resource: "group", name: group, operations: ["Describe"])]
        return [
            AccessPlan(principal: "bugle", rights: bugle),
            AccessPlan(principal: "publishers", rights: topic(events, "Write", "Describe")),
            AccessPlan(
                principal: "devices",
                rights: topic([topics.devices], "Write", "Describe")
                    + topic([topics.invalidations], "Read", "Describe")),
            AccessPlan(
                principal: "accounts", rights: topic([topics.users], "Write", "Describe")),
            AccessPlan(
                principal: "acknowledgements", rights: topic([topics.acks], "Write", "Describe")),
            AccessPlan(
                principal: "analysts",
                rights: topic(
                    [topics.results, topics.receipts, topics.acks], "Read", "Describe")),
            AccessPlan(principal: "operators", rights: operators),
        ]
    }

    /// One command for each right.
    func commands(brokers: String) -> [String] {
        rights.map { right in
            let operations = right.operations.map { "--operation \($0)" }.joined(separator: " ")
            return "kafka-acls --bootstrap-server \(brokers) --add --allow-principal "
                + "User:\(principal) \(operations) --\(right.resource) \(right.name)"
                + (right.isPrefix ? " --resource-pattern-type prefixed" : "")
        }
    }
}

/// How many partitions suit a number of replicas.
internal struct PartitionAdvice: Equatable {
    let replicas: Int
    let lanes: Int
    /// Partitions that give every lane of every replica equally many, with room to double.
    let recommended: Int

    /// The number that suits most installations.
    private static let usual = Int(TopicTable.partitions)

    init(replicas: Int, lanes: Int) {
        self.replicas = replicas
        self.lanes = lanes
        let step = replicas * lanes
        let least = max(2 * step, Self.usual)
        recommended = (least + step - 1) / step * step
    }

    /// What is to be said of the partitions that are there; nil when they suit.
    func objection(to partitions: Int) -> String? {
        if partitions < replicas {
            return "\(replicas - partitions) of \(replicas) replicas would have nothing to do: "
                + "there are \(partitions) partitions"
        }
        if partitions < replicas * lanes {
            return
                "some of \(replicas * lanes) lanes (\(replicas) replicas of \(lanes)) would have "
                + "nothing to do: there are \(partitions) partitions"
        }
        if partitions % replicas != 0 {
            return "\(partitions) partitions do not divide evenly among \(replicas) replicas: one "
                + "has \(partitions / replicas + 1), another \(partitions / replicas)"
        }
        return nil
    }
}
