// The counts of one process, for the index in memory and for tests: what the scripts do, in Swift.

internal import Base
internal import Synchronization

/// Counts in this process, for all its lanes.
public final class InMemoryUsage: Sendable {
    private let book = Mutex(UsageBook())
    private let asked = Atomic<Int>(0)

    /// No counts.
    public init() {}

    /// How often anything was asked or given back.
    public var questions: Int { asked.load(ordering: .relaxed) }

    /// A lane's view.
    public func counters() -> any UsageCounters { InMemoryUsageCounters(self) }

    fileprivate func withBook<Value: Sendable>(_ body: (inout UsageBook) -> Value) -> Value {
        asked.add(1, ordering: .relaxed)
        return book.withLock { body(&$0) }
    }
}

/// All counts as one value.
internal struct UsageBook: Sendable {
    private struct Log {
        var taken: [UUIDBytes: UnixMillis] = [:]
        var span = TimeSpan.zero

        mutating func forget(before time: UnixMillis) {
            taken = taken.filter { $0.value > time }
        }
    }

    private struct Newest {
        var request: SlotRequest
        var keptUntil: UnixMillis

        func isOlder(than other: SlotRequest) -> Bool {
            if request.id == other.id { return true }
            return (request.time.value, request.offset, request.id.text)
                < (other.time.value, other.offset, other.id.text)
        }
    }

    private struct Window {
        var count: Int
        var until: UnixMillis
    }

    private struct Bucket {
        var left: Double
        var countedAt: UnixMillis
        /// The rate of the moment, a second.
        var level: Double

        init(_ rate: SharedRate, at now: UnixMillis) {
            level = Self.hasRamp(rate) ? Self.step(rate) : Double(rate.perSecond)
            left = .infinity
            countedAt = now
        }

        private static func hasRamp(_ rate: SharedRate) -> Bool { rate.ramp > .seconds(1) }

        /// What the level rises or falls by in a second.
        private static func step(_ rate: SharedRate) -> Double {
            Double(rate.perSecond) / rate.ramp.seconds
        }

        /// Lets time pass.
        mutating func advance(_ rate: SharedRate, to now: UnixMillis) {
            let passed = Double(max((now - countedAt).millis, 0)) / 1_000
            var most = Double(rate.burst)
            if Self.hasRamp(rate) {
                let (step, whole) = (Self.step(rate), Double(rate.perSecond))
                let up = left < most * level / whole / 4 ? min(passed, 1) : 0
                level = min(max(level + (up - (passed - up)) * step, step), whole)
                most = max(most * level / whole / 2, 1)
            }
            left = min(most, left + passed * level)
            countedAt = max(now, countedAt)
        }
    }

    private var buckets: [SharedRate: Bucket] = [:]
    private var places: [String: Log] = [:]
    private var slots: [String: Log] = [:]
    private var newest: [String: Newest] = [:]
    private var windows: [String: Window] = [:]
    private var sweepAt = Self.sweepMin
    private static let sweepMin = 4_096

    mutating func takePlace(
        of id: UUIDBytes, in caps: [UsageCap], _ user: String, at now: UnixMillis
    ) -> UsageCap? {
        sweepIfDue(now)
        var missing: [String] = []
        for cap in caps {
            let key = "\(user)/\(cap.name)"
            places[key, default: Log()].forget(before: now - cap.cap.span)
            places[key]?.span = cap.cap.span
            if places[key]?.taken[id] != nil { continue }
            if places[key]?.taken.count ?? 0 >= cap.cap.count { return cap }
            missing.append(key)
        }
        for key in missing { places[key]?.taken[id] = now }
        return nil
    }

    mutating func returnPlace(of id: UUIDBytes, in caps: [UsageCap], _ user: String) {
        for cap in caps { places["\(user)/\(cap.name)"]?.taken[id] = nil }
    }

