// An operator's connection to the index in Redis, for commands: every call waits for its answer.

public import Base
internal import EventLoop
internal import Redis

/// Asks and orders; confined to one thread.
public final class RedisIndexOperator {
    internal let client: RedisClient
    internal let loop: EventLoop
    internal let layout: RedisLayout
    private var isReady = false
    private var fault: RedisError?

    /// How long a server may take to be there.
    private static let patience = TimeSpan.seconds(5)
    /// Scripts in work at once.
    internal static let depth = 64

    /// Connects; throws when there is no usable connection within 5 s.
    public init(
        _ index: RedisTokenIndex, time: any TimeSource = SystemTime.shared
    ) throws(IndexOperationError) {
        do throws(SystemError) {
            loop = try EventLoop(name: "operator", time: time)
        } catch {
            throw .unavailable("\(error)")
        }
        layout = index.layout
        client = RedisClient(index.configuration, on: loop)
        client.observer = { [unowned self] event in
            switch event {
            case .ready: (isReady, fault) = (true, nil)
            case .lost(let error), .attemptFailed(let error): (isReady, fault) = (false, error)
            }
        }
        client.start()
        let deadline = SystemTime.shared.monotonic + Self.patience
        while !isReady, SystemTime.shared.monotonic < deadline {
            loop.turn(waitingUpTo: .milliseconds(20))
        }
        guard isReady else {
            client.close()
            throw .unavailable(fault.map { "\($0)" } ?? "no connection in time")
        }
    }

    deinit { client.close() }

    /// Turns the loop until something that was started calls back.
    internal func wait<Value>(
        _ start: (@escaping (Result<Value, RedisError>) -> Void) -> Void
    ) throws(IndexOperationError) -> Value {
        var result: Result<Value, RedisError>?
        // The loop's clock stood still while nobody turned it, and time-outs count from it.
        loop.turn(waitingUpTo: .zero)
        start { result = $0 }
        while result == nil { loop.turn(waitingUpTo: .milliseconds(50)) }
        switch result {
        case .success(let value): return value
        case .failure(let error): throw .unavailable("\(error)")
        case nil: preconditionFailure("the loop turned until there was a result")
        }
    }

    internal func ask<Value>(
        _ command: [String], _ read: @escaping (RedisReply) -> Value
    ) throws(IndexOperationError) -> Value {
        try wait { done in
            RedisQuestion.ask(client, command) { done($0.map(read)) }
        }
    }

    internal func ask<Value>(
        _ script: RedisScript, _ keys: [String], _ arguments: [String],
        _ read: @escaping (RedisReply) -> Value
    ) throws(IndexOperationError) -> Value {
        try wait { done in
            RedisQuestion.ask(client, script, keys, arguments.map { Array($0.utf8) }) {
                done($0.map(read))
            }
        }
    }

    internal func walk(
        _ kind: String, _ visit: @escaping KeyWalk.Visit
    ) throws(IndexOperationError) {
        try walk(pattern: layout.pattern(kind), visit)
    }

    private func walk(
        pattern: String, _ visit: @escaping KeyWalk.Visit
    ) throws(IndexOperationError) {
        var walk: KeyWalk?
        try wait { (done: @escaping (Result<Void, RedisError>) -> Void) in
            walk = KeyWalk(
                client, on: loop, pattern: pattern, depth: Self.depth, visit: visit
            ) { error in done(error.map { .failure($0) } ?? .success(())) }
            walk?.start()
        }
        walk = nil
    }

    /// All that an install's record says.
    internal func describe(_ id: AddressID) throws(IndexOperationError) -> [AddressReport] {
        try ask(OperatorScripts.describe, [layout.install(id)], []) { reply in
            reply.elements.compactMap { AddressReport($0) }
        }
    }
}

// MARK: - Operations

extension RedisIndexOperator: IndexOperations {
    /// Everything that is known of a user's addresses.
    public func reports(
        app: String, userID: String
    ) throws(IndexOperationError) -> [AddressReport] {
        var ids: Set<AddressID> = []
        for key in [layout.user(userID, app: app), layout.further(userID, app: app)] {
            let fields = try ask(["HKEYS", key]) { $0.elements.compactMap(\.text) }
            ids.formUnion(fields.compactMap { AddressID($0) })
        }
        var reports: [AddressReport] = []
        var seen: Set<String> = []
        for id in ids.sorted() where seen.insert(id.install).inserted {
            reports += try describe(id).filter { $0.userID == userID || ids.contains($0.id) }
        }
        return reports.sorted { $0.id < $1.id }
    }

    /// The user's record; nil when there is none.
    public func userRecord(
        app: String, userID: String
    ) throws(IndexOperationError) -> UserRecord? {
        try ask(["HGET", layout.user(userID, app: app), StoredUser.field]) { reply in
            StoredUser.decode(reply.bytes)
        }
    }

