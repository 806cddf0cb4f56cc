// What is known of one install: its addresses with their order, claims and verdicts, and the user
// they all belong to. Pure; the Redis scripts in `IndexScripts` do the same step by step.

internal import Base

/// One address of an install.
internal struct AddressState {
    /// The last registration record seen, also when it was ignored for its version.
    var position: TopicPosition?
    /// The greatest timestamp among the accepted records.
    var time = Int64.min
    /// What the last accepted record said; nil after a null record.
    var address: DeviceAddress?
    /// Whether the token's slot is known to belong to this address.
    var isHeld = false
    /// The greatest claim of the token that this address was told of.
    var bound: TokenClaim?
    /// What was said of its tokens, also of those that it had before.
    var verdicts = VerdictBook()
    /// The user under whom the address is listed, and with which standing.
    var listedUnder: String?
    /// Since when the address is not live.
    var retiredAt: UnixMillis?

    var standing: AddressStanding {
        guard isHeld else { return .displaced }
        let blocker = address.flatMap { verdicts.blocker(of: $0) }
        return blocker.flatMap { AddressStanding($0.entry.kind) } ?? .active
    }

    var claim: TokenClaim? {
        address.map { TokenClaim(registeredAt: $0.registeredAt, addressID: $0.id) }
    }
}

/// One install.
internal struct InstallState {
    /// The newest record's word on who is logged in.
    struct Owner {
        var time: Int64
        var addressID: AddressID
        var userID: String?
    }

    var owner: Owner?
    var addresses: [AddressID: AddressState] = [:]

    /// Whether nothing of the install is worth keeping at `now`.
    func isForgotten(at now: UnixMillis) -> Bool {
        addresses.values.allSatisfy { Self.isForgotten($0, at: now) }
    }

    /// Takes a user's addresses out, as null records would, and the user's name with them. What was
    /// registered since, or is another user's by now, stays. Returns the slots that were left.
    mutating func erase(
        _ ids: [AddressID], of userID: String, asOf: UnixMillis, now: UnixMillis
    ) -> [(AddressID, TokenSlot)] {
        let isOwner = owner?.userID == userID
        let hasNewer = addresses.values.contains {
            $0.address.map { $0.registeredAt > asOf } ?? false
        }
        var left: [(AddressID, TokenSlot)] = []
        for id in ids {
            guard var state = addresses[id] else { continue }
            if let address = state.address {
                guard isOwner, address.registeredAt <= asOf else { continue }
                left.append((id, TokenSlot(address)))
            }
            state.address = nil
            state.isHeld = false
            state.bound = nil
            state.retiredAt = now
            state.verdicts.eraseTokens()
            addresses[id] = state
        }
        if isOwner, !hasNewer { owner?.userID = nil }
        return left
    }

    mutating func dropForgotten(at now: UnixMillis) {
        addresses = addresses.filter { !Self.isForgotten($0.value, at: now) }
    }

    private static func isForgotten(_ state: AddressState, at now: UnixMillis) -> Bool {
        state.retiredAt.map { now - $0 >= IndexLimits.tombstoneSpan } ?? false
    }
}

extension InstallState {
    /// All that is known of an address.
    func report(_ id: AddressID) -> AddressReport? {
        guard let state = addresses[id] else { return nil }
        let displacer = state.isHeld ? nil : state.bound?.addressID
        return AddressReport(
            id: id, userID: owner?.userID, address: state.address,
            standing: state.address == nil ? .active : state.standing,
            verdicts: state.verdicts, displacedBy: displacer,
            lastSeenAt: state.address.map { $0.lastSeenAt ?? $0.registeredAt })
    }
}

// MARK: - Records

extension InstallState {
    /// Takes a registration record by rules 1 and 2; false when it is outdated.
    mutating func accept(
        _ record: RegistrationRecord, at position: TopicPosition, now: UnixMillis
    ) -> Bool {
        let id = record.addressID
        var state = addresses[id] ?? AddressState()
        if let last = state.position, position.precedes(last) { return false }
        state.position = position
        defer { addresses[id] = state }
        switch record {
        case .gone:
            state.address = nil
            state.isHeld = false
            state.bound = nil
            state.retiredAt = now
        case .registered(let address):
            if let stored = state.address, address.version < stored.version { return false }
            if state.address.map(TokenSlot.init) != TokenSlot(address) {
                state.isHeld = false
                state.bound = nil
            }
            state.address = address
            state.retiredAt = nil
            state.time = max(state.time, position.timestamp)
            nameOwner(id, state.time, address.userID)
        }
        return true
    }

    private mutating func nameOwner(_ id: AddressID, _ time: Int64, _ userID: String?) {
        if let owner, (time, id) < (owner.time, owner.addressID) { return }
        owner = Owner(time: time, addressID: id, userID: userID)
    }

    /// Learns who holds a token, by rule 3. News about a token the address does not have any
    /// more, and older news than what is known, change nothing.
    mutating func settle(_ id: AddressID, _ slot: TokenSlot, _ claim: TokenClaim) {
        guard var state = addresses[id], let address = state.address, TokenSlot(address) == slot,
            state.bound.map({ claim >= $0 }) ?? true
        else { return }
        if claim.addressID != id {
            guard let own = state.claim, own < claim else { return }
        }
        state.isHeld = claim.addressID == id
        state.bound = claim
        addresses[id] = state
    }

    /// Takes a verdict by rule 4; false when it is outdated. `isRead` is false for what a fuse makes
    /// of the record at that place.
    mutating func judge(
        _ record: InvalidationRecord, at position: TopicPosition, now: UnixMillis,
        isRead: Bool = true
    ) -> Bool {
        var state = addresses[record.addressID] ?? AddressState(retiredAt: now)
        guard state.verdicts.take(record, at: position, isRead: isRead) else { return false }
        addresses[record.addressID] = state
        return true
    }
}
