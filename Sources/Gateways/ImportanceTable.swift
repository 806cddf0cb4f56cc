// What each importance asks of the gateways. `topics/README.md` publishes the same table.

public import Base

extension Importance {
    /// How urgent a notification of this importance is when its event does not say.
    public var priority: EventPriority {
        switch self {
        case .passive: .low
        case .normal: .normal
        case .high, .timeSensitive, .critical: .high
        }
    }

    /// Apple's `interruption-level`.
    public var interruptionLevel: StaticString {
        switch self {
        case .passive: "passive"
        case .normal, .high: "active"
        case .timeSensitive: "time-sensitive"
        case .critical: "critical"
        }
    }

    /// Whether its interruption level has to be said: `active` is what is assumed.
    internal var isUnusual: Bool { self != .normal && self != .high }

    /// Android's `notification_priority`, for systems without channels; a channel has its own.
    public var androidPriority: StaticString {
        switch self {
        case .passive: "PRIORITY_LOW"
        case .normal: "PRIORITY_DEFAULT"
        case .high, .timeSensitive: "PRIORITY_HIGH"
        case .critical: "PRIORITY_MAX"
        }
    }
}
