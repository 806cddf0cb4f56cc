// Looking at a cluster and creating topics. Settings of topics are read, to report drift, and never
// altered: this librdkafka's AlterConfigs resets every setting it is not given.

public import Base
internal import CRDKafka

/// A topic as the cluster describes it.
public struct TopicDescription: Sendable, Equatable {
    /// The name.
    public let name: String
    /// The number of partitions; zero when the topic is unknown.
    public let partitions: Int32
    /// Replicas of the first partition.
    public let replicas: Int
}

/// The cluster as one of its brokers describes it.
public struct ClusterDescription: Sendable {
    /// `host:port` of every broker.
    public let brokers: [String]
    /// Every topic, by name.
    public let topics: [TopicDescription]

    /// The topic of that name.
    public func topic(_ name: String) -> TopicDescription? { topics.first { $0.name == name } }
}

/// A topic to be created.
public struct NewTopic: Sendable, Equatable {
    /// The name.
    public var name: String
    /// The number of partitions.
    public var partitions: Int32
    /// Replicas of each partition; -1 leaves it to the broker.
    public var replicas: Int32
    /// Settings, e.g. `cleanup.policy`.
    public var settings: [String: String]

    /// A topic with these settings.
    public init(
        _ name: String, partitions: Int32, replicas: Int32 = -1, settings: [String: String] = [:]
    ) {
        self.name = name
        self.partitions = partitions
        self.replicas = replicas
        self.settings = settings
    }
}

/// A short-lived client for questions and for creating topics. Calls block up to their timeout;
/// any thread, one at a time.
public final class Admin {
    private let client: ClientHandle
    /// Where errors of connections arrive.
    private let errors: ClientQueue

    /// Connects lazily: errors show in the first call.
    public init(_ configuration: KafkaConfiguration) throws(KafkaError) {
        let builder = ClientConfiguration(configuration)
        // A broker that closes the connection without a word is an answer here.
        try builder.apply([("log.connection.close", "true")])
        client = try builder.makeClient(
            RD_KAFKA_PRODUCER, events: RD_KAFKA_EVENT_ERROR, explainsConnections: true)
        errors = try .main(of: client)
    }

    /// Brokers and topics. Asks for all topics, because asking for one by name creates it on some
    /// brokers.
    public func describeCluster(timeout: TimeSpan) throws(KafkaError) -> ClusterDescription {
        do throws(KafkaError) {
            return try client.describe(timeout: timeout)
        } catch {
            throw cause(of: error)
        }
    }

    /// What lies behind an answer that did not come: a call only says that it waited in vain, the
    /// connections say why. Wrong credentials before anything else, then what tells its reason, then
    /// the last word.
    private func cause(of error: KafkaError) -> KafkaError {
        guard error.kind == .unreachable || error.kind == .timedOut else { return error }
        var cause = error
        var refusal: KafkaError?
        var certificate: String?
        while let event = errors.poll(.zero) {
            defer { rd_kafka_event_destroy(event) }
            switch rd_kafka_event_type(event) {
            case RD_KAFKA_EVENT_LOG:
                let line = ClientHandle.line(of: event)
                certificate = line.flatMap(CertificateFault.reason(in:)) ?? certificate
            case RD_KAFKA_EVENT_ERROR:
                let found = client.error(of: event)
                if found.kind == .authentication { refusal = refusal ?? found }
                let isSilent = found.code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN.rawValue
                if !isSilent, cause.connectionFault == nil || found.connectionFault != nil {
                    cause = found
                }
            default: break
            }
        }
        guard let refusal else { return cause }
        return certificate.map { KafkaError(refusal, adding: $0) } ?? refusal
    }

    /// The oldest offset and the one after the newest.
    public func watermarks(
        _ place: TopicPartition, timeout: TimeSpan
    ) throws(KafkaError) -> Range<Int64> {
        try client.watermarks(place, timeout: timeout)
    }

    /// Creates topics; the result names each one that failed. `alreadyExists` is such a failure.
    public func createTopics(
        _ topics: [NewTopic], timeout: TimeSpan
    ) throws(KafkaError) -> [String: KafkaError] {
        var specifications: [OpaquePointer?] = []
        defer { for specification in specifications { rd_kafka_NewTopic_destroy(specification) } }
        for topic in topics { specifications.append(try Self.specification(topic)) }
        let event = try request(RD_KAFKA_ADMIN_OP_CREATETOPICS, "create topics", timeout) {
            rd_kafka_CreateTopics(client.pointer, &specifications, specifications.count, $0, $1)
        }
        defer { rd_kafka_event_destroy(event) }
        var failures: [String: KafkaError] = [:]
        var count = 0
        guard let result = rd_kafka_event_CreateTopics_result(event),
            let results = rd_kafka_CreateTopics_result_topics(result, &count)
        else { return failures }
        for index in 0..<count {
            guard let topic = results[index] else { continue }
            let code = rd_kafka_topic_result_error(topic)
            guard code != RD_KAFKA_RESP_ERR_NO_ERROR else { continue }
            let text = rd_kafka_topic_result_error_string(topic).map { String(cString: $0) }
            failures[String(cString: rd_kafka_topic_result_name(topic))] = KafkaError(code, text)
        }
        return failures
    }

