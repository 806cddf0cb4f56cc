// Consume: takes records from the partitions' queues, in turns, as long as the lane has room.
// Back-pressure is not reading: the queues fill and librdkafka stops fetching.

internal import Base
internal import EventLoop
internal import Kafka
internal import Telemetry

extension Lane {
    /// Whether another event may be read. The lane stops for its own totals, never for one
    /// gateway.
    var hasRoom: Bool { hasRoom(for: .transactional) && !isSaturated }

    /// Whether the totals leave room for an event of that class. Where there are critical events
    /// the last part is theirs, and marketing stops first.
    private func hasRoom(for eventClass: EventClass) -> Bool {
        // In tenths.
        let share =
            switch eventClass {
            case .critical: 10
            case .transactional: urgentPartitions.isEmpty ? 10 : 9
            case .marketing: urgentPartitions.isEmpty ? 10 : 6
            }
        return (events.count - heads.count) * 10 < settings.eventsInFlight * share
            && targets.count * 10 < settings.targetsInFlight * share
            && recordBytes - heads.bytes < settings.recordBytes && committer.hasRoom
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
        countHeads()
        var budget = settings.recordsPerTurn
        if !urgentPartitions.isEmpty { consumeUrgent(&budget) }
        var idle = 0
        var isHeldBack = false
        while budget > 0, idle < partitions.count {
            guard hasRoom, windows.hasRoom else { return rereadSoon() }
            nextPartition = (nextPartition + 1) % partitions.count
            let partition = partitions[nextPartition]
            // One event that takes long must not let the others run ahead without end.
            if partition.heldEvents > 0, partition.ledger.isCrowded { relieve(partition) }
            let yields = partition.eventClass == .marketing && !hasRoom(for: .marketing)
            isHeldBack = isHeldBack || yields || !partition.ledger.hasRoom
            let mayRead = partition.isReading && partition.ledger.hasRoom && !yields
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

    /// What stands at the heads of waiting topics is one event for each and waits for up to an hour:
    /// it must not take the room of those that are sent.
    private func countHeads() {
        heads = (0, 0)
        for partition in partitions {
            guard let head = partition.head else { continue }
            heads.count += 1
            heads.bytes += head.recordBytes
        }
    }

    /// Critical events first, whatever waits for the gateways, each partition's in turn; a part of
    /// the turn stays for the others.
    private func consumeUrgent(_ budget: inout Int) {
        var share = budget * 3 / 4
        budget -= share
        for _ in urgentPartitions.indices {
            guard share > 0, windows.hasRoom, hasRoom(for: .critical) else { break }
            nextUrgent = (nextUrgent + 1) % urgentPartitions.count
            let partition = urgentPartitions[nextUrgent]
            guard partition.isReading, partition.ledger.hasRoom else { continue }
            share -= read(partition, atMost: min(share, 16))
        }
        budget += share
    }

    /// Room comes back with completions, which end turns of this lane, and with deliveries, which
    /// do not: so the lane also looks by itself.
    private func rereadSoon() {
        mayHaveRecords = true
        loop.schedule(readTimer, at: loop.now + settings.busyReadInterval)
    }

    private func read(_ partition: AssignedPartition, atMost limit: Int) -> Int {
        guard partition.road == .events else { return readWaiting(partition, atMost: limit) }
        return partition.queue.consume(max: limit) { begin($0, of: partition) }
    }

    private func begin(_ record: borrowing KafkaRecord, of partition: AssignedPartition) {
        if !partition.expects(record.offset) { restart(partition, at: record.offset) }
        if partition.unreadable != nil { noteReadable(partition) }
        guard partition.ledger.begin(record.offset) else { return }
        if partition.wasFinished(record.offset) { return pass(over: record.offset, of: partition) }
        partition.openEvents += 1
        (partition.road == .events ? metrics.events : metrics.reentries).add(1)
        take(record, from: partition)
    }

    /// An event that an earlier owner finished while one before it was open: its results are
    /// written, and nothing of it is done again.
    private func pass(over offset: Int64, of partition: AssignedPartition) {
        metrics.alreadyFinished.add(1)
        complete(offset, partition.numbering, of: partition)
        flushAtEndOfTurn()
    }

    /// Reads a topic in which events wait, as far as they are due.
    private func readWaiting(_ partition: AssignedPartition, atMost limit: Int) -> Int {
        var count = 0
        while count < limit, partition.head == nil {
            let read = partition.queue.consume(max: 1) { begin($0, of: partition) }
            if read == 0 { break }
            count += read
        }
        return count
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

    /// Whether a record that waited is of this installation: several may share the topics. The
    /// others' is theirs to send.
    private func isOwn(_ input: InputRecord) -> Bool {
        guard let group = input.header(Reentry.groupHeader) else { return true }
        if group.elementsEqual(settings.group.utf8) { return true }
        metrics.foreignReentries.add(1)
        alarms.foreign(input.position.topic)
        return false
    }

    /// A record that waited counts as the one that was first read, wherever that was.
    private func takeReentry(
        _ input: inout InputRecord, _ event: EventInFlight, _ road: Road
    ) throws(Refusal) {
        let reentry = try Reentry(input, parser: headerParser)
        event.reentry = reentry
        event.windowUntil = reentry.windowUntil
        event.burst = reentry.burstCount.map {
            Burst(count: $0, foldedCount: reentry.foldedCount, names: reentry.foldedNames)
        }
        if case .retry(let tier) = road {
            // Not beyond the tier's own wait, should this clock be behind the broker's: once it is
            // put right, the timer would still wait by the wrong one.
            event.dueAt = min(input.timestamp, loop.wall) + settings.tiers.delay(of: tier)
        }
        // Of what is held that is the moment in which a lane set it aside, by the lane's clock.
        event.waitsSince = reentry.notBefore
        if case .parked = road { event.partition?.parkedAt = reentry.firstFailedAt }
        event.position = reentry.origin
        input.position = reentry.origin
        input.timestamp = reentry.timestamp
    }

    /// Decode and route, or set aside as a dead letter: either way the record is dealt with and
    /// the next one is not delayed.
    private func decode(_ record: InputRecord, of partition: AssignedPartition) {
        var input = record
        let event = events.take()
        event.partition = partition
        event.position = input.position
        event.offset = input.position.offset
        event.numbering = partition.numbering
        event.dueAt = nil
        event.source.take(input)
        event.noteReplay(input)
        event.consumedAt = loop.wall
        event.recordBytes = (input.value?.count ?? 0) + (input.key?.count ?? 0)
        recordBytes += event.recordBytes
        if partition.road == .tickets { return takeTicket(input, event, of: partition) }
        if partition.road != .events, !isOwn(input) { return finish(event) }
        beginTrace(event, input)
        do throws(Refusal) {
            if partition.road != .events { try takeReentry(&input, event, partition.road) }
            event.timestamp = input.timestamp
            event.eventClass =
                partition.road == .events
                ? partition.eventClass
                : settings.classes[event.position.topic] ?? .transactional
            event.envelope = try settings.decoder.decode(input, with: event.parser)
            event.carry(event.reentry?.cursor)
            try route(event)
            if partition.road == .events { noteRouting(of: input, event) }
        } catch {
            if !rejectOpenTargets(of: event, error) { setAside(event, input, error) }
            return
        }
        if let dueAt = event.dueAt, dueAt > loop.wall {
            partition.head = event
            hold(event, for: dueAt - loop.wall)
        } else if mayReturn(event, to: partition) {
            admit(event)
        } else {
            partition.head = event
            watchParking()
        }
    }

    /// Counts records that are not where their user's other records are: the producer partitions
    /// differently, and one user's events lose their order.
    private func noteRouting(of input: InputRecord, _ event: EventInFlight) {
        guard input.position.offset & 15 == 0, let key = input.key, let envelope = event.envelope,
            !envelope.isBroadcast, let count = settings.partitionCounts[input.position.topic],
            count > 1
        else { return }
        var user = envelope.userID
        let isUser = user.withUTF8 { key.elementsEqual($0) }
        if !isUser || Murmur2.partition(of: key, count: count) != input.position.partition {
            metrics.misrouted(source: envelope.source)
            alarms.misrouted(source: envelope.source)
        }
    }
}
