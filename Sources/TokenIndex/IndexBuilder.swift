// The index role: a thread of its own that applies the records of the topics to a writer.
//
// It knows no Kafka. Whoever reads the topics feeds it records with their positions and does what
// its events say:
//
// - `assign` the partitions it is to apply; `readFrom` answers with where to start reading, and
//   comes again, with a new epoch, whenever the store was away or lost writes. Seek there, and
//   feed what is read with that epoch; what carries an older one is dropped.
// - `feed` returns false when enough is waiting: stop reading, keep the batch, and go on at
//   `roomAvailable`.
// - `caughtUp` once every partition was read to where it ended when reading began. The builder
//   then marks the index complete, and `complete` says when it is. Say it again now and then, with
//   the moment up to which everything was read: topics that never rest are never at their end.
//
// Offsets need not be committed anywhere: how far the index is, is written beside it.

public import Base
public import EventLoop
internal import JSON
internal import Synchronization

/// A record of one of the topics, as it was read.
public struct IndexInput: Sendable {
    /// The topic.
    public var topic: IndexTopic
    /// Where it stands.
    public var position: TopicPosition
    /// The record's key.
    public var key: [UInt8]?
    /// The record's value; nil for null.
    public var value: [UInt8]?

    internal var byteCount: Int { (key?.count ?? 0) + (value?.count ?? 0) }

    /// A record.
    public init(topic: IndexTopic, position: TopicPosition, key: [UInt8]?, value: [UInt8]?) {
        self.topic = topic
        self.position = position
        self.key = key
        self.value = value
    }
}

/// What a builder has to say; delivered on its thread.
public enum IndexBuilderEvent: Sendable {
    /// Read these partitions from here, and feed with this epoch.
    case readFrom([IndexTopicPosition], epoch: UInt64)
    /// A batch that was refused will be taken now.
    case roomAvailable
    /// Everything up to `caughtUp` is applied and the index is marked.
    case complete
    /// A record is not readable and was skipped.
    case unreadable(IndexTopic, TopicPosition, RecordError)
    /// A record cannot be stored and was skipped.
    case refused(IndexTopic, TopicPosition, String)
    /// Something came up that others should know.
    case noticed(IndexNotice)
}

/// How far a builder is.
public struct IndexProgress: Sendable {
    /// Next offsets: everything before is applied.
    public var positions: [IndexTopicPosition] = []
    /// Records taken and not applied yet.
    public var waiting = 0
    /// Changes applied since the start, repetitions included.
    public var applied: UInt64 = 0
    /// Records skipped since the start.
    public var skipped: UInt64 = 0
}

/// The handle of the index role's thread.
public final class IndexBuilder: Sendable {
    fileprivate enum Message: Sendable {
        case assign([IndexTopicPartition], total: Int)
        case feed([IndexInput], epoch: UInt64)
        case caughtUp(epoch: UInt64, asOf: UnixMillis)
        case rebuild(epoch: UInt64)
        case stop
    }

    private let mailbox: Mailbox<Message>
    private let shared: BuilderSharing
    private let thread: LoopThread

    /// Starts the thread. `makeWriter` runs on it; `report` is called on it. `tables` are those of
    /// somebody else's whose change records are on `push.devices`.
    public init(
        name: String = "index", time: any TimeSource = SystemTime.shared,
        tables: [RegistrationTable] = [],
        makeWriter: @escaping @Sendable (EventLoop) -> any IndexWriter,
        report: @escaping @Sendable (IndexBuilderEvent) -> Void
    ) throws(SystemError) {
        let mailbox = Mailbox<Message>(capacity: 2 * IndexLimits.recordsQueued)
        let shared = BuilderSharing()
        thread = try LoopThread.start(name: name, time: time) { loop in
            let work = BuilderWork(loop, makeWriter(loop), tables, shared, report)
            mailbox.attach(to: loop) { work.received($0) }
        }
        self.mailbox = mailbox
        self.shared = shared
    }

    /// Gives the builder its partitions; `total` is how many all topics have together.
    public func assign(_ partitions: [IndexTopicPartition], of total: Int) {
        mailbox.post(.assign(partitions, total: total))
    }

