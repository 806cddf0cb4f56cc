// The dispatcher: lanes, group and committer put together, started and stopped as one.

public import Base
public import EventLoop
internal import Gateways
internal import HTTP2
public import Kafka
public import Routes
internal import Synchronization
public import Telemetry
public import TokenIndex

/// What a dispatcher is built from.
public struct DispatcherSettings: Sendable {
    /// How the cluster is reached.
    public var kafka: KafkaConfiguration
    /// Membership; the group's id and deadlines.
    public var group: GroupConfiguration
    /// The producer.
    public var producer = ProducerConfiguration()
    /// How results and offsets are committed.
    public var commit = CommitMode.plain
    /// The events topics with their classes.
    public var eventTopics: [(name: String, eventClass: EventClass)]
    /// Where results go.
    public var resultsTopic = "push.results"
    /// Where verdicts on tokens go.
    public var invalidationsTopic = "push.invalidations"
    /// Where records go that cannot become a push.
    public var deadLettersTopic = "push.events-dlt"
    /// Where receipts of Expo go.
    public var receiptsTopic = "push.receipts"
    /// Where Expo's tickets wait for their receipts.
    public var ticketsTopic = "push.expo-tickets"
    /// From a message to the question for its receipt, and between two questions.
    public var receiptWait = TimeSpan.minutes(15)
    /// Expo forgets receipts: a ticket that is older is asked about no more.
    internal var receiptAgeMax = ExpoLimits.receiptAgeMax
    /// What the names of the retry topics begin with; `RetryTier.topic(of:)` has the rest.
    public var retryTopicBase = "push.events-retry"
    /// What the names of the parking topics begin with; `ParkingLot.topic(of:)` has the rest.
    public var parkedTopicBase = "push.events-parked"
    /// Requests under way in one app, gateway and environment, in the whole process.
    public var inFlightPerBulkhead = 2000
    /// What the waits of the retry topics are divided by: tests cannot wait for minutes.
    internal var retryDivisor: Int64 = 1
    /// Push services of browsers that a lane has connections to, for each app.
    internal var servicesMax = WebPushLimits.servicesMax
    /// How long one of them has had no request before it makes room for another one.
    internal var serviceIdleMin = WebPushLimits.serviceIdleMin
    /// For how long a lane sends nothing to an app's APNs that has seen too many provider tokens.
    internal var tokenUpdatesWait = APNsLimits.tokenUpdatesWait
    /// Threads that dispatch, 1 to 64.
    public var lanes = 1
    /// Events in flight in the whole process.
    public var eventsInFlight = 4000
    /// Targets in flight in the whole process. More would wait so long for a stream that their
    /// look-ups had to be repeated, and take room in the cache from those that move.
    public var targetsInFlight = 4000
    /// Bytes of records in flight in the whole process.
    public var recordBytes = 64 << 20
    /// Bytes of events that wait in windows, in the whole process: some 100,000 windows and more.
    public var windowBytes = 128 << 20
    /// Larger events become dead letters, in bytes.
    public var eventBytes = 256 << 10
    /// How often and how long a target is tried in place.
    public var retry = RetryPolicy()
    /// What events become, by their types.
    public var routes = RouteTable.empty
    /// What an operator holds back at the start.
    public var levers = Levers.none
    /// What events without content of their own show; nil makes them dead letters.
    public var defaultNotification: (title: String, body: String?)?
    /// Whether a CloudEvent's subject names the user.
    public var takesUserFromSubject = false
    /// How gateways are reached.
    public var access = GatewayAccess()
    /// Connections per origin and lane: the process's bounds for APNs.
    public var apnsConnections = 2...10
    /// Connections per origin and lane: the process's bounds for FCM.
    public var fcmConnections = 2...4
    /// Through which gateway an install is reached that could be reached through several: the
    /// first one that is configured. What is not named comes last.
    public var gatewayPreference = Gateway.allCases
    /// A look-up older than this is repeated before a request is written: at most one second, by
    /// which time nobody else's push may start any more.
    public var lookUpAge = TimeSpan.seconds(1)
    /// For how long an event with the same app, source and id counts as a copy of one that was
    /// pushed; zero: never.
    public var deduplicate = TimeSpan.zero
    /// Where traced events go; nil where none are exported.
    public var traces: TraceQueue?
    /// The sample of pushes whose acknowledgements are counted; nil where there are none.
    public var acks: AckSample?
    /// How long a target waits for a stream or a token before it is put off.
    internal var streamPatience = TimeSpan.seconds(10)
    /// Permits a second of each FCM project, over all replicas; lower in tests.
    internal var fcmPermitsPerSecond = FCMLimits.permitsPerSecond
    /// Identifies the configuration in results.
    public var configurationHash = ""
    /// Names this process in results.
    public var replica = ""

