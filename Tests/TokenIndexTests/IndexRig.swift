// An index with a writer, a reader and a loop that a test turns until an answer is there, and the
// short spellings of records that the suites use.

import Base
import EventLoop
import Redis
import RedisServer
import Synchronization
import Testing
import TokenIndex

/// A store under test.
protocol IndexStore {
    var name: String { get }
    func reader(on loop: EventLoop, addressesPerUser: Int) throws -> any TokenIndex
    func writer(on loop: EventLoop) throws -> any IndexWriter
    func operations() throws -> any IndexOperations
}

struct InMemoryStore: IndexStore {
    let name = "in memory"
    let index: InMemoryTokenIndex

    init(
        time: any TimeSource = SystemTime.shared, staleness: StalenessPolicy = .never,
        sweep: SweepPolicy = .never, lagMax: TimeSpan? = nil
    ) {
        index = InMemoryTokenIndex(
            time: time, staleness: staleness, sweep: sweep, lagMax: lagMax)
    }

    func operations() -> any IndexOperations { index }

    func reader(on loop: EventLoop, addressesPerUser: Int) throws -> any TokenIndex {
        index.reader(on: loop, addressesPerUser: addressesPerUser)
    }

    func writer(on loop: EventLoop) throws -> any IndexWriter { index.writer() }
}

/// One server for all cases, each of which has a key prefix of its own.
final class RedisStore: IndexStore {
    // Started once, afterwards only its port is read.
    private static nonisolated(unsafe) let server = Result<RedisServer, SystemError> {
        () throws(SystemError) in
        try RedisServer()
    }
    private static nonisolated(unsafe) let cluster = Result<RedisCluster, SystemError> {
        () throws(SystemError) in
        try RedisCluster()
    }
    private static let prefixes = Atomic<Int>(0)

    let name: String
    let index: RedisTokenIndex
    let prefix: String
    let server: RedisServer

    convenience init(
        server: RedisServer? = nil, staleness: StalenessPolicy = .never,
        sweep: SweepPolicy = .never, lagMax: TimeSpan = .minutes(2),
        commandTimeout: TimeSpan = .seconds(30)
    ) throws {
        try self.init("in Redis", [server ?? (try Self.server.get())], commandTimeout) {
            $0.staleness = staleness
            $0.sweep = sweep
            $0.lagMax = lagMax
        }
    }

    /// In a cluster of three nodes, the one that all cases share if none is given.
    convenience init(cluster: RedisCluster?) throws {
        try self.init("in a cluster", (cluster ?? (try Self.cluster.get())).servers)
    }

    private init(
        _ name: String, _ servers: [RedisServer], _ commandTimeout: TimeSpan = .seconds(30),
        _ change: (inout RedisTokenIndex) -> Void = { _ in }
    ) throws {
        self.name = name
        server = servers[0]
        prefix = "t\(Self.prefixes.add(1, ordering: .relaxed).newValue):"
        var configuration = RedisConfiguration(
            endpoints: servers.map { RedisEndpoint(host: "127.0.0.1", port: $0.port) })
        configuration.commandTimeout = commandTimeout
        var index = RedisTokenIndex(configuration, prefix: prefix)
        change(&index)
        self.index = index
    }

    static func sharedCluster() throws -> RedisCluster { try cluster.get() }
    func operations() throws -> any IndexOperations { try RedisIndexOperator(index) }

    func reader(on loop: EventLoop, addressesPerUser: Int) throws -> any TokenIndex {
        index.reader(on: loop, addressesPerUser: addressesPerUser)
    }

    func writer(on loop: EventLoop) throws -> any IndexWriter { index.writer(on: loop) }
}

final class IndexRig: TokenIndexDelegate, IndexWriterDelegate {
    let loop: EventLoop
    let writer: any IndexWriter
    let reader: any TokenIndex
    private(set) var lookUps: [UInt64: LookUpResult] = [:]
    private(set) var results: [UInt64: ChangeResult] = [:]
    private(set) var marks = 0
    private(set) var notices: [IndexNotice] = []
    private(set) var assignments: [[IndexTopicPosition]] = []
    private var nextTag: UInt64 = 0
    private var nextOffset: Int64 = 0
    /// The last offset of verdicts that a test placed itself.
    var offset: Int64 = 0

    init(
        _ store: any IndexStore, addressesPerUser: Int = IndexLimits.addressesPerUser,
        isComplete: Bool = true, time: any TimeSource = SystemTime.shared
    ) throws {
        loop = try EventLoop(name: "rig", time: time)
        writer = try store.writer(on: loop)
        reader = try store.reader(on: loop, addressesPerUser: addressesPerUser)
        writer.delegate = self
        reader.delegate = self
        if isComplete { try markComplete() }
    }

    deinit {
        writer.stop()
        reader.stop()
    }

    /// The partitions that the suites' records are in.
    static let partitions = [
        IndexTopicPartition(.devices, 0), IndexTopicPartition(.invalidations, 0),
    ]

    func markComplete() throws {
        try takeCharge()
        try mark()
    }

    /// Takes the partitions; what is applied from here on counts.
    func takeCharge() throws {
        let assignmentCount = assignments.count
        writer.assign(Self.partitions, of: Self.partitions.count)
        try turn { self.assignments.count > assignmentCount }
    }

    func mark() throws {
        let count = marks
        writer.mark(positions(100))
        try turn { self.marks > count }
    }

    func positions(_ offset: Int64) -> [IndexTopicPosition] {
        Self.partitions.map {
            IndexTopicPosition(topic: $0.topic, partition: $0.partition, nextOffset: offset)
        }
    }

