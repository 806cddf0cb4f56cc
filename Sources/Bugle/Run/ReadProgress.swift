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
    }

    private var partitions: [TopicPartition: Partition] = [:]

    /// Nothing is read of these partitions; of those that are named, everything before an offset.
    init(_ places: [TopicPartition] = [], from offsets: [TopicPartition: Int64] = [:]) {
        for place in places { partitions[place] = Partition(next: offsets[place] ?? 0) }
    }

    /// Takes in a record; false when it stands before what was read: then the partition is not the
    /// one that it was.
    mutating func read(
        _ place: TopicPartition, offset: Int64, timestamp: UnixMillis, at now: UnixMillis
    ) -> Bool {
        var partition = partitions[place] ?? Partition()
        guard offset >= partition.next else { return false }
        partition.next = offset + 1
        partition.isAtEnd = false
        // A producer's clock may be ahead.
        partition.asOf = max(partition.asOf, min(timestamp, now))
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

    /// As of when everything was read. A partition that is written to all the time never is at its
    /// end: of that one it is the time of its newest record.
    mutating func asOf(_ now: UnixMillis) -> UnixMillis {
        for (place, partition) in partitions where partition.isAtEnd {
            partitions[place]?.asOf = max(partition.asOf, now)
        }
        return partitions.values.map(\.asOf).min() ?? now
    }
}
