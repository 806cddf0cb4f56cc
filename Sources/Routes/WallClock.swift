// Clocks on walls: where the hands stand at a moment, and when quiet hours are over. Twice a year
// an hour is shown twice or not at all; nobody sleeps by UTC.

public import Base
internal import CICUShims

/// The clocks of one time zone, as how far they are ahead of UTC at a moment.
internal struct WallClock {
    /// In ms.
    let offset: (UnixMillis) -> Int64

    /// When quiet hours that are on at a moment are over; nil when they are not on.
    ///
    /// An hour that comes twice is as quiet as a clock says that was not turned back, or one that
    /// was turned back already: quiet hours neither pause in it nor end before its second round. A
    /// minute that is left out passes when the clock jumps.
    func end(of hours: QuietHours, at now: UnixMillis) -> UnixMillis? {
        var end: UnixMillis?
        // A clock that jumps over a night and into the next one leaves no time between them.
        for _ in 0..<Self.nightsMax {
            guard let next = nextEnd(of: hours, at: end ?? now) else { break }
            end = next
        }
        return end
    }

    /// When the quiet hours of one day are over.
    private func nextEnd(of hours: QuietHours, at now: UnixMillis) -> UnixMillis? {
        guard let reading = quietReading(hours, at: now) else { return nil }
        let local = now.value + reading
        let day = Self.floor(local, Self.day)
        var target = day + Int64(hours.to) * Self.minute
        if target <= local { target += Self.day }
        let near = UnixMillis(target - reading)
        // Nothing turns clocks by more than a day.
        let around = [near, near - .hours(26), near + .hours(26), now].map(offset)
        let ends = around.map { UnixMillis(target - $0) }.filter {
            $0 > now && $0.value + offset($0) == target
        }
        if let last = ends.max() { return last }
        return jump(
            from: max(target - (around.max() ?? reading), now.value),
            to: max(target - (around.min() ?? reading), now.value + 1))
    }

    /// How far ahead of UTC the clock is by which it is quiet; nil when it is not.
    private func quietReading(_ hours: QuietHours, at now: UnixMillis) -> Int64? {
        let own = offset(now)
        for reading in [own] + others(at: now, than: own) {
            let local = now.value + reading
            let minute = (local - Self.floor(local, Self.day)) / Self.minute
            if hours.contains(Int(minute)) { return reading }
        }
        return nil
    }

    /// The other readings of a moment in an hour that comes twice.
    private func others(at now: UnixMillis, than own: Int64) -> [Int64] {
        let (before, after) = (offset(now - .hours(3)), offset(now + .hours(3)))
        var readings: [Int64] = []
        // Turned back a short while ago, or soon.
        if before > own, offset(now - .milliseconds(before - own)) == before {
            readings.append(before)
        }
        if after < own, offset(now + .milliseconds(own - after)) == after {
            readings.append(after)
        }
        return readings
    }

    /// The first moment of the later offset between two.
    private func jump(from low: Int64, to high: Int64) -> UnixMillis {
        var (low, high) = (low, high)
        let later = offset(UnixMillis(high))
        while high - low > 1 {
            let middle = low + (high - low) / 2
            if offset(UnixMillis(middle)) == later { high = middle } else { low = middle }
        }
        return UnixMillis(high)
    }

    private static func floor(_ value: Int64, _ unit: Int64) -> Int64 {
        value - ((value % unit) + unit) % unit
    }

    /// Nights in a row that are looked at.
    private static let nightsMax = 3
    private static let minute: Int64 = 60_000
    private static let day: Int64 = 24 * 60 * 60_000
}

/// The clocks of time zones that people live in. Confined to one thread.
public final class WallClocks {
    private final class Zone {
        let zone: OpaquePointer

        init?(_ name: String) {
            guard let zone = cicu_zone_open(name) else { return nil }
            self.zone = zone
        }

        deinit { cicu_zone_close(zone) }
    }

    private var zones: [String: Zone?] = [:]

    /// How many zones are kept; beyond that all are dropped. Names come from devices.
    private static let kept = 1_024

    /// No clocks yet.
    public init() {}

    /// Whether a time zone is known.
    public func isKnown(_ zone: String) -> Bool { self.zone(zone) != nil }

    /// When quiet hours that are on at a moment in a time zone are over; nil when they are not on.
    /// An unknown zone has UTC's clocks.
    public func end(of hours: QuietHours, in zone: String, at now: UnixMillis) -> UnixMillis? {
        clock(of: zone).end(of: hours, at: now)
    }

    internal func clock(of name: String) -> WallClock {
        guard let zone = zone(name) else { return WallClock { _ in 0 } }
        return WallClock { Int64(cicu_zone_offset(zone.zone, Double($0.value))) }
    }

    private func zone(_ name: String) -> Zone? {
        if let zone = zones[name] { return zone }
        if zones.count >= Self.kept { zones.removeAll() }
        let zone = Zone(name)
        zones[name] = .some(zone)
        return zone
    }
}
