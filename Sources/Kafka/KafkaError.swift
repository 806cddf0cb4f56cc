// One error type for everything librdkafka can report. Operations that did not happen throw it;
// events of the group and the producer carry it as a value.

internal import CRDKafka

/// What librdkafka or a broker reported: the code's name, a text for people, and what may be done.
public struct KafkaError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The families a caller tells apart.
    public enum Kind: Sendable, Equatable {
        /// A configuration property or value that librdkafka refuses, or that Bugle reserves.
        case configuration
        /// Wrong or missing credentials, or a TLS handshake that failed.
        case authentication
        /// The principal may not use this topic, group or transactional id.
        case unauthorized
        /// A topic or partition that does not exist.
        case unknownTopic
        /// No broker could be reached, by connection or by name.
        case unreachable
        /// A deadline passed before the answer came.
        case timedOut
        /// The commit or heartbeat came from an assignment that is over: generation, member or
        /// rebalance in progress. Routine; the offsets are read again by the next owner.
        case staleMember
        /// Another client with the same identity took over.
        case fenced
        /// The local queue is full.
        case queueFull
        /// The record is larger than the broker or the client takes.
        case tooLarge
        /// What was asked for exists already.
        case alreadyExists
        /// The broker does not know the request.
        case unsupported
        /// Anything else; see `name`.
        case other
    }

    /// librdkafka's numeric code; negative for local errors.
    public let code: Int32
    /// The code's name, e.g. `UNKNOWN_TOPIC_OR_PART` or `_ALL_BROKERS_DOWN`.
    public let name: String
    /// A sentence for people.
    public let text: String
    /// The family.
    public let kind: Kind
    /// True when the same call may succeed later.
    public let isRetriable: Bool
    /// True when the client instance can do nothing any more.
    public let isFatal: Bool

    /// Name and text in one line.
    public var description: String { text.isEmpty ? name : "\(name): \(text)" }

    init(_ code: rd_kafka_resp_err_t, _ text: String? = nil, isFatal: Bool = false) {
        self.code = code.rawValue
        self.name = String(cString: rd_kafka_err2name(code))
        let sentence = text ?? String(cString: rd_kafka_err2str(code))
        self.text = String(sentence.prefix(Limits.errorTextBytes))
        self.kind = Self.kind(of: code)
        self.isRetriable = Self.isRetriable(code)
        self.isFatal = isFatal || code == RD_KAFKA_RESP_ERR__FATAL
    }

    /// Takes over an error object of librdkafka and frees it.
    init(consuming error: OpaquePointer) {
        let code = rd_kafka_error_code(error)
        self.code = code.rawValue
        self.name = String(cString: rd_kafka_error_name(error))
        self.text = String(
            String(cString: rd_kafka_error_string(error)).prefix(Limits.errorTextBytes))
        self.kind = Self.kind(of: code)
        self.isRetriable = rd_kafka_error_is_retriable(error) != 0 || Self.isRetriable(code)
        self.isFatal = rd_kafka_error_is_fatal(error) != 0
        rd_kafka_error_destroy(error)
    }

    /// An error with a reason that came by another way.
    init(_ error: KafkaError, adding reason: String) {
        code = error.code
        name = error.name
        text = "\(error.text): \(reason)"
        kind = error.kind
        isRetriable = error.isRetriable
        isFatal = error.isFatal
    }

    /// A refusal by this room rather than by librdkafka.
    init(configuration text: String) {
        code = RD_KAFKA_RESP_ERR__INVALID_ARG.rawValue
        name = "_INVALID_ARG"
        self.text = text
        kind = .configuration
        isRetriable = false
        isFatal = false
    }

    private static func kind(of code: rd_kafka_resp_err_t) -> Kind {
        switch code {
        case RD_KAFKA_RESP_ERR__INVALID_ARG: .configuration
        case RD_KAFKA_RESP_ERR__AUTHENTICATION, RD_KAFKA_RESP_ERR__SSL,
            RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
            .authentication
        case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
            RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            .unauthorized
        case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
            RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
            .unknownTopic
        case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, RD_KAFKA_RESP_ERR__TRANSPORT,
            RD_KAFKA_RESP_ERR__RESOLVE:
            .unreachable
        case RD_KAFKA_RESP_ERR__TIMED_OUT, RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,
            RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
            .timedOut
        case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
            RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS, RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST,
            RD_KAFKA_RESP_ERR__STATE, RD_KAFKA_RESP_ERR__NO_OFFSET:
            .staleMember
        case RD_KAFKA_RESP_ERR__FENCED, RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID,
            RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, RD_KAFKA_RESP_ERR_PRODUCER_FENCED:
            .fenced
        case RD_KAFKA_RESP_ERR__QUEUE_FULL: .queueFull
        case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE: .tooLarge
        case RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS: .alreadyExists
        case RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION:
            .unsupported
        default: .other
        }
    }

    private static func isRetriable(_ code: rd_kafka_resp_err_t) -> Bool {
        switch kind(of: code) {
        case .unreachable, .timedOut, .staleMember, .queueFull: return true
        default: break
        }
        switch code {
        case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
            RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, RD_KAFKA_RESP_ERR__WAIT_COORD,
            RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return true
        default: return false
        }
    }
}
