// What to do next with a transaction, given how the last call of the client ended: without client,
// clock or thread. One transaction is on its way at a time; what it carries stays with the caller
// until its outcome is known, and is then either done or the start of the next attempt.
//
//   initialise ─► idle ─► begin ─► produce ─► sendOffsets ─► commit ─► committed
//       ▲                   │         │            │           │
//    rebuild ◄── fatal ─────┴─────────┴────────────┴───────────┤
//       │                             └── abort ◄──────────────┘
//       └──────────────► resolve ◄──────────┘        (after a commit whose answer is no)
//
// A commit that was asked for and not confirmed may have happened all the same. Its outcome is
// looked up before anything of it is written again.

/// The life of one producer's transactions.
struct TransactionMachine {
    /// What the client is asked to do.
    enum Call: Equatable, Sendable, CaseIterable {
        /// Take the transactional id over and end what its former user left open.
        case initialise
        case begin
        /// Hand all records over.
        case produce
        case sendOffsets
        case commit
        case abort
        /// Replace the client by a new one.
        case rebuild
        /// Look up whether the last commit happened.
        case resolve
    }

    /// How a call ended.
    enum Answer: Equatable, Sendable {
        case done
        /// It did not end; the same call goes on with it.
        case again(KafkaError)
        /// The transaction has to be aborted.
        case abort(KafkaError)
        /// The client can do nothing any more.
        case fatal(KafkaError)
        /// The cluster does not offer this to us.
        case refused(KafkaError)
        /// Another process has taken the transactional id.
        case fenced(KafkaError)
        /// To `resolve`: whether the commit happened.
        case found(Bool)
    }

    /// What became of a transaction.
    enum Outcome: Equatable, Sendable { case committed, aborted }

    /// The call to make now; nil while there is nothing to do, and after the end.
    private(set) var next: Call? = .initialise
    /// Why no transaction can be made any more.
    private(set) var end: KafkaError?
    /// Calls in a row that did not succeed.
    private(set) var failures = 0
    private(set) var isInitialised = false

    private var isInTransaction = false
    /// Whether a commit was asked for whose outcome is not known.
    private var isUnresolved = false
    private var repeats = 0

    /// A call that only ever asks to be made again is given up after so many.
    static let repeatsMax = 20

    /// True when a transaction may be started.
    var isIdle: Bool { next == nil && end == nil }

    /// Starts a transaction; only when idle.
    mutating func start() {
        precondition(isIdle, "one transaction at a time")
        isInTransaction = true
        next = .begin
    }

    /// Takes the answer to `next`. Returns what became of the transaction, once it is known.
    mutating func answered(_ answer: Answer) -> Outcome? {
        guard let call = next else { preconditionFailure("an answer without a call") }
        switch answer {
        case .done: return succeeded(call)
        case .found(let isCommitted):
            precondition(call == .resolve, "only a look-up finds")
            return conclude(isCommitted ? .committed : .aborted)
        case .again: failed(call, fatally: false, mayRepeat: true)
        case .abort: failed(call, fatally: false, mayRepeat: false)
        case .fatal: failed(call, fatally: true, mayRepeat: false)
        case .fenced(let error): stop(error)
        case .refused(let error):
            // Whatever is refused after it had worked is a passing fault of the cluster.
            if isInitialised { failed(call, fatally: true, mayRepeat: false) } else { stop(error) }
        }
        return nil
    }

    private mutating func succeeded(_ call: Call) -> Outcome? {
        repeats = 0
        switch call {
        case .initialise:
            isInitialised = true
            guard isInTransaction else {
                next = nil
                return nil
            }
            return isUnresolved ? resolve() : conclude(.aborted)
        case .begin: next = .produce
        case .produce: next = .sendOffsets
        case .sendOffsets: next = .commit
        case .commit:
            failures = 0
            return conclude(.committed)
        case .abort: return isUnresolved ? resolve() : conclude(.aborted)
        case .rebuild: next = .initialise
        case .resolve: preconditionFailure("a look-up finds something")
        }
        return nil
    }

    private mutating func failed(_ call: Call, fatally isFatal: Bool, mayRepeat: Bool) {
        failures += 1
        switch call {
        case .initialise, .rebuild, .resolve:
            // Only time helps, and a new client where this one is dead.
            if isFatal { next = .rebuild }
            return
        case .begin, .produce, .sendOffsets, .commit, .abort: break
        }
        repeats += 1
        if mayRepeat, repeats < Self.repeatsMax { return }
        repeats = 0
        if call == .commit { isUnresolved = true }
        next = isFatal || call == .abort || call == .begin ? .rebuild : .abort
    }

    private mutating func resolve() -> Outcome? {
        next = .resolve
        return nil
    }

    private mutating func conclude(_ outcome: Outcome) -> Outcome {
        isInTransaction = false
        isUnresolved = false
        repeats = 0
        next = nil
        return outcome
    }

    private mutating func stop(_ error: KafkaError) {
        end = error
        next = nil
    }
}
