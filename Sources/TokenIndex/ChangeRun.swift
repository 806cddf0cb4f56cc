// One change on its way through Redis: a chain of scripts, each started by the reply to the one
// before. What stopped in the middle is completed by applying the same record again.
//
//     register ─► claim the token ─► for each displaced address: settle, unlink, clean, told
//                        └─► settle (when not held yet) ─► unlink ─► leave slots ─► link ─► clean
//     judge ─────────────────────────────────────────────► unlink ─► link ─► clean

internal import Base
internal import Redis

/// A change in progress; loop-confined.
internal final class ChangeRun: RedisReplyHandler {
    let change: IndexChange
    let tag: UInt64
    private let position: TopicPosition
    // The writer keeps its runs and outlives them; `stop` drops both.
    private unowned let writer: RedisIndexWriter
    /// What follows the reply that is awaited.
    private var step: ((RedisReply) -> Void)?
    /// How often Redis refused a step.
    private(set) var refusals = 0

    init(
        _ change: IndexChange, at position: TopicPosition, tag: UInt64, writer: RedisIndexWriter
    ) {
        self.change = change
        self.position = position
        self.tag = tag
        self.writer = writer
    }

    func start() {
        switch change {
        case .registration(let record): register(record)
        case .invalidation(let record): judge(record)
        }
    }

    /// Begins again from the first step. A step is never sent a second time by itself: the store
    /// may have lost what the steps before it wrote, and a listing whose install's record is gone
    /// would be known to nobody.
    func restart() {
        step = nil
        start()
    }

    /// Lets go of what would follow.
    func cancel() { step = nil }

    func replied(_ reply: RedisReply, tag: UInt64) {
        guard let step else { return }
        self.step = nil
        step(reply)
    }

    func failed(_ error: RedisError, tag: UInt64) {
        if case .refused = error { refusals += 1 }
        writer.stepFailed(self, error)
    }

    private func run(
        _ script: RedisScript, _ keys: [String], _ arguments: [[UInt8]],
        then replied: @escaping (RedisReply) -> Void
    ) {
        step = replied
        writer.send(script, keys, arguments, for: self)
    }

    private func finish(_ result: ChangeResult) { writer.finished(self, result) }

    // MARK: - Registrations

    private func register(_ record: RegistrationRecord) {
        let id = record.addressID
        var arguments = common(id.text) + positionArguments
        var claimed: (slot: String, address: DeviceAddress)?
        switch record {
        case .gone:
            for text in ["0", "0", "0", "", "0", "", ""] { arguments.append(Array(text.utf8)) }
        case .registered(let address):
            let slot = TokenSlot(address).description
            claimed = (slot, address)
            arguments += [
                "1", String(address.version), String(address.registeredAt.value), slot,
                address.userID == nil ? "0" : "1", address.userID ?? "",
            ].map { Array($0.utf8) }
            arguments.append(address.withStored { Array($0) })
        }
        arguments.append(Array(String(IndexLimits.addressesPerInstall).utf8))
        run(IndexScripts.register, [writer.layout.install(id)], arguments) { [self] reply in
            guard let plan = IndexPlan(reply) else {
                let isFull = reply.elements.first?.text == "full"
                return finish(isFull ? .refused(IndexRefusal.installIsFull) : .outdated)
            }
            guard let claimed else { return carryOut(plan, id) { [self] in finish(.applied) } }
            claim(claimed.slot, claimed.address, plan)
        }
    }

    private func claim(_ slot: String, _ address: DeviceAddress, _ plan: IndexPlan) {
        let id = address.id
        let arguments = [id.text, String(address.registeredAt.value)].map { Array($0.utf8) }
        run(IndexScripts.claim, [writer.layout.slot(slot)], arguments) { [self] reply in
            let words = reply.elements.compactMap(\.text)
            guard words.count >= 2, let holder = AddressID(words[1]) else {
                return finish(.refused("the token's slot cannot be read"))
            }
            tellDisplaced(words[2...], slot, claim: words[0], holder) { [self] in
                if plan.isHeld && holder == id {
                    return carryOut(plan, id) { [self] in finish(.applied) }
                }
                settle(id, slot, claim: words[0], holder) { [self] in finish(.applied) }
            }
        }
    }