    /// Feeds records in the order of their offsets; false when enough is waiting already, and
    /// then nothing was taken.
    public func feed(_ batch: [IndexInput], epoch: UInt64) -> Bool {
        guard shared.reserve(batch) else { return false }
        mailbox.post(.feed(batch, epoch: epoch))
        return true
    }

    /// Every partition has been read to where it ended when reading began, and what was fed shows
    /// the topics as of that moment. The first time in an epoch it completes the index; say it again
    /// now and then, for what look-ups show is trusted only for a while.
    public func caughtUp(epoch: UInt64, asOf: UnixMillis) {
        mailbox.post(.caughtUp(epoch: epoch, asOf: asOf))
    }

    /// The topics are not those that were applied before: everything is read from their start.
    public func rebuild(epoch: UInt64) { mailbox.post(.rebuild(epoch: epoch)) }

    /// How far the builder is.
    public var progress: IndexProgress { shared.progress.withLock { $0 } }

    /// Records that were taken and are not applied yet, as of now.
    public var waiting: Int { shared.waiting }

    /// Stops and waits for the thread. What is in progress is applied again by the next one.
    public func stop() {
        mailbox.post(.stop)
        thread.handle.stop()
        thread.join()
    }
}

/// What the builder's thread and the others share.
private final class BuilderSharing: Sendable {
    let progress = Mutex(IndexProgress())
    private let queued = Atomic<Int>(0)
    private let bytes = Atomic<Int>(0)
    private let isRefusing = Atomic<Bool>(false)

    func reserve(_ batch: [IndexInput]) -> Bool {
        if isFull(at: 1) {
            isRefusing.store(true, ordering: .sequentiallyConsistent)
            // The queue may have drained before it saw the flag.
            if isFull(at: 1) { return false }
            isRefusing.store(false, ordering: .sequentiallyConsistent)
        }
        let size = batch.reduce(0) { $0 + $1.byteCount }
        queued.add(batch.count, ordering: .sequentiallyConsistent)
        bytes.add(size, ordering: .sequentiallyConsistent)
        return true
    }

    /// Returns whether somebody waits for the room that is there now.
    func release(_ count: Int, bytes size: Int) -> Bool {
        queued.subtract(count, ordering: .sequentiallyConsistent)
        bytes.subtract(size, ordering: .sequentiallyConsistent)
        return !isFull(at: 2) && isRefusing.exchange(false, ordering: .sequentiallyConsistent)
    }

    private func isFull(at fraction: Int) -> Bool {
        queued.load(ordering: .sequentiallyConsistent) >= IndexLimits.recordsQueued / fraction
            || bytes.load(ordering: .sequentiallyConsistent) >= IndexLimits.bytesQueued / fraction
    }

    var waiting: Int { queued.load(ordering: .relaxed) }
}

/// The builder on its thread.
private final class BuilderWork: IndexWriterDelegate {
    private enum Item {
        case record(IndexInput)
        /// What was fed before shows the topics as of then.
        case end(UnixMillis)
    }

    private struct Running {
        var topic: IndexTopic
        var position: TopicPosition
        var epoch: UInt64
        var bytes: Int
        /// Changes of the record that follow the one in progress.
        var rest: ArraySlice<IndexChange> = []
        /// The position that they are applied at: its timestamp is the one that the record means.
        var applied: TopicPosition
    }

    private let loop: EventLoop
    private let writer: any IndexWriter
    private let shared: BuilderSharing
    private let report: @Sendable (IndexBuilderEvent) -> Void
    private let parser = JSONParser(maximumBytes: IndexLimits.recordBytes)
    private let decoder: RegistrationDecoder
    private var epoch: UInt64 = 0
    private var items: [Item] = []
    private var nextItem = 0
    private var running: [UInt64: Running] = [:]
    private var nextTag: UInt64 = 0
    private var trackers: [IndexTopicPartition: AppliedOffsets] = [:]
    private var applied: UInt64 = 0
    private var skipped: UInt64 = 0
    private var isPumping = false
    /// Whether this epoch was read to the end once.
    private var isMarked = false
    /// As of when everything is applied.
    private var shownAsOf = UnixMillis(0)
    /// Moments that hold once everything up to a tag is applied.
    private var ends: [(tag: UInt64, asOf: UnixMillis)] = []
    private lazy var renewTimer = LoopTimer { [unowned self] in renew() }

