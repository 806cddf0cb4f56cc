// One lane on the test's own thread, with a clock that the test turns by hand: what it does at
// which moment is then no matter of luck.

import Base
import Crypto
import EventLoop
import Gateways
import HTTP2
import JSON
import Kafka
import Telemetry
import Testing
import TokenIndex

@testable import Kafka
@testable import Pipeline

/// A lane, an index in memory and a scripted APNs. Events are put in by hand and belong to no
/// partition, so that nothing is committed, unless one is assigned.
final class OneLane {
    let time = ManualTime()
    let index: InMemoryTokenIndex
    let gateway: ScriptedGateway
    let lane: Lane
    let registry = MetricsRegistry()
    private let cluster: MockCluster
    private let committer: Committer
    private var offset: Int64 = 0

    init(
        _ gateway: ScriptedGateway, preference: [Gateway] = Gateway.allCases,
        change: (inout DispatcherSettings) -> Void = { _ in }
    ) throws {
        self.gateway = gateway
        index = InMemoryTokenIndex(time: time)
        index.mark(complete: true)
        cluster = try MockCluster()
        var settings = DispatcherSettings(
            kafka: KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
            group: GroupConfiguration(groupID: "bugle"),
            eventTopics: [("push.events", .transactional)])
        settings.apnsConnections = 1...1
        settings.gatewayPreference = preference
        change(&settings)
        let outputs = settings.outputTopics
        for topic in ["push.events"] + outputs { try cluster.createTopic(topic, partitions: 1) }
        committer = try Committer(settings.kafka, CommitterConfiguration(topics: outputs))
        let counts = Dictionary(
            uniqueKeysWithValues: (["push.events"] + outputs).map { ($0, Int32(1)) })
        let keys = try KeyPair.generate(for: .es256)
        let endpoint = GatewayEndpoint(
            host: "localhost", port: gateway.port,
            trusting: try TLSAuthorities(file: gateway.caFile))
        let app = PushApp(
            name: "shop",
            apns: PushApp.APNs(
                topic: "com.example.shop",
                credential: try APNsCredential(
                    teamID: "ABCDE12345", keyID: "FGHIJ67890", pem: keys.privateKeyPEM,
                    setting: "apps.shop.apns.key"),
                production: endpoint, sandbox: endpoint))
        let index = index
        let plan = LanePlan(
            number: 0,
            settings: try #require(
                LaneSettings(settings, counts: counts, committer: committer)),
            dispatcher: settings, apps: [app], committer: committer,
            makeIndex: { index.reader(on: $0) }, registry: registry,
            misrouted: MisroutedCounters(registry),
            alarms: AlarmLog(
                Log(level: .error, format: .json, sink: CollectingSink()), lanes: 1),
            clock: ClockWatch(
                Log(level: .error, format: .json, sink: CollectingSink()), registry))
        let loop = try EventLoop(name: "one-lane", time: time)
        lane = try LaneBuilder(plan, loop: loop).build(LanePulse())
    }

    deinit {
        lane.close()
        _ = committer.stop(deadline: SystemTime.shared.monotonic + .seconds(1))
        gateway.stop()
    }

    /// The partition that events belong to from now on, and its assignment.
    private(set) var partition: AssignedPartition?
    private var consumer: Consumer?

    /// Assigns the only partition, or one of another number; nothing is read from it.
    func assign(partition number: Int32 = 0, from offset: Int64 = 0) throws -> Epoch {
        let consumer = try Consumer(
            KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
            group: GroupConfiguration(groupID: "one"))
        self.consumer = consumer
        let place = TopicPartition("push.events", number)
        let epoch = AssignmentTable.nextEpoch()
        let queue = PartitionQueue(
            place, epoch: epoch, queue: try consumer.detachedQueue(of: place),
            cell: consumer.cell(of: place))
        lane.assign(
            PartitionAssignment(
                place: place, epoch: epoch, startOffset: offset, finished: OffsetRuns(),
                committedOffset: nil, queue: queue))
        partition = lane.partitions.last
        return epoch
    }

    /// Turns the loop until something is so; the clock stands still meanwhile.
    func turn(until condition: () -> Bool) throws {
        let deadline = SystemTime.shared.monotonic + .seconds(20)
        while !condition() {
            lane.loop.turn(waitingUpTo: .milliseconds(2))
            try #require(SystemTime.shared.monotonic < deadline, "nothing happened in time")
        }
    }

    /// Turns the loop until every request that may be written is answered; `held` says how many
    /// the gateway holds back, which here take all its streams.
    func settle(held: Int) throws {
        let pool = try #require(lane.pools.first?.pool)
        try turn {
            lane.loop.turn(waitingUpTo: .zero)
            return lane.lookUpsOpen == 0 && pool.inFlight == held
                && (held > 0 || pool.queued == 0)
        }
    }

    /// The events that were put in.
    private(set) var events: [EventInFlight] = []

    /// Puts an event in; its targets are looked at through what is returned.
    @discardableResult
    func publish(
        id: String, user: String, eventClass: EventClass = .transactional
    ) throws -> EventInFlight {
        let event = lane.events.take()
        let value = Array(
            #"{"id":"\#(id)","type":"test","user_id":"\#(user)","notification":{"title":"\#(id)"}}"#
                .utf8
        )
        try value.withUnsafeBytes { bytes in
            let input = InputRecord(
                position: RecordPosition(topic: "push.events", partition: 0, offset: 0),
                timestamp: lane.loop.wall, key: nil, value: bytes, headers: [])
            event.envelope = try lane.settings.decoder.decode(input, with: event.parser)
        }
        event.position = RecordPosition(topic: "push.events", partition: 0, offset: 0)
        event.consumedAt = lane.loop.wall
        event.eventClass = eventClass
        if let partition {
            event.offset = Int64(events.count)
            event.partition = partition
            _ = partition.ledger.begin(event.offset)
            partition.openEvents += 1
        }
        try lane.route(event)
        events.append(event)
        lane.admit(event)
        return event
    }

    /// Applies a registration as if it were read this moment; a nil token is a null record.
    func register(
        _ install: String, user: String?, token: String?, gateway: Gateway = .apns,
        instance: String? = nil
    ) throws {
        let id = try #require(
            AddressID(
                app: "shop", installID: install, kind: "alert", instance: instance))
        offset += 1
        let position = TopicPosition(
            partition: 0, offset: offset, timestamp: time.wall.value)
        guard let token else {
            index.apply(.registration(.gone(id)), at: position)
            return
        }
        var fields = DeviceFields(
            id: id, userID: user, platform: "ios", gateway: gateway,
            environment: gateway == .apns ? .production : .none, token: token,
            registeredAt: UnixMillis(time.wall.value + offset))
        fields.version = offset
        index.apply(.registration(.registered(DeviceAddress(fields))), at: position)
    }
}
