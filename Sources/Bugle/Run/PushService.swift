// What `run` runs, put together from a configuration: the feed of the token index, the dispatcher,
// the admin listener. `demo` and `dev` run the same on embedded parts.

internal import Admin
internal import Base
internal import Config
internal import Kafka
internal import Pipeline
internal import Routes
internal import Synchronization
internal import Telemetry
internal import TokenIndex

/// The parts of a process, started and stopped as one. Every method may be called from any thread.
internal final class PushService: Sendable {
    /// What is not in a configuration.
    struct Options {
        /// The parts to run; nil for those of the configuration.
        var roles: Set<Configuration.Role>?
        /// What events without content of their own show.
        var defaultNotification: (title: String, body: String?)?
        /// Loads the credentials; kept by whoever loads them anew later.
        var loader = PushAppLoader()
    }

    private let fleet: Fleet
    private let tracer: TraceExporter?
    private let acks: AckFeed?
    /// What is counted here.
    let registry: MetricsRegistry
    /// The apps with the credentials that the process started with.
    let apps: [PushApp]
    /// How gateways are reached.
    let access: GatewayAccess
    /// Agrees on tokens with the other replicas; nil without a store that they share.
    let tokens: TokenKeeper?
    private let feed: IndexFeed?
    private let dispatcher: Dispatcher?
    private let admin: AdminServer
    private let watched: WatchedParts

    /// Starts everything.
    init(_ configuration: Configuration, _ options: Options, log given: Log) throws(Failure) {
        let troubles = RecentTroubles()
        let log = given.keeping(troubles)
        let roles = options.roles ?? configuration.roles
        let routes = try ConfigurationFile.routes(of: configuration)
        let kafka = try ClusterAccess.settings(configuration, log: log)
        let store = try IndexStore(configuration, log: log.named("redis"))
        let registry = MetricsRegistry()
        self.registry = registry
        let loaded: [PushApp]
        do throws(PushAppError) {
            loaded = try options.loader.load(configuration)
            access = try GatewayAccess(configuration)
        } catch {
            throw .failed("\(error)")
        }
        apps = loaded
        let counts = try Self.checkTopics(configuration, kafka, roles)
        // Nothing that can fail here comes after a group is joined: leaving one takes time.
        watched = WatchedParts()
        ProcessStatistics.register(in: registry)
        configuration.registerCertificates(in: registry)
        let status = StatusReport(
            instance: configuration.kafka.instance, group: configuration.kafka.group,
            registry: registry, troubles: troubles,
            hindrances: { [watched] in watched.hindrances },
            fleet: { [watched] in watched.fleet })
        tokens =
            roles.contains(.dispatch) && store.isShared
            ? try Self.startTokens(configuration, access, registry, log) : nil
        tokens?.keep(loaded)
        tokens?.waitForTokens()
        admin = try Self.startAdmin(configuration, watched, registry, status)
        fleet = try Fleet(
            FleetSettings(
                kafka: kafka, control: configuration.kafka.topics.control,
                status: configuration.kafka.topics.status, group: configuration.kafka.group,
                instance: configuration.kafka.instance),
            registry: registry, log: log.named("fleet"))
        watched.watch(fleet)
        let isDispatching = roles.contains(.dispatch)
        let traces =
            isDispatching ? configuration.tracing.map { TraceQueue(sample: $0.sample) } : nil
        tracer = try configuration.tracing.flatMap { tracing throws(Failure) in
            try traces.map { queue throws(Failure) in
                try TraceExporter(
                    tracing, queue, instance: configuration.kafka.instance, registry: registry,
                    log: log.named("tracing"))
            }
        }
        // Counting what nobody sends would be a rate of zero.
        let acksTopic = configuration.kafka.topics.acks
        let sample =
            isDispatching && (counts[acksTopic] ?? 0) > 0 ? AckSample(registry) : nil
        acks = try sample.map { sample throws(Failure) in
            try AckFeed(kafka, topic: acksTopic, into: sample, log: log.named("acks"))
        }
        // A process that dispatches from its own memory has to fill that memory.
        let feeds = roles.contains(.index) || !store.isShared
        feed =
            feeds ? try Self.startFeed(configuration, kafka, store, registry, log) : nil
        dispatcher =
            isDispatching
            ? try Self.startDispatcher(
                configuration, kafka, options, routes, loaded, access, store, fleet, traces, sample,
                registry, log)
            : nil
        watched.watch(feed, dispatcher)
        let pace = PaceMeter()
        fleet.attach(
            apply: { [dispatcher] in dispatcher?.replace($0) ?? true },
            report: { status.writeRecord(to: $0, pace) })
    }