    /// The settings of topics, for comparing them with what they should be. A topic the broker
    /// cannot describe is left out; some brokers describe none.
    public func topicSettings(
        _ names: [String], timeout: TimeSpan
    ) throws(KafkaError) -> [String: [String: String]] {
        var resources: [OpaquePointer?] = names.map {
            rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, $0)
        }
        defer { for resource in resources { rd_kafka_ConfigResource_destroy(resource) } }
        let event = try request(RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, "describe topics", timeout) {
            rd_kafka_DescribeConfigs(client.pointer, &resources, resources.count, $0, $1)
        }
        defer { rd_kafka_event_destroy(event) }
        var found: [String: [String: String]] = [:]
        var count = 0
        guard let result = rd_kafka_event_DescribeConfigs_result(event),
            let described = rd_kafka_DescribeConfigs_result_resources(result, &count)
        else { return found }
        for index in 0..<count {
            guard let resource = described[index],
                rd_kafka_ConfigResource_error(resource) == RD_KAFKA_RESP_ERR_NO_ERROR
            else { continue }
            found[String(cString: rd_kafka_ConfigResource_name(resource))] = Self.settings(resource)
        }
        return found
    }

    private static func settings(_ resource: OpaquePointer) -> [String: String] {
        var settings: [String: String] = [:]
        var count = 0
        guard let entries = rd_kafka_ConfigResource_configs(resource, &count) else { return [:] }
        for index in 0..<count {
            guard let entry = entries[index], let value = rd_kafka_ConfigEntry_value(entry)
            else { continue }
            settings[String(cString: rd_kafka_ConfigEntry_name(entry))] = String(cString: value)
        }
        return settings
    }

    private static func specification(_ topic: NewTopic) throws(KafkaError) -> OpaquePointer {
        var text = [CChar](repeating: 0, count: Limits.errorTextBytes)
        guard
            let specification = rd_kafka_NewTopic_new(
                topic.name, topic.partitions, topic.replicas, &text, text.count)
        else {
            let reason = String(
                decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            throw KafkaError(configuration: "topic \(topic.name): \(reason)")
        }
        for (name, value) in topic.settings {
            rd_kafka_NewTopic_set_config(specification, name, value)
        }
        return specification
    }

    /// Sends one request and waits for its answer on a queue of its own.
    private func request(
        _ operation: rd_kafka_admin_op_t, _ what: String, _ timeout: TimeSpan,
        _ send: (OpaquePointer?, OpaquePointer) -> Void
    ) throws(KafkaError) -> OpaquePointer {
        let queue = try ClientQueue.new(of: client)
        let options = rd_kafka_AdminOptions_new(client.pointer, operation)
        defer { rd_kafka_AdminOptions_destroy(options) }
        let millis = Int32(clamping: timeout.millis)
        rd_kafka_AdminOptions_set_request_timeout(options, millis, nil, 0)
        if operation == RD_KAFKA_ADMIN_OP_CREATETOPICS {
            // Without it the broker answers before the topics can be used.
            rd_kafka_AdminOptions_set_operation_timeout(options, millis, nil, 0)
        }
        send(options, queue.pointer)
        guard let event = queue.poll(timeout + .seconds(1)) else {
            throw KafkaError(RD_KAFKA_RESP_ERR__TIMED_OUT, "no answer to: \(what)")
        }
        let code = rd_kafka_event_error(event)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            let text = rd_kafka_event_error_string(event).map { String(cString: $0) } ?? ""
            rd_kafka_event_destroy(event)
            throw KafkaError(code, "\(what): \(text)")
        }
        return event
    }
}

extension ClientHandle {
    func describe(timeout: TimeSpan) throws(KafkaError) -> ClusterDescription {
        var metadata: UnsafePointer<rd_kafka_metadata>?
        let code = rd_kafka_metadata(pointer, 1, nil, &metadata, Int32(clamping: timeout.millis))
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR, let metadata else { throw KafkaError(code) }
        defer { rd_kafka_metadata_destroy(metadata) }
        let brokers = (0..<Int(metadata.pointee.broker_cnt)).map { index in
            let broker = metadata.pointee.brokers[index]
            return "\(broker.host.map { String(cString: $0) } ?? "?"):\(broker.port)"
        }
        let topics = (0..<Int(metadata.pointee.topic_cnt)).map { index in
            let topic = metadata.pointee.topics[index]
            let replicas = topic.partition_cnt > 0 ? Int(topic.partitions[0].replica_cnt) : 0
            return TopicDescription(
                name: topic.topic.map { String(cString: $0) } ?? "",
                partitions: topic.partition_cnt, replicas: replicas)
        }
        return ClusterDescription(brokers: brokers, topics: topics)
    }

    /// Those of the named topics that exist.
    func topics(named names: [String], timeout: TimeSpan) throws(KafkaError) -> [TopicDescription] {
        let wanted = Set(names)
        return try describe(timeout: timeout).topics.filter { wanted.contains($0.name) }
    }
}
