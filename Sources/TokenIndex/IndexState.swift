// The whole index as one value: installs, token slots, the users' lists and records, the fuses. Pure; every
// change is applied completely before the next one is looked at.

internal import Base

internal struct IndexState {
    private struct Slot {
        var claim: TokenClaim
        /// Since when the holder has another token or is gone.
        var leftAt: UnixMillis?
    }

    struct UserKey: Hashable {
        var app: String
        var userID: String
    }

    /// An address in a user's list.
    struct Listed {
        var address: DeviceAddress
        var standing: AddressStanding
    }

    /// What is known of a person.
    private struct Person {
        /// nil once it was taken back.
        var record: UserRecord?
        var position: TopicPosition
        var changedAt: UnixMillis
    }

    /// When a fuse trips.
    var fusePolicy = FusePolicy()
    private(set) var fuses = FuseBook()
    private(set) var installs: [String: InstallState] = [:]
    private(set) var users: [UserKey: [AddressID: Listed]] = [:]
    private var slots: [TokenSlot: Slot] = [:]
    private var people: [UserKey: Person] = [:]
    private var changesUntilSweep = Self.sweepInterval

    func addresses(
        of userID: String, app: String, _ staleness: StalenessPolicy, at now: UnixMillis,
        into found: inout NewestAddresses
    ) {
        guard let list = users[UserKey(app: app, userID: userID)] else { return }
        for entry in list.values where entry.standing.keepsAddress {
            guard !staleness.isStale(entry.address, at: now) else { continue }
            let isActive = entry.standing == .active
            found.insert(isActive ? entry.address : entry.address.quarantined)
        }
    }

    /// How many addresses may be sent to, over all users.
    var listedCount: Int {
        users.values.reduce(0) { sum, list in
            sum + list.values.count { $0.standing == .active }
        }
    }

    mutating func count(answers: Int, for name: FuseName, at now: UnixMillis) {
        fuses.count(answers: answers, for: name, at: now)
    }

    /// How a change is applied.
    struct Reading: Sendable {
        /// Verdicts that wait to be counted, while the topics are not read to their end.
        var late = LateCount()
        /// Fuses that are to be weighed again.
        var young = YoungFuses()
        /// What others should know.
        var notices: [IndexNotice] = []
    }

    /// Applies a change.
    mutating func apply(
        _ change: IndexChange, at position: TopicPosition, now: UnixMillis,
        _ reading: inout Reading
    ) -> ChangeResult {
        sweepIfDue(now)
        switch change {
        case .registration(let record): return register(record, at: position, now: now)
        case .invalidation(let record):
            return judge(record, at: position, now: now, &reading)
        case .user(let change): return keep(change, at: position, now: now)
        }
    }

    // MARK: - People

    /// The record of a user.
    func record(of userID: String, app: String) -> UserRecord? {
        people[UserKey(app: app, userID: userID)]?.record
    }

    /// All users that have a record, with their records.
    var records: [UserKey: UserRecord] { people.compactMapValues(\.record) }

    private mutating func keep(
        _ change: UserChange, at position: TopicPosition, now: UnixMillis
    ) -> ChangeResult {
        let key = UserKey(app: change.app, userID: change.userID)
        if let known = people[key], !isForgotten(known, now), position.precedes(known.position) {
            return .outdated
        }
        people[key] = Person(record: change.record, position: position, changedAt: now)
        return .applied
    }

    private func isForgotten(_ person: Person, _ now: UnixMillis) -> Bool {
        person.record == nil && now - person.changedAt >= IndexLimits.tombstoneSpan
    }

    // MARK: - Addresses

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

    // MARK: - Verdicts

    private mutating func judge(
        _ record: InvalidationRecord, at position: TopicPosition, now: UnixMillis,
        _ reading: inout Reading
    ) -> ChangeResult {
        let id = record.addressID
        reading.late.drop(id)
        installs[id.install]?.dropForgotten(at: now)
        let isAccepted = installs[id.install, default: InstallState()].judge(
            record, at: position, now: now)
        guard isAccepted else { return .outdated }
        guard let state = installs[id.install]?.addresses[id] else { return .applied }
        var isHeldBack = false
        // One that is set aside may find its registration by the time it is counted.
        let isSetAside =
            record.isCounted && reading.late.setAside(record, at: position, now: now)
        if !isSetAside, state.address.map({ state.verdicts.blocks(record, $0) }) ?? false {
            isHeldBack = weigh(record, at: position, now: now, &reading)
        }
        if record.verdict == .forget, !state.verdicts.isDoubtful(after: record.asOf) {
            fuses.forgotten(id)
        }
        close(record, state.verdicts, at: position, &reading)
        if !isHeldBack, !reading.late.isReading {
            let said = installs[id.install]?.report(id)?.restatement
            if let said { reading.notices.append(.publish(said)) }
        }
        list(id.install)
        return .applied
    }

