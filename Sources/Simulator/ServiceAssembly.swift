internal import Base
internal import EventLoop
internal import HTTP2
internal import Synchronization

/// Puts the services together and starts their threads.
struct ServiceAssembly: Sendable {
    let options: SimulatorOptions
    let facts: GatewayFacts
    let journal: Journal
    let engine: FaultEngine
    let accessTokens: AccessTokens
    let identity: ServerIdentity
    /// Who has issued the push certificates that APNs takes.
    let clientAuthorityPEM: String

    typealias Running = (threads: [LoopThread], services: [SimulatedService: RunningService])

    func start() throws(SimulatorError) -> Running {
        var threads: [LoopThread] = []
        var services: [SimulatedService: RunningService] = [:]
        let count = max(1, min(options.threads, SimulatedService.allCases.count))
        for index in 0..<count {
            let share = SimulatedService.allCases.enumerated().filter { $0.offset % count == index }
            let started = Started()
            do {
                threads.append(
                    try LoopThread.start(name: "gateways-\(index)", time: options.time) { loop in
                        for (_, service) in share { started.add(start(service, on: loop), service) }
                    })
            } catch {
                stop(threads)
                throw .thread(error)
            }
            let (running, failure) = started.outcome
            services.merge(running) { first, _ in first }
            if let (service, text) = failure {
                stop(threads)
                throw .listen(service, text)
            }
        }
        return (threads, services)
    }

    private func stop(_ threads: [LoopThread]) {
        for thread in threads {
            thread.handle.stop()
            thread.join()
        }
    }

    private func start(
        _ service: SimulatedService, on loop: EventLoop
    ) -> Result<RunningService, ListenError> {
        let oauth = OAuthJudge(
            facts: facts, accessTokens: accessTokens, lifetime: options.accessTokenLifetime,
            loop: loop)
        let server = GatewayServer(
            service: service, judge: judge(service, oauth, loop), loop: loop,
            manners: manners(service), engine: engine, journal: journal)
        do throws(ListenError) {
            let port = try server.listen(
                host: options.host, port: options.ports[service] ?? 0,
                certificatePEM: identity.certificatePEM, keyPEM: identity.keyPEM,
                clientAuthorityPEM: service.gateway == .apns ? clientAuthorityPEM : nil)
            oauth.port = port
            return .success(RunningService(server: server, handle: loop.handle, port: port))
        } catch {
            return .failure(error)
        }
    }

    private func judge(
        _ service: SimulatedService, _ oauth: OAuthJudge, _ loop: EventLoop
    ) -> any Judge {
        switch service {
        case .apnsProduction, .apnsSandbox:
            APNsJudge(
                environment: service.environment, facts: facts,
                environmentReason: options.apnsDocumentedKeyReason
                    ? .badEnvironmentKeyID : .badEnvironmentKey,
                readsMessageIDs: journal.keepsEntries, loop: loop)
        case .fcm:
            FCMJudge(
                facts: facts, accessTokens: accessTokens, readsMessageIDs: journal.keepsEntries,
                loop: loop)
        case .oauth: oauth
        case .webpush:
            WebPushJudge(facts: facts, readsMessageIDs: journal.keepsEntries, loop: loop)
        case .expo: ExpoJudge(facts: facts, loop: loop)
        case .apnsChannels, .apnsChannelsSandbox:
            APNsChannelJudge(
                environment: service.environment, facts: facts,
                environmentReason: options.apnsDocumentedKeyReason
                    ? .badEnvironmentKeyID : .badEnvironmentKey, loop: loop)
        }
    }

    private func manners(_ service: SimulatedService) -> GatewayServer.Manners {
        var manners = GatewayServer.Manners()
        switch service {
        case .apnsProduction, .apnsSandbox:
            manners.streamLimit = options.apnsStreamLimit
            manners.hasGate = options.apnsGate
            manners.lowersLimitOnRejection = options.apnsLowersLimitOnRejection
        case .fcm, .oauth:
            manners.streamLimit = options.fcmStreamLimit
            manners.refusesIdlePings = options.fcmRefusesIdlePings
            manners.idleTimeout = options.fcmIdleTimeout
        case .webpush: manners.streamLimit = options.webPushStreamLimit
        case .expo: manners.streamLimit = options.expoStreamLimit
        case .apnsChannels, .apnsChannelsSandbox: break
        }
        return manners
    }
}

/// What a thread's set-up tells its starter.
private final class Started: Sendable {
    private struct State: Sendable {
        var services: [SimulatedService: RunningService] = [:]
        var failure: (SimulatedService, String)?
    }

    private let state = Mutex(State())

    func add(_ result: Result<RunningService, ListenError>, _ service: SimulatedService) {
        state.withLock { state in
            switch result {
            case .success(let running): state.services[service] = running
            case .failure(let error): state.failure = (service, "\(error)")
            }
        }
    }

    var outcome: ([SimulatedService: RunningService], (SimulatedService, String)?) {
        state.withLock { ($0.services, $0.failure) }
    }
}
