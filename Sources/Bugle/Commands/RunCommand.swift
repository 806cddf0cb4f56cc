internal import Base
internal import Config
internal import Glibc
internal import Pipeline
internal import Synchronization
internal import Telemetry

/// `bugle run`: the dispatcher and the index's writer.
internal enum RunCommand: Command {
    static let name = "run"
    static let awaitsSignals = true
    static let summary = "runs the dispatcher and the writer of the token index"
    static let synopsis = "run --config FILE [--roles dispatch,index]"
    static let options: [Option] = [
        .config,
        .value(
            "roles", "LIST", "dispatch, index or dispatch,index; default: the file's"),
    ]
    static let details = """
        SIGTERM or SIGINT: takes nothing new, finishes what is in flight, delivers results, commits
        and ends within drain_deadline with exit code 0. A second signal ends it at once; nothing
        is lost, what was open is done again. SIGHUP or a change of FILE loads content, caps and
        routes anew, and what routes may ask of an app; with a mistake in them the old ones stay.
        SIGHUP, a change of FILE or of a file that it names loads credentials and ca_files anew;
        they are tried at their gateway before pushes carry them. Everything else needs a restart.
        Metrics, /healthz and /readyz are served at admin.listen.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        var options = PushService.Options()
        options.roles = try roles(arguments)
        var configuration = try ConfigurationFile.load(arguments)
        let log = Log.standardError(
            level: configuration.log.level, format: configuration.log.format)
        let roles = options.roles ?? configuration.roles
        // Before a name is claimed: without brokers nothing works, and that is what is to be told,
        // not who else has the name.
        _ = try ClusterAccess(configuration, log: log).partitionCounts()
        let lease = try instanceLease(configuration, roles, log)
        if configuration.kafka.isInstanceLeased, roles.contains(.dispatch) {
            guard let lease else { return .ok }
            configuration.kafka.instance = lease.name
        }
        defer { lease?.release() }
        let service = try PushService(configuration, options, log: log)
        let credentials = try credentialReload(
            try ConfigurationFile.path(arguments), configuration, options, service, log)
        log.info(
            "started",
            [
                "version": LogValue(Program.version), "libraries": LogValue(Program.libraries),
                "config": LogValue(configuration.shortHash),
                "group": LogValue(configuration.kafka.group),
                "instance": LogValue(configuration.kafka.instance),
                "brokers": LogValue(configuration.kafka.brokers),
                "apps": LogValue(configuration.apps.map(\.name).joined(separator: ",")),
                "lanes": LogValue(configuration.lanes.number),
                "roles": LogValue(roles.map(\.rawValue).sorted().joined(separator: ",")),
                "admin_port": LogValue(service.adminPort),
            ])
        let reload = RouteReload(
            path: try ConfigurationFile.path(arguments), configuration, log: log,
            replace: service.replaceRoutes)
        let certificates = CertificateWatch(
            configuration.certificateFiles.map { ($0.setting, $0.path) },
            log: log.named("certificates"))
        guard waitForTheEnd(service, lease, reload, credentials, certificates, log) else {
            // What is open cannot be committed here; whoever has the partitions next does it.
            _ = service.stop(deadline: SystemTime.shared.monotonic + failedStop)
            return .failed
        }
        return drain(service, within: configuration.drainDeadline, log)
    }

    /// Time to leave the group when the process cannot go on.
    private static let failedStop = TimeSpan.seconds(5)
    /// How often it is asked whether the process can go on.
    private static let failureInterval = TimeSpan.milliseconds(500)

    private static func roles(_ arguments: Arguments) throws(Failure) -> Set<Configuration.Role>? {
        guard let text = arguments.text("roles") else { return nil }
        var roles: Set<Configuration.Role> = []
        for word in text.split(separator: ",") {
            guard let role = Configuration.Role(rawValue: String(word)) else {
                throw .usage("--roles \(text): expected dispatch, index or dispatch,index")
            }
            roles.insert(role)
        }
        guard !roles.isEmpty else {
            throw .usage("--roles: expected dispatch, index or dispatch,index")
        }
        return roles
    }

    /// The name among the replicas, told to them or leased; nil when there is no Redis to do that by,
    /// or a signal ended the wait for one.
    private static func instanceLease(
        _ configuration: Configuration, _ roles: Set<Configuration.Role>, _ log: Log
    ) throws(Failure) -> InstanceLease? {
        let kafka = configuration.kafka
        guard configuration.index.store == .redis, roles.contains(.dispatch) else { return nil }
        return try InstanceLease(
            kafka.isInstanceLeased ? .leased : .configured(kafka.instance), group: kafka.group,
            try IndexStore.connection(configuration.redis), prefix: configuration.redis.prefix,
            log: log.named("instance")
        ) {
            let signal = ProcessSignals.wait(upTo: .milliseconds(100))
            return signal == nil || signal == SIGHUP
        }
    }

    private static func credentialReload(
        _ path: String, _ configuration: Configuration, _ options: PushService.Options,
        _ service: PushService, _ log: Log
    ) throws(Failure) -> CredentialReload {
        let prover: CredentialProver
        do throws(DispatcherError) {
            prover = try CredentialProver(service.access)
        } catch {
            throw .failed("\(error)")
        }
        return CredentialReload(
            path: path, configuration, apps: service.apps, loader: options.loader,
            registry: service.registry, log: log.named("credentials"),
            prove: { app, gateway, done in
                guard let tokens = service.tokens else { return prover.prove(app, gateway, done) }
                // A token that another replica has made for the same credential serves here too.
                tokens.prepare(app, gateway) { prover.prove(app, gateway, done) }
            }, replace: service.replaceCredential, attend: { service.tokens?.keep($0) })
    }

    /// True when a signal asks for the end, false when the process cannot go on.
    private static func waitForTheEnd(
        _ service: PushService, _ lease: InstanceLease?, _ reload: RouteReload,
        _ credentials: CredentialReload, _ certificates: CertificateWatch, _ log: Log
    ) -> Bool {
        while true {
            guard service.failure == nil, lease?.failure == nil else { return false }
            switch ProcessSignals.wait(upTo: failureInterval) {
            case nil:
                reload.reloadIfChanged()
                credentials.poll(at: SystemTime.shared.monotonic)
                certificates.poll(at: SystemTime.shared.monotonic)
            case SIGHUP:
                reload.reload(because: "SIGHUP")
                credentials.reload(at: SystemTime.shared.monotonic)
            case let signal?:
                log.info("draining", ["signal": LogValue(ProcessSignals.name(signal))])
                return true
            }
        }
    }

    private static func drain(
        _ service: PushService, within span: TimeSpan, _ log: Log
    ) -> ExitCode {
        let start = SystemTime.shared.monotonic
        let watchdog = DrainWatchdog(limit: span, log: log)
        let isDrained = service.stop(deadline: start + span)
        watchdog.disarm()
        let took = SystemTime.shared.monotonic - start
        if isDrained {
            log.info("stopped", ["ms": LogValue(took.millis)])
            return .ok
        }
        log.error(
            "stopped at drain_deadline with work open; it is done again by the next owner",
            ["ms": LogValue(took.millis)])
        return .failed
    }
}

/// Ends the process when draining does not: at a second signal, or when its time is over. Takes
/// the signals meanwhile, on a thread of its own.
internal final class DrainWatchdog: Sendable {
    private let isDisarmed: SharedFlag

    /// What a drain may take beyond its deadline before it counts as stuck.
    private static let grace = TimeSpan.milliseconds(500)

    init(limit: TimeSpan, log: Log) {
        let flag = SharedFlag()
        isDisarmed = flag
        let deadline = SystemTime.shared.monotonic + limit + Self.grace
        _ = try? WorkerThread(name: "watchdog") {
            while !flag.isSet {
                let left = deadline - SystemTime.shared.monotonic
                if left <= .zero {
                    log.error("draining is stuck; the process ends now and loses nothing")
                    _exit(ExitCode.failed.rawValue)
                }
                let signal = ProcessSignals.wait(upTo: min(left, .milliseconds(200)))
                guard let signal, signal != SIGHUP, !flag.isSet else { continue }
                log.warning(
                    "ended by a second signal", ["signal": LogValue(ProcessSignals.name(signal))])
                _exit(128 + signal)
            }
        }
    }

    /// Stands down.
    func disarm() { isDisarmed.set() }
}

/// A flag between threads.
internal final class SharedFlag: Sendable {
    private let value = Atomic<Bool>(false)

    var isSet: Bool { value.load(ordering: .acquiring) }

    func set() { value.store(true, ordering: .releasing) }
}