    init(
        _ loop: EventLoop, _ writer: any IndexWriter, _ tables: [RegistrationTable],
        _ shared: BuilderSharing, _ report: @escaping @Sendable (IndexBuilderEvent) -> Void
    ) {
        self.loop = loop
        decoder = RegistrationDecoder(tables: tables)
        self.writer = writer
        self.shared = shared
        self.report = report
        writer.delegate = self
        loop.schedule(renewTimer, at: loop.now + Self.renewInterval)
    }

    func received(_ messages: [IndexBuilder.Message]) {
        for message in messages {
            switch message {
            case .assign(let partitions, let total): writer.assign(partitions, of: total)
            case .feed(let batch, let epoch):
                if epoch == self.epoch {
                    for input in batch { items.append(.record(input)) }
                } else {
                    release(batch.count, bytes: batch.reduce(0) { $0 + $1.byteCount })
                }
            case .caughtUp(let epoch, let asOf): if epoch == self.epoch { end(asOf) }
            case .rebuild(let epoch): if epoch == self.epoch { writer.rebuild() }
            case .stop: stop()
            }
        }
        pump()
    }

    private func stop() {
        loop.cancel(renewTimer)
        writer.stop()
        items = []
        nextItem = 0
    }

    private func end(_ asOf: UnixMillis) {
        // While the store is away they would pile up.
        if nextItem < items.count, case .end = items[items.count - 1] { items.removeLast() }
        items.append(.end(asOf))
    }

    // MARK: - Applying

    private func pump() {
        // A change may finish within the call that starts it.
        guard !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
        while nextItem < items.count, running.count < IndexLimits.changesInFlight {
            switch items[nextItem] {
            case .record(let input): take(input)
            case .end(let asOf):
                if isMarked {
                    ends.append((nextTag, asOf))
                } else {
                    guard running.isEmpty else { return }
                    isMarked = true
                    shownAsOf = max(shownAsOf, asOf)
                    writer.mark(positions, asOf: shownAsOf)
                }
            }
            nextItem += 1
        }
        if nextItem == items.count {
            items.removeAll(keepingCapacity: true)
            nextItem = 0
        } else if nextItem >= Self.compactAt {
            items.removeFirst(nextItem)
            nextItem = 0
        }
    }

    private func take(_ input: IndexInput) {
        let place = IndexTopicPartition(input.topic, input.position.partition)
        trackers[place, default: AppliedOffsets()].started(input.position.offset)
        nextTag += 1
        let tag = nextTag
        running[tag] = Running(
            topic: input.topic, position: input.position, epoch: epoch, bytes: input.byteCount,
            applied: input.position)
        do throws(RecordError) {
            let (changes, timestamp) = try decode(input)
            running[tag]?.rest = changes[...]
            running[tag]?.applied.timestamp = timestamp
            advance(tag)
        } catch {
            skipped += 1
            report(.unreadable(input.topic, input.position, error))
            settle(tag)
        }
    }

    /// Starts the record's next change, or settles it when there is none.
    private func advance(_ tag: UInt64) {
        guard let change = running[tag]?.rest.popFirst(), let position = running[tag]?.applied
        else { return settle(tag) }
        writer.apply(change, at: position, tag: tag)
    }

