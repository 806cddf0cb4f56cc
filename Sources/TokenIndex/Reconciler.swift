// Puts a store right that lost some of its writes. Installs, tokens and users lie in different
// buckets, of which some may show an older state than others: an entry may be left with a user who
// gave the install away, or missing with the one who has it now.

internal import Base
internal import EventLoop
internal import Redis

/// Loop-confined, owned by the index writer.
internal final class Reconciler {
    /// Lists an install's addresses anew.
    var relist: ((AddressID, @escaping () -> Void) -> Void)?

    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private var walk: KeyWalk?
    private lazy var retryTimer = LoopTimer { [unowned self] in tidy() }
    /// Whether the store refused something for the time being: what was not looked at may be wrong.
    private var isPartial = false

    /// Whether a round runs while others use the store, and whether another one is wanted after it.
    private var isTidying = false
    private var tidiesAgain = false

    /// Keys in work at once; while others use the store.
    private static let depth = 128
    private static let tidyDepth = 8
    /// The time between two pages of keys while others use the store.
    private static let pause = TimeSpan.milliseconds(20)
    private static let retryInterval = TimeSpan.seconds(1)

    init(_ client: RedisClient, layout: RedisLayout, on loop: EventLoop) {
        self.client = client
        self.layout = layout
        self.loop = loop
    }

    func stop() {
        loop.cancel(retryTimer)
        walk?.cancel()
        relist = nil
    }

    /// Removes every key but markers and fuses.
    func wipe(_ done: @escaping (Bool) -> Void) {
        isTidying = false
        start(
            "[uvxpit]", .zero, Self.depth,
            { [unowned self] key, next in
                RedisQuestion.ask(client, ["UNLINK", key]) { [weak self] reply in
                    self?.note(reply)
                    next()
                }
            }, done)
    }

    /// Takes away what users have and no install gives them, then gives them what is missing.
    func reconcile(_ done: @escaping (Bool) -> Void) {
        isTidying = false
        reconcile(.zero, Self.depth, done)
    }

    /// The same while everybody uses the store, again until it is done. What is asked for meanwhile
    /// follows: connections that come and go must not keep it from its end.
    func tidy() {
        guard !isTidying else {
            tidiesAgain = true
            return
        }
        isTidying = true
        tidiesAgain = false
        reconcile(Self.pause, Self.tidyDepth) { [unowned self] isDone in
            isTidying = false
            guard !isDone || tidiesAgain else { return }
            loop.schedule(retryTimer, at: loop.now + Self.retryInterval)
        }
    }

    private func reconcile(_ pause: TimeSpan, _ depth: Int, _ done: @escaping (Bool) -> Void) {
        start("[uv]", pause, depth, { [unowned self] in check($0, $1) }) { [unowned self] isDone in
            guard isDone else { return done(false) }
            start("i", pause, depth, { [unowned self] in list($0, $1) }, done)
        }
    }

    private func start(
        _ kinds: String, _ pause: TimeSpan, _ depth: Int, _ visit: @escaping KeyWalk.Visit,
        _ done: @escaping (Bool) -> Void
    ) {
        loop.cancel(retryTimer)
        walk?.cancel()
        isPartial = false
        let walk = KeyWalk(
            client, on: loop, pattern: layout.pattern(kinds), depth: depth, interval: pause,
            visit: visit
        ) { [weak self] fault in done(fault == nil && self?.isPartial == false) }
        self.walk = walk
        walk.start()
    }

    /// Remembers a failure that another round may not meet. One that lies in the key itself would be
    /// met for ever, and concerns its user alone.
    private func note(_ reply: Result<RedisReply, RedisError>) {
        guard case .failure(let error) = reply else { return }
        if case .refused(let refusal) = error,
            refusal.kind == .wrongType || refusal.kind == .other
        {
            return
        }
        isPartial = true
    }

    // MARK: - Users

    private func check(_ key: String, _ next: @escaping () -> Void) {
        RedisQuestion.ask(client, ["HGETALL", key]) { [weak self] reply in
            self?.note(reply)
            guard let self, case .success(let reply) = reply else { return next() }
            let parts = reply.elements
            let entries = stride(from: 0, to: parts.count - 1, by: 2).compactMap {
                ListedEntry(parts[$0], parts[$0 + 1])
            }
            check(entries[...], under: key, next)
        }
    }

    private func check(
        _ entries: ArraySlice<ListedEntry>, under key: String, _ next: @escaping () -> Void
    ) {
        guard let entry = entries.first else { return next() }
        let goOn = { [weak self] () -> Void in
            self?.check(entries.dropFirst(), under: key, next)
        }
        let install = layout.install(entry.id)
        let arguments = [Array(entry.id.text.utf8)]
        RedisQuestion.ask(client, OperatorScripts.owner, [install], arguments) {
            [weak self] reply in
            self?.note(reply)
            guard let self, case .success(let reply) = reply, reply.count == 2 else {
                return goOn()
            }
            let owner = reply.elements[0].text ?? ""
            let revision = max(reply.elements[1].integer ?? 0, entry.revision)
            guard let user = layout.user(of: key, app: entry.id.app),
                !user.utf8.elementsEqual(owner.utf8)
            else { return goOn() }
            unlink(entry.id, from: user, revision, goOn)
        }
    }

    private func unlink(
        _ id: AddressID, from user: String, _ revision: Int64, _ next: @escaping () -> Void
    ) {
        let keys = [
            layout.user(user, app: id.app), layout.unlinked(user, app: id.app),
            layout.further(user, app: id.app),
        ]
        let arguments = [Array(id.text.utf8), Array(String(revision).utf8), PlanStep.span]
        RedisQuestion.ask(client, IndexScripts.unlink, keys, arguments) { [weak self] reply in
            self?.note(reply)
            next()
        }
    }

    // MARK: - Installs

    private func list(_ key: String, _ next: @escaping () -> Void) {
        guard let id = layout.rest(of: key, kind: "i").flatMap({ AddressID($0) }) else {
            return next()
        }
        relist?(id, next)
    }
}

/// An entry of a user as far as a comparison needs it.
private struct ListedEntry {
    let id: AddressID
    let revision: Int64

    init?(_ field: RedisReply, _ value: RedisReply) {
        guard let id = field.text.flatMap({ AddressID($0) }),
            let colon = value.bytes.firstIndex(of: 0x3A),
            let revision = Int64(String(decoding: value.bytes[..<colon], as: UTF8.self))
        else { return nil }
        self.id = id
        self.revision = revision
    }
}

extension RedisLayout {
    /// The user whose addresses lie in a key; nil when it is no such key, or of another app.
    func user(of key: String, app: String) -> String? {
        guard let rest = rest(of: key, kind: "u") ?? rest(of: key, kind: "v"),
            rest.utf8.starts(with: "\(app):".utf8)
        else { return nil }
        return String(decoding: rest.utf8.dropFirst(app.utf8.count + 1), as: UTF8.self)
    }
}
