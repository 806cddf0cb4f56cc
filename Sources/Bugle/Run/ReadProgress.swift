// How far the topics of the index are read, and as of when that is all there is.

internal import Base
internal import Kafka

/// Knows of each partition where it stands. A value; all moments are given.
internal struct ReadProgress {
    private struct Partition {
        /// The offset that is next, as far as anything was read.
        var next: Int64 = 0
        /// Whether nothing came since the end was last seen.
        var isAtEnd = false
        /// Everything up to this moment was read.
        var asOf = UnixMillis(0)
        /// Where it ended a while ago.
        var goal: Goal?
    }

    private struct Goal {
        let offset: Int64
        let seenAt: UnixMillis

        init(_ offset: Int64, _ seenAt: UnixMillis) {
            self.offset = offset
            self.seenAt = seenAt
        }
    }

    private var partitions: [TopicPartition: Partition] = [:]

    /// Nothing is read of these partitions; of those that are named, everything before an offset.
    init(_ places: [TopicPartition] = [], from offsets: [TopicPartition: Int64] = [:]) {
        for place in places { partitions[place] = Partition(next: offsets[place] ?? 0) }
    }

    /// Takes in a record; false when it stands before what was read: then the partition is not the
    /// one that it was.
    mutating func read(_ place: TopicPartition, offset: Int64) -> Bool {
        var partition = partitions[place] ?? Partition()
        guard offset >= partition.next else { return false }
        partition.next = offset + 1
        partition.isAtEnd = false
        partitions[place] = partition
        return true
    }

    /// A partition was read to its end; false when that lies before what was read.
    mutating func ended(_ place: TopicPartition, offset: Int64, at now: UnixMillis) -> Bool {
        var partition = partitions[place] ?? Partition()
        guard offset >= partition.next else { return false }
        partition.next = offset
        partition.isAtEnd = true
        partition.asOf = max(partition.asOf, now)
        partitions[place] = partition
        return true
    }

    /// Compares what is read with where partitions ended a while ago. One that is written to all the
    /// time never is at its end; what there was at a moment is read all the same. Its records' own
    /// times say nothing of that: producers set them.
    mutating func look(at now: UnixMillis, end: (TopicPartition) -> Int64?) {
        for (place, old) in partitions where !old.isAtEnd {
            var partition = old
            if let goal = partition.goal, partition.next >= goal.offset {
                partition.asOf = max(partition.asOf, goal.seenAt)
                partition.goal = nil
            }
            if partition.goal == nil { partition.goal = end(place).map { Goal($0, now) } }
            partitions[place] = partition
        }
    }

    /// As of when everything was read.
    mutating func asOf(_ now: UnixMillis) -> UnixMillis {
        for (place, partition) in partitions where partition.isAtEnd {
            partitions[place]?.asOf = max(partition.asOf, now)
        }
        return partitions.values.map(\.asOf).min() ?? now
    }
}