    private func decode(
        _ input: IndexInput
    ) throws(RecordError) -> (changes: [IndexChange], timestamp: Int64) {
        let timestamp = input.position.timestamp
        let result = Self.lend(input.key) { key in
            Self.lend(input.value) { value -> Result<([IndexChange], Int64), RecordError> in
                do throws(RecordError) {
                    switch input.topic {
                    case .devices:
                        let decoded = try decoder.decode(
                            key: key, value: value, timestamp: timestamp)
                        return .success(
                            (decoded.records.map { .registration($0) }, decoded.timestamp))
                    case .invalidations:
                        let record = try InvalidationRecord.decode(
                            key: key, value: value, parser: parser)
                        return .success((record.map { [.invalidation($0)] } ?? [], timestamp))
                    case .users:
                        let change = try UserChange.decode(
                            key: key, value: value, parser: parser)
                        return .success(([.user(change)], timestamp))
                    }
                } catch {
                    return .failure(error)
                }
            }
        }
        return try result.get()
    }

    private static func lend<Value>(
        _ bytes: [UInt8]?, _ body: (UnsafeRawBufferPointer?) -> Value
    ) -> Value {
        guard let bytes else { return body(nil) }
        return bytes.withUnsafeBytes { body($0) }
    }

    func changeFinished(tag: UInt64, _ result: ChangeResult) {
        switch result {
        case .applied: applied += 1
        case .outdated: break
        case .refused(let text):
            skipped += 1
            if let change = running[tag] {
                report(.refused(change.topic, change.position, text))
            }
        }
        advance(tag)
        pump()
    }

    private func settle(_ tag: UInt64) {
        guard let change = running.removeValue(forKey: tag) else { return }
        if change.epoch == epoch {
            let place = IndexTopicPartition(change.topic, change.position.partition)
            trackers[place]?.finished(change.position.offset)
        }
        release(1, bytes: change.bytes)
    }

    private func release(_ count: Int, bytes: Int) {
        if shared.release(count, bytes: bytes) { report(.roomAvailable) }
    }

    // MARK: - Positions

    func applyFrom(_ positions: [IndexTopicPosition]) {
        epoch += 1
        isMarked = false
        let dropped = items[nextItem...].compactMap { item in
            if case .record(let input) = item { input.byteCount } else { nil }
        }
        items.removeAll(keepingCapacity: true)
        nextItem = 0
        ends = []
        trackers = [:]
        for position in positions {
            trackers[IndexTopicPartition(position.topic, position.partition)] =
                AppliedOffsets(next: position.nextOffset)
        }
        report(.readFrom(positions, epoch: epoch))
        release(dropped.count, bytes: dropped.reduce(0, +))
    }

    func markersWritten() { report(.complete) }

    func noticed(_ notice: IndexNotice) { report(.noticed(notice)) }

    private var positions: [IndexTopicPosition] {
        trackers.map { place, tracker in
            IndexTopicPosition(
                topic: place.topic, partition: place.partition, nextOffset: tracker.next)
        }
    }

    private func renew() {
        let positions = positions
        let oldest = running.keys.min() ?? .max
        let reached = ends.prefix { $0.tag < oldest }
        for end in reached { shownAsOf = max(shownAsOf, end.asOf) }
        ends.removeFirst(reached.count)
        writer.renew(positions, asOf: shownAsOf)
        shared.progress.withLock { [applied, skipped] in
            $0 = IndexProgress(
                positions: positions, waiting: shared.waiting, applied: applied, skipped: skipped)
        }
        loop.schedule(renewTimer, at: loop.now + Self.renewInterval)
    }

    private static let renewInterval = IndexLimits.markerInterval / 4
    private static let compactAt = 4_096
}

/// How far a partition is applied while later records may be done before earlier ones.
internal struct AppliedOffsets {
    private(set) var next: Int64
    private var open: [(offset: Int64, isDone: Bool)] = []
    private var head = 0

    init(next: Int64 = 0) { self.next = next }

    mutating func started(_ offset: Int64) { open.append((offset, false)) }

    mutating func finished(_ offset: Int64) {
        var low = head
        var high = open.count
        while low < high {
            let middle = (low + high) / 2
            if open[middle].offset < offset { low = middle + 1 } else { high = middle }
        }
        guard low < open.count, open[low].offset == offset else { return }
        open[low].isDone = true
        while head < open.count, open[head].isDone {
            next = max(next, open[head].offset + 1)
            head += 1
        }
        if head == open.count || head >= 1_024 {
            open.removeFirst(head)
            head = 0
        }
    }
}