    /// Turns the loop until something is so; gives up after ten seconds of nothing.
    func turn(until condition: () -> Bool) throws {
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while !condition() {
            loop.turn(waitingUpTo: .milliseconds(50))
            try #require(SystemTime.shared.monotonic < deadline, "nothing happened in time")
        }
    }

    /// Starts a change at the next offset, or at a given place.
    @discardableResult
    func start(_ change: IndexChange, at position: TopicPosition? = nil) -> UInt64 {
        nextTag += 1
        nextOffset += 1
        writer.apply(change, at: position ?? place(nextOffset), tag: nextTag)
        return nextTag
    }

    @discardableResult
    func apply(_ change: IndexChange, at position: TopicPosition? = nil) throws -> ChangeResult {
        let tag = start(change, at: position)
        try turn { self.results[tag] != nil }
        return try #require(results[tag])
    }

    func result(of tag: UInt64) -> ChangeResult? { results[tag] }

    @discardableResult
    func startLookUp(_ userID: String, app: String = "app") -> UInt64 {
        nextTag += 1
        reader.lookUp(app: app, userID: userID, tag: nextTag)
        return nextTag
    }

    func lookUp(_ userID: String, app: String = "app") throws -> LookUpResult {
        let tag = startLookUp(userID, app: app)
        try turn { self.lookUps[tag] != nil }
        return try #require(lookUps[tag])
    }

    func answer(of tag: UInt64) -> LookUpResult? { lookUps[tag] }

    func addresses(_ userID: String, app: String = "app") throws -> [DeviceAddress] {
        guard case .addresses(let addresses, _, _, _) = try lookUp(userID, app: app) else {
            Issue.record("the look-up of \(userID) was not answered")
            return []
        }
        return addresses
    }

    /// The ids of the addresses that a push to the user would go to, in order.
    func ids(_ userID: String, app: String = "app") throws -> [String] {
        try addresses(userID, app: app).filter { !$0.isQuarantined }.map(\.addressID)
    }

    func lookUpFinished(tag: UInt64, _ result: LookUpResult) {
        #expect(lookUps[tag] == nil, "answered twice")
        lookUps[tag] = result
    }

    func indexReadinessChanged() {}

    func changeFinished(tag: UInt64, _ result: ChangeResult) {
        #expect(results[tag] == nil, "finished twice")
        results[tag] = result
    }

    func applyFrom(_ positions: [IndexTopicPosition]) { assignments.append(positions) }

    func markersWritten() { marks += 1 }

    func noticed(_ notice: IndexNotice) { notices.append(notice) }

    /// The records that the writer wants on the topic of verdicts, and forgets them.
    func takePublished() -> [InvalidationRecord] {
        let records = notices.compactMap { notice -> InvalidationRecord? in
            if case .publish(let record) = notice { return record }
            return nil
        }
        notices.removeAll { if case .publish = $0 { true } else { false } }
        return records
    }

    var tripped: [TrippedFuse] {
        notices.compactMap { if case .fuseTripped(let fuse) = $0 { fuse } else { nil } }
    }
}

/// A place in partition 0; the timestamp follows the offset unless it is given.
func place(_ offset: Int64, partition: Int32 = 0, time: Int64? = nil) -> TopicPosition {
    TopicPosition(partition: partition, offset: offset, timestamp: time ?? 1_000_000 + offset)
}

func upload(
    _ install: String, _ userID: String?, token: String, at registeredAt: Int64,
    version: Int64 = 1, kind: String = "alert", environment: GatewayEnvironment = .production,
    app: String = "app"
) -> IndexChange {
    guard let id = AddressID(app: app, installID: install, kind: kind) else {
        preconditionFailure("a test spells its ids right")
    }
    var fields = DeviceFields(
        id: id, userID: userID, platform: "ios", gateway: .apns, environment: environment,
        token: token, registeredAt: UnixMillis(registeredAt))
    fields.version = version
    fields.apnsTopic = "com.example.app"
    return .registration(.registered(DeviceAddress(fields)))
}

func gone(_ install: String, kind: String = "alert", app: String = "app") -> IndexChange {
    guard let id = AddressID(app: app, installID: install, kind: kind) else {
        preconditionFailure("a test spells its ids right")
    }
    return .registration(.gone(id))
}

func verdict(
    _ verdict: TokenVerdict, _ install: String, token: String?, asOf: Int64,
    kind: String = "alert", app: String = "app"
) -> IndexChange {
    guard let id = AddressID(app: app, installID: install, kind: kind) else {
        preconditionFailure("a test spells its ids right")
    }
    var record = InvalidationRecord(
        addressID: id, verdict: verdict, reason: "Unregistered", origin: .gateway,
        asOf: UnixMillis(asOf))
    if let token,
        case .registration(.registered(let address)) =
            upload(install, nil, token: token, at: 0, kind: kind, app: app)
    {
        record.tokenHash = address.tokenHash
    }
    return .invalidation(record)
}

/// A record of a fuse that holds a verdict back, or lets it go.
func held(
    _ kind: TokenVerdict, _ install: String, token: String?, asOf: Int64, _ fuse: String,
    kind addressKind: String = "alert", app: String = "app"
) -> IndexChange {
    guard
        case .invalidation(var record) = verdict(
            kind, install, token: token, asOf: asOf, kind: addressKind, app: app)
    else { preconditionFailure("a verdict is one") }
    record.gateway = .apns
    record.environment = .production
    record.credential = "TEAM.KEY"
    record.fuseID = fuse
    record.held = kind == .quarantine ? .suspend : nil
    record.reason = "BadDeviceToken"
    return .invalidation(record)
}
