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
    /// The verdict that keeps it from being sent to; else the one that was heard last, which then
    /// does not count for this registration.
    public var verdict: Verdict?
    /// Who claimed its token later.
    public var displacedBy: AddressID?
    /// The last sign of life.
    public var lastSeenAt: UnixMillis?
    /// All that was said of its tokens.
    internal var verdicts = VerdictBook()

    internal init(
        id: AddressID, userID: String?, address: DeviceAddress?, standing: AddressStanding,
        verdicts: VerdictBook = VerdictBook(), displacedBy: AddressID? = nil,
        lastSeenAt: UnixMillis? = nil
    ) {
        self.id = id
        self.userID = userID
        self.address = address
        self.standing = standing
        self.verdicts = verdicts
        self.displacedBy = displacedBy
        self.lastSeenAt = lastSeenAt
        verdict = verdicts.shown(of: address).map { hash, entry in
            Verdict(
                kind: entry.kind, reason: entry.reason, asOf: entry.asOf,
                tokenHash: hash.isEmpty ? nil : hash, held: entry.held, fuseID: entry.fuseID)
        }
    }

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
}

// MARK: - Records that follow from it

extension AddressReport {
    /// The record that makes a quarantine of the verdict that a fuse counted; nil when there is
    /// none to hold back.
    internal func heldRecord(by fuseID: String, _ name: FuseName) -> InvalidationRecord? {
        guard let address, let counted = verdicts.tokens[address.tokenHash]?.counted,
            counted.fuse == name, address.registeredAt <= counted.asOf
        else { return nil }
        var record = self.record(.quarantine, (address.tokenHash, counted), origin: .gateway)
        record.held = counted.kind
        record.fuseID = fuseID
        return record
    }

    /// The records that settle what a fuse holds of an address. One that nothing is known of any
    /// more gets one as well: it ends the fuse's claim to it.
    internal static func settling(
        _ report: AddressReport?, _ id: AddressID, _ fuse: TrippedFuse,
        _ settlement: FuseSettlement
    ) -> [InvalidationRecord] {
        let report =
            report ?? AddressReport(id: id, userID: nil, address: nil, standing: .active)
        var found = report.verdicts.held(by: fuse.name)
        // Held already, and the record that says so is still on its way.
        if found.isEmpty { found = report.verdicts.counted(by: fuse.name) }
        if let forgotten = report.verdicts.forgotten {
            found = found.filter { $0.entry.asOf > forgotten.asOf }
            // A compacted topic is to go on saying that.
            if found.isEmpty { return [report.forgotten(forgotten, fuse)] }
        }
        // The present token comes last: a compacted topic keeps that one.
        let present = report.address?.tokenHash
        found = found.filter { $0.hash != present } + found.filter { $0.hash == present }
        if found.isEmpty { found = [report.unknown(fuse)] }
        return found.map { hash, entry in
            let kind: TokenVerdict =
                settlement == .release
                ? .release : entry.held ?? (entry.kind == .quarantine ? .suspend : entry.kind)
            var record = report.record(kind, (hash, entry), origin: .operator)
            record.fuseID = entry.fuseID ?? fuse.id
            return record
        }
    }

    private func forgotten(
        _ entry: VerdictBook.Entry, _ fuse: TrippedFuse
    ) -> InvalidationRecord {
        var record = self.record(.forget, ("", entry), origin: .operator)
        record.gateway = fuse.name.gateway
        record.environment = fuse.name.environment
        record.credential = fuse.name.credential
        record.fuseID = fuse.id
        return record
    }

    private func unknown(_ fuse: TrippedFuse) -> VerdictBook.Found {
        var record = InvalidationRecord(
            addressID: id, verdict: .quarantine, reason: fuse.reason, origin: .gateway,
            asOf: UnixMillis(0))
        record.gateway = fuse.name.gateway
        record.environment = fuse.name.environment
        record.credential = fuse.name.credential
        return ("", VerdictBook.Entry(record))
    }

    /// The record that says again what a later one about the same address would make a compacted
    /// topic forget; nil when the topic's last one says it.
    internal var restatement: InvalidationRecord? {
        guard let address, let found = verdicts.overtaken(of: address) else { return nil }
        var record = self.record(found.entry.kind, found, origin: .sweeper)
        record.held = found.entry.held
        record.fuseID = found.entry.fuseID
        if found.entry.kind != .quarantine, found.entry.kind != .release {
            // Not settled once more, only said.
            record.fuseID = nil
            if found.entry.fuseID != nil { record.credential = nil }
        }
        return record
    }

    private func record(
        _ kind: TokenVerdict, _ found: VerdictBook.Found, origin: InvalidationRecord.Origin
    ) -> InvalidationRecord {
        let entry = found.entry
        var record = InvalidationRecord(
            addressID: id, verdict: kind, reason: entry.reason.isEmpty ? "fuse" : entry.reason,
            origin: origin, asOf: entry.asOf)
        // What is forgotten is not named again.
        guard kind != .forget else { return record }
        record.userID = userID
        record.gateway = entry.fuse?.gateway ?? address?.gateway
        record.environment = entry.fuse?.environment ?? address?.environment
        record.credential = entry.fuse?.credential
        record.platform = address?.platform
        record.tokenHash = found.hash.isEmpty ? nil : found.hash
        record.registeredAt = address?.registeredAt
        return record
    }
}
