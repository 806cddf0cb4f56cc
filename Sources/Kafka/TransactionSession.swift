// The committer's thread in transactional mode. What the lanes post is held; a few times a second
// one transaction carries everything that is held, with the offsets and the maps of what is finished
// above them. While it is made, new batches gather in the inbox.
//
// Nothing that is held was visible to a reader before its transaction is committed, so an abort
// costs nothing but time: the next attempt carries the same and more, and no push is repeated.

internal import Base
internal import CRDKafka
internal import Synchronization

/// Confined to the committer's thread.
final class TransactionSession {
    /// What an attempt commits beside its records, for one group.
    private struct Share {
        var group: Int
        var membership: GroupMembership
        var points: [CommitLedger.Point]
    }

    private let configuration: KafkaConfiguration
    private let settings: CommitterConfiguration
    private let inbox: CommitterInbox
    private let time: any TimeSource
    private let names: TransactionNames
    private var producer: RecordProducer

    private var machine = TransactionMachine()
    private var held = HeldBatches()
    private var ledger = CommitLedger()
    private var consumers: [Consumer] = []
    private var groupOf: [Epoch: Int] = [:]

    /// The attempt that is made now.
    private var shares: [Share] = []
    private var wanted: Set<Epoch> = []
    private var attempt = ""
    private var attempts: UInt64 = 0
    private var begunAt = MonotonicTime(nanos: 0)

    private var flushes: [PendingFlush] = []
    private var stopBy: MonotonicTime?
    private var nextCommit = MonotonicTime(nanos: 0)
    private var resumeAt = MonotonicTime(nanos: 0)
    /// Something may be due: a batch came, an assignment began, an attempt failed.
    private var isDirty = false

    init(
        configuration: KafkaConfiguration, settings: CommitterConfiguration,
        producer: RecordProducer, names: TransactionNames, inbox: CommitterInbox,
        time: any TimeSource
    ) {
        self.configuration = configuration
        self.settings = settings
        self.producer = producer
        self.names = names
        self.inbox = inbox
        self.time = time
    }

    func run() {
        warmUp()
        while true {
            let now = time.monotonic
            inbox.noteTurn(at: now)
            for message in inbox.takeAll() { take(message) }
            _ = inbox.setLulled(true)
            startIfDue(at: now)
            proceed()
            advanceFlushes(at: time.monotonic)
            if isFinished(at: time.monotonic) { break }
            serve(waitLimit(at: time.monotonic))
        }
        for flush in flushes { flush.completion() }
    }

    private func warmUp() {
        if let error = producer.warmUp(Limits.topicWarmUp) {
            settings.onEvent?(.producerError(error))
        }
    }

    private func take(_ message: CommitterMessage) {
        switch message {
        case .batch(let batch):
            held.add(batch)
            isDirty = true
        case .assigned(let partitions, let consumer): open(partitions, consumer)
        case .flush(let epochs, let deadline, let completion):
            var flush = PendingFlush(
                committing: epochs, of: group(of: epochs), now: time.monotonic, deadline: deadline,
                completion: completion)
            flush.sequence = held.lastSequence
            flushes.append(flush)
        case .discard(let epochs, let completion):
            let flush = PendingFlush(
                discarding: epochs, of: group(of: epochs), now: time.monotonic,
                completion: completion)
            flushes.append(flush)
            // Its results belong to the next owner now, who makes them again.
            close(epochs)
        case .stop(let deadline): stopBy = min(stopBy ?? deadline, deadline)
        }
    }

    private func group(of epochs: [Epoch]) -> Int? {
        epochs.lazy.compactMap { self.groupOf[$0] }.first
    }

    private func open(_ partitions: [PartitionAssignment], _ consumer: Consumer) {
        let group = consumers.firstIndex { $0 === consumer } ?? consumers.count
        if group == consumers.count { consumers.append(consumer) }
        for partition in partitions {
            groupOf[partition.epoch] = group
            ledger.open(
                partition.epoch, partition.place, group: group,
                committed: partition.committedOffset, floor: partition.startOffset,
                finished: partition.finished)
        }
        isDirty = true
    }

    private func close(_ epochs: [Epoch]) {
        for epoch in epochs {
            ledger.close(epoch)
            groupOf[epoch] = nil
        }
    }

    /// Errors of the client between two calls, and its log lines.
    private func serve(_ wait: TimeSpan) {
        producer.serve(wait) { report in
            if case .error(let error) = report { settings.onEvent?(.producerError(error)) }
        }
    }
}

// MARK: - One attempt

