// What a client of this room can be told: a few typed settings with defaults that suit Bugle, and
// any librdkafka property passed through beside them.

public import Base
internal import CRDKafka

/// One line of librdkafka's own log.
public struct KafkaLogLine: Sendable, Equatable {
    /// Syslog severity, 0 (emergency) to 7 (debug).
    public let level: Int32
    /// librdkafka's facility, e.g. `FAIL` or `REBALANCE`.
    public let facility: String
    /// The text.
    public let text: String
}

/// How to reach the cluster; shared by all clients of one process.
public struct KafkaConfiguration: Sendable {
    /// `host:port`, several separated by commas.
    public var bootstrapServers: String
    /// The name that brokers see in their logs and quotas.
    public var clientID: String
    /// librdkafka properties passed through (TLS, SASL, anything else). They win over the defaults
    /// of this room; the few that promises depend on are refused with a reason.
    public var properties: [String: String]
    /// Receives librdkafka's log lines, on the thread that polls the client.
    public var log: (@Sendable (KafkaLogLine) -> Void)?

    /// A cluster reached at `bootstrapServers`.
    public init(
        bootstrapServers: String, clientID: String = "bugle", properties: [String: String] = [:],
        log: (@Sendable (KafkaLogLine) -> Void)? = nil
    ) {
        self.bootstrapServers = bootstrapServers
        self.clientID = clientID
        self.properties = properties
        self.log = log
    }

    /// Checks every passed-through property, and the keys and certificates they name, without
    /// connecting anywhere: librdkafka reads those when a client is made.
    public func validate() throws(KafkaError) {
        let builder = ClientConfiguration(self)
        try builder.apply([], knowsBrokers: false)
        _ = try builder.makeClient(RD_KAFKA_PRODUCER, events: 0)
    }
}

/// How a member of a consumer group behaves.
public struct GroupConfiguration: Sendable {
    /// The assignors that are offered. All members of a group must agree.
    public enum Assignor: String, Sendable, CaseIterable {
        /// Co-locates equal partition numbers of several topics; the default.
        case range
        /// Spreads partitions evenly, topics apart.
        case roundrobin
        /// Moves as little as possible, without stopping the rest.
        case cooperativeSticky = "cooperative-sticky"
    }

    /// Where a partition without a committed offset starts.
    public enum Start: String, Sendable, CaseIterable {
        /// At the oldest record there is.
        case earliest
        /// At the next record written.
        case latest
    }

    /// The group's id.
    public var groupID: String
    /// How long the broker waits for a heartbeat before the member is out.
    public var sessionTimeout = TimeSpan.seconds(45)
    /// The distance of two heartbeats.
    public var heartbeatInterval = TimeSpan.seconds(3)
    /// The longest a rebalance may wait for this member.
    public var maxPollInterval = TimeSpan.minutes(5)
    /// How partitions are shared out.
    public var assignor = Assignor.range
    /// Where to start without a committed offset.
    public var start = Start.earliest
    /// How long a fetch waits at the broker for data. Short keeps latency low on quiet topics.
    public var fetchWait = TimeSpan.milliseconds(100)
    /// Prefetched KiB per partition: at least what a second of a catch-up takes, since librdkafka looks
    /// only once a second again at a partition that has reached it. A parking topic whose gateway is
    /// down lies in memory up to this and one fetch more, unpacked.
    public var prefetchKiB = 2048
    /// Prefetched records per partition.
    public var prefetchRecords = 100_000
    /// KiB of one partition in one fetch, compressed. Whole fetches land at once, unpacked, beyond
    /// the prefetch limit: this bounds by how much.
    public var fetchKiB = 128
    /// Tells each time the end of a partition is reached.
    public var reportsEndOfPartition = false
    /// The distance of two statistics documents; zero for none.
    public var statisticsInterval = TimeSpan.zero
    /// How long a revoked partition may take to finish its work before it is given away.
    public var drainDeadline = TimeSpan.seconds(20)
    /// The member's name for the broker, which then keeps its partitions over a restart within the
    /// session time-out, and also for that long after a planned stop. Nil for a member that leaves.
    public var instanceID: String?
    /// Written beside each committed offset, for whoever reads the group's state.
    public var commitMetadata = ""

    /// A member of `groupID` with the defaults.
    public init(groupID: String) { self.groupID = groupID }

    var properties: [(String, String)] {
        (instanceID.map { [("group.instance.id", $0)] } ?? []) + [
            ("group.id", groupID),
            ("session.timeout.ms", String(sessionTimeout.millis)),
            ("heartbeat.interval.ms", String(heartbeatInterval.millis)),
            ("max.poll.interval.ms", String(max(maxPollInterval, sessionTimeout).millis)),
            ("partition.assignment.strategy", assignor.rawValue),
            ("auto.offset.reset", start.rawValue),
            ("isolation.level", "read_committed"),
            ("fetch.wait.max.ms", String(fetchWait.millis)),
            ("fetch.message.max.bytes", String(fetchKiB * 1024)),
            ("queued.max.messages.kbytes", String(prefetchKiB)),
            ("queued.min.messages", String(prefetchRecords)),
            ("statistics.interval.ms", String(statisticsInterval.millis)),
        ]
    }

    /// Settings that passed-through properties cannot change: the commit point depends on them.
    var fixed: [(String, String)] {
        [
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("enable.partition.eof", reportsEndOfPartition ? "true" : "false"),
        ]
    }

    /// Refuses deadlines that the broker would not wait for.
    func validate() throws(KafkaError) {
        guard !groupID.isEmpty else {
            throw KafkaError(configuration: "kafka.group: the consumer group needs a name")
        }
        let total = drainDeadline + Limits.revokeCommit
        guard total < max(maxPollInterval, sessionTimeout) else {
            throw KafkaError(
                configuration: "kafka.drain_deadline: \(drainDeadline.millis) ms and "
                    + "\(Limits.revokeCommit.millis) ms for the last commit must be below "
                    + "max.poll.interval.ms (\(maxPollInterval.millis)); shorten the deadline")
        }
    }
}

/// How the producer behaves.
public struct ProducerConfiguration: Sendable {
    /// What record batches are compressed with.
    public enum Compression: String, Sendable, CaseIterable {
        /// As they are.
        case none
        /// The cheapest in CPU; the default.
        case lz4
        /// Smaller, dearer.
        case zstd
        /// Smaller, dearest; known everywhere.
        case gzip
        /// Cheap, known everywhere.
        case snappy
    }

    /// How long records wait for company.
    public var linger = TimeSpan.milliseconds(5)
    /// What record batches are compressed with.
    public var compression = Compression.lz4
    /// Records that librdkafka may hold.
    public var queueRecords = Limits.producerQueueRecords
    /// KiB that librdkafka may hold.
    public var queueKiB = Limits.producerQueueKiB
    /// How long librdkafka tries before it gives a record back; it is then produced again.
    public var deliveryTimeout = TimeSpan.minutes(2)

    /// A producer with the defaults.
    public init() {}

    var properties: [(String, String)] {
        [
            ("partitioner", "murmur2_random"),
            ("compression.codec", compression.rawValue),
            ("linger.ms", String(linger.millis)),
            ("queue.buffering.max.messages", String(queueRecords)),
            ("queue.buffering.max.kbytes", String(queueKiB)),
            ("message.timeout.ms", String(deliveryTimeout.millis)),
            ("message.max.bytes", String(Limits.producedRecordBytes)),
            ("retry.backoff.ms", "100"),
        ]
    }

    var fixed: [(String, String)] {
        [("enable.idempotence", "true"), ("acks", "all")]
    }
}
