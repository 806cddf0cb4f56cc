// The writing side of the token index in a process: reads `push.devices`, `push.invalidations` and,
// where it exists, `push.users` from where the store stands, an empty one from their beginning, and
// then follows them.
//
// A store that several processes share has one writer: the member of the group `<group>-index`
// that was assigned partition 0. The others stand by; whoever takes over goes on from the positions
// that the store's markers hold (`MarkerWriter`).

internal import Base
internal import EventLoop
internal import Kafka
internal import Synchronization
internal import Telemetry
internal import TokenIndex

/// What a feed needs to know.
internal struct IndexFeedSettings: Sendable {
    /// How the topics are reached.
    var kafka: KafkaConfiguration
    /// The topic with device addresses.
    var devices: String
    /// The topic with verdicts.
    var invalidations: String
    /// The topic with what people said for all their devices; it need not exist.
    var users: String
    /// Tables of somebody else's whose change records are on the topic with addresses.
    var tables: [RegistrationTable] = []
    /// The group that elects the writer; nil for a store that no other process sees.
    var election: GroupConfiguration?
    /// How often it is looked for a topic that need not exist, and for further partitions.
    var seekInterval = TimeSpan.minutes(1)
}

/// A running feed. Every method may be called from any thread.
internal final class IndexFeed: Sendable {
    private let worker: WorkerThread
    private let state: IndexFeedState
    private let election: (group: GroupThread, handler: WriterElection)?

    /// Starts it; `makeWriter` is called on the feed's thread whenever it becomes the writer.
    init(
        _ settings: IndexFeedSettings,
        makeWriter: @escaping @Sendable (EventLoop) -> any IndexWriter, registry: MetricsRegistry,
        log: Log
    ) throws(Failure) {
        let state = IndexFeedState(registry)
        self.state = state
        state.isWriter.store(settings.election == nil, ordering: .releasing)
        do throws(KafkaError) {
            election = try settings.election.map { group throws(KafkaError) in
                let handler = WriterElection(state, log: log)
                let consumer = try Consumer(settings.kafka, group: group)
                let thread = try GroupThread(
                    consumer, topics: [settings.devices], handler: handler)
                return (thread, handler)
            }
        } catch {
            throw .failed("kafka: the index cannot join its group: \(error)")
        }
        do throws(SystemError) {
            worker = try WorkerThread(name: "index") {
                IndexFeedLoop(settings, makeWriter: makeWriter, state: state, log: log).run()
            }
        } catch {
            throw .failed("the index has no thread: \(error)")
        }
    }

    /// Stops writing and leaves the election; false when the deadline passed first.
    func stop(deadline: MonotonicTime) -> Bool {
        state.isStopping.store(true, ordering: .releasing)
        worker.join()
        return election?.group.stop(deadline: deadline) ?? true
    }

    /// Why the index is not fed; nil when it is, or when another process feeds it.
    var hindrance: String? { state.hindrance.withLock { $0 } }

    /// When the feed's thread last turned, for a liveness probe.
    var lastTurn: MonotonicTime { state.lastTurn }
}

/// What the feed's thread shares with the others.
internal final class IndexFeedState: Sendable {
    let isStopping = Atomic<Bool>(false)
    /// Whether this process may write.
    let isWriter = Atomic<Bool>(false)
    let hindrance = Mutex<String?>(nil)
    /// Tickets of a revocation, answered when the thread has stopped writing.
    let tickets = Mutex<[RevokeTicket]>([])
    let lagMillis = Atomic<Int64>(0)
    /// Records that were not readable or could not be stored.
    let skipped: Counter
    let registry: MetricsRegistry
    private let turn = Atomic<Int64>(SystemTime.shared.monotonic.nanos)

    init(_ registry: MetricsRegistry) {
        self.registry = registry
        skipped = registry.counter(
            "bugle_index_records_skipped_total",
            help: "Records of the index's topics that are not readable or cannot be stored.")
        register(registry)
    }

    var lastTurn: MonotonicTime { MonotonicTime(nanos: turn.load(ordering: .relaxed)) }

    func beat() { turn.store(SystemTime.shared.monotonic.nanos, ordering: .relaxed) }

    private func register(_ registry: MetricsRegistry) {
        registry.gauge(
            "bugle_index_writer", help: "1 when this process writes the token index."
        ) { [self] in isWriter.load(ordering: .relaxed) ? 1 : 0 }
        registry.gauge(
            "bugle_index_lag_seconds",
            help: "Age of the oldest record that is not applied; 0 when all are."
        ) { [self] in Double(lagMillis.load(ordering: .relaxed)) / 1000 }
    }
}

/// Learns from the group whether this process is the writer.
internal final class WriterElection: AssignmentHandler {
    private let state: IndexFeedState
    private let log: Log

    init(_ state: IndexFeedState, log: Log) {
        self.state = state
        self.log = log
    }

    func assigned(_ partitions: [PartitionAssignment]) {
        guard partitions.contains(where: { $0.place.partition == 0 }) else { return }
        log.info("this process writes the token index")
        state.isWriter.store(true, ordering: .releasing)
    }

    func revoked(_ partitions: [PartitionAssignment], ticket: RevokeTicket) {
        guard partitions.contains(where: { $0.place.partition == 0 }),
            !state.isStopping.load(ordering: .acquiring)
        else { return ticket.finish() }
        state.tickets.withLock { $0.append(ticket) }
        state.isWriter.store(false, ordering: .releasing)
    }

    func lost(_ partitions: [PartitionAssignment]) {
        guard partitions.contains(where: { $0.place.partition == 0 }) else { return }
        state.isWriter.store(false, ordering: .releasing)
    }

    func groupError(_ error: KafkaError) {
        log.warning("the index's group", ["error": LogValue(error.description)])
    }
}