    /// The fuse's part in a verdict that blocks its address; returns whether it holds it back.
    private mutating func weigh(
        _ record: InvalidationRecord, at position: TopicPosition, now: UnixMillis,
        _ reading: inout Reading
    ) -> Bool {
        if record.isChurn {
            guard !reading.late.isReading, now - UnixMillis(position.timestamp) < .hours(1) else {
                return false
            }
            if let alarm = fuses.churned(record, now: now) {
                reading.notices.append(.churn(alarm))
            }
            return false
        }
        guard record.isCounted, let name = record.fuseName else { return false }
        return tally(record, name, at: position, now: now, &reading)
    }

    /// The book-keeping of the fuse that a verdict belongs to. What it holds it holds whatever is
    /// known of the address by now: its registration may be read later.
    private mutating func close(
        _ record: InvalidationRecord, _ verdicts: VerdictBook, at position: TopicPosition,
        _ reading: inout Reading
    ) {
        guard let name = record.fuseName, let fuseID = record.fuseID else { return }
        let id = record.addressID
        if record.verdict == .quarantine, verdicts.holds(record) {
            let settlement = fuses.adopt(
                id, name, fuseID: fuseID, reason: record.reason, at: position.timestamp,
                isReadingBack: reading.late.isReading)
            if let settlement {
                reading.notices.append(.publish(record.settled(by: settlement)))
            }
        } else if verdicts.held(by: name).isEmpty {
            fuses.settled(id, name, reading.late.isReading ? nil : record.settlement)
        }
    }

    private mutating func tally(
        _ record: InvalidationRecord, _ name: FuseName, at position: TopicPosition,
        now: UnixMillis, _ reading: inout Reading
    ) -> Bool {
        let id = record.addressID
        let tally = fuses.tally(
            id, name, reason: record.reason, at: position.timestamp, now: now, fusePolicy)
        let fuseID: String
        switch tally {
        case .pass: return false
        case .young:
            reading.young.add(name, record.reason, at: now)
            return false
        case .tripped(let tripped): fuseID = tripped
        case .trips(let tripped, let others):
            fuseID = tripped
            trip(
                TrippedFuse(
                    id: tripped, name: name, since: now, reason: record.reason,
                    held: others.count + 1), others, &reading)
        }
        let held = record.held(by: fuseID)
        _ = installs[id.install]?.judge(held, at: position, now: now, isRead: false)
        reading.notices.append(.publish(held))
        return true
    }

    /// Weighs a fuse again that counted verdicts which did not weigh then.
    mutating func weigh(
        _ name: FuseName, reason: String, now: UnixMillis, _ reading: inout Reading
    ) {
        let tally = fuses.tally(
            nil, name, reason: reason, at: now.value, now: now, fusePolicy)
        switch tally {
        case .pass, .tripped: break
        case .young: reading.young.add(name, reason, at: now)
        case .trips(let tripped, let others):
            trip(
                TrippedFuse(
                    id: tripped, name: name, since: now, reason: reason, held: others.count),
                others, &reading)
        }
    }

    /// A fuse has tripped: those who were judged before it did are held as well.
    private func trip(_ fuse: TrippedFuse, _ others: [AddressID], _ reading: inout Reading) {
        reading.notices.append(.fuseTripped(fuse))
        for other in others {
            let report = installs[other.install]?.report(other)
            if let held = report?.heldRecord(by: fuse.id, fuse.name) {
                reading.notices.append(.publish(held))
            }
        }
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
            let target = state.address == nil ? nil : install.owner?.userID
            if let former = state.listedUnder, former != target {
                let user = UserKey(app: id.app, userID: former)
                users[user]?[id] = nil
                if users[user]?.isEmpty ?? false { users[user] = nil }
            }
            if let target, let address = state.address {
                let user = UserKey(app: id.app, userID: target)
                users[user, default: [:]][id] = Listed(
                    address: address.with(userID: target), standing: state.standing)
            }
            install.addresses[id]?.listedUnder = target
        }
        installs[key] = install
    }

    // MARK: - Forgetting

    /// Forgets everything but the fuses.
    mutating func removeAll() {
        installs = [:]
        users = [:]
        slots = [:]
        people = [:]
    }

    /// Takes a user's addresses out, as a null record would, and the user's name with them.
    mutating func erase(_ user: ForgottenUser, now: UnixMillis) {
        for (key, ids) in Dictionary(grouping: user.addresses.map(\.id), by: \.install) {
            guard var install = installs[key] else { continue }
            for (id, slot) in install.erase(ids, of: user.userID, asOf: user.asOf, now: now) {
                leave(slot, id, now)
            }
            installs[key] = install
            list(key)
        }
        people[UserKey(app: user.app, userID: user.userID)] = nil
    }

    private mutating func sweepIfDue(_ now: UnixMillis) {
        changesUntilSweep -= 1
        guard changesUntilSweep <= 0 else { return }
        changesUntilSweep = Self.sweepInterval
        installs = installs.filter { !$0.value.isForgotten(at: now) }
        slots = slots.filter { !isForgotten($0.value, now) }
        people = people.filter { !isForgotten($0.value, now) }
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
