// A lane: one thread, one loop, its partitions and its connections. Nothing on the hot path is
// shared with another lane and nothing takes a contended lock.
//
// The stages are extensions of this type, one file each, in the order data flows: Consume,
// Decode, Route, FanOut, Render, Dispatch, Settle.

internal import Base
internal import EventLoop
internal import HTTP2
internal import JSON
internal import Kafka
internal import Routes
internal import TokenIndex

/// One lane. Confined to its loop's thread.
internal final class Lane {
    let settings: LaneSettings
    let loop: EventLoop
    let committer: Committer
    let index: any TokenIndex
    let metrics: LaneMetrics
    let alarms: AlarmLog
    let apps: [LaneApp]
    /// The access to tokens of every app with FCM; former ones until their last answer.
    var accessTokens: [AccessTokens]
    /// All pools; those of push services come and go.
    var pools: [PoolPace]
    let pulse: LanePulse
    /// Whether look-ups were answered when the lane looked last.
    var isIndexReady = false
    var poolObservers: [PoolObserver]
    /// Made this lane, and makes what replaces parts of it.
    let builder: LaneBuilder
    /// The copies that are known; nil where nobody remembers any.
    let duplicates: DuplicateWatch?
    /// How often people, devices and sources were served; nil when nobody counts.
    let usage: (any UsageCounters)?

    // Not checked for exclusivity at run time: what is touched for every event or push, each access
    // one statement on the lane's thread.

    /// The assigned partitions, in no order.
    @exclusivity(unchecked) var partitions: [AssignedPartition] = []
    /// Those of them with critical events, which are read before all others.
    @exclusivity(unchecked) var urgentPartitions: [AssignedPartition] = []
    /// Where the round over them goes on.
    @exclusivity(unchecked) var nextUrgent = 0
    /// Partitions that were revoked while events of theirs were open.
    var departing: [AssignedPartition] = []
    /// Where the round over the partitions goes on.
    @exclusivity(unchecked) var nextPartition = 0
    /// Whether a wake-up said that records may be there.
    @exclusivity(unchecked) var mayHaveRecords = false
    @exclusivity(unchecked) var isDraining = false

    let events = Slab<EventInFlight> { EventInFlight() }
    let targets = Slab<TargetInFlight> { TargetInFlight() }
    /// Events that wait so that one push tells of several.
    let windows: CoalescingWindows<HeldEvent>
    /// When the lane looks at its windows next.
    var windowsWatchedAt = MonotonicTime.distantFuture
    /// Questions about bursts that were asked and not answered.
    var burstQuestions: [CoalescingWindows<HeldEvent>.Ticket: BurstQuestion] = [:]
    /// Which push goes first, of those that replace each other.
    let order = PushOrder<TargetInFlight>()
    /// Questions about lines that were asked and not answered.
    var orderQuestions: [OrderKey: OrderQuestion] = [:]
    /// Bytes of the records in flight.
    @exclusivity(unchecked) var recordBytes = 0
    /// Events whose look-up was not answered yet.
    @exclusivity(unchecked) var lookUpsOpen = 0
    /// Tokens that their gateway wants left alone.
    @exclusivity(unchecked) var throttles = TokenThrottles()
    /// Targets that wait for an access token.
    @exclusivity(unchecked) var awaitingToken: [TargetInFlight] = []

    /// The routes for events that are read from now on.
    private(set) var routes: RouteTable
    /// What an operator holds back.
    @exclusivity(unchecked) var levers: Levers
    /// The events at the heads of waiting topics and their bytes, as of the last look.
    @exclusivity(unchecked) var heads = (count: 0, bytes: 0)
    /// For which partitions what is parked for a gateway has waited for long.
    @exclusivity(unchecked) var parkedBehind: [ParkingLot: Set<Int32>] = [:]
    /// What was set aside before is looked at once more since something was resumed.
    @exclusivity(unchecked) var loosenedSince: UnixMillis
    /// Names the configuration that the routes are of.
    private(set) var configurationHash: String
    let contents = ContentMaker()
    /// What events without content of their own show; nil makes them dead letters.
    let defaultNotification: DefaultNotification?

    /// When the lane was made, and when it last looked at its load.
    let startedAt: MonotonicTime
    var loadSeenAt = MonotonicTime(nanos: .min / 2)
    var drainEstimate = DrainEstimate()

    /// Completed work of this turn; posted at its end.
    @exclusivity(unchecked) var outbox: OutboxBatch
    /// Whether this lane has asked for the end of the turn.
    @exclusivity(unchecked) var willFlush = false
    let wakeUp: WakeUp
    /// The shared part of an event's results.
    let eventFields = ByteWriter(capacity: 1024)
    let scratch = ByteWriter(capacity: 1024)
    let answerParser = JSONParser(maximumBytes: 64 << 10)
    /// Reads the headers of retry topics.
    let headerParser = JSONParser(maximumBytes: 4 << 20)
    /// Looks after what waits for a bulkhead.
    lazy var parkingTimer: LoopTimer = LoopTimer { [unowned self] in lookAfterParking() }
    /// Closes windows.
    lazy var windowTimer: LoopTimer = LoopTimer { [unowned self] in
        closeWindows()
        flushAtEndOfTurn()
    }
    /// Sets the marks of what is committed.
    lazy var markTimer: LoopTimer = LoopTimer { [unowned self] in setMarks() }
    /// Reads on while back-pressure holds, when no other event would wake the lane.
    lazy var readTimer: LoopTimer = LoopTimer { [unowned self] in
        mayHaveRecords = true
        observe()
        flushAtEndOfTurn()
        loop.schedule(readTimer, at: loop.now + settings.idleReadInterval)
    }

