// Quiet hours: what a route does while its event's reader is not to be disturbed. They are a
// person's, so that one look at the clock decides for all devices; the event waits as a whole, in
// the lane or in the retry topics, and is looked at again when it comes back.

internal import Base
internal import EventLoop
internal import Gateways
internal import Routes
internal import TokenIndex

/// Quiet hours that are on for an event.
internal struct QuietTime {
    let hours: QuietHours
    /// Whose clock they go by.
    let timeZone: String
    let until: UnixMillis
    /// Whether the event ends at once; otherwise it waits until they are over.
    let suppresses: Bool

    /// The quiet hours that keep an event from being sent at a moment; nil when none do. `addresses`
    /// are those that it is meant for.
    init?(
        _ routed: RoutedEvent, _ envelope: EventEnvelope, _ user: UserRecord?,
        _ addresses: [DeviceAddress], _ clocks: WallClocks, at now: UnixMillis
    ) {
        guard let quiet = routed.route.quiet, routed.kind == .alert || routed.kind == .raw,
            // Nobody in particular reads a broadcast, by nobody's clock.
            !envelope.isValidation, !envelope.isBroadcast,
            !(quiet.highPasses
                && (envelope.priority == .high || routed.route.importance.isHigh)),
            let hours = user?.quietHours ?? quiet.hours
        else { return nil }
        timeZone = Self.zone(user, addresses, clocks) ?? quiet.timeZone
        guard let until = clocks.end(of: hours, in: timeZone, at: now) else { return nil }
        self.hours = hours
        self.until = until
        suppresses = quiet.suppresses || until >= envelope.expiresAt
    }

    /// For whoever asks what would become of an event.
    var description: String {
        let way =
            suppresses
            ? "an event of now is suppressed"
            : "an event of now waits until \(RFC3339.text(until))"
        return "quiet hours \(hours.text) \(timeZone): \(way)"
    }

    /// The person's own zone, or that of the device that was seen last of those that name one.
    private static func zone(
        _ user: UserRecord?, _ addresses: [DeviceAddress], _ clocks: WallClocks
    ) -> String? {
        if let zone = user?.timeZone, clocks.isKnown(zone) { return zone }
        var last: (seen: UnixMillis, zone: String)?
        for address in addresses {
            let seen = address.lastSeenAt ?? address.registeredAt
            guard seen > last?.seen ?? UnixMillis(.min), let zone = address.timeZone,
                clocks.isKnown(zone)
            else { continue }
            last = (seen, zone)
        }
        return last?.zone
    }
}

extension Importance {
    /// Whether it is worth a disturbance: high, or more than that.
    fileprivate var isHigh: Bool {
        switch self {
        case .passive, .normal: false
        case .high, .timeSensitive, .critical: true
        }
    }
}

extension Lane {
    /// Whether an event waits, or is over, because its user is not to be disturbed.
    func keepQuiet(_ event: EventInFlight, _ addresses: [DeviceAddress]) -> Bool {
        guard let envelope = event.envelope, let routed = event.routed else { return false }
        let meant = addresses.filter { envelope.addresses($0, routed.route) }
        // Nobody is disturbed by what no device gets, and its outcome need not wait.
        let wouldDisturb = meant.contains {
            !$0.isQuarantined && routed.suppression(of: $0, event.user) == nil
        }
        guard wouldDisturb,
            let quiet = QuietTime(
                routed, envelope, event.user, meant, contents.clocks, at: loop.wall)
        else { return false }
        let wait = quiet.until - loop.wall
        let isShort = wait <= settings.retry.longestWait
        if quiet.suppresses || envelope.isOneAttempt && !isShort {
            suppress(event, .quietHours)
            return true
        }
        metrics.delayed(.quietHours)
        if isShort {
            hold(event, for: wait)
        } else {
            postpone(event, until: quiet.until, because: "quiet hours")
        }
        return true
    }
}
