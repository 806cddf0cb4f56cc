// The topics in which events wait that must wait longer than a lane keeps them. Each is a queue in
// which everybody waits equally long, so that its head is always the next one due; a wait between
// two tiers hops through the largest one that still fits. Pure.

public import Base

/// One retry topic.
public enum RetryTier: Int, CaseIterable, Sendable {
    case tenSeconds, minute, tenMinutes, hour

    /// How long a record stays in it.
    public var delay: TimeSpan {
        switch self {
        case .tenSeconds: .seconds(10)
        case .minute: .minutes(1)
        case .tenMinutes: .minutes(10)
        case .hour: .hours(1)
        }
    }

    /// What its topic's name ends in.
    public var suffix: String {
        switch self {
        case .tenSeconds: "10s"
        case .minute: "1m"
        case .tenMinutes: "10m"
        case .hour: "1h"
        }
    }

    /// The name of its topic: `<base>-10s` and so on.
    public func topic(of base: String) -> String { "\(base)-\(suffix)" }
}

/// The tiers with their waits, which tests shorten.
internal struct RetryTiers: Sendable {
    /// What all waits are divided by; 1 outside tests.
    var divisor: Int64 = 1

    /// How long a record stays in a tier.
    func delay(of tier: RetryTier) -> TimeSpan { tier.delay / divisor }

    /// The largest tier that is over when the wait is; for shorter waits the smallest.
    func fitting(_ wait: TimeSpan) -> RetryTier {
        RetryTier.allCases.last { delay(of: $0) <= wait } ?? .tenSeconds
    }

    /// The wait before another try when nobody has said how long: it grows with every wait that
    /// brought no attempt.
    func patience(after waits: Int) -> TimeSpan {
        switch waits {
        case ..<2: delay(of: .tenSeconds)
        case ..<6: delay(of: .minute)
        default: delay(of: .tenMinutes)
        }
    }
}