    /// Settings with the defaults.
    public init(
        kafka: KafkaConfiguration, group: GroupConfiguration,
        eventTopics: [(name: String, eventClass: EventClass)]
    ) {
        self.kafka = kafka
        self.group = group
        self.eventTopics = eventTopics
    }
}

extension DispatcherSettings {
    /// The topics in which events wait.
    private var waitingTopics: [String] {
        RetryTier.allCases.map { $0.topic(of: retryTopicBase) }
            + ParkedTopics.names(of: parkedTopicBase)
    }

    /// What is read: events, and events that come back.
    fileprivate var inputTopics: [String] {
        eventTopics.map(\.name) + waitingTopics + [ticketsTopic]
    }

    /// What is written.
    internal var outputTopics: [String] {
        [resultsTopic, invalidationsTopic, deadLettersTopic, receiptsTopic, ticketsTopic]
            + waitingTopics
    }
}

/// Why a dispatcher did not start.
public enum DispatcherError: Error, CustomStringConvertible {
    /// The cluster or a client of it.
    case kafka(KafkaError)
    /// A thread, descriptor or TLS setting.
    case system(String)
    /// Topics that do not exist, named.
    case missingTopics([String])
    /// Topics whose number of partitions is not that of the first events topic, named.
    case partitionCounts([String], expected: Int32)
    /// No transaction can be made.
    case committer(CommitterFailure)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .kafka(let error): "Kafka: \(error)"
        case .system(let text): text
        case .committer(let failure): "Kafka: \(failure)"
        case .missingTopics(let names):
            "topics do not exist: \(names.joined(separator: ", ")); run `bugle topics apply`"
        case .partitionCounts(let names, let expected):
            "\(names.joined(separator: ", ")) must have \(expected) partitions, as many as the "
                + "events topics: an event keeps its partition on every road"
        }
    }
}

/// A running dispatcher. Every method may be called from any thread.
public final class Dispatcher: Sendable {
    private let lanes: [LaneThread]
    private let committer: Committer
    private let consumer: Consumer
    private let group: GroupThread
    private let assignments: Assignments
    private let drainDeadline: TimeSpan
    private let credentials: CredentialsInForce

    /// Starts everything; the first records are read when the group has assigned partitions.
    public init(
        _ settings: DispatcherSettings, apps: [PushApp],
        index makeIndex: @escaping @Sendable (EventLoop) -> any TokenIndex,
        marks makeMarks: @escaping @Sendable (EventLoop) -> (any EventMarks)? = { _ in nil },
        usage makeUsage: @escaping @Sendable (EventLoop) -> (any UsageCounters)? = { _ in nil },
        registry: MetricsRegistry, log: Log
    ) throws(DispatcherError) {
        let alarms = AlarmLog(log, lanes: settings.lanes)
        let clock = ClockWatch(log, registry)
        let counts = try Self.partitionCounts(settings)
        drainDeadline = settings.group.drainDeadline
        do throws(KafkaError) {
            var committing = CommitterConfiguration(topics: settings.outputTopics)
            committing.mode = settings.commit
            committing.producer = settings.producer
            committing.onEvent = { alarms.committer($0) }
            committer = try Committer(settings.kafka, committing)
            var group = settings.group
            group.reportsEndOfPartition = true
            consumer = try Consumer(settings.kafka, group: group)
        } catch {
            throw .kafka(error)
        }
        // What is refused is said before a group is joined. A coordinator that does not answer yet
        // is waited for in the background.
        do throws(CommitterFailure) {
            _ = try committer.waitUntilReady(upTo: Self.firstTransaction)
        } catch {
            throw .committer(error)
        }
        guard
            let laneSettings = LaneSettings(settings, counts: counts, committer: committer)
        else { throw .system("an output topic is not known to the committer") }
        let misrouted = MisroutedCounters(registry)
        var lanes: [LaneThread] = []
        for number in 0..<settings.lanes {
            let plan = LanePlan(
                number: number, settings: laneSettings, dispatcher: settings, apps: apps,
                committer: committer, makeIndex: makeIndex, makeMarks: makeMarks,
                makeUsage: makeUsage, registry: registry, misrouted: misrouted, alarms: alarms,
                clock: clock)
            lanes.append(try LaneThread(plan))
        }
        self.lanes = lanes
        assignments = Assignments(lanes: lanes, alarms: alarms)
        do throws(KafkaError) {
            group = try GroupThread(
                consumer, topics: settings.inputTopics, handler: assignments,
                committer: committer)
        } catch {
            throw .kafka(error)
        }
        let metrics = ProcessMetrics(
            lanes: lanes, committer: committer, assignments: assignments, mode: settings.commit)
        metrics.register(in: registry)
        credentials = CredentialsInForce(apps)
        credentials.register(in: registry)
    }

