// The whole index as one value: installs, token slots and the users' lists. Pure; every change is
// applied completely before the next one is looked at.

internal import Base

internal struct IndexState {
    private struct Slot {
        var claim: TokenClaim
        /// Since when the holder has another token or is gone.
        var leftAt: UnixMillis?
    }

    private struct UserKey: Hashable {
        var app: String
        var userID: String
    }

    private var installs: [String: InstallState] = [:]
    private var slots: [TokenSlot: Slot] = [:]
    private var users: [UserKey: [AddressID: DeviceAddress]] = [:]
    private var changesUntilSweep = Self.sweepInterval

    func addresses(of userID: String, app: String, into found: inout NewestAddresses) {
        guard let list = users[UserKey(app: app, userID: userID)] else { return }
        for address in list.values { found.insert(address) }
    }

    /// How many addresses are listed, over all users.
    var listedCount: Int { users.values.reduce(0) { $0 + $1.count } }

    mutating func apply(
        _ change: IndexChange, at position: TopicPosition, now: UnixMillis
    ) -> ChangeResult {
        sweepIfDue(now)
        switch change {
        case .registration(let record): return register(record, at: position, now: now)
        case .invalidation(let record): return judge(record, at: position, now: now)
        }
    }

    private mutating func register(
        _ record: RegistrationRecord, at position: TopicPosition, now: UnixMillis
    ) -> ChangeResult {
        let id = record.addressID
        var install = installs.removeValue(forKey: id.install) ?? InstallState()
        install.dropForgotten(at: now)
        let isFull =
            install.addresses[id] == nil
            && install.addresses.count >= IndexLimits.addressesPerInstall
        if isFull {
            installs[id.install] = install
            return .refused(IndexRefusal.installIsFull)
        }
        let former = install.addresses[id]?.address.map(TokenSlot.init)
        let isAccepted = install.accept(record, at: position, now: now)
        let present = install.addresses[id]?.address
        installs[id.install] = install
        guard isAccepted else { return .outdated }
        if let former, former != present.map(TokenSlot.init) { leave(former, id, now) }
        if let present { claim(TokenSlot(present), present, now) }
        list(id.install)
        return .applied
    }

    private mutating func judge(
        _ record: InvalidationRecord, at position: TopicPosition, now: UnixMillis
    ) -> ChangeResult {
        let install = record.addressID.install
        installs[install]?.dropForgotten(at: now)
        let isAccepted = installs[install, default: InstallState()].judge(
            record, at: position, now: now)
        list(install)
        return isAccepted ? .applied : .outdated
    }

    // MARK: - Slots

    private mutating func claim(_ slot: TokenSlot, _ address: DeviceAddress, _ now: UnixMillis) {
        let own = TokenClaim(registeredAt: address.registeredAt, addressID: address.id)
        var winner = own
        if let taken = slots[slot], !isForgotten(taken, now) {
            winner = max(own, taken.claim)
            let loser = taken.claim.addressID
            if winner == own, loser != own.addressID {
                installs[loser.install]?.settle(loser, slot, own)
                list(loser.install)
            }
        }
        let isHeldByOther = winner.addressID != own.addressID
        slots[slot] = Slot(claim: winner, leftAt: isHeldByOther ? slots[slot]?.leftAt : nil)
        installs[address.id.install]?.settle(address.id, slot, winner)
    }

    private mutating func leave(_ slot: TokenSlot, _ id: AddressID, _ now: UnixMillis) {
        if slots[slot]?.claim.addressID == id { slots[slot]?.leftAt = now }
    }

    private func isForgotten(_ slot: Slot, _ now: UnixMillis) -> Bool {
        slot.leftAt.map { now - $0 >= IndexLimits.tombstoneSpan } ?? false
    }

    // MARK: - Lists

    /// Brings the users' lists in line with an install: out of the former user's first.
    private mutating func list(_ key: String) {
        guard var install = installs.removeValue(forKey: key) else { return }
        for (id, state) in install.addresses {
            let target = state.isListed ? install.owner?.userID : nil
            if let former = state.listedUnder, former != target {
                let user = UserKey(app: id.app, userID: former)
                users[user]?[id] = nil
                if users[user]?.isEmpty ?? false { users[user] = nil }
            }
            if let target, let address = state.address {
                let user = UserKey(app: id.app, userID: target)
                users[user, default: [:]][id] = address.with(userID: target)
            }
            install.addresses[id]?.listedUnder = target
        }
        installs[key] = install
    }

    // MARK: - Forgetting

    private mutating func sweepIfDue(_ now: UnixMillis) {
        changesUntilSweep -= 1
        guard changesUntilSweep <= 0 else { return }
        changesUntilSweep = Self.sweepInterval
        installs = installs.filter { !$0.value.isForgotten(at: now) }
        slots = slots.filter { !isForgotten($0.value, now) }
    }

    /// Changes between two walks over everything; keeps the cost per change constant in practice.
    private static let sweepInterval = 16_384
}

/// Texts of refusals that both stores give.
internal enum IndexRefusal {
    static let installIsFull =
        "the install has \(IndexLimits.addressesPerInstall) addresses already; "
        + "remove some by null records"
}
