// The name of this process among the replicas of its group, kept in Redis: a Deployment gives its
// pods random names, and transactional ids must not be random, or every restart would leave an open
// transaction behind that readers wait for.
//
// A leased name (`kafka.instance: auto`) is the first of slot-0, slot-1, ... that nobody has. It is
// renewed every few seconds. A process that could not renew its lease for long ends, well before
// somebody else may take the name; if that should overlap all the same, brokers fence the older of
// two producers of one transactional id. A configured name is only told to the others, so that two
// processes of one name notice each other.

internal import Base
internal import EventLoop
internal import Glibc
internal import Kafka
internal import Redis
internal import Synchronization
internal import Telemetry

/// The times of a lease, in the order in which they matter.
internal enum InstanceLeaseLimits {
    /// Between two renewals.
    static let renewal = TimeSpan.seconds(5)
    /// A renewal that is not answered in this time is sent again.
    static let answer = TimeSpan.seconds(5)
    /// Without a renewal for so long the process ends: stopping takes up to six seconds more.
    static let giveUp = TimeSpan.seconds(45)
    /// How long a lease lasts by Redis's clock, from the last renewal that it has seen.
    static let life = TimeSpan.seconds(60)
    /// Names that are tried.
    static let slots = 256
    /// Between two attempts to get a name.
    static let retry = TimeSpan.seconds(1)
}

/// Whether a lease still holds, counted on this process's own clock. Pure.
internal struct LeaseWatch {
    /// What the last answer says.
    private(set) var lostTo: String?
    private var heldSince: MonotonicTime

    /// A lease that was asked for at that time and granted.
    init(grantedAt time: MonotonicTime) { heldSince = time }

    /// A renewal that was sent at that time was answered. What counts is when it was sent: Redis has
    /// counted from there at the earliest.
    mutating func renewed(sentAt time: MonotonicTime) {
        if time > heldSince { heldSince = time }
    }

    /// Somebody else has the name.
    mutating func lost(to who: String) { lostTo = who }

    /// Whether the process must end.
    func isOver(at now: MonotonicTime) -> Bool {
        lostTo != nil || now - heldSince >= InstanceLeaseLimits.giveUp
    }

    /// How long ago the lease was renewed.
    func age(at now: MonotonicTime) -> TimeSpan { now - heldSince }
}

/// Keeps a name. Every method may be called from any thread.
internal final class InstanceLease: Sendable {
    /// How the name came about.
    enum Kind: Sendable, Equatable {
        /// The configuration names it.
        case configured(String)
        /// The first that is free.
        case leased
    }

    /// What this process is called in entries and messages.
    struct Identity: Sendable {
        let owner: String
        let who: String

        /// This process on this host.
        static func ofThisProcess() -> Identity {
            var name = [CChar](repeating: 0, count: 256)
            gethostname(&name, name.count - 1)
            let host = name.withUnsafeBufferPointer { buffer in
                buffer.baseAddress.map { String(cString: $0) } ?? "?"
            }
            return Identity(
                owner: String(UInt64.random(in: 1 ... .max), radix: 36),
                who: "\(host) (pid \(getpid()))")
        }
    }

    /// The name.
    let name: String
    private let thread: LoopThread
    private let box: LeaseBox

    /// Takes a name, and waits for one as long as Redis is away or all are taken, while `mayWait`
    /// says so; nil when it does not any more.
    init?(
        _ kind: Kind, group: String, _ redis: RedisConfiguration, prefix: String,
        identity: Identity = .ofThisProcess(), log: Log, mayWait: () -> Bool
    ) throws(Failure) {
        let box = LeaseBox()
        self.box = box
        do throws(SystemError) {
            thread = try LoopThread.start(name: "instance") { loop in
                box.keeper = LeaseKeeper(
                    kind, key: "\(prefix){fleet}:n:\(group)", group: group, redis, identity, log,
                    loop, box)
            }
        } catch {
            throw .failed("the thread that keeps this replica's name: \(error)")
        }
        while true {
            if let name = box.name {
                self.name = name
                return
            }
            // A configured name needs nobody's leave.
            if case .configured(let name) = kind {
                self.name = name
                return
            }
            guard mayWait() else {
                thread.handle.stop()
                thread.join()
                return nil
            }
        }
    }