    /// A lane on the loop of the calling thread.
    init(_ parts: LaneParts) throws(SystemError) {
        settings = parts.settings
        loop = parts.loop
        startedAt = parts.loop.now - parts.loop.waited
        committer = parts.committer
        index = parts.index
        metrics = parts.metrics
        alarms = parts.alarms
        apps = parts.apps
        accessTokens = parts.accessTokens
        pools = parts.pools
        pulse = parts.pulse
        poolObservers = parts.poolObservers
        builder = parts.builder
        duplicates = parts.marks.map { DuplicateWatch($0) }
        usage = parts.usage
        outbox = parts.committer.makeBatch()
        windows = CoalescingWindows(bytesMax: parts.settings.windowBytes)
        routes = parts.settings.routes
        levers = parts.settings.levers
        loosenedSince = parts.settings.levers.loosenedAt
        configurationHash = parts.settings.configurationHash
        defaultNotification = parts.settings.defaultTitle.flatMap {
            DefaultNotification(title: $0, body: parts.settings.defaultBody)
        }
        wakeUp = try WakeUp(loop: parts.loop)
        wakeUp.owner = self
        index.delegate = self
        parts.marks?.delegate = self
        for pace in pools { pace.pool.delegate = self }
        for app in apps { app.expo?.serve(self) }
        for permits in apps.flatMap(\.allPermits) {
            permits.part = { [unowned self] in partOfAll }
            permits.whenGranted = { [unowned self] in lookAfterParking() }
        }
        for tokens in accessTokens { tokens.onChange = { [unowned self] in resumeAwaitingToken() } }
        loop.schedule(readTimer, at: loop.now)
    }

    /// Takes the routes of a newer configuration. What is in flight keeps its own; its results name
    /// the configuration that is in force when they are written.
    func replace(_ routes: RouteTable, configurationHash: String) {
        self.routes = routes
        self.configurationHash = configurationHash
        for partition in partitions + departing {
            partition.use(configurationHash: configurationHash)
        }
    }

    /// The app of a name, or the only one when there is no name.
    func app(named name: String?) -> LaneApp? {
        guard let name else { return apps.count == 1 ? apps[0] : nil }
        return apps.first { $0.name == name }
    }

    /// Releases connections; the loop is about to stop.
    func close() {
        loop.cancel(readTimer)
        loop.cancel(parkingTimer)
        loop.cancel(windowTimer)
        dropWindows()
        for question in orderQuestions.values { question.timer.map { loop.cancel($0) } }
        orderQuestions = [:]
        loop.cancel(markTimer)
        index.stop()
        duplicates?.stop()
        usage?.stop()
        for tokens in accessTokens { tokens.close() }
        for app in apps { app.expo?.close() }
        // What is still open is abandoned, not settled: the next owner does it again.
        for pool in pools {
            pool.pool.delegate = nil
            pool.pool.close()
        }
        wakeUp.close()
    }
}

/// What a lane is made of; built on its own thread.
internal struct LaneParts {
    let settings: LaneSettings
    let loop: EventLoop
    let committer: Committer
    let index: any TokenIndex
    let metrics: LaneMetrics
    let alarms: AlarmLog
    let apps: [LaneApp]
    let accessTokens: [AccessTokens]
    let pools: [PoolPace]
    let pulse: LanePulse
    let poolObservers: [PoolObserver]
    let marks: (any EventMarks)?
    let usage: (any UsageCounters)?
    let builder: LaneBuilder
}

extension Lane: TurnEndHandler {
    /// Asks for `turnEnded` once.
    func flushAtEndOfTurn() {
        guard !willFlush else { return }
        willFlush = true
        loop.atEndOfTurn(self)
    }

    /// Reads what there is room for and posts what was completed.
    func turnEnded() {
        willFlush = false
        pulse.beat(at: loop.now)
        if mayHaveRecords { consume() }
        post()
    }

    /// Hands the completed work of this turn to the committer.
    func post() {
        guard !outbox.isEmpty else { return }
        committer.post(outbox)
        outbox = committer.makeBatch()
    }
}

/// The descriptor that partition queues write to when records arrive.
internal final class WakeUp: ReadinessHandler {
    let fd: Int32
    unowned(unsafe) var owner: Lane?
    private let loop: EventLoop
    private var registration: Registration?

    init(loop: EventLoop) throws(SystemError) {
        self.loop = loop
        fd = try EventDescriptor.open()
        registration = try loop.register(fd, .read, self)
    }

    func ready(_ readiness: Readiness) {
        EventDescriptor.drain(fd)
        owner?.mayHaveRecords = true
        owner?.flushAtEndOfTurn()
    }

    /// Stops listening. The descriptor stays open until the process ends: librdkafka may still
    /// write to it from its own threads.
    func close() {
        if let registration { loop.deregister(registration) }
        registration = nil
        owner = nil
    }
}
