// The names of places: a partition of a topic, and one assignment of it.

/// A partition of a topic.
public struct TopicPartition: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The topic's name.
    public var topic: String
    /// The partition's number.
    public var partition: Int32

    /// The partition of that topic.
    public init(_ topic: String, _ partition: Int32) {
        self.topic = topic
        self.partition = partition
    }

    /// `topic[partition]`.
    public var description: String { "\(topic)[\(partition)]" }

    /// Order by topic, then by partition.
    public static func < (left: TopicPartition, right: TopicPartition) -> Bool {
        (left.topic, left.partition) < (right.topic, right.partition)
    }
}

/// One assignment of one partition. The process never uses a number twice, so an epoch alone tells
/// which partition is meant and whether the assignment is still the current one.
public struct Epoch: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The number; zero is never assigned.
    public let number: UInt32

    /// The epoch of that number.
    public init(_ number: UInt32) { self.number = number }

    /// The number in decimal.
    public var description: String { String(number) }

    /// Order of assignment.
    public static func < (left: Epoch, right: Epoch) -> Bool { left.number < right.number }
}
