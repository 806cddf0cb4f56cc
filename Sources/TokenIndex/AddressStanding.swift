// How an address stands with the user it is listed under. Only an active one is sent to; the
// others stay listed, so that one can say why a user's device is silent.

public import Base

/// Whether an address may be sent to, and if not, why.
public enum AddressStanding: String, Sendable, CaseIterable {
    /// It may be sent to.
    case active
    /// Another install claimed its token later.
    case displaced
    /// A gateway said that its token is dead.
    case invalidated
    /// Its token does not fit app or environment; a new registration revives it.
    case suspended
    /// A tripped fuse holds the verdict back: neither sent to nor given up.
    case quarantined
    /// It was not seen for too long.
    case stale
    /// Erased on request.
    case forgotten

    /// What a verdict that counts makes of an address; nil for one that blocks nothing.
    public init?(_ verdict: TokenVerdict) {
        switch verdict {
        case .invalidate: self = .invalidated
        case .suspend: self = .suspended
        case .quarantine: self = .quarantined
        case .stale: self = .stale
        case .forget: self = .forgotten
        case .release: return nil
        }
    }

    /// The letter in Redis. Part of the stored layout: never reused.
    internal var code: UInt8 {
        switch self {
        case .active: 0x61  // a
        case .displaced: 0x64  // d
        case .invalidated: 0x69  // i
        case .suspended: 0x73  // s
        case .quarantined: 0x71  // q
        case .stale: 0x6F  // o
        case .forgotten: 0x66  // f
        }
    }

    internal init?(code: UInt8) {
        guard let standing = Self.allCases.first(where: { $0.code == code }) else { return nil }
        self = standing
    }

    /// Whether the address itself is kept with the user: an active one is sent to, of a
    /// quarantined one a result tells.
    internal var keepsAddress: Bool { self == .active || self == .quarantined }
}

/// The value of an address' field under its user, behind the revision: the stored address, or `!`
/// and the standing's letter, and the address behind that when it is kept.
internal enum UserEntry {
    static let mark: UInt8 = 0x21

    static func encode(_ standing: AddressStanding, _ stored: [UInt8]) -> [UInt8] {
        switch standing {
        case .active: stored
        case .quarantined: [mark, standing.code] + stored
        default: [mark, standing.code]
        }
    }

    /// What a field's value holds; nil when it is damaged.
    static func decode(
        _ value: UnsafeRawBufferPointer
    ) -> (standing: AddressStanding, stored: UnsafeRawBufferPointer)? {
        guard let colon = value.firstIndex(of: 0x3A) else { return nil }
        let rest = UnsafeRawBufferPointer(rebasing: value[(colon + 1)...])
        guard rest.first == mark else { return (.active, rest) }
        guard rest.count >= 2, let standing = AddressStanding(code: rest[1]) else { return nil }
        return (standing, UnsafeRawBufferPointer(rebasing: rest[2...]))
    }
}
