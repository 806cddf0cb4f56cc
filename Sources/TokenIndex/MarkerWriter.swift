// The markers of the buckets, from the writer's side. A marker holds, for every partition of the
// two topics, the offset up to which the bucket is known to show that partition, and `c` once it
// has one for all of them. The writer of a partition renews its field every second, and reads
// back what the field held: anything but what was last seen or written there means that the
// bucket lost writes, as a FLUSHALL, an emptied node or a fail-over to a replica that lagged
// leave it. Then `c` goes away at once, and what is missing is applied again from the positions
// that the markers still hold, or from the start.

internal import Base
internal import EventLoop
internal import Redis

/// Surveys, writes and renews markers; loop-confined, owned by the index writer.
internal final class MarkerWriter: RedisReplyHandler {
    private enum Phase { case idle, surveying, unmarked, marking, watching }

    /// Everything from these positions on has to be applied.
    var applyFrom: (([IndexTopicPosition]) -> Void)?
    /// The markers were written.
    var written: (() -> Void)?

    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private var partitions: [IndexTopicPartition] = []
    private var total = 0
    private var phase = Phase.idle
    private var positions: [Int64] = []
    /// What each bucket's marker holds as far as this writer knows; nil when nothing.
    private var held: [[Int64]?] = Array(repeating: nil, count: IndexLimits.buckets)
    /// The same as far as replies have said so.
    private var confirmed: [[Int64]?] = Array(repeating: nil, count: IndexLimits.buckets)
    private var repliesLeft = 0
    private var isGood = true
    private var isMarked = true
    private var nextBucket = 0
    /// Tells replies to an earlier round from those of this one.
    private var round: UInt64 = 0
    private lazy var timer = LoopTimer { [unowned self] in tick() }

    init(_ client: RedisClient, layout: RedisLayout, on loop: EventLoop) {
        self.client = client
        self.layout = layout
        self.loop = loop
    }

    /// Takes charge of some partitions; `total` is how many both topics have together.
    func assign(_ partitions: [IndexTopicPartition], of total: Int) {
        self.partitions = partitions
        self.total = total
        phase = .idle
        if client.isReady { connected() }
    }

    /// After every connect: what the store holds is not known any more.
    func connected() { if !partitions.isEmpty { survey() } }

    func mark(_ positions: [IndexTopicPosition]) {
        take(positions)
        guard phase != .surveying else { return }
        write()
    }

    /// The positions that the next renewals write.
    func renew(_ positions: [IndexTopicPosition]) {
        if phase == .watching { take(positions) }
    }

    func stop() {
        loop.cancel(timer)
        applyFrom = nil
        written = nil
    }

    private func take(_ new: [IndexTopicPosition]) {
        positions = partitions.map { partition in
            new.first { $0.topic == partition.topic && $0.partition == partition.partition }?
                .nextOffset ?? 0
        }
    }

    private var fields: [String] { partitions.map(\.field) }

    // MARK: - Rounds over all buckets

    private func begin(_ phase: Phase) {
        round += 1
        self.phase = phase
        repliesLeft = IndexLimits.buckets
        isGood = true
        isMarked = true
    }

    private func survey() {
        loop.cancel(timer)
        begin(.surveying)
        positions = Array(repeating: .max, count: partitions.count)
        for bucket in 0..<IndexLimits.buckets {
            let key = layout.marker(bucket)
            let command = ["HMGET", key, "c"] + fields
            if client.send(command, key: key, to: self, tag: tag(bucket)) != nil {
                return retryLater()
            }
        }
    }

    private func write() {
        begin(.marking)
        for bucket in 0..<IndexLimits.buckets {
            held[bucket] = positions
            let arguments = [String(total)] + fields + positions.map { String($0) }
            let error = client.run(
                IndexScripts.mark, keys: [layout.marker(bucket)],
                arguments: arguments.map { Array($0.utf8) }, to: self, tag: tag(bucket))
            if error != nil { return retryLater() }
        }
    }