extension TransactionSession {
    private func startIfDue(at now: MonotonicTime) {
        guard machine.isIdle, isDirty, now >= resumeAt,
            now >= nextCommit || !flushes.isEmpty || stopBy != nil
        else { return }
        isDirty = false
        guard prepare() else { return }
        nextCommit = now + settings.commitInterval
        machine.start()
    }

    /// Decides what the next transaction carries; false when there is nothing.
    private func prepare() -> Bool {
        held.admit { batch in
            for (epoch, offset) in batch.restarts {
                ledger.restart(epoch, at: offset)
                inbox.forgetCommitted(ledger.place(of: epoch))
            }
            for event in batch.events {
                _ = ledger.post(event.epoch, offset: event.offset, first: event.first, records: 0)
            }
            for (epoch, floor) in batch.floors { ledger.raiseFloor(epoch, to: floor) }
        }
        attempts += 1
        attempt = names.attempt(attempts)
        shares = []
        wanted = []
        for group in consumers.indices where !addShare(of: group) {
            // Out of the group: the word of what is lost is on its way.
            for index in flushes.indices where flushes[index].group == group {
                flushes[index].isStale = true
            }
            isDirty = true
            resumeAt = time.monotonic + Limits.redeliveryMin
            return false
        }
        return !held.admitted.isEmpty || !shares.isEmpty
    }

    /// Only what belongs to a present assignment can be committed, and only that is written. False
    /// when this process is no member of the group now.
    private func addShare(of group: Int) -> Bool {
        let consumer = consumers[group]
        var isMember = true
        consumer.assignments.whileStable { isCurrent in
            let present = ledger.openPlaces(group: group).filter { isCurrent($0.place, $0.epoch) }
            wanted.formUnion(present.map(\.epoch))
            let points = ledger.due(group: group).filter { wanted.contains($0.epoch) }
            guard !points.isEmpty else { return }
            guard let membership = GroupMembership(of: consumer) else {
                isMember = false
                return
            }
            shares.append(Share(group: group, membership: membership, points: points))
        }
        return isMember
    }

    /// Makes the calls that follow one another, until one has to be waited for.
    private func proceed() {
        while let call = machine.next, time.monotonic >= resumeAt {
            inbox.noteTurn(at: time.monotonic)
            if call == .begin { begunAt = time.monotonic }
            let answer = lenient(perform(call))
            if let outcome = machine.answered(answer) { conclude(outcome, answer) }
            report(answer, to: call)
            if call == .initialise, answer == .done { inbox.noteReady() }
        }
    }

    /// A transaction that outlived its time is ended by the broker, which then looks as if somebody
    /// else had the name.
    private func lenient(_ answer: TransactionMachine.Answer) -> TransactionMachine.Answer {
        guard case .fenced(let error) = answer, machine.next != .initialise,
            time.monotonic - begunAt >= Limits.transactionTimeout
        else { return answer }
        return .fatal(error)
    }

    private func perform(_ call: TransactionMachine.Call) -> TransactionMachine.Answer {
        switch call {
        case .initialise: return producer.initialiseTransactions(Limits.transactionInitialise)
        case .begin: return producer.beginTransaction()
        case .produce: return produce()
        case .sendOffsets: return sendOffsets()
        case .commit: return producer.commitTransaction()
        case .abort: return producer.abortTransaction()
        case .rebuild: return rebuild()
        case .resolve: return resolve()
        }
    }

    private func produce() -> TransactionMachine.Answer {
        for batch in held.admitted {
            var answer = TransactionMachine.Answer.done
            batch.forEachRun(where: { wanted.contains($0) }) { range in
                guard answer == .done else { return }
                answer = producer.produceAll(batch, range, topics: settings.topics)
            }
            guard answer == .done else { return answer }
        }
        return .done
    }

    private func sendOffsets() -> TransactionMachine.Answer {
        for share in shares {
            let list = PartitionList(capacity: share.points.count)
            for point in share.points {
                let note = CommitNote(
                    attempt: attempt, finished: point.finished,
                    name: consumers[share.group].group.commitMetadata)
                list.add(
                    point.place, offset: point.offset, metadata: note.text(at: point.offset))
            }
            let answer = producer.sendOffsets(list, share.membership)
            guard answer == .done else { return answer }
        }
        return .done
    }

    private func rebuild() -> TransactionMachine.Answer {
        let cause = producer.fatalError
        do throws(KafkaError) {
            let fresh = try RecordProducer(
                configuration, settings.producer, topics: settings.topics, transactions: names)
            inbox.redirectWakes(to: fresh.queue)
            producer = fresh
            warmUp()
        } catch {
            return .again(error)
        }
        inbox.statistics.withLock { $0.rebuilds += 1 }
        if let cause { settings.onEvent?(.producerRebuilt(cause)) }
        return .done
    }

