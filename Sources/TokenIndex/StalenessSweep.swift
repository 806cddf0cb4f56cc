// The walk over all installs that finds addresses which were not seen for too long. Look-ups leave
// them out anyway; the sweeper says so once on `push.invalidations`, so that the registry learns
// of it, and a rebuilt index or one with other windows does not send to them again. It changes
// nothing itself: what it wrote comes back over the topic like any verdict, so a record that is
// lost is written by the next sweep, and one that was written is not written again.
//
// It also says again what a later record about the same address would make the compacted topic
// forget, see `AddressReport.restatement`.
//
// The verdict means registrations up to the last sign of life that was seen: a device that comes
// back at that moment is not touched, however late the record is applied.

public import Base

/// How often and how fast the writer of an index looks for addresses that are stale.
public struct SweepPolicy: Sendable, Equatable {
    /// From the beginning of one sweep to the next one's; nil for none at all.
    public var interval: TimeSpan?
    /// How many keys of the store are looked at in a second, at most; over 0.
    public var keysPerSecond: Int

    /// Nothing is swept.
    public static let never = SweepPolicy(interval: nil, keysPerSecond: 1)

    /// Every hour, 1,000 keys a second.
    public static let standard = SweepPolicy(interval: .hours(1), keysPerSecond: 1_000)

    /// A policy.
    public init(interval: TimeSpan?, keysPerSecond: Int) {
        self.interval = interval
        self.keysPerSecond = max(keysPerSecond, 1)
    }
}

/// What a sweep saw.
public struct SweepReport: Sendable, Equatable {
    /// Installs that were looked at; one may be looked at more than once.
    public var installs = 0
    /// Addresses that were not seen for too long.
    public var stale = 0

    /// Nothing yet.
    public init() {}
}

extension AddressReport {
    /// The record that says it was not seen for too long; nil when that is not so, or when it is
    /// not sent to for another reason already.
    internal func staleRecord(
        at now: UnixMillis, _ staleness: StalenessPolicy
    ) -> InvalidationRecord? {
        guard standing == .active, let address, staleness.isStale(address, at: now) else {
            return nil
        }
        let seen = max(address.lastSeenAt ?? address.registeredAt, address.registeredAt)
        let hasEnded = address.expiresAt.map { $0 <= now } ?? false
        var record = InvalidationRecord(
            address, verdict: .stale, reason: hasEnded ? "subscription_ended" : "not_seen",
            origin: .sweeper, asOf: seen)
        record.userID = userID
        return record
    }
}

/// The sweep of an index in memory, a piece at a time; the same as `StalenessSweeper`.
internal struct InMemorySweep {
    private let policy: SweepPolicy
    /// Installs that are still to be looked at.
    private var installs: [String] = []
    private var report = SweepReport()
    private var isUnderWay = false
    private var nextAt = MonotonicTime(nanos: .min)
    private var lookedAt = MonotonicTime(nanos: .min)

    init(_ policy: SweepPolicy) { self.policy = policy }

    func isDue(at now: MonotonicTime) -> Bool {
        policy.interval != nil && (isUnderWay || now >= nextAt)
    }

    mutating func look(
        at known: [String: InstallState], _ now: MonotonicTime, _ wall: UnixMillis,
        _ staleness: StalenessPolicy
    ) -> [IndexNotice] {
        guard let interval = policy.interval else { return [] }
        if !isUnderWay {
            isUnderWay = true
            nextAt = now + interval
            lookedAt = now - .seconds(1)
            installs = Array(known.keys)
            report = SweepReport()
        }
        let share = Int64(policy.keysPerSecond) * min(now - lookedAt, .seconds(1)).millis / 1_000
        guard share > 0 || installs.isEmpty else { return [] }
        lookedAt = now
        var notices: [IndexNotice] = []
        for name in installs.suffix(Int(share)) {
            guard let install = known[name] else { continue }
            report.installs += 1
            for id in install.addresses.keys {
                guard let found = install.report(id) else { continue }
                if let record = found.staleRecord(at: wall, staleness) {
                    report.stale += 1
                    notices.append(.publish(record))
                } else if let record = found.restatement {
                    notices.append(.publish(record))
                }
            }
        }
        installs.removeLast(min(Int(share), installs.count))
        if installs.isEmpty {
            isUnderWay = false
            notices.append(.swept(report))
        }
        return notices
    }
}
