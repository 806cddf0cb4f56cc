// How long an address may be silent. Gateways forget tokens on their own, some never say so, and
// what was not seen for months is most likely an app that was deleted.

public import Base

/// When an address counts as dead because it was not seen.
public struct StalenessPolicy: Sendable, Equatable {
    /// Not sent to after so long without a sign of life; nil for no limit.
    public var after: TimeSpan?
    /// The same for FCM, whatever `after` says: Google deletes such registrations.
    public var fcmAfter: TimeSpan?

    /// Nothing is stale but what its subscription has ended.
    public static let never = StalenessPolicy(after: nil, fcmAfter: nil)

    /// 90 days, for FCM at most 270.
    public static let standard = StalenessPolicy(after: .hours(90 * 24), fcmAfter: .hours(270 * 24))

    /// A policy; nil for no limit.
    public init(after: TimeSpan?, fcmAfter: TimeSpan?) {
        self.after = after
        self.fcmAfter = fcmAfter
    }

    /// Whether an address is not to be sent to any more: not seen within the window, or past the
    /// end that its subscription named.
    public func isStale(_ address: DeviceAddress, at now: UnixMillis) -> Bool {
        if let end = address.expiresAt, end <= now { return true }
        return isStale(address.gateway, lastSeen: address.lastSeenAt ?? address.registeredAt, now)
    }

    internal func isStale(_ gateway: Gateway, lastSeen: UnixMillis, _ now: UnixMillis) -> Bool {
        var limit = after
        if gateway == .fcm, let fcmAfter { limit = min(limit ?? fcmAfter, fcmAfter) }
        guard let limit else { return false }
        return now - lastSeen > limit
    }

    /// Why an address is not to be sent to any more; nil when it is.
    public func obstacle(_ address: DeviceAddress, at now: UnixMillis) -> String? {
        guard isStale(address, at: now) else { return nil }
        if let end = address.expiresAt, end <= now { return "its subscription has ended" }
        let seen = address.lastSeenAt ?? address.registeredAt
        return "not seen for \((now - seen).millis / 86_400_000) days"
    }
}