    /// The commit happened if the group holds what only this attempt wrote. Partitions that are
    /// somebody else's by now say nothing, and their results are not written again anyhow.
    private func resolve() -> TransactionMachine.Answer {
        for share in shares {
            let consumer = consumers[share.group]
            var places: [TopicPartition] = []
            consumer.assignments.whileStable { isCurrent in
                places = share.points.filter { isCurrent($0.place, $0.epoch) }.map(\.place)
            }
            guard !places.isEmpty else { continue }
            do throws(KafkaError) {
                let states = try consumer.committedState(places, timeout: Limits.committedLookUp)
                return .found(states.values.contains { $0.attempt == attempt })
            } catch {
                return .again(error)
            }
        }
        return .found(false)
    }

    private func conclude(
        _ outcome: TransactionMachine.Outcome, _ answer: TransactionMachine.Answer
    ) {
        let isCommitted = outcome == .committed
        // Restarts are taken between transactions only: each point is of the present numbering.
        for share in shares {
            for point in share.points { ledger.answered(point, committed: isCommitted) }
        }
        guard isCommitted else {
            isDirty = true
            return
        }
        inbox.noteCommit()
        let points = shares.flatMap(\.points)
        inbox.committed.withLock { for point in points { $0[point.place] = point.offset } }
        var delivered = 0
        held.release { batch in
            delivered += batch.recordCount
            inbox.lower(records: batch.recordCount)
            inbox.lower(bytes: batch.byteCount)
            inbox.giveSpare(batch)
        }
        inbox.statistics.withLock {
            $0.delivered += UInt64(delivered)
            $0.commits += 1
        }
        isDirty = isDirty || !held.isEmpty
        shares = []
    }

    private func report(_ answer: TransactionMachine.Answer, to call: TransactionMachine.Call) {
        for (topic, failure) in producer.failures?.takeAll() ?? [:] {
            inbox.statistics.withLock { $0.redelivered += UInt64(failure.records) }
            settings.onEvent?(
                .deliveryFailed(topic: topic, records: failure.records, failure.error))
        }
        guard let error = answer.error else { return }
        resumeAt = time.monotonic + pause
        inbox.statistics.withLock { $0.commitFailures += 1 }
        if let end = machine.end {
            inbox.note(names.failure(end))
            settings.onEvent?(.ended(names.failure(end)))
        } else {
            settings.onEvent?(.transactionFailed(error, during: "\(call)"))
        }
        guard error.kind == .staleMember else { return }
        for index in flushes.indices { flushes[index].isStale = true }
    }

    /// The first failure is often all: a rebalance, a coordinator that moved.
    private var pause: TimeSpan {
        guard machine.failures > 1 else { return .zero }
        let doublings = min(machine.failures - 2, 10)
        return min(Limits.redeliveryMin * (1 << doublings), Limits.transactionPauseMax)
    }
}

// MARK: - Waiting

extension TransactionSession {
    private func advanceFlushes(at now: MonotonicTime) {
        guard !flushes.isEmpty else { return }
        var waiting: [PendingFlush] = []
        for flush in flushes {
            if isDone(flush, at: now) {
                close(flush.epochs)
                flush.completion()
            } else {
                waiting.append(flush)
            }
        }
        flushes = waiting
    }

    private func isDone(_ flush: PendingFlush, at now: MonotonicTime) -> Bool {
        guard now < flush.deadline, machine.end == nil else { return true }
        guard machine.isIdle else { return false }
        guard flush.commits, let group = flush.group, !flush.isStale else { return true }
        return held.settledSequence >= flush.sequence
            && ledger.due(group: group).allSatisfy { !flush.epochs.contains($0.epoch) }
    }

    private func waitLimit(at now: MonotonicTime) -> TimeSpan {
        var limit = Limits.committerIdle
        if machine.next != nil { limit = min(limit, resumeAt - now) }
        if machine.isIdle, isDirty {
            let isUrgent = !flushes.isEmpty || stopBy != nil
            limit = min(limit, (isUrgent ? resumeAt : max(resumeAt, nextCommit)) - now)
        }
        for flush in flushes { limit = min(limit, flush.deadline - now) }
        if let stopBy { limit = min(limit, stopBy - now) }
        // Until then nothing that a lane posts is looked at: it need not wake this thread.
        return inbox.setLulled(isDirty) ? max(limit, .zero) : .zero
    }

    private func isFinished(at now: MonotonicTime) -> Bool {
        guard let stopBy else { return false }
        let isBusy = machine.isInitialised && (!machine.isIdle || isDirty)
        if held.isEmpty, flushes.isEmpty, !isBusy {
            inbox.noteCleanEnd()
            return true
        }
        return now >= stopBy || machine.end != nil
    }
}