    /// The port of the admin listener.
    var adminPort: UInt16 { admin.port }

    /// Why the process is not ready; empty when it is.
    var hindrances: [String] { watched.hindrances }

    /// Why the process has to end; nil while it can work.
    var failure: String? { dispatcher?.failure }

    /// The latencies from consumption to settlement.
    func latencies() -> LatencyHistogram { dispatcher?.latencies() ?? LatencyHistogram() }

    /// Routes what is read from now on by another table.
    func replaceRoutes(_ routes: RouteTable, configurationHash: String) {
        dispatcher?.replaceRoutes(routes, configurationHash: configurationHash)
    }

    /// Sends what is built from now on with another credential; returns why it does not.
    func replaceCredential(of app: PushApp, at gateway: Gateway) -> String? {
        dispatcher?.replaceCredential(of: app, at: gateway)
    }

    /// Drains and stops; false when something was left open at the deadline.
    func stop(deadline: MonotonicTime) -> Bool {
        let isDrained = dispatcher?.stop(deadline: deadline) ?? true
        let isLeft = feed?.stop(deadline: deadline) ?? true
        tokens?.stop()
        fleet.stop()
        acks?.stop()
        tracer?.stop()
        admin.stop()
        return isDrained && isLeft
    }

    // MARK: - Parts

    /// One question names every missing topic at once.
    private static func checkTopics(
        _ configuration: Configuration, _ kafka: KafkaConfiguration,
        _ roles: Set<Configuration.Role>
    ) throws(Failure) -> [String: Int32] {
        let counts = try ClusterAccess(kafka).partitionCounts()
        let names = configuration.kafka.topics
        var needed = [names.devices, names.invalidations, names.control, names.status]
        if roles.contains(.dispatch) {
            needed = names.events.map(\.name) + needed + [names.results, names.deadLetters]
        }
        let missing = needed.filter { (counts[$0] ?? 0) == 0 }
        guard missing.isEmpty else {
            throw .failed(
                "topics do not exist: \(missing.joined(separator: ", ")); "
                    + "bugle topics apply --config FILE creates them")
        }
        return counts
    }

    private static func startTokens(
        _ configuration: Configuration, _ access: GatewayAccess, _ registry: MetricsRegistry,
        _ log: Log
    ) throws(Failure) -> TokenKeeper {
        let redis = try IndexStore.connection(configuration.redis)
        let prefix = configuration.redis.prefix
        let owner = String(UInt64.random(in: 1 ... .max), radix: 36)
        do throws(DispatcherError) {
            return try TokenKeeper(access, registry: registry, log: log.named("tokens")) { loop in
                RedisTokenStore(redis, prefix: prefix, owner: owner, on: loop)
            }
        } catch {
            throw .failed("\(error)")
        }
    }

    private static func startFeed(
        _ configuration: Configuration, _ kafka: KafkaConfiguration, _ store: IndexStore,
        _ registry: MetricsRegistry, _ log: Log
    ) throws(Failure) -> IndexFeed {
        var election: GroupConfiguration?
        if store.isShared {
            var group = GroupConfiguration(groupID: configuration.kafka.group + "-index")
            group.drainDeadline = .seconds(5)
            // Membership is all that is wanted of this group; records come by another way.
            group.prefetchKiB = 64
            group.prefetchRecords = 100
            election = group
        }
        return try IndexFeed(
            IndexFeedSettings(
                kafka: kafka, devices: configuration.kafka.topics.devices,
                invalidations: configuration.kafka.topics.invalidations,
                users: configuration.kafka.topics.users,
                tables: configuration.index.tables.map(RegistrationTable.init),
                election: election),
            makeWriter: { store.writer(on: $0) }, registry: registry, log: log.named("index"))
    }

