// What the replicas of a group have in common: the words of operators on `push.control`, which each
// process reads by itself and whole, and what each says about itself on `push.status`.

internal import Base
internal import EventLoop
internal import Kafka
internal import Pipeline
internal import Synchronization
internal import Telemetry

/// Where the fleet talks, and who this process is in it.
internal struct FleetSettings: Sendable {
    var kafka: KafkaConfiguration
    /// The topic of operators' words.
    var control: String
    /// The topic of the replicas' reports.
    var status: String
    var group: String
    var instance: String

    /// How often a replica reports; at once too when a lever changed.
    static let interval = TimeSpan.seconds(3)
    /// A replica that was not heard for so long is gone or stuck.
    static let staleAfter = TimeSpan.seconds(15)
    /// A pause of so long may have been forgotten: the bound of the alert `BuglePaused`.
    static let pausedForLong = TimeSpan.hours(1)
    /// The record of one that was not heard for so long is removed by whoever notices.
    static let forgottenAfter = TimeSpan.hours(24)
    /// How long the start waits for the topics.
    static let loading = TimeSpan.seconds(15)

    /// The key of a replica's record.
    func key(of instance: String) -> String { "\(group)/\(instance)" }
}

/// The connection of a process with its fleet. Every method may be called from any thread.
internal final class Fleet: Sendable {
    private let shared: FleetState
    private let thread: WorkerThread

    /// Starts reading, and returns when everything that operators have said so far is known.
    init(_ settings: FleetSettings, registry: MetricsRegistry, log: Log) throws(Failure) {
        let shared = FleetState()
        self.shared = shared
        do throws(SystemError) {
            thread = try WorkerThread(name: "fleet") {
                FleetLoop(settings, shared, log: log).run()
            }
        } catch {
            throw .failed("the fleet has no thread: \(error)")
        }
        let isLoaded = shared.loaded.wait(upTo: FleetSettings.loading)
        if let failure = shared.failure ?? (isLoaded ? nil : "no answer in time") {
            shared.isStopping.store(true, ordering: .releasing)
            throw .failed(
                "\(settings.control) cannot be read, and what is paused is unknown: \(failure)")
        }
        register(in: registry)
    }

    /// What operators ask for now.
    var levers: Levers { shared.view.withLock { $0.levers } }

    /// Hands changes to `apply` from now on, beginning with what is in force, and asks `report`
    /// for the members of this replica's record. Both are called on the fleet's thread.
    func attach(
        apply: @escaping @Sendable (Levers) -> Bool,
        report: @escaping @Sendable (ByteWriter) -> Void
    ) {
        shared.links.withLock { $0 = FleetState.Links(apply: apply, report: report) }
    }

    /// Everything that is known, at one moment.
    var view: FleetView { shared.view.withLock { $0 } }

    /// Takes this replica's record away and stops.
    func stop() {
        shared.isStopping.store(true, ordering: .releasing)
        thread.join()
    }

    private func register(in registry: MetricsRegistry) {
        for kind in LeverKind.allCases {
            registry.gauge(
                "bugle_paused_levers", help: "What operators hold back now, by kind of lever.",
                labels: [("lever", kind.rawValue)]
            ) { [shared] in
                Double(shared.view.withLock { $0.levers.paused.count { $0.kind == kind } })
            }
        }
        registry.gauge(
            "bugle_fleet_heartbeat_age_seconds",
            help: "Since when this replica has not read its own report: both control and status "
                + "come by this way."
        ) { [shared] in
            (SystemTime.shared.monotonic - shared.view.withLock { $0.heardItselfAt }).seconds
        }
        registry.gauge("bugle_fleet_replicas", help: "Replicas of the group that report.") {
            [shared] in
            let now = SystemTime.shared.wall
            return Double(
                shared.view.withLock { $0.replicas.values.count { !$0.isStale(at: now) } })
        }
    }
}

/// What is known of the fleet.
internal struct FleetView: Sendable {
    /// What operators have said.
    var book = ControlBook()
    /// What follows from it.
    var levers = Levers.none
    /// The highest offset of the control topic that is in force in this process.
    var controlOffset: Int64 = -1
    /// What the replicas of the group said last, by instance.
    var replicas: [String: ReplicaReport] = [:]
    /// When this replica read its own report last.
    var heardItselfAt = SystemTime.shared.monotonic
}

/// What the fleet's thread and the others share.
internal final class FleetState: Sendable {
    struct Links: Sendable {
        var apply: (@Sendable (Levers) -> Bool)?
        var report: (@Sendable (ByteWriter) -> Void)?
    }

    let isStopping = Atomic<Bool>(false)
    let loaded = Semaphore()
    let view = Mutex(FleetView())
    let links = Mutex(Links())
    private let fault = Mutex<String?>(nil)

    var failure: String? { fault.withLock { $0 } }

    func fail(_ text: String) {
        fault.withLock { $0 = text }
        loaded.signal()
    }
}
