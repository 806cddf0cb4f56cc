// One change on its way through Redis: a chain of scripts, each started by the reply to the one
// before. What stopped in the middle is completed by applying the same record again.
//
//     register ─► claim the token ─► for each displaced address: settle, unlink, clean, told
//                        └─► settle (when not held yet) ─► unlink ─► leave slots ─► link ─► clean
//     user record: one script
//     judge ─► tally in the fuse ─► judge again as held ─► unlink ─► link ─► clean

internal import Base
internal import Redis

/// A change in progress; loop-confined.
internal final class ChangeRun: RedisReplyHandler {
    /// What is done to an install.
    enum Work {
        case change(IndexChange)
        /// A verdict that was set aside is counted.
        case recount(InvalidationRecord)
        /// After a loss: its addresses are claimed and listed again as its record has them.
        case relist(AddressID)
    }

    let work: Work
    let tag: UInt64
    let position: TopicPosition
    // The writer keeps its runs and outlives them; `stop` drops both.
    unowned let writer: RedisIndexWriter
    /// What follows the reply that is awaited.
    private var step: ((RedisReply) -> Void)?
    private var done: (() -> Void)?
    /// How often Redis refused a step.
    private(set) var refusals = 0
    /// When the refusals began that nothing has interrupted since.
    private(set) var refusedSince = MonotonicTime.distantFuture
    /// What to do without the present step, which is about the entry of the user with that key.
    private var detour: (userKey: String, go: () -> Void)?
    /// Why an entry was not taken out or in: what lies at its user's key is no list.
    private var spoilt: RedisRefusal?

    init(
        _ change: IndexChange, at position: TopicPosition, tag: UInt64, writer: RedisIndexWriter
    ) {
        work = .change(change)
        self.position = position
        self.tag = tag
        self.writer = writer
    }

    /// Counts a verdict that was applied before.
    init(
        recounting record: InvalidationRecord, at position: TopicPosition, writer: RedisIndexWriter
    ) {
        work = .recount(record)
        self.position = position
        tag = 0
        self.writer = writer
    }

    /// Lists anew what belongs to the install of an address.
    init(relisting id: AddressID, writer: RedisIndexWriter, _ done: @escaping () -> Void) {
        work = .relist(id)
        position = TopicPosition(partition: 0, offset: 0, timestamp: 0)
        tag = 0
        self.writer = writer
        self.done = done
    }

    /// The install or user whose changes are made one after another.
    var subject: String {
        switch work {
        case .change(let change): change.subject
        case .recount(let record): record.addressID.install
        case .relist(let id): id.install
        }
    }

    func start() {
        switch work {
        case .change(.registration(let record)): register(record)
        case .change(.invalidation(let record)), .recount(let record): judge(record)
        case .change(.user(let change)): store(change)
        case .relist(let id): relist(id)
        }
    }

    /// A user's record is one field of one key.
    private func store(_ change: UserChange) {
        let keys = [
            writer.layout.user(change.userID, app: change.app),
            writer.layout.formerRecord(of: change.userID, app: change.app),
        ]
        let value = StoredUser.encode(change, at: position)
        run(StoredUser.change, keys, positionArguments + [PlanStep.span, value]) {
            [self] reply in finish(reply.integer == 1 ? .applied : .outdated)
        }
    }

    /// Tells who asked for a listing that it is made, or that Redis refuses it.
    func relisted() {
        let done = done
        self.done = nil
        done?()
    }

    /// Begins again from the first step. A step is never sent a second time by itself: the store
    /// may have lost what the steps before it wrote, and a listing whose install's record is gone
    /// would be known to nobody.
    func restart() {
        step = nil
        detour = nil
        spoilt = nil
        start()
    }

    /// Lets go of what would follow.
    func cancel() {
        step = nil
        detour = nil
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        guard let step else { return }
        self.step = nil
        detour = nil
        step(reply)
    }

    func failed(_ error: RedisError, tag: UInt64) {
        if case .refused(let refusal) = error {
            refusals += 1
            refusedSince = min(refusedSince, writer.clock)
            if refusal.kind == .wrongType, let detour {
                return leaveOut(detour.userKey, error, refusal)
            }
        } else {
            refusedSince = .distantFuture
        }
        writer.stepFailed(self, error)
    }

    func run(
        _ script: RedisScript, _ keys: [String], _ arguments: [[UInt8]],
        then replied: @escaping (RedisReply) -> Void
    ) {
        step = replied
        writer.send(script, keys, arguments, for: self)
    }

    /// Leaves out a step about a user at whose key something lies that is no list. That user is
    /// unreadable to look-ups as well, and others whom the change concerns are not to suffer from
    /// it. The install's record is not told that all is done, so that the next change tries again.
    private func leaveOut(_ userKey: String, _ error: RedisError, _ refusal: RedisRefusal) {
        writer.ask(IndexScripts.type, [userKey], []) { [self] reply in
            guard let detour else { return }
            guard let reply else { return writer.stepFailed(self, .disconnected) }
            // Another key of the user is at fault, and the list may still show the entry.
            guard let type = reply.text, type != "hash", type != "none" else {
                return writer.stepFailed(self, error)
            }
            spoilt = refusal
            step = nil
            self.detour = nil
            detour.go()
        }
    }

    func finish(_ result: ChangeResult) {
        writer.finished(self, spoilt.map { .refused(IndexRefusal.text($0)) } ?? result)
    }

    // MARK: - Plans

    func carryOut(_ plan: IndexPlan, _ id: AddressID, then next: @escaping () -> Void) {
        let steps = plan.steps(
            app: id.app, layout: writer.layout, entriesPerKey: writer.entriesPerKey)
        take(steps[...]) { [self] in
            guard plan.needsClean, spoilt == nil else { return next() }
            let now = Array(String(writer.now.value).utf8)
            run(
                IndexScripts.clean, [writer.layout.install(id)],
                [now, PlanStep.span, Array(plan.revision.utf8)]
            ) { _ in next() }
        }
    }

    private func take(_ steps: ArraySlice<PlanStep>, then next: @escaping () -> Void) {
        guard let step = steps.first else { return next() }
        let goOn = { [self] in take(steps.dropFirst(), then: next) }
        detour = step.userKey.map { ($0, goOn) }
        run(step.script, step.keys, step.arguments) { _ in goOn() }
    }

    func common(_ id: String) -> [[UInt8]] {
        [String(writer.now.value), String(IndexLimits.tombstoneSpan.millis), id]
            .map { Array($0.utf8) }
    }

    var positionArguments: [[UInt8]] {
        [position.partition.description, String(position.offset), String(position.timestamp)]
            .map { Array($0.utf8) }
    }
}
