// Everything the index knows of one address, for an operator who asks why a device is silent.

public import Base

/// One address with its verdict and its claim.
public struct AddressReport: Sendable {
    /// The address.
    public var id: AddressID
    /// Who is logged in on the install; nil when nobody is.
    public var userID: String?
    /// What its last record said; nil after a null record, and when only verdicts are known.
    public var address: DeviceAddress?
    /// How it stands; `active` also for one of an install without a user.
    public var standing: AddressStanding
    /// The verdict that was heard last, also when it does not count for this registration.
    public var verdict: Verdict?
    /// Who claimed its token later.
    public var displacedBy: AddressID?
    /// The last sign of life.
    public var lastSeenAt: UnixMillis?

    /// A verdict on a token.
    public struct Verdict: Sendable, Equatable {
        /// What it says.
        public var kind: TokenVerdict
        /// The gateway's reason, or another's.
        public var reason: String
        /// Registrations up to this moment are meant.
        public var asOf: UnixMillis
        /// The token that is meant; nil for any.
        public var tokenHash: String?
        /// What a quarantine holds back.
        public var held: TokenVerdict?
        /// The fuse that holds it.
        public var fuseID: String?
    }

    /// Why it is not sent to; nil when it is. `now` and the policy decide what is stale.
    public func obstacle(at now: UnixMillis, _ staleness: StalenessPolicy) -> String? {
        guard let address else { return "it is gone: its last record was null" }
        guard userID != nil else { return "nobody is logged in on the install" }
        switch standing {
        case .active: break
        case .displaced:
            let other = displacedBy?.text ?? "another install"
            return "\(other) registered the same token later"
        case .quarantined:
            return
                "the fuse \(verdict?.fuseID ?? "") holds a verdict back: \(verdict?.reason ?? "")"
        default:
            return
                "\(standing.rawValue): \(verdict?.reason ?? "") as of \(verdict?.asOf.value ?? 0)"
        }
        if address.permission == .denied { return "the user does not permit notifications" }
        return staleness.obstacle(address, at: now)
    }

    /// The record that makes a quarantine of its verdict; nil when there is none to hold back.
    internal func heldRecord(by fuseID: String, _ name: FuseName) -> InvalidationRecord? {
        guard let verdict, verdict.kind == .suspend || verdict.kind == .invalidate,
            standing == .suspended || standing == .invalidated
        else { return nil }
        var record = self.record(.quarantine, verdict, origin: .gateway, name)
        record.held = verdict.kind
        record.fuseID = fuseID
        return record
    }

    /// The record that settles what a fuse holds of an address. One that nothing is known of any
    /// more gets one as well: it ends the fuse's claim to it.
    internal static func settling(
        _ report: AddressReport?, _ id: AddressID, _ fuse: TrippedFuse,
        _ settlement: FuseSettlement
    ) -> InvalidationRecord {
        let report =
            report ?? AddressReport(id: id, userID: nil, address: nil, standing: .active)
        let verdict =
            report.verdict
            ?? Verdict(kind: .quarantine, reason: fuse.reason, asOf: UnixMillis(0))
        let kind: TokenVerdict =
            settlement == .release
            ? .release : verdict.held ?? (verdict.kind == .quarantine ? .suspend : verdict.kind)
        var record = report.record(kind, verdict, origin: .operator, fuse.name)
        record.fuseID = fuse.id
        return record
    }

    private func record(
        _ kind: TokenVerdict, _ verdict: Verdict, origin: InvalidationRecord.Origin,
        _ name: FuseName
    ) -> InvalidationRecord {
        var record = InvalidationRecord(
            addressID: id, verdict: kind, reason: verdict.reason.isEmpty ? "fuse" : verdict.reason,
            origin: origin, asOf: verdict.asOf)
        record.userID = userID
        record.gateway = name.gateway
        record.environment = name.environment
        record.credential = name.credential
        record.platform = address?.platform
        record.tokenHash = verdict.tokenHash
        record.registeredAt = address?.registeredAt
        record.fuseID = verdict.fuseID
        return record
    }
}
