// Gets every posted record to its topic, whatever it takes: what the client refuses or gives back is
// produced again, and a producer that died is replaced. Records stay in their batches until the
// brokers have acknowledged them.

internal import Base
internal import CRDKafka
internal import Synchronization

/// The records in flight. Confined to the committer's thread.
final class OutboxDelivery {
    private struct Slot {
        var batch: OutboxBatch
        /// Order of posting, kept when everything is produced again.
        var sequence: UInt64
    }

    private let configuration: KafkaConfiguration
    private let settings: CommitterConfiguration
    private let inbox: CommitterInbox
    private var producer: RecordProducer
    private var slots: [Slot?] = []
    private var freeSlots: [Int] = []
    private var lastSequence: UInt64 = 0

    /// Batches whose records were not all handed over yet, oldest first.
    private var unproduced: [(slot: Int, next: Int)] = []
    private var unproducedHead = 0
    /// Records to hand over before anything new.
    private var again: [RecordReference] = []
    /// Records that failed and wait for `retryAt`.
    private var failed: [RecordReference] = []
    private var retryAt = MonotonicTime.distantFuture
    private var retryDelay = Limits.redeliveryMin

    private var deathCause: KafkaError?
    private var failures: [Int32: (records: Int, error: KafkaError)] = [:]
    private(set) var inFlight = 0
    private var isFull = false

    init(
        configuration: KafkaConfiguration, settings: CommitterConfiguration,
        producer: RecordProducer, inbox: CommitterInbox
    ) {
        self.configuration = configuration
        self.settings = settings
        self.producer = producer
        self.inbox = inbox
    }

    /// True when every record ever posted was delivered.
    var isEmpty: Bool {
        inFlight == 0 && failed.isEmpty && again.isEmpty && unproducedHead == unproduced.count
    }

    func warmUp() {
        if let error = producer.warmUp(Limits.topicWarmUp) {
            settings.onEvent?(.producerError(error))
        }
    }

    /// Takes a batch over. One without records is empty work and goes straight back.
    func add(_ batch: OutboxBatch) {
        guard !batch.records.isEmpty else {
            inbox.lower(bytes: batch.byteCount)
            inbox.giveSpare(batch)
            return
        }
        batch.undelivered = batch.records.count
        lastSequence += 1
        let slot = Slot(batch: batch, sequence: lastSequence)
        if let index = freeSlots.popLast() {
            slots[index] = slot
            unproduced.append((index, 0))
        } else {
            slots.append(slot)
            unproduced.append((slots.count - 1, 0))
        }
    }

    /// Hands over as much as the client takes. `delivered` as in `serve`.
    func pump(at now: MonotonicTime, delivered: (Int32) -> Void) {
        if deathCause != nil { rebuild(at: now, delivered: delivered) }
        if now >= retryAt {
            again.append(contentsOf: failed)
            failed.removeAll(keepingCapacity: true)
            retryAt = .distantFuture
        }
        isFull = false
        produceAgain(at: now)
        while !isFull, deathCause == nil, again.isEmpty, unproducedHead < unproduced.count {
            produceNext(at: now)
        }
        if unproducedHead == unproduced.count {
            unproduced.removeAll(keepingCapacity: true)
            unproducedHead = 0
        } else if unproducedHead > 1024 {
            unproduced.removeFirst(unproducedHead)
            unproducedHead = 0
        }
    }

    /// How long may be waited for reports.
    func wait(at now: MonotonicTime, most: TimeSpan) -> TimeSpan {
        if deathCause != nil { return .zero }
        var wait = most
        if !failed.isEmpty { wait = min(wait, retryAt - now) }
        return max(wait, .zero)
    }

    /// Takes delivery reports; `delivered` receives the entry of each event record that arrived.
    func serve(_ wait: TimeSpan, at now: MonotonicTime, delivered: (Int32) -> Void) {
        var count = 0
        producer.serve(wait) { report in
            switch report {
            case .delivered(let reference):
                count += 1
                settle(reference, delivered)
            case .failed(let reference, let code): fail(reference, code, at: now)
            case .error(let error):
                if error.isFatal { deathCause = error }
                settings.onEvent?(.producerError(error))
            }
        }
        if count > 0 {
            inbox.lower(records: count)
            inbox.statistics.withLock { $0.delivered += UInt64(count) }
            retryDelay = Limits.redeliveryMin
        }
        reportFailures()
    }

    private func produceAgain(at now: MonotonicTime) {
        var index = 0
        while index < again.count, !isFull, deathCause == nil {
            guard inFlight < producer.capacity else {
                isFull = true
                break
            }
            let reference = again[index]
            if handOver(reference.slot, from: reference.index, limit: 1, at: now) == 0 { break }
            index += 1
        }
        again.removeFirst(index)
    }

