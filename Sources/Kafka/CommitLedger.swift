// How far each assigned partition may be committed: the arithmetic, without clock, thread or C.
//
// An event is settled when all its records are delivered. The commit point of a partition is the
// lower of two offsets: the lane's newest floor, below which nothing is open in the lane, and the
// lowest offset whose records are not delivered yet. Everything below it is finished and delivered.
// What is finished and delivered above it is kept too: it travels with the commit, so that the next
// owner does not do it again.

/// The committer's books. A value; confined to the committer's thread.
struct CommitLedger {
    /// An offset that may be committed for an assignment.
    struct Point: Equatable {
        var epoch: Epoch
        var place: TopicPartition
        var offset: Int64
        /// What is settled above the offset.
        var finished = OffsetRuns()
        /// How often that set had grown.
        var growth: UInt64 = 0
        /// In which numbering of the partition's records.
        var numbering: UInt32 = 0
    }

    fileprivate struct Partition {
        var epoch: Epoch
        var place: TopicPartition
        var group: Int
        var floor: Int64?
        var unsettled = 0
        /// Settled offsets, without those that a commit point covers.
        var finished: OffsetRuns
        /// How often `finished` grew, and how often it had when it was last committed.
        var growth: UInt64 = 0
        var committedGrowth: UInt64 = 0
        /// What the broker is known to hold.
        var committed: Int64
        /// What was asked for and not answered.
        var requested: Int64?
        /// How often the records were numbered anew.
        var numbering: UInt32 = 0
    }

    fileprivate struct Entry {
        var partition: Int32
        var remaining: Int32
        var epoch: Epoch
        var numbering: UInt32
        var offset: Int64
        var first: Int64
    }

    private var partitions: [Partition?] = []
    private var indexOf: [Epoch: Int] = [:]
    /// Slots of events waiting for delivery; its size follows what is in flight, not what ever was.
    private var entries: [Entry] = []
    private var free: [Int32] = []

    /// Starts the books of an assignment. `committed` is what the group had committed; `floor`,
    /// when known, is an offset below which everything is finished and delivered already, and
    /// `finished` are such offsets above it.
    mutating func open(
        _ epoch: Epoch, _ place: TopicPartition, group: Int, committed: Int64?, floor: Int64? = nil,
        finished: OffsetRuns = OffsetRuns()
    ) {
        let partition = Partition(
            epoch: epoch, place: place, group: group, floor: floor, finished: finished,
            committed: committed ?? -1)
        if let slot = partitions.firstIndex(where: { $0 == nil }) {
            partitions[slot] = partition
            indexOf[epoch] = slot
        } else {
            indexOf[epoch] = partitions.count
            partitions.append(partition)
        }
    }

    /// Ends the books of an assignment: nothing of it is committed any more, whatever still
    /// arrives.
    mutating func close(_ epoch: Epoch) {
        guard let index = indexOf.removeValue(forKey: epoch) else { return }
        partitions[index] = nil
    }

    /// Begins the books of an assignment anew at `offset`: its log is another one, or a shorter one,
    /// and its numbers mean other records than before. The next point may be lower than any before;
    /// whatever is still on its way for the former numbering moves none.
    mutating func restart(_ epoch: Epoch, at offset: Int64) {
        guard let index = indexOf[epoch] else { return }
        partitions[index]?.numbering &+= 1
        partitions[index]?.floor = offset
        partitions[index]?.finished = OffsetRuns()
        partitions[index]?.growth = 0
        partitions[index]?.committedGrowth = 0
        partitions[index]?.committed = -1
    }

    /// True while the assignment's books are open.
    func isOpen(_ epoch: Epoch) -> Bool { indexOf[epoch] != nil }

    /// Notes a finished event with `records` undelivered records. Returns its entry, or nil when
    /// nothing has to be settled: no records, or an assignment that is over. `first` is the lowest
    /// offset of the hole below the event's.
    mutating func post(
        _ epoch: Epoch, offset: Int64, first: Int64? = nil, records: Int32
    ) -> Int32? {
        guard let index = indexOf[epoch], let numbering = partitions[index]?.numbering else {
            return nil
        }
        let first = first ?? offset
        guard records > 0 else {
            finish(index, first, offset)
            return nil
        }
        partitions[index]?.unsettled += 1
        let entry = Entry(
            partition: Int32(index), remaining: records, epoch: epoch, numbering: numbering,
            offset: offset, first: first)
        if let slot = free.popLast() {
            entries[Int(slot)] = entry
            return slot
        }
        entries.append(entry)
        return Int32(entries.count - 1)
    }

    /// Notes that the lane has nothing open below `floor`. Call it after the events that came in
    /// the same batch were posted.
    mutating func raiseFloor(_ epoch: Epoch, to floor: Int64) {
        guard let index = indexOf[epoch], let known = partitions[index] else { return }
        partitions[index]?.floor = max(known.floor ?? floor, floor)
    }