    /// A connection that comes back starts over; this is for a server that refused.
    private func retryLater() {
        round += 1
        loop.schedule(timer, at: loop.now + IndexLimits.readinessInterval)
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        guard tag >> 16 == round else { return }
        let bucket = Int(tag & 0xFFFF)
        switch phase {
        case .surveying:
            surveyed(bucket, reply)
            countReply()
        case .marking: countReply()
        case .watching: renewed(bucket, reply)
        case .idle, .unmarked: break
        }
    }

    func failed(_ error: RedisError, tag: UInt64) {
        guard tag >> 16 == round else { return }
        switch phase {
        case .surveying, .marking:
            isGood = false
            countReply()
        case .watching:
            // What was refused, for want of memory or during a fail-over, is not in the marker.
            let bucket = Int(tag & 0xFFFF)
            if case .refused = error { held[bucket] = confirmed[bucket] }
        case .idle, .unmarked: break
        }
    }

    private func countReply() {
        repliesLeft -= 1
        guard repliesLeft == 0 else { return }
        guard isGood else { return retryLater() }
        switch phase {
        case .surveying:
            watch(isMarked ? .watching : .unmarked)
            applyFrom?(topicPositions)
        case .marking:
            watch(.watching)
            written?()
        case .idle, .unmarked, .watching: break
        }
    }

    private func surveyed(_ bucket: Int, _ reply: RedisReply) {
        let values = reply.elements
        let offsets = values.dropFirst().map { $0.integer }
        held[bucket] = offsets.contains(nil) ? nil : offsets.compactMap(\.self)
        if held[bucket] == nil || values.first?.text != "1" { isMarked = false }
        for (index, offset) in offsets.enumerated() where index < positions.count {
            positions[index] = min(positions[index], offset ?? 0)
        }
    }

    private var topicPositions: [IndexTopicPosition] {
        zip(partitions, positions).map {
            IndexTopicPosition(topic: $0.topic, partition: $0.partition, nextOffset: $1)
        }
    }

    // MARK: - Watching

    private func watch(_ phase: Phase) {
        self.phase = phase
        confirmed = held
        if phase == .watching { loop.schedule(timer, at: loop.now + Self.tickInterval) }
    }

    private func tick() {
        switch phase {
        case .idle, .unmarked: break
        case .surveying: if client.isReady { survey() }
        case .marking: if client.isReady { write() }
        case .watching:
            if client.isReady { renewNext() }
            loop.schedule(timer, at: loop.now + Self.tickInterval)
        }
    }

    /// Renews a tenth of the buckets; all of them within `IndexLimits.markerInterval`.
    private func renewNext() {
        for _ in 0...(IndexLimits.buckets / Self.ticksPerRound) {
            let bucket = nextBucket
            nextBucket = (nextBucket + 1) % IndexLimits.buckets
            guard let expected = held[bucket] else { continue }
            let arguments = fields + (expected + positions).map { String($0) }
            let error = client.run(
                IndexScripts.renew, keys: [layout.marker(bucket)],
                arguments: arguments.map { Array($0.utf8) }, to: self, tag: tag(bucket))
            if error == nil { held[bucket] = positions }
        }
    }

    private func renewed(_ bucket: Int, _ reply: RedisReply) {
        if reply.integer == 1 { confirmed[bucket] = held[bucket] } else { survey() }
    }

    private func tag(_ bucket: Int) -> UInt64 { round << 16 | UInt64(bucket) }

    private static let ticksPerRound = 10
    private static let tickInterval = IndexLimits.markerInterval / Int64(ticksPerRound)
}

extension IndexTopicPartition {
    /// The marker's field: `d<partition>` or `i<partition>`.
    fileprivate var field: String {
        switch topic {
        case .devices: "d\(partition)"
        case .invalidations: "i\(partition)"
        }
    }
}