    /// Counts over the whole index.
    public func statistics(
        progress: (Int) -> Void = { _ in }
    ) throws(IndexOperationError) -> IndexStatistics {
        let counter = InstallCounter()
        try withoutActuallyEscaping(progress) { progress throws(IndexOperationError) in
            try walk("i") { [client] key, done in
                guard counter.seen.insert(key).inserted else { return done() }
                RedisQuestion.ask(client, OperatorScripts.describe, [key], []) { reply in
                    switch reply {
                    case .failure(let error): counter.failure = counter.failure ?? error
                    case .success(let reply):
                        counter.statistics.add(
                            install: reply.elements.compactMap { AddressReport($0) })
                    }
                    if counter.seen.count % 10_000 == 0 { progress(counter.seen.count) }
                    done()
                }
            }
        }
        if let failure = counter.failure { throw .unavailable(failure.description) }
        return counter.statistics
    }

    /// The fuses that wait for somebody to settle them.
    public func fuses() throws(IndexOperationError) -> [TrippedFuse] {
        var fuses = try ask(["HGETALL", layout.trippedFuses]) { reply in
            let parts = reply.elements
            return stride(from: 0, to: parts.count - 1, by: 2).compactMap {
                TrippedFuse(parts[$0], parts[$0 + 1])
            }
        }
        for index in fuses.indices {
            let held = try ask(["ZCARD", layout.judged(fuses[index].name)]) { $0.integer ?? 0 }
            fuses[index].held = Int(held)
        }
        return fuses.sorted { $0.id < $1.id }
    }

    /// The records for `push.invalidations` that settle a fuse.
    public func records(
        settling fuseID: String, _ settlement: FuseSettlement
    ) throws(IndexOperationError) -> [InvalidationRecord] {
        guard let fuse = try fuses().first(where: { $0.id == fuseID }) else {
            throw .noSuchFuse(fuseID)
        }
        let held = try ask(["ZRANGE", layout.judged(fuse.name), "0", "-1"]) {
            $0.elements.compactMap(\.text)
        }
        var records: [InvalidationRecord] = []
        for id in held.compactMap({ AddressID($0) }).sorted() {
            let report = try describe(id).first { $0.id == id }
            records += AddressReport.settling(report, id, fuse, settlement)
        }
        return records
    }

    /// What forgetting a user takes.
    public func forgetting(
        app: String, userID: String, at now: UnixMillis
    ) throws(IndexOperationError) -> ForgottenUser {
        ForgottenUser(
            app: app, userID: userID, addresses: try reports(app: app, userID: userID), asOf: now)
    }

    /// Removes a user from the store.
    public func erase(_ user: ForgottenUser) throws(IndexOperationError) {
        let now = String(loop.wall.value)
        let span = String(IndexLimits.tombstoneSpan.millis)
        let installs = Dictionary(grouping: user.addresses.map(\.id), by: \.install)
        for ids in installs.values {
            let key = layout.install(ids[0])
            let plan = try ask(
                OperatorScripts.erase, [key],
                [now, span, user.userID, String(user.asOf.value)] + ids.map(\.text)
            ) { IndexPlan($0) }
            guard let plan else { continue }
            for step in plan.steps(
                app: user.app, layout: layout, entriesPerKey: IndexLimits.entriesPerKey)
            {
                try wait { done in
                    RedisQuestion.ask(client, step.script, step.keys, step.arguments) {
                        done($0.map { _ in })
                    }
                }
            }
            for entry in plan.entries {
                for slot in entry.leftSlots {
                    try ask(
                        OperatorScripts.drop, [layout.slot(slot)], [entry.addressID]
                    ) { _ in }
                }
            }
            try ask(
                OperatorScripts.erased, [key], [now, span, plan.revision, user.userID]
            ) { _ in }
        }
        try ask(["HDEL", layout.user(user.userID, app: user.app), StoredUser.field]) { _ in }
        for key in [
            layout.unlinked(user.userID, app: user.app),
            layout.formerRecord(of: user.userID, app: user.app),
        ] {
            try ask(["DEL", key]) { _ in }
        }
        // Notes and counts, under names that only those know who keep them.
        let failures = FailureNote()
        try walk(pattern: layout.kept(of: user.userID, app: user.app)) { [client] key, done in
            RedisQuestion.ask(client, ["UNLINK", key]) { reply in
                if case .failure(let error) = reply { failures.first = failures.first ?? error }
                done()
            }
        }
        if let failure = failures.first { throw .unavailable(failure.description) }
    }
}

/// Carries a failure out of a walk.
private final class FailureNote {
    var first: RedisError?
}

/// Carries a count through a walk, which may visit a key twice.
private final class InstallCounter {
    /// What kept an install from being counted.
    var failure: RedisError?
    var statistics = IndexStatistics()
    var seen: Set<String> = []
}
