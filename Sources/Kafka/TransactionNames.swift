// Who a transactional committer is: the names that brokers know it by, and what to tell a person
// when they are refused.

internal import Base

/// Why a committer in transactional mode ended for good. Nothing was lost: what was not committed is
/// done by whoever owns the partitions next.
public struct CommitterFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// The cause as the client reported it.
    public let error: KafkaError
    /// What is wrong and what to do, in one line.
    public let description: String
}

/// The identity of one process among the replicas of a group.
struct TransactionNames: Sendable {
    let group: String
    let instance: String
    /// Two processes of one name never use the same.
    private let process: String

    init(group: String, instance: String) {
        self.group = group
        self.instance = instance
        process = String(UInt64.random(in: 0..<1 << 50), radix: 36)
    }

    /// What brokers fence by. Stable over restarts, so that a crashed process' open transaction is
    /// ended by its successor at once and does not hold readers up until it times out.
    var transactionalID: String { "\(group)-\(instance)" }

    /// The name of one attempt to commit.
    func attempt(_ number: UInt64) -> String { "\(process).\(String(number, radix: 36))" }

    /// The properties that promises depend on.
    var fixed: [(String, String)] {
        let timeout = String(Limits.transactionTimeout.millis)
        return [
            ("transactional.id", transactionalID), ("transaction.timeout.ms", timeout),
            ("message.timeout.ms", timeout), ("delivery.report.only.error", "true"),
        ]
    }

    func failure(_ error: KafkaError) -> CommitterFailure {
        CommitterFailure(error: error, description: text(of: error))
    }

    private func text(of error: KafkaError) -> String {
        switch error.kind {
        case .fenced:
            return "another process runs as instance \"\(instance)\" of group \"\(group)\" and has "
                + "taken over its transactions (\(error.name)): give every replica a kafka.instance "
                + "of its own; the host name is the default"
        case .unsupported:
            return "the broker does not offer transactions (\(error.name)), which need Kafka 2.5: "
                + "set kafka.commit: plain; results may then be there twice after a crash"
        case .unauthorized:
            return "transactional id \"\(transactionalID)\" may not be used (\(error.name)): allow "
                + "Describe and Write on it, or set kafka.commit: plain"
        default: return "no transaction can be made: \(error)"
        }
    }
}
