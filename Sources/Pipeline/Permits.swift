// What a gateway lets a project send in a second, over all replicas: permits of a rate in Redis, leased
// by each lane a few at a time and ahead of need, so that a push takes one off a number and asks
// nobody. While the store does not lease, a lane sends its share of the rate: its partitions of all
// there are, which all lanes together never exceed.

internal import Base
internal import EventLoop
internal import TokenIndex

/// Permits in hand. Pure.
internal struct PermitStock {
    /// Permits that come each second without a lease, while nobody leases.
    var share = 0.0
    private(set) var left = 0
    private(set) var isLeasing = false
    /// Counts the leases.
    private(set) var leaseNumber = 0
    /// Permits asked for at a time; it follows the demand.
    private(set) var chunk: Int
    private let chunkMax: Int
    private var grantedAt = MonotonicTime(nanos: .min / 2)
    private var endsAt = MonotonicTime(nanos: .min / 2)
    /// Since when the store does not lease; nil while it does.
    private var aloneSince: MonotonicTime?
    /// When it last gave none.
    private var emptyAt = MonotonicTime(nanos: .min / 2)
    private var saved = 0.0
    private var savedAt = MonotonicTime(nanos: .min / 2)

    /// The least that is asked for at a time.
    static let chunkMin = 32
    /// What is not used for so long is lost, here and in the store.
    static let lease = TimeSpan.seconds(1)
    /// How long a store that had none is not asked again.
    static let pause = TimeSpan.milliseconds(20)
    /// How long a store that refused is not asked again.
    static let patience = TimeSpan.seconds(1)

    /// Permits of a rate; at most a quarter of a second's go to one lane at a time.
    init(perSecond: Int) {
        chunkMax = max(perSecond / 4, 1)
        chunk = min(Self.chunkMin, chunkMax)
    }

    /// Takes so many permits, or none.
    mutating func take(_ count: Int, at now: MonotonicTime) -> Bool {
        if aloneSince != nil { return takeShare(count, at: now) }
        expire(at: now)
        guard left >= count else { return false }
        left -= count
        return true
    }

    private mutating func takeShare(_ count: Int, at now: MonotonicTime) -> Bool {
        let span = min(max((now - savedAt).seconds, 0), 1)
        saved = min(saved + share * span, max(share, 1))
        savedAt = now
        guard saved >= Double(count) else { return false }
        saved -= Double(count)
        return true
    }

    /// Gives back what was not used of a lease, if it has not ended; others may have it otherwise.
    mutating func giveBack(_ count: Int, of lease: Int, at now: MonotonicTime) {
        if aloneSince != nil {
            saved = min(saved + Double(count), max(share, 1))
        } else if lease == leaseNumber, now < endsAt {
            left += count
        }
    }

    /// Whether it is worth while to try: there are some, or the store may have some again.
    func mayTry(at now: MonotonicTime) -> Bool {
        aloneSince != nil || left > 0 || now - emptyAt >= Self.pause
    }

    /// How many to lease now, for a caller who wants `count` at once; nil for none.
    mutating func wanted(_ count: Int, at now: MonotonicTime) -> Int? {
        if let since = aloneSince, now - since < Self.patience { return nil }
        expire(at: now)
        guard !isLeasing, left < max(chunk / 2, count), now - emptyAt >= Self.pause else {
            return nil
        }
        // Used up in less than half its time: twice as many.
        if left < count, now - grantedAt < Self.lease / 2 { chunk = min(chunk * 2, chunkMax) }
        isLeasing = true
        return max(chunk, count)
    }

    /// What was not used in time is lost; when it was much, fewer will do.
    private mutating func expire(at now: MonotonicTime) {
        guard now >= endsAt, left > 0 else { return }
        if left > chunk / 2 { chunk = max(chunk / 2, min(Self.chunkMin, chunkMax)) }
        left = 0
    }

    /// Whether the store had none to give a moment ago.
    func isDry(at now: MonotonicTime) -> Bool {
        aloneSince == nil && left == 0 && now - emptyAt < Self.lease / 4
    }

    /// The store gave some.
    mutating func granted(_ count: Int, at now: MonotonicTime) {
        isLeasing = false
        if count == 0 { emptyAt = now }
        aloneSince = nil
        expire(at: now)
        left += count
        guard count > 0 else { return }
        leaseNumber += 1
        grantedAt = now
        endsAt = now + Self.lease
    }

    /// The store gives none, for a reason of its own.
    mutating func refused(at now: MonotonicTime) {
        isLeasing = false
        if aloneSince == nil { savedAt = now }
        aloneSince = now
    }
}

/// The permits of a project on one lane. Loop-confined.
internal final class Permits {
    private let rate: SharedRate
    private let usage: any UsageCounters
    private let loop: EventLoop
    @exclusivity(unchecked) private var stock: PermitStock
    /// This lane's part of all partitions.
    var part: () -> Double = { 0 }
    /// There are permits again.
    var whenGranted: () -> Void = {}

    init(_ rate: SharedRate, _ usage: any UsageCounters, on loop: EventLoop) {
        self.rate = rate
        self.usage = usage
        self.loop = loop
        stock = PermitStock(perSecond: rate.perSecond)
    }

    /// Whether there were none the last time that some were wanted.
    var isDry: Bool { stock.isDry(at: loop.now) }

    /// Takes so many permits, or none; then `whenGranted` is called when it is worth asking again.
    func take(_ count: Int = 1) -> Bool {
        let isTaken = stock.take(count, at: loop.now)
        if let wanted = stock.wanted(count, at: loop.now) { lease(wanted) }
        // An answer may have come within the call.
        return isTaken || stock.take(count, at: loop.now)
    }

    /// The lease that is drawn on now.
    var lease: Int { stock.leaseNumber }

    /// Gives back what was not used of a lease.
    func giveBack(_ count: Int, of lease: Int) {
        stock.giveBack(count, of: lease, at: loop.now)
    }

    /// Whether it is worth while to try to take some.
    var mayTry: Bool { stock.mayTry(at: loop.now) }

    private func lease(_ wanted: Int) {
        usage.lease(wanted, of: rate, at: loop.wall) { [weak self] answer in
            guard let self else { return }
            switch answer {
            case .success(let count):
                stock.granted(count, at: loop.now)
                if count > 0 { whenGranted() }
            case .failure:
                stock.share = part() * Double(rate.perSecond)
                stock.refused(at: loop.now)
                whenGranted()
            }
        }
    }
}

extension LaneApp {
    /// Those of all its gateways.
    var allPermits: [Permits] {
        bulkheads.compactMap(\.permits) + [expo?.permits].compactMap(\.self)
    }
}

extension Lane {
    /// Its partitions of all there are: what it may send when nobody shares anything out. All lanes
    /// of all replicas together have each partition once.
    var partOfAll: Double {
        let total = settings.classes.keys.reduce(0) { $0 + Int(settings.partitionCounts[$1] ?? 0) }
        let own = partitions.count { $0.road == .events }
        return total == 0 ? 0 : Double(own) / Double(total)
    }
}
