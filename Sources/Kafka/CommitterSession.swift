// One turn after the other on the committer's thread: take what was posted, hand records over, take
// delivery reports, commit what they settle, answer those who wait for that.

internal import Base
internal import Glibc

/// Confined to the committer's thread.
final class CommitterSession {
    private let settings: CommitterConfiguration
    private let inbox: CommitterInbox
    private let time: any TimeSource
    private let delivery: OutboxDelivery
    private let commits: OffsetCommits
    private var ledger = CommitLedger()
    private var groupOf: [Epoch: Int] = [:]
    private var flushes: [PendingFlush] = []
    private var nextCommit = MonotonicTime(nanos: 0)
    /// Something was settled or a floor rose since the last look at what is due.
    private var isDirty = false
    private var stopBy: MonotonicTime?

    init(
        configuration: KafkaConfiguration, settings: CommitterConfiguration,
        producer: RecordProducer, inbox: CommitterInbox, time: any TimeSource
    ) {
        self.settings = settings
        self.inbox = inbox
        self.time = time
        delivery = OutboxDelivery(
            configuration: configuration, settings: settings, producer: producer, inbox: inbox)
        commits = OffsetCommits(inbox: inbox, onEvent: settings.onEvent)
    }

    func run() {
        delivery.warmUp()
        while true {
            let now = time.monotonic
            inbox.noteTurn(at: now)
            for message in inbox.takeAll() { take(message) }
            delivery.pump(at: now) { settle($0) }
            delivery.serve(waitLimit(at: now), at: now) { settle($0) }
            takeAnswers()
            commitDue(at: time.monotonic)
            advanceFlushes(at: time.monotonic)
            if isFinished(at: time.monotonic) { break }
            rest()
        }
        for flush in flushes { flush.completion() }
    }

    /// Lets batches and delivery reports gather while there is a steady flow of them: a thread that
    /// is woken for each costs more than the work itself.
    private func rest() {
        guard delivery.inFlight > 0, flushes.isEmpty, stopBy == nil else { return }
        var span = timespec(tv_sec: 0, tv_nsec: Int(Limits.committerRest.nanos))
        nanosleep(&span, nil)
    }

    private func settle(_ entry: Int32) {
        ledger.delivered(entry)
        isDirty = true
    }

    private func take(_ message: CommitterMessage) {
        switch message {
        case .batch(let batch): take(batch)
        case .assigned(let partitions, let consumer): open(partitions, consumer)
        case .flush(let epochs, let deadline, let completion):
            flushes.append(
                PendingFlush(
                    committing: epochs, of: group(of: epochs), now: time.monotonic,
                    deadline: deadline, completion: completion))
        case .discard(let epochs, let completion):
            // The group thread took them off its table: no request names them any more.
            flushes.append(
                PendingFlush(
                    discarding: epochs, of: group(of: epochs), now: time.monotonic,
                    completion: completion))
        case .stop(let deadline): stopBy = min(stopBy ?? deadline, deadline)
        }
    }

    private func group(of epochs: [Epoch]) -> Int? {
        epochs.lazy.compactMap { self.groupOf[$0] }.first
    }

    private func take(_ batch: OutboxBatch) {
        for (epoch, offset) in batch.restarts { restart(epoch, at: offset) }
        for index in batch.events.indices {
            let event = batch.events[index]
            batch.events[index].entry =
                ledger.post(
                    event.epoch, offset: event.offset, first: event.first, records: event.records)
                ?? -1
        }
        for (epoch, floor) in batch.floors { ledger.raiseFloor(epoch, to: floor) }
        isDirty = isDirty || !batch.floors.isEmpty || !batch.restarts.isEmpty
        delivery.add(batch)
    }

    private func restart(_ epoch: Epoch, at offset: Int64) {
        ledger.restart(epoch, at: offset)
        inbox.forgetCommitted(ledger.place(of: epoch))
    }

    private func open(_ partitions: [PartitionAssignment], _ consumer: Consumer) {
        isDirty = true
        do throws(KafkaError) {
            let group = try commits.group(of: consumer)
            for partition in partitions {
                groupOf[partition.epoch] = group
                ledger.open(
                    partition.epoch, partition.place, group: group,
                    committed: partition.committedOffset, floor: partition.startOffset,
                    finished: partition.finished)
            }
        } catch {
            settings.onEvent?(.commitFailed(error, partitions: partitions.count))
        }
    }

    private func remember(_ epoch: Epoch, at now: MonotonicTime) {
        guard let group = groupOf[epoch], let point = ledger.uncommittedPoint(epoch) else { return }
        commits.consumer(of: group).noteFinished(point, at: now)
    }

    private func close(_ epochs: [Epoch]) {
        for epoch in epochs {
            ledger.close(epoch)
            groupOf[epoch] = nil
        }
    }

    private func takeAnswers() {
        for answer in commits.serve(&ledger) {
            isDirty = true  // a refusal is repeated, and more may have settled meanwhile
            guard answer.error?.kind == .staleMember else { continue }
            for index in flushes.indices where flushes[index].group == answer.group {
                flushes[index].isStale = true
            }
        }
    }

    private func commitDue(at now: MonotonicTime) {
        guard isDirty, now >= nextCommit || stopBy != nil else { return }
        isDirty = false
        nextCommit = now + settings.commitInterval
        for group in 0..<commits.groupCount {
            // What cannot be asked now is due again when the answer is there.
            _ = commits.request(group, &ledger)
        }
    }

    private func advanceFlushes(at now: MonotonicTime) {
        var waiting: [PendingFlush] = []
        for flush in flushes {
            if isDone(flush, at: now) {
                for epoch in flush.epochs { remember(epoch, at: now) }
                close(flush.epochs)
                flush.completion()
            } else {
                waiting.append(flush)
            }
        }
        flushes = waiting
    }

    private func isDone(_ flush: PendingFlush, at now: MonotonicTime) -> Bool {
        guard now < flush.deadline, let group = flush.group else { return true }
        let isSettled = flush.epochs.allSatisfy { ledger.unsettled($0) == 0 }
        guard isSettled || now >= flush.settleBy, commits.isIdle(group) else { return false }
        return !flush.commits || flush.isStale || !commits.request(group, &ledger)
    }

    private func waitLimit(at now: MonotonicTime) -> TimeSpan {
        var limit = commits.isIdle ? Limits.committerIdle : Limits.committerBusy
        if isDirty { limit = min(limit, nextCommit - now) }
        if !flushes.isEmpty || stopBy != nil { limit = min(limit, Limits.committerBusy) }
        return delivery.wait(at: now, most: limit)
    }

    private func isFinished(at now: MonotonicTime) -> Bool {
        guard let stopBy else { return false }
        if delivery.isEmpty, commits.isIdle, !isDirty, flushes.isEmpty {
            inbox.noteCleanEnd()
            return true
        }
        return now >= stopBy
    }
}
