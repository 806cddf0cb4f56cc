// Consume: takes records from the partitions' queues, in turns, as long as the lane has room.
// Back-pressure is not reading: the queues fill and librdkafka stops fetching.

internal import Base
internal import EventLoop
internal import Kafka
internal import Telemetry

extension Lane {
    /// Whether another event may be read. The lane stops for its own totals, never for one
    /// gateway.
    var hasRoom: Bool {
        events.count < settings.eventsInFlight && targets.count < settings.targetsInFlight
            && recordBytes < settings.recordBytes && committer.hasRoom && !isSaturated
    }

    /// Whether every pool in use answers and has enough requests waiting. A pool that stands still
    /// never makes it so: the others' events are behind its own, and the totals bound those.
    private var isSaturated: Bool {
        var isSaturated = false
        for pool in pools {
            switch pool.vote(expecting: lookUpsOpen * 2, at: loop.now) {
            case .none: continue
            case .more: return false
            case .enough: isSaturated = true
            }
        }
        return isSaturated
    }

    /// One round over the partitions and as many more as bring records, up to a bound per turn.
    func consume() {
        mayHaveRecords = false
        guard !partitions.isEmpty, !isDraining else { return }
        var budget = settings.recordsPerTurn
        var idle = 0
        var isHeldBack = false
        while budget > 0, idle < partitions.count {
            guard hasRoom else { return rereadSoon() }
            nextPartition = (nextPartition + 1) % partitions.count
            let partition = partitions[nextPartition]
            // One event that takes long must not let the others run ahead without end.
            isHeldBack = isHeldBack || !partition.ledger.hasRoom
            let mayRead = partition.isReading && partition.ledger.hasRoom
            let count = mayRead ? read(partition, atMost: min(budget, 32)) : 0
            idle = count == 0 ? idle + 1 : 0
            budget -= count
        }
        if isHeldBack { rereadSoon() }
        if budget == 0 {
            mayHaveRecords = true
            flushAtEndOfTurn()
        }
    }

    /// Room comes back with completions, which end turns of this lane, and with deliveries, which
    /// do not: so the lane also looks by itself.
    private func rereadSoon() {
        mayHaveRecords = true
        loop.schedule(readTimer, at: loop.now + settings.busyReadInterval)
    }

    private func read(_ partition: AssignedPartition, atMost limit: Int) -> Int {
        partition.queue.consume(max: limit) { record in
            guard partition.ledger.begin(record.offset) else { return }
            if partition.wasFinished(record.offset) {
                return pass(over: record.offset, of: partition)
            }
            partition.openEvents += 1
            metrics.events.add(1)
            take(record, from: partition)
        }
    }

    /// An event that an earlier owner finished while one before it was open: its results are
    /// written, and nothing of it is done again.
    private func pass(over offset: Int64, of partition: AssignedPartition) {
        metrics.alreadyFinished.add(1)
        outbox.completeEvent(
            epoch: partition.assignment.epoch, partition.ledger.complete(offset))
        flushAtEndOfTurn()
    }

    private func take(_ record: borrowing KafkaRecord, from partition: AssignedPartition) {
        var headers: [InputHeader] = []
        record.forEachHeader { name, value in
            headers.append(InputHeader(name: String(decoding: name, as: UTF8.self), value: value))
        }
        let input = InputRecord(
            position: RecordPosition(
                topic: record.topic, partition: record.partition, offset: record.offset),
            timestamp: UnixMillis(record.timestampMillis ?? loop.wall.value), key: record.key,
            value: record.value, headers: headers)
        decode(input, of: partition)
    }

    /// Decode and route, or set aside as a dead letter: either way the record is dealt with and
    /// the next one is not delayed.
    private func decode(_ input: InputRecord, of partition: AssignedPartition) {
        let event = events.take()
        event.partition = partition
        event.position = input.position
        event.consumedAt = loop.wall
        event.recordBytes = (input.value?.count ?? 0) + (input.key?.count ?? 0)
        recordBytes += event.recordBytes
        do throws(Refusal) {
            event.envelope = try settings.decoder.decode(input, with: event.parser)
            try route(event)
            noteRouting(of: input, event)
        } catch {
            setAside(event, input, error)
            return
        }
        admit(event)
    }

    /// Counts records that are not where their user's other records are: the producer partitions
    /// differently, and one user's events lose their order.
    private func noteRouting(of input: InputRecord, _ event: EventInFlight) {
        guard input.position.offset & 15 == 0, let key = input.key, let envelope = event.envelope,
            let count = settings.partitionCounts[input.position.topic], count > 1
        else { return }
        var user = envelope.userID
        let isUser = user.withUTF8 { key.elementsEqual($0) }
        if !isUser || Murmur2.partition(of: key, count: count) != input.position.partition {
            metrics.misrouted.add(16)
            alarms.misrouted(source: envelope.source)
        }
    }
}
