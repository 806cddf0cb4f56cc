// librdkafka's own broker in this process: for the demo, for development and for tests. It speaks
// the real protocol on loopback sockets, keeps 5 MiB a partition in memory, and knows no durable
// transactions.

public import Base
internal import CRDKafka

/// A Kafka cluster inside the process, gone with it. Every method may be called from any thread.
///
/// `@unchecked Sendable`: the pointers never change and the mock's functions take its own lock.
/// Members of one group must offer the same assignor: the mock stops the process otherwise.
public final class MockCluster: @unchecked Sendable {
    /// Requests whose answers can be replaced by errors.
    public enum Request: Int16, Sendable {
        /// Writing records.
        case produce = 0
        /// Reading records.
        case fetch = 1
        /// Topics and leaders.
        case metadata = 3
        /// Committing offsets.
        case offsetCommit = 8
        /// Reading committed offsets.
        case offsetFetch = 9
        /// Looking for the group's coordinator.
        case findCoordinator = 10
        /// Joining a group.
        case joinGroup = 11
        /// A member's sign of life.
        case heartbeat = 12
        /// Obtaining a producer id.
        case initProducerID = 22
        /// Adding partitions to a transaction.
        case addPartitionsToTransaction = 24
        /// Adding a group's offsets to a transaction.
        case addOffsetsToTransaction = 25
        /// Ending a transaction.
        case endTransaction = 26
        /// Committing offsets within a transaction.
        case transactionOffsetCommit = 28
    }

    /// Errors a broker can be made to answer with.
    public enum Fault: Sendable {
        /// The connection is cut instead of an answer.
        case disconnect
        /// The member is not known: its assignment is lost.
        case unknownMember
        /// The generation is over.
        case illegalGeneration
        /// A rebalance is going on.
        case rebalanceInProgress
        /// The group's coordinator is elsewhere.
        case notCoordinator
        /// The leader is elsewhere.
        case notLeader
        /// The log does not reach to the offset that is asked for: the reader goes back.
        case offsetOutOfRange
        /// Too few replicas took the record.
        case notEnoughReplicas
        /// The record is too large.
        case tooLarge
        /// The principal may not use the topic.
        case topicUnauthorized
        /// The principal may not use the group.
        case groupUnauthorized
        /// The principal may not use the cluster: fatal for an idempotent producer.
        case clusterUnauthorized
        /// The producer's numbering broke.
        case outOfOrderSequence
        /// Another producer has the transactional id.
        case producerFenced
        /// Another static member of the group has the name.
        case fencedInstanceID
        /// The transaction is not in a state for this.
        case invalidTransactionState
        /// An earlier step of the transaction is still on its way.
        case concurrentTransactions

        var code: rd_kafka_resp_err_t {
            switch self {
            case .disconnect: RD_KAFKA_RESP_ERR__TRANSPORT
            case .unknownMember: RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID
            case .illegalGeneration: RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION
            case .rebalanceInProgress: RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS
            case .notCoordinator: RD_KAFKA_RESP_ERR_NOT_COORDINATOR
            case .notLeader: RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION
            case .offsetOutOfRange: RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE
            case .notEnoughReplicas: RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS
            case .tooLarge: RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
            case .topicUnauthorized: RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
            case .groupUnauthorized: RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED
            case .clusterUnauthorized: RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED
            case .producerFenced: RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH
            case .fencedInstanceID: RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID
            case .invalidTransactionState: RD_KAFKA_RESP_ERR_INVALID_TXN_STATE
            case .concurrentTransactions: RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS
            case .outOfOrderSequence: RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER
            }
        }
    }

    private let client: ClientHandle
    private let cluster: OpaquePointer
    /// The brokers' addresses, as `KafkaConfiguration.bootstrapServers` takes them.
    public let bootstrapServers: String

    /// Starts `brokers` brokers on free loopback ports.
    public init(brokers: Int32 = 1) throws(KafkaError) {
        let builder = ClientConfiguration(KafkaConfiguration(bootstrapServers: "127.0.0.1:1"))
        client = try builder.makeClient(RD_KAFKA_PRODUCER, events: 0)
        guard let cluster = rd_kafka_mock_cluster_new(client.pointer, brokers) else {
            throw KafkaError(RD_KAFKA_RESP_ERR__FAIL, "the mock cluster did not start")
        }
        self.cluster = cluster
        bootstrapServers = String(cString: rd_kafka_mock_cluster_bootstraps(cluster))
    }

    // The cluster's thread ends here; the client it logs to is destroyed after it.
    deinit { rd_kafka_mock_cluster_destroy(cluster) }

    /// Creates a topic. A topic that is only asked for gets four partitions.
    public func createTopic(_ name: String, partitions: Int32) throws(KafkaError) {
        let code = rd_kafka_mock_topic_create(cluster, name, partitions, 1)
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else { throw KafkaError(code, name) }
    }

    /// The next requests of that kind are answered with these errors, in order.
    public func push(_ faults: [Fault], to request: Request) {
        var codes = faults.map(\.code)
        rd_kafka_mock_push_request_errors_array(cluster, request.rawValue, codes.count, &codes)
    }

    /// Makes the brokers forget a kind of request, as if they were too old for it.
    public func withdraw(_ request: Request) {
        rd_kafka_mock_set_apiversion(cluster, request.rawValue, -1, -1)
    }

    /// Takes back errors that were not answered yet.
    public func clearFaults(of request: Request) {
        rd_kafka_mock_clear_request_errors(cluster, request.rawValue)
    }

    /// Stops or starts a broker; it keeps its port and its records. Brokers count from 1.
    public func setBroker(_ broker: Int32, up: Bool) {
        _ =
            up
            ? rd_kafka_mock_broker_set_up(cluster, broker)
            : rd_kafka_mock_broker_set_down(cluster, broker)
    }

    /// Delays every answer of a broker.
    public func setRoundTrip(_ span: TimeSpan, broker: Int32) {
        rd_kafka_mock_broker_set_rtt(cluster, broker, Int32(clamping: span.millis))
    }
}
