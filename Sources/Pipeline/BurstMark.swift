// What is remembered of a burst outside the lane: a note in the user's index entry. It says that
// the first event was sent, and until when the others wait, so that a lane which never saw the
// first one, since another process or an earlier life of this one sent it, folds them all the same.
// Pure.

internal import Base
internal import Crypto

/// What events of one burst have in common: app, user, collapse key, whom they leave out, and what
/// decides who gets them.
internal struct BurstKey: Hashable, Sendable {
    let high: UInt64
    let low: UInt64

    /// The first half of a digest over `bytes`: of fixed size, whatever keys publishers choose.
    init(hashing bytes: UnsafeRawBufferPointer) {
        (high, low) = SHA256Digest(of: bytes).withUnsafeBytes {
            (
                $0.loadUnaligned(as: UInt64.self),
                $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            )
        }
    }

    /// The name of its note.
    var name: String { name(of: "burst") }

    /// The name of a note of a kind.
    func name(of kind: String) -> String {
        withUnsafeBytes(of: (high, low)) { "\(kind)." + Hex.encode($0) }
    }
}

/// The note of a burst.
internal struct BurstMark: Equatable {
    /// When the push is due that stands for the others.
    var until: UnixMillis
    /// The event that was sent at once, or the first that waits.
    var first: RecordPosition
    /// The last offset in that partition that the last push stands for; nil while the burst is on.
    var closedThrough: Int64?

    /// What an event is that has no window in its lane.
    enum Part: Equatable {
        /// The first of a new burst.
        case begins
        /// The first of the burst that the mark is about, read again.
        case repeats(until: UnixMillis)
        /// One of the others.
        case joins(until: UnixMillis)
    }

    /// The part of an event that was first read at `position` with `timestamp`.
    ///
    /// After a crash events come again that were waiting. While the burst is on they join it, and
    /// also when it is over by the clock but nobody closed it; when it was closed, those do that
    /// the last push stood for, so that they do not begin another burst.
    static func part(
        of position: RecordPosition, timestamp: UnixMillis, given mark: BurstMark?,
        at now: UnixMillis
    ) -> Part {
        guard let mark else { return .begins }
        if mark.first == position { return .repeats(until: mark.until) }
        let follows =
            mark.first.topic == position.topic && mark.first.partition == position.partition
            && mark.first.offset < position.offset
        if let last = mark.closedThrough {
            return follows && position.offset <= last ? .joins(until: mark.until) : .begins
        }
        if now < mark.until { return .joins(until: mark.until) }
        return follows && timestamp <= mark.until ? .joins(until: mark.until) : .begins
    }

    /// How long a mark is kept when its burst is over: longer than a group takes to give the
    /// partitions of a process that died to others.
    static let keptFor = TimeSpan.minutes(2)

    // MARK: - Text

    /// The note's text.
    var text: String {
        let last = closedThrough.map(String.init) ?? "-"
        return "\(until.value) \(first.offset) \(last) \(first.partition) \(first.topic)"
    }

    /// Reads a note; nil when it is not one.
    init?(_ text: String) {
        let words = text.split(separator: " ", maxSplits: 4)
        guard words.count == 5, let until = Int64(words[0]), let offset = Int64(words[1]),
            let partition = Int32(words[3])
        else { return nil }
        if words[2] != "-" {
            guard let last = Int64(words[2]) else { return nil }
            closedThrough = last
        }
        self.until = UnixMillis(until)
        first = RecordPosition(topic: String(words[4]), partition: partition, offset: offset)
    }

    /// The mark of a burst whose last push stands for the events at these places.
    init(closing folded: [RecordPosition], _ carrier: RecordPosition, at now: UnixMillis) {
        until = now
        first = RecordPosition(topic: carrier.topic, partition: carrier.partition, offset: -1)
        closedThrough = folded.reduce(carrier.offset) { last, place in
            place.topic == carrier.topic && place.partition == carrier.partition
                ? max(last, place.offset) : last
        }
    }

    init(until: UnixMillis, first: RecordPosition, closedThrough: Int64? = nil) {
        self.until = until
        self.first = first
        self.closedThrough = closedThrough
    }
}
