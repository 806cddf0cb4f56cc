// Sends commit points to the coordinators and takes the answers: one request of a group at a time,
// in the group's current generation, for current assignments only. Every refusal is an expected
// state; the next request carries the newest points.

internal import Base
internal import CRDKafka
internal import Synchronization

/// The commits of all groups this process is a member of. Confined to the committer's thread.
final class OffsetCommits {
    private struct Group {
        let consumer: Consumer
        let answers: ClientQueue
        var outstanding: [CommitLedger.Point] = []
    }

    /// What became of the last request of a group.
    struct Answer {
        let group: Int
        let error: KafkaError?
    }

    private var groups: [Group] = []
    private let inbox: CommitterInbox
    private let onEvent: (@Sendable (CommitterEvent) -> Void)?

    init(inbox: CommitterInbox, onEvent: (@Sendable (CommitterEvent) -> Void)?) {
        self.inbox = inbox
        self.onEvent = onEvent
    }

    var groupCount: Int { groups.count }

    var isIdle: Bool { groups.allSatisfy { $0.outstanding.isEmpty } }

    func isIdle(_ group: Int) -> Bool { groups[group].outstanding.isEmpty }

    func consumer(of group: Int) -> Consumer { groups[group].consumer }

    /// The number of a consumer's group; a new one for a consumer not seen before.
    func group(of consumer: Consumer) throws(KafkaError) -> Int {
        if let index = groups.firstIndex(where: { $0.consumer === consumer }) { return index }
        groups.append(
            Group(consumer: consumer, answers: try ClientQueue.new(of: consumer.client)))
        return groups.count - 1
    }

    /// Asks for everything that is due in a group that waits for no answer. False when nothing
    /// was.
    func request(_ group: Int, _ ledger: inout CommitLedger) -> Bool {
        guard groups[group].outstanding.isEmpty else { return false }
        let due = ledger.due(group: group)
        guard !due.isEmpty else { return false }
        let consumer = groups[group].consumer
        var asked: [CommitLedger.Point] = []
        var refusal: KafkaError?
        // The table's lock is held across the call: a rebalance answered afterwards comes after the
        // commit in the client's own queue too.
        consumer.assignments.whileStable { isCurrent in
            asked = due.filter { isCurrent($0.place, $0.epoch) }
            guard !asked.isEmpty else { return }
            let list = PartitionList(capacity: asked.count)
            for point in asked {
                let note = CommitNote(finished: point.finished, name: consumer.group.commitMetadata)
                list.add(
                    point.place, offset: point.offset, metadata: note.text(at: point.offset))
            }
            let code = rd_kafka_commit_queue(
                consumer.client.pointer, list.pointer, groups[group].answers.pointer, nil, nil)
            if code != RD_KAFKA_RESP_ERR_NO_ERROR { refusal = KafkaError(code) }
        }
        guard !asked.isEmpty else { return false }
        if let refusal {
            note(refusal, partitions: asked.count)
            return false
        }
        for point in asked { ledger.requested(point) }
        groups[group].outstanding = asked
        return true
    }

    /// Takes the answers that are there.
    func serve(_ ledger: inout CommitLedger) -> [Answer] {
        var answers: [Answer] = []
        for group in groups.indices where !groups[group].outstanding.isEmpty {
            while let event = groups[group].answers.poll(.zero) {
                if rd_kafka_event_type(event) == RD_KAFKA_EVENT_OFFSET_COMMIT {
                    answers.append(take(event, group, &ledger))
                }
                rd_kafka_event_destroy(event)
            }
        }
        return answers
    }

    private func take(_ event: OpaquePointer, _ group: Int, _ ledger: inout CommitLedger) -> Answer
    {
        let points = groups[group].outstanding
        groups[group].outstanding = []
        let code = rd_kafka_event_error(event)
        var first = code == RD_KAFKA_RESP_ERR_NO_ERROR ? nil : KafkaError(code)
        var refused: [TopicPartition: KafkaError] = [:]
        if let list = rd_kafka_event_topic_partition_list(event) {
            for element in PartitionList.elements(of: list) {
                if let error = element.error { refused[element.place] = error }
            }
        }
        first = first ?? refused.values.first
        var count = 0
        var stored: [CommitLedger.Point] = []
        for point in points {
            let succeeded = code == RD_KAFKA_RESP_ERR_NO_ERROR && refused[point.place] == nil
            let counts = ledger.answered(point, committed: succeeded)
            if succeeded, counts { stored.append(point) }
            if !succeeded { count += 1 }
        }
        inbox.committed.withLock { for point in stored { $0[point.place] = point.offset } }
        if let first { note(first, partitions: count) }
        if !stored.isEmpty {
            inbox.noteCommit()
            inbox.statistics.withLock { $0.commits += 1 }
        }
        return Answer(group: group, error: first)
    }

    private func note(_ error: KafkaError, partitions: Int) {
        inbox.statistics.withLock { $0.commitFailures += 1 }
        onEvent?(.commitFailed(error, partitions: partitions))
    }
}