    private static func startDispatcher(
        _ configuration: Configuration, _ kafka: KafkaConfiguration, _ options: Options,
        _ routes: RouteTable, _ apps: [PushApp], _ access: GatewayAccess, _ store: IndexStore,
        _ fleet: Fleet, _ traces: TraceQueue?, _ acks: AckSample?, _ registry: MetricsRegistry,
        _ log: Log
    ) throws(Failure) -> Dispatcher {
        var settings = DispatcherSettings(configuration, kafka: kafka)
        settings.routes = routes
        settings.levers = fleet.levers
        settings.traces = traces
        settings.acks = acks
        settings.access = access
        settings.defaultNotification = options.defaultNotification
        let addressesPerUser = configuration.limits.addressesPerUser
        do throws(DispatcherError) {
            return try Dispatcher(
                settings, apps: apps,
                index: { store.reader(on: $0, addressesPerUser: addressesPerUser) },
                marks: { store.marks(on: $0) }, usage: { store.usage(on: $0) },
                registry: registry, log: log)
        } catch {
            throw .failed("\(error)")
        }
    }

    private static func startAdmin(
        _ configuration: Configuration, _ watched: WatchedParts, _ registry: MetricsRegistry,
        _ status: StatusReport
    ) throws(Failure) -> AdminServer {
        let listen = configuration.admin
        registry.gauge("bugle_ready", help: "1 while the process can do its work.") {
            watched.hindrances.isEmpty ? 1 : 0
        }
        do throws(AdminError) {
            return try AdminServer.start(
                host: listen.host, port: listen.port,
                routes: AdminServer.Routes(
                    metrics: registry, health: { HealthReport(reasons: watched.stuckParts) },
                    readiness: { HealthReport(reasons: watched.hindrances) },
                    status: {
                        status.write(to: $0)
                        $0.append(0x0A)
                    }))
        } catch {
            throw .failed("\(error)")
        }
    }
}

/// The parts whose state the admin listener tells; it listens before they exist.
private final class WatchedParts: Sendable {
    private struct Parts: Sendable {
        var feed: IndexFeed?
        var dispatcher: Dispatcher?
        var isStarted = false
    }

    private let parts = Mutex(Parts())
    private let joined = Mutex<Fleet?>(nil)

    /// The fleet, once the process has joined it.
    var fleet: Fleet? { joined.withLock { $0 } }

    func watch(_ fleet: Fleet) { joined.withLock { $0 = fleet } }

    /// A part that has not turned for so long is stuck.
    private static let turnSpan = TimeSpan.seconds(15)

    func watch(_ feed: IndexFeed?, _ dispatcher: Dispatcher?) {
        parts.withLock { $0 = Parts(feed: feed, dispatcher: dispatcher, isStarted: true) }
    }

    /// Why the process cannot work now.
    var hindrances: [String] {
        let parts = parts.withLock { $0 }
        guard parts.isStarted else { return ["the process is starting"] }
        return (parts.dispatcher?.hindrances ?? []) + (parts.feed?.hindrance.map { [$0] } ?? [])
    }

    /// What does not turn any more.
    var stuckParts: [String] {
        let parts = parts.withLock { $0 }
        let now = SystemTime.shared.monotonic
        let span = Self.turnSpan
        var reasons: [String] = []
        if let dispatcher = parts.dispatcher, !dispatcher.isAlive(at: now, within: span) {
            reasons.append("a thread of the dispatcher has not turned for \(span.millis) ms")
        }
        if let feed = parts.feed, now - feed.lastTurn > span {
            reasons.append("the thread of the index has not turned for \(span.millis) ms")
        }
        return reasons
    }
}