    private func produceNext(at now: MonotonicTime) {
        let room = producer.capacity - inFlight
        guard room > 0 else {
            isFull = true
            return
        }
        let (slot, next) = unproduced[unproducedHead]
        let tried = handOver(slot, from: next, limit: room, at: now)
        unproduced[unproducedHead].next = next + tried
        if next + tried == slots[slot]?.batch.records.count { unproducedHead += 1 }
    }

    /// Returns how many records need not be tried again from here.
    private func handOver(_ slot: Int, from first: Int, limit: Int, at now: MonotonicTime) -> Int {
        guard let batch = slots[slot]?.batch else { return 1 }
        var refusals: [(Int, RecordProducer.Refusal)] = []
        let tried = producer.produce(batch, slot: slot, from: first, limit: limit) {
            refusals.append(($0, $1))
        }
        for index in first..<first + tried { batch.records[index].state = .queued }
        inFlight += tried
        for (index, refusal) in refusals {
            batch.records[index].state = .waiting
            inFlight -= 1
            let reference = RecordReference(slot: slot, index: index)
            switch refusal {
            case .queueFull:
                isFull = true
                // Alone at the front it just stays there; out of a run it goes to the front.
                if tried == 1 { return 0 }
                again.append(reference)
            case .fatal(let error):
                deathCause = error
                if tried == 1 { return 0 }
                again.append(reference)
            case .record(let error): postpone(reference, batch.records[index].topic, error, at: now)
            }
        }
        return tried
    }

    private func settle(_ reference: RecordReference, _ delivered: (Int32) -> Void) {
        guard let batch = slots[reference.slot]?.batch,
            batch.records[reference.index].state == .queued
        else { return }
        batch.records[reference.index].state = .delivered
        inFlight -= 1
        let event = batch.records[reference.index].event
        if event >= 0, batch.events[Int(event)].entry >= 0 {
            delivered(batch.events[Int(event)].entry)
        }
        batch.undelivered -= 1
        guard batch.undelivered == 0 else { return }
        slots[reference.slot] = nil
        freeSlots.append(reference.slot)
        inbox.lower(bytes: batch.byteCount)
        inbox.giveSpare(batch)
    }

    private func fail(
        _ reference: RecordReference, _ code: rd_kafka_resp_err_t, at now: MonotonicTime
    ) {
        guard let batch = slots[reference.slot]?.batch,
            batch.records[reference.index].state == .queued
        else { return }
        batch.records[reference.index].state = .waiting
        inFlight -= 1
        postpone(reference, batch.records[reference.index].topic, KafkaError(code), at: now)
    }

    private func postpone(
        _ reference: RecordReference, _ topic: Int32, _ error: KafkaError, at now: MonotonicTime
    ) {
        failures[topic] = ((failures[topic]?.records ?? 0) + 1, error)
        if failed.isEmpty {
            retryAt = now + retryDelay
            retryDelay = min(retryDelay * 2, Limits.redeliveryMax)
        }
        failed.append(reference)
    }

    private func reportFailures() {
        guard !failures.isEmpty else { return }
        var total = 0
        for (topic, failure) in failures {
            total += failure.records
            settings.onEvent?(
                .deliveryFailed(
                    topic: settings.topics[Int(topic)], records: failure.records, failure.error))
        }
        failures.removeAll(keepingCapacity: true)
        inbox.statistics.withLock { $0.redelivered += UInt64(total) }
    }
}

// MARK: - A producer that died

extension OutboxDelivery {
    /// Replaces the producer. What the old one acknowledges on its way out counts; all the rest is
    /// produced again in the order of posting.
    private func rebuild(at now: MonotonicTime, delivered: (Int32) -> Void) {
        guard let cause = deathCause else { return }
        producer.purge()
        serve(Limits.producerPurge, at: now, delivered: delivered)
        let fresh: RecordProducer
        do throws(KafkaError) {
            fresh = try RecordProducer(configuration, settings.producer, topics: settings.topics)
        } catch {
            settings.onEvent?(.producerError(error))
            deathCause = cause
            return  // tried again in the next turn
        }
        inbox.redirectWakes(to: fresh.queue)
        producer = fresh
        deathCause = nil
        requeueEverything()
        inbox.statistics.withLock { $0.rebuilds += 1 }
        settings.onEvent?(.producerRebuilt(cause))
        warmUp()
    }

    private func requeueEverything() {
        failed.removeAll(keepingCapacity: true)
        again.removeAll(keepingCapacity: true)
        unproduced.removeAll(keepingCapacity: true)
        unproducedHead = 0
        inFlight = 0
        retryAt = .distantFuture
        let living = slots.indices.filter { slots[$0] != nil }
        for slot in living.sorted(by: { slots[$0]?.sequence ?? 0 < slots[$1]?.sequence ?? 0 }) {
            guard let batch = slots[slot]?.batch else { continue }
            for index in batch.records.indices where batch.records[index].state != .delivered {
                batch.records[index].state = .waiting
                again.append(RecordReference(slot: slot, index: index))
            }
        }
    }
}