    /// Why the process has to end; nil while the name is its own.
    var failure: String? { box.failure }

    /// Gives the name back. The caller has stopped working.
    func release() {
        let released = Semaphore()
        thread.handle.submit { [box] in
            guard let keeper = box.keeper else { return released.signal() }
            keeper.release { released.signal() }
        }
        _ = released.wait(upTo: .seconds(1))
        thread.handle.stop()
        thread.join()
    }
}

/// What the keeper's thread tells the others.
///
/// `@unchecked Sendable`: `keeper` is set on the loop's thread before `LoopThread.start` returns and
/// used by jobs that run there.
private final class LeaseBox: @unchecked Sendable {
    var keeper: LeaseKeeper?
    private let state = Mutex<(name: String?, failure: String?)>((nil, nil))

    var name: String? { state.withLock { $0.name } }
    var failure: String? { state.withLock { $0.failure } }
    func set(name: String) { state.withLock { $0.name = name } }
    func fail(_ text: String) { state.withLock { $0.failure = $0.failure ?? text } }
}

/// Asks Redis. Loop-confined.
private final class LeaseKeeper: RedisReplyHandler {
    private enum Question: UInt64 { case take = 1, claim, keep, release }

    private let kind: InstanceLease.Kind
    private let key: String
    private let group: String
    private let identity: InstanceLease.Identity
    private let log: Log
    private let loop: EventLoop
    private let client: RedisClient
    private unowned let box: LeaseBox
    private var name: String?
    private var watch: LeaseWatch?
    private var askedAt: MonotonicTime?
    private var nextAt: MonotonicTime
    private var isToldToWait = false
    private var released: (() -> Void)?
    private lazy var timer = LoopTimer { [unowned self] in tick() }

    init(
        _ kind: InstanceLease.Kind, key: String, group: String, _ redis: RedisConfiguration,
        _ identity: InstanceLease.Identity, _ log: Log, _ loop: EventLoop, _ box: LeaseBox
    ) {
        self.kind = kind
        self.key = key
        self.group = group
        self.identity = identity
        self.log = log
        self.loop = loop
        self.box = box
        nextAt = loop.now
        client = RedisClient(redis, on: loop)
        client.start()
        tick()
    }

    func release(_ done: @escaping () -> Void) {
        loop.cancel(timer)
        guard let name, watch?.lostTo == nil else { return close(done) }
        released = done
        if !ask(.release, FleetScripts.releaseName, name) { close(done) }
    }

    private func close(_ done: () -> Void) {
        released = nil
        client.close()
        done()
    }

    private func tick() {
        let now = loop.now
        if let watch, watch.isOver(at: now), kind == .leased { giveUp(watch) }
        if let asked = askedAt, now - asked >= InstanceLeaseLimits.answer { askedAt = nil }
        if askedAt == nil, now >= nextAt, client.isReady { question() }
        if name == nil, !isToldToWait, kind == .leased, !client.isReady, now >= nextAt + .seconds(2)
        {
            isToldToWait = true
            log.warning("waiting for Redis, where this replica gets its name")
        }
        loop.schedule(timer, at: now + .milliseconds(100))
    }

    private func question() {
        let isAsked =
            switch (name, kind) {
            case (let name?, _): ask(.keep, FleetScripts.keepName, name)
            case (nil, .leased):
                ask(.take, FleetScripts.takeName, String(InstanceLeaseLimits.slots))
            case (nil, .configured(let name)): ask(.claim, FleetScripts.claimName, name)
            }
        if isAsked { askedAt = loop.now }
    }