    /// Drains and stops: no record is read any more, what is in flight is finished, results are
    /// delivered, offsets committed, the group left. False when the deadline passed first; what
    /// was open then is done again by the next owner.
    public func stop(deadline: MonotonicTime) -> Bool {
        for lane in lanes { lane.drain() }
        let left = group.stop(deadline: deadline)
        let delivered = committer.stop(deadline: deadline)
        let marked = SystemTime.shared.monotonic + Self.lastMarks
        for lane in lanes { lane.setMarks(deadline: marked) }
        let open = lanes.reduce(0) { $0 + $1.stop() }
        return left && delivered && open == 0
    }

    /// How long the end waits for the store of marks.
    private static let lastMarks = TimeSpan.seconds(1)
    /// How long the start waits for the first answer of the transactions' coordinator.
    private static let firstTransaction = TimeSpan.seconds(10)

    /// Why nothing is committed or read any more and the process has to end; nil while all is well.
    /// A consumer does not come back from a fatal error, such as that of a static member whose name
    /// another process has taken.
    public var failure: String? {
        committer.failure?.description ?? assignments.fatalError.map { "the consumer group: \($0)" }
    }

    /// Routes what is read from now on by another table; what is in flight keeps its route.
    /// Results name their configuration by `configurationHash`.
    public func replaceRoutes(_ routes: RouteTable, configurationHash: String) {
        for lane in lanes { lane.replace(routes, configurationHash: configurationHash) }
    }

    /// Holds back from now on what an operator asks for; false when a lane has not taken it within
    /// two seconds.
    public func replace(_ levers: Levers) -> Bool {
        lanes.reduce(true) { $1.replace(levers) && $0 }
    }

    /// Sends what is built from now on with the credential that `app` has at a gateway; what is
    /// under way ends as it is. Everything else about the app stays. The caller has tried the
    /// credential: `CredentialProver`. Returns why it was not done; nil when it was.
    public func replaceCredential(of app: PushApp, at gateway: Gateway) -> String? {
        for lane in lanes {
            if let text = lane.replaceCredential(of: app, at: gateway) { return text }
        }
        credentials.take(app)
        return nil
    }

    /// How many partitions are assigned to this process.
    public var assignedPartitions: Int { assignments.count }

    /// Whether all threads have turned lately: liveness, which depends on nothing outside.
    public func isAlive(at now: MonotonicTime, within span: TimeSpan) -> Bool {
        let turns = [group.lastTurn, committer.lastTurn] + lanes.map(\.lastTurn)
        return turns.allSatisfy { now - $0 < span }
    }

    /// Why this process is not ready; empty when it is.
    public var hindrances: [String] {
        var reasons: [String] = []
        if let text = assignments.hindrance { reasons.append(text) }
        if let text = failure { reasons.append(text) }
        for lane in lanes {
            if let text = lane.indexHindrance, !reasons.contains(text) { reasons.append(text) }
        }
        return reasons + unreadable
    }

    /// One reason for all partitions of a topic that have it in common.
    private var unreadable: [String] {
        var partitions: [String: [TopicPartition]] = [:]
        for lane in lanes {
            for (place, reason) in lane.unreadablePartitions {
                partitions["\(place.topic) is not read: \(reason)", default: []].append(place)
            }
        }
        return partitions.sorted { $0.key < $1.key }.map { reason, places in
            let numbers = places.map(\.partition).sorted().map { String($0) }
            return "\(reason) (partition \(numbers.joined(separator: ", ")))"
        }
    }

