// The life of a member on the group thread. A rebalance is answered exactly once and in the manner
// of the protocol in force: assign and unassign for eager assignors, the incremental calls for
// cooperative ones. While a revocation waits for its ticket, the queue is served as always.

internal import Base
internal import CRDKafka
internal import Synchronization

/// Confined to the group thread.
final class GroupSession {
    /// A rebalance that is being answered in steps.
    private enum Step {
        /// Partitions that came are looked up: what is committed, and what is finished above it.
        case lookingUp([TopicPartition])
        /// Lanes finish what is in flight.
        case draining([PartitionAssignment], RevokeTicket)
        /// The committer delivers and commits, or settles the last commit of lost partitions.
        case committing(
            [PartitionAssignment], RevokeTicket?, done: Flag, deadline: MonotonicTime)
    }

    /// Set by the committer's thread, read here.
    private final class Flag: Sendable {
        private let value = Atomic<Bool>(false)
        func raise() { value.store(true, ordering: .releasing) }
        var isRaised: Bool { value.load(ordering: .acquiring) }
    }

    private let consumer: Consumer
    private let queue: ClientQueue
    private let closing: ClientQueue
    private let control: GroupControl
    private let handler: any AssignmentHandler
    private let committer: Committer?
    private let time: any TimeSource

    private var owned: [TopicPartition: PartitionAssignment] = [:]
    private var step: Step?
    /// Rebalance events that arrived while an earlier one was being answered.
    private var waiting: [OpaquePointer] = []
    private var isClosing = false
    private var wasAssigned = false

    init(
        consumer: Consumer, queue: ClientQueue, closing: ClientQueue, control: GroupControl,
        handler: any AssignmentHandler, committer: Committer?, time: any TimeSource
    ) {
        self.consumer = consumer
        self.queue = queue
        self.closing = closing
        self.control = control
        self.handler = handler
        self.committer = committer
        self.time = time
    }

    deinit { for event in waiting { rd_kafka_event_destroy(event) } }

    func run() {
        while true {
            control.noteTurn(at: time.monotonic)
            if control.stopDeadline != nil, !isClosing { beginClose() }
            if isClosing, step == nil, rd_kafka_consumer_closed(client) != 0 {
                control.noteCleanClose()
                break
            }
            if let deadline = control.stopDeadline, time.monotonic >= deadline { break }
            if let event = (isClosing ? closing : queue).poll(pollLimit) { serve(event) }
            advance()
        }
        abandon()
    }

    private var client: OpaquePointer { consumer.client.pointer }

    /// The queue's wake-up ends a wait early; the limit only bounds deadlines.
    private var pollLimit: TimeSpan {
        let now = time.monotonic
        var limit = Limits.groupPoll
        switch step {
        case .lookingUp: limit = min(limit, Limits.committedLookUpPause)
        case .draining(_, let ticket): limit = min(limit, ticket.deadline - now)
        case .committing(_, _, _, let deadline): limit = min(limit, deadline - now)
        case nil: break
        }
        if let deadline = control.stopDeadline {
            limit = min(limit, deadline - now, isClosing ? .milliseconds(50) : .zero)
        }
        return max(limit, .zero)
    }

    private func serve(_ event: OpaquePointer) {
        switch rd_kafka_event_type(event) {
        case RD_KAFKA_EVENT_REBALANCE:
            if step == nil, waiting.isEmpty { answer(event) } else { waiting.append(event); return }
        case RD_KAFKA_EVENT_ERROR: handler.groupError(consumer.client.error(of: event))
        case RD_KAFKA_EVENT_STATS:
            if let json = rd_kafka_event_stats(event) { handler.statistics(String(cString: json)) }
        case RD_KAFKA_EVENT_LOG: consumer.client.forwardLog(event)
        default: break
        }
        rd_kafka_event_destroy(event)
    }

    /// Takes the rebalance in hand as far as time and tickets allow.
    private func advance() {
        switch step {
        case .lookingUp(let places): lookUp(places)
        case .draining(let partitions, let ticket):
            let deadline = min(ticket.deadline, drainLimitWhenStopping ?? .distantFuture)
            guard ticket.isFinished || time.monotonic >= deadline else { return }
            commit(partitions, ticket)
        case .committing(let partitions, let ticket, let done, let deadline):
            guard done.isRaised || time.monotonic >= deadline else { return }
            step = nil
            giveAway(partitions, ticket)
        case nil: break
        }
        while step == nil, !waiting.isEmpty {
            let event = waiting.removeFirst()
            answer(event)
            rd_kafka_event_destroy(event)
        }
    }

