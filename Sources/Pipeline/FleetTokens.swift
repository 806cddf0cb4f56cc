// The tokens that a keeper looks after, on its loop.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Telemetry

/// One credential and where its fleet is with the next token.
private final class FleetEntry {
    let credential: any SharedCredential
    /// Who waits for tokens of the account; nil for credentials that make their tokens themselves.
    let service: AccessTokenService?
    var authorities: TLSAuthorities
    var plan = FleetTokenPlan()
    var call: SingleCall?
    /// Whether it is a candidate's and not in force yet.
    var isCandidate = false

    init(
        _ credential: any SharedCredential, _ service: AccessTokenService?,
        trusting authorities: TLSAuthorities
    ) {
        self.credential = credential
        self.service = service
        self.authorities = authorities
    }
}

/// Looks after tokens. Loop-confined.
internal final class FleetTokens {
    private let loop: EventLoop
    private let store: any FleetTokenStore
    private let access: GatewayAccess
    private let log: RateLimitedLog
    private let adopted: Counter
    private let made: Counter
    private let alone: Counter
    private var entries: [String: FleetEntry] = [:]
    private var waiters: [(deadline: MonotonicTime, done: () -> Void)] = []
    private lazy var timer = LoopTimer { [unowned self] in tick() }

    private static let tickInterval = TimeSpan.milliseconds(100)

    init(
        _ loop: EventLoop, _ store: any FleetTokenStore, _ access: GatewayAccess,
        _ registry: MetricsRegistry, _ log: Log
    ) {
        self.loop = loop
        self.store = store
        self.access = access
        self.log = RateLimitedLog(log, limit: 3, interval: .minutes(1))
        func counter(_ origin: String) -> Counter {
            registry.counter(
                "bugle_fleet_tokens_total",
                help: "Tokens taken into use: of another replica, made for all, made alone.",
                labels: [("origin", origin)])
        }
        adopted = counter("replica")
        made = counter("own")
        alone = counter("alone")
    }

    func close() {
        loop.cancel(timer)
        store.close()
        for entry in entries.values { entry.call?.cancel() }
        entries = [:]
    }

    func keep(_ apps: [PushApp]) {
        var kept: [String: FleetEntry] = [:]
        for app in apps {
            for gateway in Gateway.allCases {
                guard let entry = entry(app, gateway) else { continue }
                entry.isCandidate = false
                // Of two apps with one account the first decides: it is in force, and what follows
                // may be a candidate.
                if let fcm = app.fcm, kept[entry.credential.sharedName] == nil {
                    entry.authorities = fcm.endpoint.authorities
                }
                kept[entry.credential.sharedName] = entry
            }
        }
        for (name, entry) in entries where kept[name] == nil { entry.call?.cancel() }
        entries = kept
        tick()
    }

    func prepare(_ app: PushApp, _ gateway: Gateway) {
        guard let entry = entry(app, gateway) else { return }
        if entries[entry.credential.sharedName] == nil { entry.isCandidate = true }
        entries[entry.credential.sharedName] = entry
        tick()
    }

    func whenReady(_ done: @escaping () -> Void) {
        waiters.append((loop.now + FleetLimits.patience, done))
        tick()
    }

    /// The entry of a credential: the one that is there if it is of the same object.
    private func entry(_ app: PushApp, _ gateway: Gateway) -> FleetEntry? {
        let credential: any SharedCredential
        switch gateway {
        case .apns:
            guard let apns = app.apns else { return nil }
            credential = apns.credential
        case .fcm:
            guard let fcm = app.fcm else { return nil }
            credential = fcm.tokens.credential
        case .webpush, .expo: return nil
        }
        if let known = entries[credential.sharedName], known.credential === credential {
            return known
        }
        return FleetEntry(
            credential, gateway == .fcm ? app.fcm?.tokens : nil,
            trusting: app.fcm?.endpoint.authorities ?? .none)
    }

