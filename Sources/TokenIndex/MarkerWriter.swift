// The markers of the buckets, from the writer's side. A marker holds, for every partition of the
// two topics, the offset up to which the bucket is known to show that partition, a stamp that
// every write of the marker raises, and `c` once look-ups may trust the bucket: the stamp again and
// the moment as of which it shows the topics. The writer renews all of it every second, and reads back what it
// left there: anything else means that the bucket lost writes, as a FLUSHALL, an emptied node, a
// fail-over to a replica that lagged or a restored backup leave it.
//
// Then no bucket is trusted any more: an install, its token and its users lie in different ones,
// and while the topics are applied again, addresses pass through the hands of those who had them
// before. What happens next depends on what is left:
//
// - A bucket has no marker at all: what the others hold cannot be told from what is too much. All
//   of it goes, and the topics are applied from their start.
// - Every bucket has a marker: the topics are applied again from the lowest position, and before
//   the buckets are trusted every install is compared with its users' entries (`Reconciler`).

internal import Base
internal import EventLoop
internal import Redis

/// Surveys, writes and renews markers; loop-confined, owned by the index writer.
internal final class MarkerWriter: RedisReplyHandler {
    private enum Phase {
        case idle, surveying, dropping, wiping, holding, watching, healing, marking
    }

    /// What a marker holds of this writer's fields.
    private struct Marker: Equatable {
        var offsets: [Int64?]
        var stamp: Int64?
    }

    /// What a survey found.
    private struct Findings {
        var lowest: [Int64]
        var complete = 0
        var gone = 0
        /// As of when the bucket that is furthest behind shows the topics.
        var asOf = UnixMillis(.max)
        var isBehind = false
        var stamps: ClosedRange<Int64>?
        var isHealing = false
    }