    private func answer(_ event: OpaquePointer) {
        guard let raw = rd_kafka_event_topic_partition_list(event) else {
            unassignAll()
            return
        }
        switch rd_kafka_event_error(event) {
        case RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
            lookUp(PartitionList.elements(of: raw).map(\.place))
        case RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
            revoke(PartitionList.elements(of: raw).map(\.place))
        case let code:
            // librdkafka's rule: whatever else it reports, the assignment ends.
            handler.groupError(KafkaError(code))
            revoke(Array(owned.keys))
        }
    }

    private var isCooperative: Bool {
        guard let name = rd_kafka_rebalance_protocol(client) else { return false }
        return String(cString: name) == "COOPERATIVE"
    }
}

// MARK: - Partitions that come

extension GroupSession {
    /// Nothing is read before it is known what is finished: the client's own look-up of offsets
    /// would find the commit point and not what is finished above it. The coordinator that does
    /// not answer would answer no commit either. A newer rebalance, or the end, ends the attempts.
    private func lookUp(_ places: [TopicPartition]) {
        do throws(KafkaError) {
            let committed =
                places.isEmpty
                ? [:] : try consumer.committedState(places, timeout: Limits.committedLookUp)
            step = nil
            assign(places, committed)
        } catch {
            handler.groupError(error)
            step = .lookingUp(places)
            guard !waiting.isEmpty || control.stopDeadline != nil else { return }
            step = nil
            if let error = tellClient(PartitionList(), assigned: true) { handler.groupError(error) }
        }
    }

    private func assign(
        _ places: [TopicPartition], _ committed: [TopicPartition: Consumer.Committed]
    ) {
        let list = PartitionList(capacity: places.count)
        var assignments: [PartitionAssignment] = []
        for place in places {
            do throws(KafkaError) {
                let assignment = try makeAssignment(of: place, committed[place])
                list.add(place, offset: assignment.startOffset ?? startWithoutOffset)
                assignments.append(assignment)
            } catch {
                handler.groupError(error)
                list.add(place, offset: Int64(RD_KAFKA_OFFSET_STORED))
            }
        }
        for assignment in assignments {
            consumer.cell(of: assignment.place).assign(assignment.epoch)
            consumer.assignments.assign(assignment.place, assignment.epoch)
            owned[assignment.place] = assignment
        }
        committer?.assigned(assignments, consumer: consumer)
        if let error = tellClient(list, assigned: true) {
            handler.groupError(error)
            letGo(assignments)
            return
        }
        wasAssigned = true
        handler.assigned(assignments.sorted { $0.place < $1.place })
    }

    private func makeAssignment(
        of place: TopicPartition, _ committed: Consumer.Committed?
    ) throws(KafkaError) -> PartitionAssignment {
        let queue = try consumer.detachedQueue(of: place)
        let epoch = AssignmentTable.nextEpoch()
        let cell = consumer.cell(of: place)
        let noted = consumer.takeFinished(place, at: time.monotonic)
        let start = [committed?.offset, noted?.offset].compactMap { $0 }.max()
        var finished = committed?.finished ?? OffsetRuns()
        if let noted { finished.formUnion(noted.finished) }
        if let start { finished.removeBelow(start) }
        return PartitionAssignment(
            place: place, epoch: epoch, startOffset: start, finished: finished,
            committedOffset: committed?.offset,
            queue: PartitionQueue(place, epoch: epoch, queue: queue, cell: cell))
    }

    private var startWithoutOffset: Int64 {
        switch consumer.group.start {
        case .earliest: return Int64(RD_KAFKA_OFFSET_BEGINNING)
        case .latest: return Int64(RD_KAFKA_OFFSET_END)
        }
    }