    /// Takes the token from those who had it, one after another, before it is given on.
    private func tellDisplaced(
        _ displaced: ArraySlice<String>, _ slot: String, claim: String, _ holder: AddressID,
        then next: @escaping () -> Void
    ) {
        guard let text = displaced.first else { return next() }
        let told = { [self] in
            run(
                IndexScripts.told, [writer.layout.slot(slot)],
                [Array(text.utf8), Array(claim.utf8)]
            ) { [self] _ in
                tellDisplaced(
                    displaced.dropFirst(), slot, claim: claim, holder, then: next)
            }
        }
        guard let id = AddressID(text) else { return told() }
        settle(id, slot, claim: claim, holder, then: told)
    }

    private func settle(
        _ id: AddressID, _ slot: String, claim: String, _ holder: AddressID,
        then next: @escaping () -> Void
    ) {
        let arguments = common(id.text) + [slot, claim, holder.text].map { Array($0.utf8) }
        run(IndexScripts.settle, [writer.layout.install(id)], arguments) { [self] reply in
            guard let plan = IndexPlan(reply) else { return next() }
            carryOut(plan, id, then: next)
        }
    }

    // MARK: - Verdicts

    private func judge(_ record: InvalidationRecord) {
        let id = record.addressID
        let words = [
            record.verdict.rawValue, String(record.asOf.value), record.tokenHash ?? "",
        ]
        let arguments = common(id.text) + positionArguments + words.map { Array($0.utf8) }
        run(IndexScripts.judge, [writer.layout.install(id)], arguments) { [self] reply in
            guard let plan = IndexPlan(reply) else { return finish(.outdated) }
            carryOut(plan, id) { [self] in finish(.applied) }
        }
    }

    // MARK: - Plans

    private func carryOut(_ plan: IndexPlan, _ id: AddressID, then next: @escaping () -> Void) {
        var steps: [(RedisScript, [String], [[UInt8]])] = []
        let span = Array(String(IndexLimits.tombstoneSpan.millis).utf8)
        let revision = Array(plan.revision.utf8)
        for entry in plan.entries {
            for user in entry.formerUsers {
                let keys = userKeys(user, id.app)
                steps.append(
                    (IndexScripts.unlink, keys, [Array(entry.addressID.utf8), revision, span]))
            }
        }
        for entry in plan.entries {
            for slot in entry.leftSlots {
                let arguments = [Array(entry.addressID.utf8), span]
                steps.append((IndexScripts.leave, [writer.layout.slot(slot)], arguments))
            }
        }
        for entry in plan.entries {
            guard let user = entry.userID else { continue }
            let stored = Self.stored(entry, for: user)
            let arguments = [Array(entry.addressID.utf8), revision, stored]
            steps.append((IndexScripts.link, userKeys(user, id.app), arguments))
        }
        if plan.needsClean {
            let now = Array(String(writer.now.value).utf8)
            steps.append(
                (IndexScripts.clean, [writer.layout.install(id)], [now, span, revision]))
        }
        take(steps[...], then: next)
    }

    private func take(
        _ steps: ArraySlice<(RedisScript, [String], [[UInt8]])>, then next: @escaping () -> Void
    ) {
        guard let (script, keys, arguments) = steps.first else { return next() }
        run(script, keys, arguments) { [self] _ in take(steps.dropFirst(), then: next) }
    }

    /// The stored address names the user of its own record; under another user it names that one.
    private static func stored(_ entry: IndexPlan.Entry, for userID: String) -> [UInt8] {
        let id = Array(entry.addressID.utf8)
        let address = id.withUnsafeBytes { id in
            entry.stored.withUnsafeBytes { DeviceAddress(id: id, stored: $0) }
        }
        guard let address else { return entry.stored }
        return address.with(userID: userID).withStored { Array($0) }
    }

    private func userKeys(_ userID: String, _ app: String) -> [String] {
        [writer.layout.user(userID, app: app), writer.layout.unlinked(userID, app: app)]
    }

    private func common(_ id: String) -> [[UInt8]] {
        [String(writer.now.value), String(IndexLimits.tombstoneSpan.millis), id]
            .map { Array($0.utf8) }
    }

    private var positionArguments: [[UInt8]] {
        [position.partition.description, String(position.offset), String(position.timestamp)]
            .map { Array($0.utf8) }
    }
}