    /// The latencies of all lanes, from consumption to settlement.
    public func latencies() -> LatencyHistogram {
        var merged = LatencyHistogram()
        for lane in lanes { merged.merge(lane.latency()) }
        return merged
    }

    private static func partitionCounts(
        _ settings: DispatcherSettings
    ) throws(DispatcherError) -> [String: Int32] {
        let cluster: ClusterDescription
        do throws(KafkaError) {
            cluster = try Admin(settings.kafka).describeCluster(timeout: .seconds(10))
        } catch {
            throw .kafka(error)
        }
        var counts: [String: Int32] = [:]
        for topic in cluster.topics { counts[topic.name] = topic.partitions }
        var needed = settings.inputTopics
        for topic in settings.outputTopics where !needed.contains(topic) { needed.append(topic) }
        let missing = needed.filter { (counts[$0] ?? 0) == 0 }
        guard missing.isEmpty else { throw .missingTopics(missing) }
        // Equal topics are what the range assignor keeps together.
        let expected = counts[settings.inputTopics[0]] ?? 0
        let unequal = settings.inputTopics.filter { counts[$0] != expected }
        guard unequal.isEmpty else { throw .partitionCounts(unequal, expected: expected) }
        return counts
    }
}

extension LaneSettings {
    /// A lane's share; nil when the committer does not know a topic.
    internal init?(
        _ settings: DispatcherSettings, counts: [String: Int32], committer: Committer
    ) {
        guard let results = committer.topic(settings.resultsTopic),
            let invalidations = committer.topic(settings.invalidationsTopic),
            let deadLetters = committer.topic(settings.deadLettersTopic),
            let receipts = committer.topic(settings.receiptsTopic),
            let tickets = committer.topic(settings.ticketsTopic)
        else { return nil }
        let waitingTopics = WaitingTopics(
            retryBase: settings.retryTopicBase, parkedBase: settings.parkedTopicBase,
            tickets: settings.ticketsTopic
        ) { committer.topic($0) }
        guard let waitingTopics else { return nil }
        let most = settings.eventTopics.map { counts[$0.name] ?? 0 }.max() ?? 0
        let deadLetterCount = counts[settings.deadLettersTopic] ?? 0
        self.init(
            decoder: EventDecoder(
                maximumBytes: settings.eventBytes,
                takesUserFromSubject: settings.takesUserFromSubject),
            retry: settings.retry,
            eventsInFlight: max(settings.eventsInFlight / settings.lanes, 1),
            targetsInFlight: max(settings.targetsInFlight / settings.lanes, 1),
            recordBytes: max(settings.recordBytes / settings.lanes, settings.eventBytes),
            windowBytes: max(settings.windowBytes / settings.lanes, 4 * settings.eventBytes),
            partitionCounts: counts,
            classes: Dictionary(
                settings.eventTopics.map { ($0.name, $0.eventClass) },
                uniquingKeysWith: { first, _ in first }),
            routes: settings.routes, levers: settings.levers,
            defaultTitle: settings.defaultNotification?.title,
            defaultBody: settings.defaultNotification?.body, resultsTopic: results,
            invalidationsTopic: invalidations, deadLettersTopic: deadLetters,
            receiptsTopic: receipts, ticketsTopic: tickets, receiptWait: settings.receiptWait,
            receiptAgeMax: settings.receiptAgeMax, waitingTopics: waitingTopics,
            tiers: RetryTiers(divisor: settings.retryDivisor),
            windowSpans: WindowSpans(divisor: settings.retryDivisor),
            deadLetterPartitions: deadLetterCount >= most ? deadLetterCount : 0,
            group: settings.group.groupID, configurationHash: settings.configurationHash,
            replica: settings.replica, gatewayPreference: settings.gatewayPreference,
            lookUpAge: min(settings.lookUpAge, .seconds(1)), deduplicate: settings.deduplicate,
            traces: settings.traces, acks: settings.acks,
            tokenUpdatesWait: settings.tokenUpdatesWait, serviceIdleMin: settings.serviceIdleMin,
            streamPatience: settings.streamPatience)
    }
}