    private func tellClient(_ list: borrowing PartitionList, assigned: Bool) -> KafkaError? {
        if isCooperative {
            let error =
                assigned
                ? rd_kafka_incremental_assign(client, list.pointer)
                : rd_kafka_incremental_unassign(client, list.pointer)
            return error.map { KafkaError(consuming: $0) }
        }
        let code = rd_kafka_assign(client, assigned ? UnsafePointer(list.pointer) : nil)
        return code == RD_KAFKA_RESP_ERR_NO_ERROR ? nil : KafkaError(code)
    }
}

// MARK: - Partitions that go

extension GroupSession {
    private func revoke(_ places: [TopicPartition]) {
        let leaving = places.compactMap { owned[$0] }.sorted { $0.place < $1.place }
        guard !leaving.isEmpty else {
            unassign(places)
            return
        }
        if rd_kafka_assignment_lost(client) != 0 {
            lose(leaving)
            return
        }
        let drained = time.monotonic + consumer.group.drainDeadline
        let deadline = min(drained, drainLimitWhenStopping ?? .distantFuture)
        let ticket = RevokeTicket(deadline: deadline) { [control] in control.wake() }
        step = .draining(leaving, ticket)
        handler.revoked(leaving, ticket: ticket)
    }

    /// A stop leaves time for the last commit and for leaving the group.
    private var drainLimitWhenStopping: MonotonicTime? {
        control.stopDeadline.map { $0 - Limits.stopReserve }
    }

    /// The tickets are in: the committer delivers what was posted and commits it, bounded.
    private func commit(_ partitions: [PartitionAssignment], _ ticket: RevokeTicket) {
        guard let committer else {
            step = nil
            giveAway(partitions, ticket)
            return
        }
        if rd_kafka_assignment_lost(client) != 0 {
            lose(partitions)
            return
        }
        var deadline = time.monotonic + Limits.revokeCommit
        if let stop = control.stopDeadline { deadline = min(deadline, stop) }
        let done = Flag()
        step = .committing(partitions, ticket, done: done, deadline: deadline)
        committer.flush(partitions.map(\.epoch), deadline: deadline) { [control] in
            done.raise()
            control.wake()
        }
    }

    /// No commit any more. The client is told only after the answer to a commit that is already on
    /// its way: one that the client still holds would otherwise be sent in the next generation.
    private func lose(_ partitions: [PartitionAssignment]) {
        for partition in partitions { consumer.cell(of: partition.place).release() }
        consumer.assignments.remove(partitions.map(\.place))
        handler.lost(partitions)
        guard let committer else {
            step = nil
            giveAway(partitions, nil)
            return
        }
        let done = Flag()
        step = .committing(
            partitions, nil, done: done, deadline: time.monotonic + Limits.lostSettle)
        committer.discard(partitions.map(\.epoch)) { [control] in
            done.raise()
            control.wake()
        }
    }

    /// Work that is still open under an unfinished ticket is the next owner's from here on.
    private func giveAway(_ partitions: [PartitionAssignment], _ ticket: RevokeTicket?) {
        if let ticket, !ticket.isFinished { handler.lost(partitions) }
        letGo(partitions)
        unassign(partitions.map(\.place))
        for partition in partitions { partition.queue.purge() }
    }

    /// From here on no handle of these assignments reads or commits anything.
    private func letGo(_ partitions: [PartitionAssignment]) {
        for partition in partitions {
            consumer.cell(of: partition.place).release()
            owned[partition.place] = nil
        }
        consumer.assignments.remove(partitions.map(\.place))
    }

    private func unassign(_ places: [TopicPartition]) {
        let list = PartitionList(capacity: places.count)
        for place in places { list.add(place) }
        if let error = tellClient(list, assigned: false) { handler.groupError(error) }
    }

    private func unassignAll() {
        letGo(Array(owned.values))
        rd_kafka_assign(client, nil)
    }

    private func beginClose() {
        isClosing = true
        // Closing a cooperative member before its first assignment crashes this version; such a
        // member has nothing to give back, the broker forgets it by its session timeout.
        if isCooperative, !wasAssigned {
            control.noteCleanClose()
            control.stop(by: time.monotonic)
            return
        }
        if let error = rd_kafka_consumer_close_queue(client, closing.pointer) {
            handler.groupError(KafkaError(consuming: error))
        }
    }

    /// The deadline passed or the group was left: no partition is read or committed any more.
    private func abandon() {
        letGo(Array(owned.values))
    }
}
