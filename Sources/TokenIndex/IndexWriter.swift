// The writing side: what the records of the topics do to the index.
//
// The rules, the same for every store:
//
// 1. Inside one key the topic's order decides. A record at a lower offset than the last one seen
//    is ignored; the same offset again does the same again, which completes what a crash cut off.
//    An upload with a lower `version` than the stored one is ignored; a null record resets that.
// 2. The user belongs to the install: of all accepted records of its addresses the one with the
//    newest Kafka timestamp names the user of all of them (ties: the greater address id; inside a
//    key the later record).
// 3. A token belongs to the address that claimed it with the newest `registered_at`, ties to the
//    greater address id. The former holder is not targeted again until it claims the token anew,
//    also when the winner goes away.
// 4. A verdict blocks an address while `registered_at <= as_of` and the token is the one that was
//    judged (or none is named). Verdicts are kept per token. Of two that are certain the one with
//    the later `as_of` counts; what a fuse counted or holds back is kept beside them, and a
//    `release` ends what the fuse that it names holds of that token, and nothing else.
//    `VerdictBook` has the details.
// 5. An address is found under its install's user when it is live, holds its token and is not
//    blocked. It leaves the former user before it appears under the next one.
// 6. Of the records of a user on `push.users` the last one counts, as in 1.

public import Base

/// Applies changes; confined to one loop. Changes of different installs may overtake each other,
/// changes of one install are applied in the order of the calls.
public protocol IndexWriter: AnyObject {
    /// Where results go. Set once, before the first change.
    var delegate: (any IndexWriterDelegate)? { get set }

    /// Applies a change, as often as it takes: while the store is away the change waits. The
    /// result goes to the delegate with the same tag, exactly once, possibly within this call.
    func apply(_ change: IndexChange, at position: TopicPosition, tag: UInt64)

    /// Takes charge of some partitions; `total` is how many all topics have together, over all
    /// writers. Answered by `applyFrom`, and again whenever the store was away or lost writes.
    func assign(_ partitions: [IndexTopicPartition], of total: Int)

    /// Says that everything before the positions is applied, and as of when that is everything there
    /// is; nil: as of now. When that is so for all partitions of all topics, readers trust the
    /// index. Answered by `markersWritten`.
    func mark(_ positions: [IndexTopicPosition], asOf: UnixMillis?)

    /// Says how far it is applied now, and as of when that is everything there is; nil: as of now.
    /// Cheap; what is stored follows within a second.
    func renew(_ positions: [IndexTopicPosition], asOf: UnixMillis?)

    /// Begins again with an empty store: `applyFrom` names the start of all partitions. For topics
    /// that are not what was applied before.
    func rebuild()

    /// Lets go of connections and timers. Changes in progress have no result.
    func stop()
}

extension IndexWriter {
    /// Says that everything before the positions is applied, and that it is all there is.
    public func mark(_ positions: [IndexTopicPosition]) { mark(positions, asOf: nil) }
}

/// One of the topics.
public enum IndexTopic: String, Sendable, CaseIterable {
    /// `push.devices`.
    case devices
    /// `push.invalidations`.
    case invalidations
    /// `push.users`; not everybody has it.
    case users
}

/// A partition of one of the topics.
public struct IndexTopicPartition: Hashable, Sendable {
    /// The topic.
    public var topic: IndexTopic
    /// The partition.
    public var partition: Int32

    /// A partition.
    public init(_ topic: IndexTopic, _ partition: Int32) {
        self.topic = topic
        self.partition = partition
    }
}

/// How far a partition of a topic is applied.
public struct IndexTopicPosition: Hashable, Sendable {
    /// The topic.
    public var topic: IndexTopic
    /// The partition.
    public var partition: Int32
    /// The offset that is next.
    public var nextOffset: Int64

    /// A position.
    public init(topic: IndexTopic, partition: Int32, nextOffset: Int64) {
        self.topic = topic
        self.partition = partition
        self.nextOffset = nextOffset
    }
}

/// Receives results on the writer's loop.
public protocol IndexWriterDelegate: AnyObject {
    /// A change is stored, found to be old, or cannot be stored for a reason that lies in it.
    func changeFinished(tag: UInt64, _ result: ChangeResult)
    /// Every record from these positions on has to be applied, also those that were applied
    /// before; 0 means from the start of the partition. Then `mark` again.
    func applyFrom(_ positions: [IndexTopicPosition])
    /// The markers are stored.
    func markersWritten()
    /// Something came up that others should know.
    func noticed(_ notice: IndexNotice)
}

extension IndexWriterDelegate {
    /// Not everybody passes notices on.
    public func noticed(_ notice: IndexNotice) {}
}

/// A record of one of the topics.
public enum IndexChange: Sendable {
    /// A record of `push.devices`.
    case registration(RegistrationRecord)
    /// A record of `push.invalidations`.
    case invalidation(InvalidationRecord)
    /// A record of `push.users`.
    case user(UserChange)

    /// The record's key.
    public var key: String {
        switch self {
        case .registration(let record): record.addressID.text
        case .invalidation(let record): record.addressID.text
        case .user(let change): change.key
        }
    }

    /// What is changed by one record after another: an install, or a user.
    internal var subject: String {
        switch self {
        case .registration(let record): record.addressID.install
        case .invalidation(let record): record.addressID.install
        // No install is called so: its name begins with the app's.
        case .user(let change): "/\(change.key)"
        }
    }
}

/// What became of a change.
public enum ChangeResult: Equatable, Sendable {
    /// The index shows it.
    case applied
    /// An older record, or an upload with an older version: nothing changed.
    case outdated
    /// It cannot be stored; the text says why and names no data. Repeating it does not help.
    case refused(String)
}
