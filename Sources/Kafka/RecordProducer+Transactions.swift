// The calls of a transactional producer. They block, each up to its bound, so they are made on the
// committer's thread only.
//
// A transactional producer has no delivery reports for what was delivered: the commit succeeds only
// when everything was, so one answer says it for all records of the transaction. Records that fail
// are told to a callback, which runs inside these calls, on the same thread.

internal import Base
internal import CRDKafka

/// What the last attempt could not deliver. Confined to the committer's thread.
final class DeliveryFailures {
    private(set) var counts: [String: (records: Int, error: KafkaError)] = [:]

    func add(_ message: UnsafePointer<rd_kafka_message_t>) {
        let code = message.pointee.err
        // What an abort takes back did not fail.
        guard code != RD_KAFKA_RESP_ERR__PURGE_QUEUE, code != RD_KAFKA_RESP_ERR__PURGE_INFLIGHT
        else { return }
        let topic = message.pointee.rkt.flatMap { rd_kafka_topic_name($0) }
        add(topic.map { String(cString: $0) } ?? "", KafkaError(code))
    }

    func add(_ topic: String, _ error: KafkaError) {
        counts[topic] = ((counts[topic]?.records ?? 0) + 1, error)
    }

    func takeAll() -> [String: (records: Int, error: KafkaError)] {
        defer { counts.removeAll() }
        return counts
    }
}

/// In which generation of the group an offset is committed. Owner of the client's own object.
final class GroupMembership {
    let pointer: OpaquePointer

    /// The present membership; nil when the member is out of its group. The caller holds the lock of
    /// the group's assignments, so that no rebalance is answered meanwhile: without that answer a
    /// member that is out does not come back in.
    init?(of consumer: Consumer) {
        guard let pointer = rd_kafka_consumer_group_metadata(consumer.client.pointer) else {
            return nil
        }
        self.pointer = pointer
        // Brokers take offsets from nobody in particular without a question.
        guard let member = rd_kafka_memberid(consumer.client.pointer) else { return nil }
        defer { rd_kafka_mem_free(consumer.client.pointer, member) }
        guard member.pointee != 0, rd_kafka_assignment_lost(consumer.client.pointer) == 0 else {
            return nil
        }
    }

    deinit { rd_kafka_consumer_group_metadata_destroy(pointer) }
}

extension RecordProducer {
    /// Takes the transactional id over. What a former owner left open is aborted.
    func initialiseTransactions(_ timeout: TimeSpan) -> TransactionMachine.Answer {
        answer(rd_kafka_init_transactions(client.pointer, Int32(clamping: timeout.millis)))
    }

    /// After a fatal error this version may never come back from the call.
    func beginTransaction() -> TransactionMachine.Answer {
        if let error = client.fatalError { return .fatal(error) }
        return answer(rd_kafka_begin_transaction(client.pointer))
    }

    /// Hands over records of a batch, and waits for room when the queue is full.
    func produceAll(
        _ batch: OutboxBatch, _ range: Range<Int>, topics: [String]
    ) -> TransactionMachine.Answer {
        var next = range.lowerBound
        let deadline = SystemTime.shared.monotonic + Limits.transactionProduce
        while next < range.upperBound {
            var refusals: [(index: Int, refusal: Refusal)] = []
            next += produce(batch, slot: 0, from: next, limit: range.upperBound - next) {
                refusals.append(($0, $1))
            }
            while let (index, refusal) = refusals.popLast() {
                guard case .queueFull = refusal else {
                    return refused(refusal, topics[Int(batch.records[index].topic)])
                }
                guard SystemTime.shared.monotonic < deadline else {
                    return .abort(KafkaError(RD_KAFKA_RESP_ERR__QUEUE_FULL))
                }
                rd_kafka_poll(client.pointer, 10)
                _ = produce(batch, slot: 0, from: index, limit: 1) { refusals.append(($0, $1)) }
            }
        }
        return .done
    }

    private func refused(_ refusal: Refusal, _ topic: String) -> TransactionMachine.Answer {
        switch refusal {
        case .queueFull: return .done
        case .fatal(let error): return .fatal(error)
        case .record(let error):
            failures?.add(topic, error)
            return .abort(error)
        }
    }

    func sendOffsets(
        _ list: borrowing PartitionList, _ membership: GroupMembership
    ) -> TransactionMachine.Answer {
        answer(
            rd_kafka_send_offsets_to_transaction(
                client.pointer, list.pointer, membership.pointer,
                Int32(clamping: Limits.transactionOffsets.millis)))
    }

    /// Waits for the delivery of everything and commits. The client bounds it by what is left of
    /// the transaction's time; any other bound could leave its state behind the broker's.
    func commitTransaction() -> TransactionMachine.Answer {
        answer(rd_kafka_commit_transaction(client.pointer, -1))
    }

    func abortTransaction() -> TransactionMachine.Answer {
        answer(rd_kafka_abort_transaction(client.pointer, -1))
    }

    private func answer(_ error: OpaquePointer?) -> TransactionMachine.Answer {
        guard let error else { return .done }
        let needsAbort = rd_kafka_error_txn_requires_abort(error) != 0
        let isRetriable = rd_kafka_error_is_retriable(error) != 0
        return TransactionMachine.Answer(
            KafkaError(consuming: error), isRetriable: isRetriable, needsAbort: needsAbort)
    }
}

extension TransactionMachine.Answer {
    /// The client's own ladder: what can be repeated, what needs an abort, and everything else.
    init(_ error: KafkaError, isRetriable: Bool, needsAbort: Bool) {
        switch error.kind {
        case .fenced where !needsAbort: self = .fenced(error)
        case .unsupported where !needsAbort, .unauthorized where !needsAbort:
            self = .refused(error)
        default:
            self = isRetriable ? .again(error) : needsAbort ? .abort(error) : .fatal(error)
        }
    }

    /// The error of an answer that is no success.
    var error: KafkaError? {
        switch self {
        case .done, .found: nil
        case .again(let error), .abort(let error), .fatal(let error), .refused(let error),
            .fenced(let error):
            error
        }
    }
}