    mutating func takeSlot(
        _ request: SlotRequest, of addressID: String, _ cap: Cap, at now: UnixMillis
    ) -> SlotAnswer {
        sweepIfDue(now)
        slots[addressID, default: Log()].forget(before: now - cap.span)
        slots[addressID]?.span = cap.span
        let taken = slots[addressID]?.taken ?? [:]
        if taken[request.id] != nil { return .taken }
        let held = newest[addressID].flatMap { $0.keptUntil > now ? $0 : nil }
        let isNewest = held?.isOlder(than: request) ?? true
        let isFree = taken.count < cap.count
        let free = isFree ? now : taken.values.sorted()[taken.count - cap.count] + cap.span
        if isNewest, isFree || free <= request.patience {
            newest[addressID] = Newest(request: request, keptUntil: now + cap.span * 2)
        }
        if isFree, isNewest || !request.hasWaited {
            slots[addressID]?.taken[request.id] = now
            return .taken
        }
        return isNewest ? .waits(until: free) : .replaced
    }

    mutating func returnSlot(of id: UUIDBytes, of addressID: String) {
        slots[addressID]?.taken[id] = nil
    }

    mutating func count(
        for source: String, in quotas: [UsageQuota], at now: UnixMillis
    ) -> UsageQuota? {
        sweepIfDue(now)
        func key(_ quota: UsageQuota) -> String {
            "\(source)/\(quota.name)/\(now.value / max(quota.cap.span.millis, 1))"
        }
        for quota in quotas where windows[key(quota)]?.count ?? 0 >= quota.cap.count {
            return quota
        }
        for quota in quotas {
            windows[key(quota), default: Window(count: 0, until: now + quota.cap.span * 2)]
                .count += 1
        }
        return nil
    }

    mutating func lease(_ wanted: Int, of rate: SharedRate, at now: UnixMillis) -> Int {
        var bucket = buckets[rate] ?? Bucket(rate, at: now)
        bucket.advance(rate, to: now)
        let granted = max(min(wanted, Int(bucket.left)), 0)
        bucket.left -= Double(granted)
        buckets[rate] = bucket
        return granted
    }

    /// Takes out what counts for nothing any more. Amortised O(1).
    private mutating func sweepIfDue(_ now: UnixMillis) {
        guard places.count + slots.count + windows.count >= sweepAt else { return }
        func isOver(_ log: Log) -> Bool { log.taken.values.allSatisfy { now - $0 >= log.span } }
        places = places.filter { !isOver($0.value) }
        slots = slots.filter { !isOver($0.value) }
        newest = newest.filter { $0.value.keptUntil > now }
        windows = windows.filter { $0.value.until > now }
        sweepAt = max(2 * (places.count + slots.count + windows.count), Self.sweepMin)
    }
}

/// One lane's view of counts in memory.
private final class InMemoryUsageCounters: UsageCounters {
    private let usage: InMemoryUsage

    init(_ usage: InMemoryUsage) { self.usage = usage }

    func takePlace(
        of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String, at now: UnixMillis,
        _ done: @escaping (Result<UsageCap?, UsageFault>) -> Void
    ) {
        done(
            .success(
                usage.withBook { $0.takePlace(of: id, in: caps, "\(app):\(userID)", at: now) }))
    }

    func returnPlace(of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String) {
        usage.withBook { $0.returnPlace(of: id, in: caps, "\(app):\(userID)") }
    }

    func takeSlot(
        _ request: SlotRequest, of addressID: String, _ cap: Cap, at now: UnixMillis,
        _ done: @escaping (Result<SlotAnswer, UsageFault>) -> Void
    ) {
        done(.success(usage.withBook { $0.takeSlot(request, of: addressID, cap, at: now) }))
    }

    func returnSlot(of id: UUIDBytes, of addressID: String) {
        usage.withBook { $0.returnSlot(of: id, of: addressID) }
    }

    func count(
        for source: String, in quotas: [UsageQuota], at now: UnixMillis,
        _ done: @escaping (Result<UsageQuota?, UsageFault>) -> Void
    ) {
        done(.success(usage.withBook { $0.count(for: source, in: quotas, at: now) }))
    }

    var isShared: Bool { false }

    func lease(
        _ wanted: Int, of rate: SharedRate, at now: UnixMillis,
        _ done: @escaping (Result<Int, UsageFault>) -> Void
    ) {
        done(.success(usage.withBook { $0.lease(wanted, of: rate, at: now) }))
    }

    func stop() {}
}