    func tick() {
        for entry in entries.values { advance(entry) }
        let now = loop.now
        let isReady = entries.values.allSatisfy { $0.credential.hasToken(at: now) }
        let ready = waiters.filter { isReady || $0.deadline <= now }
        waiters.removeAll { isReady || $0.deadline <= now }
        for waiter in ready { waiter.done() }
        loop.schedule(timer, at: now + Self.tickInterval)
    }

    private func advance(_ entry: FleetEntry) {
        let (credential, now) = (entry.credential, loop.now)
        let step = entry.plan.step(
            isDue: credential.isTokenDue(at: now),
            patience: credential.hasToken(at: now)
                ? credential.sharedPatience(at: now) : FleetLimits.patience, at: now)
        switch step {
        case .make: make(entry)
        case .wait:
            if entry.call == nil { credential.hold(until: now + FleetLimits.hold) }
        case .ask:
            credential.hold(until: now + FleetLimits.hold)
            store.ask(
                credential.sharedName, percent: credential.sharedPercent,
                butNot: credential.refusedTokenID
            ) { [weak self, weak entry] answer in
                guard let self, let entry else { return }
                answered(answer, entry)
            }
        }
    }

    private func answered(_ answer: FleetAnswer, _ entry: FleetEntry) {
        let (credential, now) = (entry.credential, loop.now)
        var isTaken = false
        if case .token(let token) = answer {
            isTaken = credential.adopt(token, at: now)
            if isTaken {
                adopted.add(1)
                entry.service?.announce()
            } else if !credential.hasToken(at: now) || credential.isTokenDue(at: now) {
                log.warning(
                    "a token of another replica cannot be used: do all replicas have the same key?")
            }
        }
        entry.plan.answered(
            answer, isTaken: isTaken, hasToken: credential.hasToken(at: now), at: now)
    }

    // MARK: Making

    private func make(_ entry: FleetEntry) {
        (entry.plan.isAlone ? alone : made).add(1)
        if entry.plan.isAlone {
            log.warning(
                "the replicas cannot agree on tokens without Redis: this one makes its own",
                ["credential": LogValue(String(entry.credential.sharedName.prefix(8)))])
        }
        if let apns = entry.credential as? APNsCredential {
            // What cannot sign says so with the first push.
            _ = try? apns.renewIfDue(at: loop.now, wall: loop.wall)
            return publish(entry)
        }
        guard let service = entry.service, entry.call == nil else { return }
        service.credential.hold(until: loop.now)
        guard
            case .fetch(let fetch, _) = service.credential.next(
                at: loop.now, wall: loop.wall, isForced: true)
        else { return }
        fetchToken(fetch, service, entry)
    }

    private func fetchToken(
        _ fetch: TokenFetch, _ service: AccessTokenService, _ entry: FleetEntry
    ) {
        let endpoint = service.credential.account.tokenEndpoint
        // The account's file may be written anew meanwhile, and the entry be another one.
        let call = SingleCall(
            to: GatewayEndpoint(
                host: endpoint.host, port: endpoint.port, trusting: entry.authorities),
            .fcm(connectionsMin: 1, connectionsMax: 1), access, loop
        ) { request in
            AccessTokens.write(fetch, to: endpoint, into: request)
        } done: { [weak self, weak entry] answer in
            entry?.call = nil
            guard let self else { return }
            switch answer {
            case .success(let answer):
                service.credential.received(answer, for: fetch.number, at: loop.now)
            case .failure(let fault):
                service.credential.failed(fetch.number, detail: fault.text, at: loop.now)
            }
            service.announce()
            if let entry, service.credential.fault == nil { publish(entry) }
        }
        if !call.isOver { entry.call = call }
    }

    private func publish(_ entry: FleetEntry) {
        guard let token = entry.credential.sealedToken(at: loop.now) else { return }
        store.publish(entry.credential.sharedName, token)
    }
}