    /// Everything from these positions on has to be applied.
    var applyFrom: (([IndexTopicPosition]) -> Void)?
    /// The markers were written.
    var written: (() -> Void)?
    /// Removes everything but markers and fuses; comes back with whether that is done.
    var wipe: ((@escaping (Bool) -> Void) -> Void)?
    /// Compares installs and users; comes back with whether that is done.
    var reconcile: ((@escaping (Bool) -> Void) -> Void)?
    /// The same in its own time, beside the changes.
    var tidy: (() -> Void)?

    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private var partitions: [IndexTopicPartition] = []
    private var total = 0
    private var phase = Phase.idle
    private var positions: [Int64] = [] {
        didSet { nextOffsets = positions }
    }
    /// The same for markers, one array for all of them.
    private var nextOffsets: [Int64?] = []
    private var asOf = UnixMillis(0)
    /// What each bucket's marker was last told to hold; nil before the first survey.
    private var held: [Marker?] = Array(repeating: nil, count: IndexLimits.buckets)
    /// The same as far as replies have said so.
    private var confirmed: [Marker?] = Array(repeating: nil, count: IndexLimits.buckets)
    private var findings = Findings(lowest: [])
    private var isMarked = false
    /// Whether installs and users have to be compared before the next mark.
    private var needsReconciling = false
    /// Whether one node of several may have lost its last writes without a marker that shows it.
    private var mayBeTorn = false
    /// Whether the present round has to begin with nothing.
    private var wantsRebuild = false
    private var repliesLeft = 0
    private var isGood = true
    private var nextBucket = 0
    /// Arguments of renewals that most buckets of a second share.
    private var fieldTexts: [[UInt8]] = []
    private var expectedTexts = OffsetTexts()
    private var nextTexts = OffsetTexts()
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
        fieldTexts = fields.map { Array($0.utf8) }
        phase = .idle
        if client.isReady { connected() }
    }

    /// After every connect: what the store holds is not known any more.
    func connected() {
        guard !partitions.isEmpty else { return }
        mayBeTorn = client.isCluster
        survey()
    }

    /// Has everything built anew, as if the store were empty.
    func rebuild() {
        wantsRebuild = true
        if client.isReady { connected() }
    }

    /// Everything up to the positions is applied. Counts only in the round that `applyFrom` began.
    func mark(_ positions: [IndexTopicPosition], asOf: UnixMillis) {
        guard phase == .watching else { return }
        take(positions)
        self.asOf = max(self.asOf, asOf)
        guard needsReconciling else { return write() }
        begin(.healing)
        let round = round
        reconcile? { [unowned self] isDone in
            guard self.round == round else { return }
            if isDone { write() } else { retryLater() }
        }
    }

    /// The positions that the next renewals write, and as of when they are all there is.
    func renew(_ positions: [IndexTopicPosition], asOf: UnixMillis) {
        guard phase == .watching else { return }
        take(positions)
        self.asOf = max(self.asOf, asOf)
    }

    func stop() {
        loop.cancel(timer)
        applyFrom = nil
        written = nil
        wipe = nil
        reconcile = nil
        tidy = nil
    }

    private func take(_ new: [IndexTopicPosition]) {
        positions = partitions.map { partition in
            new.first { $0.topic == partition.topic && $0.partition == partition.partition }?
                .nextOffset ?? 0
        }
    }

    private var fields: [String] { partitions.map(\.field) }

    /// The field of this writer's stamp: writers have different partitions.
    private var stampField: String { "s" + (partitions.first?.field ?? "") }

    /// A stamp above a bucket's last one; that of all buckets is about the time.
    private func stamp(after bucket: Int) -> Int64 {
        max(loop.wall.value, (held[bucket]?.stamp ?? 0) + 1)
    }

    /// Whether changes have to wait: what they would write is about to be removed.
    var holdsChanges: Bool { phase == .dropping || phase == .wiping || phase == .holding }

    // MARK: - Rounds over all buckets

    private func begin(_ phase: Phase) {
        round += 1
        self.phase = phase
        repliesLeft = IndexLimits.buckets
        isGood = true
    }

    private func survey() {
        loop.cancel(timer)
        begin(.surveying)
        findings = Findings(lowest: Array(repeating: .max, count: partitions.count))
        for bucket in 0..<IndexLimits.buckets {
            let key = layout.marker(bucket)
            if client.send(["HGETALL", key], key: key, to: self, tag: tag(bucket)) != nil {
                return retryLater()
            }
        }
    }

    /// Takes the markers away: a writer that comes after a crash starts here again.
    private func drop() {
        begin(.dropping)
        for bucket in 0..<IndexLimits.buckets {
            let key = layout.marker(bucket)
            if client.send(["DEL", key], key: key, to: self, tag: tag(bucket)) != nil {
                return retryLater()
            }
        }
    }

    private func hold() {
        begin(.holding)
        isMarked = false
        for bucket in 0..<IndexLimits.buckets {
            let stamp = stamp(after: bucket)
            held[bucket]?.stamp = stamp
            let arguments = [stampField, String(stamp), needsReconciling ? "1" : "0"]
            guard run(MarkerScripts.hold, bucket, arguments) else { return retryLater() }
        }
    }

    private func write() {
        begin(.marking)
        for bucket in 0..<IndexLimits.buckets {
            let stamp = stamp(after: bucket)
            let expected = held[bucket]?.stamp
            held[bucket] = Marker(offsets: positions, stamp: stamp)
            let arguments =
                [String(total), stampField, Self.text(expected), String(stamp), trust(stamp)]
                + fields + positions.map { String($0) }
            guard run(MarkerScripts.mark, bucket, arguments) else { return retryLater() }
        }
    }

    private func run(_ script: RedisScript, _ bucket: Int, _ arguments: [String]) -> Bool {
        run(script, bucket, bytes: arguments.map { Array($0.utf8) })
    }

    private func run(_ script: RedisScript, _ bucket: Int, bytes arguments: [[UInt8]]) -> Bool {
        let error = client.run(
            script, keys: [layout.marker(bucket)], arguments: arguments, to: self,
            tag: tag(bucket))
        return error == nil
    }

    /// A connection that comes back starts over; this is for a server that refused.
    private func retryLater() {
        round += 1
        phase = .surveying
        loop.schedule(timer, at: loop.now + IndexLimits.readinessInterval)
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        guard tag >> 16 == round else { return }
        let bucket = Int(tag & 0xFFFF)
        switch phase {
        case .surveying:
            surveyed(bucket, reply)
            countReply()
        case .marking:
            if reply.integer != 1 { isGood = false }
            countReply()
        case .dropping, .holding: countReply()
        case .watching:
            if reply.integer == 1 { confirmed[bucket] = held[bucket] } else { survey() }
        case .idle, .wiping, .healing: break
        }
    }

    func failed(_ error: RedisError, tag: UInt64) {
        guard tag >> 16 == round else { return }
        switch phase {
        case .surveying, .dropping, .holding, .marking:
            isGood = false
            countReply()
        case .watching:
            // What was refused, for want of memory or during a fail-over, is not in the marker.
            let bucket = Int(tag & 0xFFFF)
            if case .refused = error { held[bucket] = confirmed[bucket] }
        case .idle, .wiping, .healing: break
        }
    }

    private func countReply() {
        repliesLeft -= 1
        guard repliesLeft == 0 else { return }
        guard isGood else { return retryLater() }
        switch phase {
        case .surveying: judge()
        case .dropping: startWiping()
        case .holding: restart()
        case .marking:
            isMarked = true
            if needsReconciling { mayBeTorn = false }
            needsReconciling = false
            watch()
            written?()
            tidyIfTorn()
        case .idle, .wiping, .watching, .healing: break
        }
    }

    // MARK: - What a survey means

    private func surveyed(_ bucket: Int, _ reply: RedisReply) {
        var values: [String: String] = [:]
        let parts = reply.elements
        for index in stride(from: 0, to: parts.count - 1, by: 2) {
            values[parts[index].text ?? ""] = parts[index + 1].text
        }
        let marker = Marker(
            offsets: fields.map { values[$0].flatMap { Int64($0) } },
            stamp: values[stampField].flatMap { Int64($0) })
        if let trust = values["c"].flatMap({ MarkerTrust($0) }) {
            findings.complete += 1
            findings.asOf = min(findings.asOf, trust.asOf)
        }
        if values["h"] != nil { findings.isHealing = true }
        if values.isEmpty { findings.gone += 1 }
        if let last = confirmed[bucket]?.stamp, marker.stamp ?? .min < last {
            findings.isBehind = true
        }
        if let stamp = marker.stamp {
            let stamps = findings.stamps ?? stamp...stamp
            findings.stamps = min(stamps.lowerBound, stamp)...max(stamps.upperBound, stamp)
        }
        held[bucket] = marker
        for (index, offset) in marker.offsets.enumerated() {
            findings.lowest[index] = min(findings.lowest[index], offset ?? 0)
        }
    }

    private func judge() {
        confirmed = held
        positions = findings.lowest
        let buckets = IndexLimits.buckets
        // What was taken back while nobody wrote may be gone from the topics by now.
        let isOutdated =
            findings.stamps.map { loop.wall.value - $0.lowerBound > Self.awayMax.millis } ?? false
        if findings.gone > 0 || wantsRebuild || isOutdated {
            positions = Array(repeating: 0, count: partitions.count)
            held = Array(
                repeating: Marker(
                    offsets: Array(repeating: nil, count: partitions.count), stamp: nil),
                count: buckets)
            return findings.gone == buckets ? startWiping() : drop()
        }
        let isMixed = findings.complete > 0 && findings.complete < buckets
        // All are renewed within a second: buckets that are further apart come from different pasts.
        let isTorn = findings.stamps.map { $0.upperBound - $0.lowerBound > Self.apartMax } ?? false
        // Remembered until the next mark: what is known of the loss may be lost with a connection.
        let isSuspect = findings.isBehind || findings.isHealing || isMixed || isTorn
        needsReconciling = needsReconciling || isSuspect
        if findings.complete == buckets && !needsReconciling {
            isMarked = true
            asOf = findings.asOf
            restart()
            // Readers that saw the connection end wait for a renewal.
            for _ in 0..<buckets { renewNext() }
            tidyIfTorn()
        } else {
            hold()
        }
    }

    private func startWiping() {
        wantsRebuild = false
        needsReconciling = false
        mayBeTorn = false
        begin(.wiping)
        let round = round
        wipe? { [unowned self] isDone in
            guard self.round == round else { return }
            if isDone { hold() } else { retryLater() }
        }
    }

    private func restart() {
        watch()
        applyFrom?(
            zip(partitions, positions).map {
                IndexTopicPosition(topic: $0.topic, partition: $0.partition, nextOffset: $1)
            })
    }

    /// A replica that takes over a node may lack the last tenth of a second, in which no marker of
    /// that node was renewed, while the other nodes have all of it: a user may have got back what
    /// another one was given. The changes are not read again, for the markers say that they are
    /// applied.
    private func tidyIfTorn() {
        guard mayBeTorn else { return }
        mayBeTorn = false
        tidy?()
    }

    // MARK: - Watching

    private func watch() {
        phase = .watching
        confirmed = held
        loop.schedule(timer, at: loop.now + Self.tickInterval)
    }

    private func tick() {
        switch phase {
        case .surveying: if client.isReady { survey() }
        case .watching:
            if client.isReady {
                for _ in 0...(IndexLimits.buckets / Self.ticksPerRound) { renewNext() }
            }
            loop.schedule(timer, at: loop.now + Self.tickInterval)
        case .idle, .dropping, .wiping, .holding, .healing, .marking: break
        }
    }

    /// Renews one bucket; each has its turn within `IndexLimits.markerInterval`.
    private func renewNext() {
        let bucket = nextBucket
        nextBucket = (nextBucket + 1) % IndexLimits.buckets
        guard phase == .watching, let expected = held[bucket] else { return }
        let next = Marker(offsets: nextOffsets, stamp: stamp(after: bucket))
        // With several writers the last one to mark completes a bucket, and others hear nothing of it.
        let isTrusted = isMarked && partitions.count >= total
        var arguments = [
            stampField, Self.text(expected.stamp), Self.text(next.stamp), trust(next.stamp ?? 0),
            isTrusted ? "1" : "0",
        ].map { Array($0.utf8) }
        arguments.reserveCapacity(5 + 3 * fieldTexts.count)
        arguments += fieldTexts
        arguments += expectedTexts.of(expected.offsets)
        arguments += nextTexts.of(next.offsets)
        if run(MarkerScripts.renew, bucket, bytes: arguments) { held[bucket] = next }
    }

    private func tag(_ bucket: Int) -> UInt64 { round << 16 | UInt64(bucket) }

    /// What `c` holds.
    private func trust(_ stamp: Int64) -> String {
        MarkerTrust(stamp: stamp, asOf: asOf).description
    }

    private static func text(_ number: Int64?) -> String { number.map { String($0) } ?? "" }

    /// How far the stamps of two buckets may be apart, in ms.
    private static let apartMax: Int64 = 10_000
    /// How long no writer may have been there. Topics keep null records for 7 days, and reading on
    /// from the markers takes a while.
    private static let awayMax = TimeSpan.hours(6 * 24)
    private static let ticksPerRound = 10
    private static let tickInterval = IndexLimits.markerInterval / Int64(ticksPerRound)
}

/// Offsets as arguments, kept until others are asked for: every second a thousand buckets are told
/// the same ones.
private struct OffsetTexts {
    private var offsets: [Int64?] = []
    private var texts: [[UInt8]] = []

    mutating func of(_ wanted: [Int64?]) -> [[UInt8]] {
        if wanted != offsets {
            offsets = wanted
            texts = wanted.map { $0.map { Array(String($0).utf8) } ?? [] }
        }
        return texts
    }
}

extension IndexTopicPartition {
    /// Reads a marker's field; nil when it is another one.
    internal init?(markerField field: String) {
        guard let partition = Int32(field.dropFirst()) else { return nil }
        switch field.first {
        case "d": self.init(.devices, partition)
        case "i": self.init(.invalidations, partition)
        case "u": self.init(.users, partition)
        default: return nil
        }
    }

    /// The marker's field: a letter for the topic, and the partition.
    fileprivate var field: String {
        switch topic {
        case .devices: "d\(partition)"
        case .invalidations: "i\(partition)"
        case .users: "u\(partition)"
        }
    }
}