    private func ask(_ question: Question, _ script: RedisScript, _ argument: String) -> Bool {
        let life = String(InstanceLeaseLimits.life.millis)
        let arguments = [identity.owner, identity.who, life, argument].map { Array($0.utf8) }
        return client.run(
            script, keys: [key], arguments: arguments, to: self, tag: question.rawValue) == nil
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        let sentAt = askedAt ?? loop.now
        askedAt = nil
        let first = reply.elements.first?.text
        switch Question(rawValue: tag) {
        case .take: taken(first, sentAt)
        case .claim: claimed(first, sentAt)
        case .keep: kept(first, sentAt)
        case .release: released.map(close)
        case nil: break
        }
    }

    func failed(_ error: RedisError, tag: UInt64) {
        askedAt = nil
        nextAt = loop.now + InstanceLeaseLimits.retry
        if case .refused = error {
            log.error("Redis refuses to keep this replica's name", ["reason": LogValue("\(error)")])
            nextAt = loop.now + .seconds(30)
        }
        released.map(close)
    }

    private func taken(_ name: String?, _ sentAt: MonotonicTime) {
        guard let name else {
            nextAt = loop.now + InstanceLeaseLimits.retry
            if isToldToWait { return }
            isToldToWait = true
            return log.error(
                "all \(InstanceLeaseLimits.slots) names of the group are taken; waiting for one",
                ["group": LogValue(group)])
        }
        hold(name, sentAt)
        log.info("this replica's name was leased", ["instance": LogValue(name)])
    }

    private func claimed(_ former: String?, _ sentAt: MonotonicTime) {
        guard case .configured(let name) = kind else { return }
        hold(name, sentAt)
        guard let former, !Self.isGone(former, asSeenBy: identity) else { return }
        log.warning(
            "another process had this replica's name a moment ago: it ends if it still runs; give "
                + "every replica a kafka.instance of its own, or auto",
            ["instance": LogValue(name), "other": LogValue(former)])
    }

    private func hold(_ name: String, _ sentAt: MonotonicTime) {
        self.name = name
        watch = LeaseWatch(grantedAt: sentAt)
        nextAt = sentAt + InstanceLeaseLimits.renewal
        box.set(name: name)
    }

    private func kept(_ other: String?, _ sentAt: MonotonicTime) {
        nextAt = sentAt + InstanceLeaseLimits.renewal
        guard let other else {
            watch?.renewed(sentAt: sentAt)
            return
        }
        guard watch?.lostTo == nil else { return }
        watch?.lost(to: other)
        guard kind == .leased else {
            // Brokers fence the older of two producers of one name; without transactions both work.
            return log.error(
                "another process has this replica's name: give every replica a kafka.instance of "
                    + "its own, or auto",
                ["instance": LogValue(name ?? ""), "other": LogValue(other)])
        }
        if let watch { giveUp(watch) }
    }

    private func giveUp(_ watch: LeaseWatch) {
        guard box.failure == nil, let name else { return }
        let text =
            watch.lostTo.map { other in
                "the instance name \(name) of the group \(group) was taken over by \(other): every "
                    + "replica needs a name of its own; set kafka.instance, or auto"
            }
            ?? "the lease of the instance name \(name) was not renewed for "
            + "\(watch.age(at: loop.now).millis / 1000) s, since Redis does not answer: another "
            + "replica may take it soon"
        box.fail(text)
        log.error("this replica ends: \(text)")
    }

    /// Whether a process on this host, by its entry, has ended.
    private static func isGone(
        _ former: String, asSeenBy identity: InstanceLease.Identity
    ) -> Bool {
        let parts = former.split(separator: " ")
        guard let host = identity.who.split(separator: " ").first, parts.first == host,
            let pid = parts.last.flatMap({ Int32($0.dropLast()) })
        else { return false }
        // A container that starts again has its predecessor's number.
        return pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH)
    }
}