    /// Notes that one record of an event was delivered.
    mutating func delivered(_ entry: Int32) {
        let slot = Int(entry)
        precondition(entries[slot].remaining > 0, "delivered more records than an event has")
        entries[slot].remaining -= 1
        guard entries[slot].remaining == 0 else { return }
        let index = Int(entries[slot].partition)
        if partitions[index]?.epoch == entries[slot].epoch {
            partitions[index]?.unsettled -= 1
            if partitions[index]?.numbering == entries[slot].numbering {
                finish(index, entries[slot].first, entries[slot].offset)
            }
        }
        free.append(entry)
    }

    private mutating func finish(_ index: Int, _ first: Int64, _ offset: Int64) {
        if partitions[index]?.finished.insert(first, upTo: offset + 1) == true {
            partitions[index]?.growth += 1
        }
    }

    /// The assignments of a group whose books are open.
    func openPlaces(group: Int) -> [(epoch: Epoch, place: TopicPartition)] {
        partitions.compactMap { partition in
            guard let partition, partition.group == group else { return nil }
            return (partition.epoch, partition.place)
        }
    }

    /// The partition of an assignment whose books are open.
    func place(of epoch: Epoch) -> TopicPartition? {
        indexOf[epoch].flatMap { partitions[$0]?.place }
    }

    /// The number of events of an assignment that wait for delivery.
    func unsettled(_ epoch: Epoch) -> Int {
        indexOf[epoch].flatMap { partitions[$0]?.unsettled } ?? 0
    }

    /// What the broker is known to hold for an assignment.
    func committed(_ epoch: Epoch) -> Int64? {
        guard let index = indexOf[epoch], let offset = partitions[index]?.committed, offset >= 0
        else { return nil }
        return offset
    }

    /// What is finished and delivered and not committed: a fact that a refused commit does not
    /// change.
    func uncommittedPoint(_ epoch: Epoch) -> Point? {
        guard let index = indexOf[epoch], let partition = partitions[index],
            let floor = partition.floor
        else { return nil }
        var point = floor
        for entry in entries where entry.remaining > 0 && partition.counts(entry) {
            point = min(point, entry.offset)
        }
        return partition.point(at: point)
    }

    /// What can be committed for a group and is not yet: always further than before, or at the same
    /// point with more finished above it; never while an earlier request of the partition is open.
    /// Cost: events in flight plus partitions.
    func due(group: Int) -> [Point] {
        // Lowest offset of each partition whose records are not delivered.
        var lowest = [Int64](repeating: .max, count: partitions.count)
        for entry in entries where entry.remaining > 0 {
            let index = Int(entry.partition)
            guard entry.offset < lowest[index], partitions[index]?.counts(entry) == true
            else { continue }
            lowest[index] = entry.offset
        }
        var points: [Point] = []
        for (index, slot) in partitions.enumerated() {
            guard let partition = slot, partition.group == group, partition.requested == nil,
                let floor = partition.floor
            else { continue }
            if let point = partition.point(at: min(floor, lowest[index])) { points.append(point) }
        }
        return points
    }

    /// Notes that a point was asked for.
    mutating func requested(_ point: Point) {
        guard let index = indexOf[point.epoch] else { return }
        partitions[index]?.requested = point.offset
    }

    /// Notes the answer to a request. After a refusal the next `due` names the newest point again.
    /// False when the point says nothing any more, since the partition's records were numbered anew
    /// meanwhile.
    @discardableResult
    mutating func answered(_ point: Point, committed: Bool) -> Bool {
        guard let index = indexOf[point.epoch], let known = partitions[index] else { return true }
        partitions[index]?.requested = nil
        guard known.numbering == point.numbering else { return false }
        guard committed else { return true }
        partitions[index]?.committed = max(known.committed, point.offset)
        partitions[index]?.committedGrowth = max(known.committedGrowth, point.growth)
        partitions[index]?.finished.removeBelow(point.offset)
        return true
    }
}

extension CommitLedger.Partition {
    /// Whether an entry holds the commit point of this assignment.
    fileprivate func counts(_ entry: CommitLedger.Entry) -> Bool {
        entry.epoch == epoch && entry.numbering == numbering
    }

    /// What a commit at `offset` would say; nil when the broker knows it already.
    fileprivate func point(at offset: Int64) -> CommitLedger.Point? {
        var above = finished
        above.removeBelow(offset)
        let tellsMore = growth > committedGrowth && !above.isEmpty
        guard offset > committed || offset == committed && tellsMore else { return nil }
        return CommitLedger.Point(
            epoch: epoch, place: place, offset: offset, finished: above, growth: growth,
            numbering: numbering)
    }
}
