// Where a record stands in its topic, which is what decides between two records of one key.

/// A record's place: partition, offset and the broker's or producer's time stamp.
public struct TopicPosition: Hashable, Sendable {
    /// The partition.
    public var partition: Int32
    /// The offset inside the partition.
    public var offset: Int64
    /// The record's Kafka timestamp in ms.
    public var timestamp: Int64

    /// A place in a topic.
    public init(partition: Int32, offset: Int64, timestamp: Int64) {
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
    }

    /// Whether a record of the same key at this place is older than one at `other`.
    ///
    /// Offsets decide inside a partition. A key is found in two partitions only when the topic
    /// got more of them, and then time decides.
    internal func precedes(_ other: TopicPosition) -> Bool {
        partition == other.partition ? offset < other.offset : timestamp < other.timestamp
    }
}
