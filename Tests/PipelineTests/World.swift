import Base
import Crypto
import EventLoop
import Gateways
import Glibc
import JSON
import Kafka
import Routes
import Simulator
import Telemetry
import Testing
import TokenIndex

@testable import Pipeline

/// A result or dead letter as it stands in its topic.
struct TopicRecord {
    let key: String?
    let value: String?
    let headers: [String: String]
    let partition: Int32

    /// A member of the value's JSON object as text; numbers and booleans as they are written.
    func text(_ name: String) -> String? {
        let parser = JSONParser()
        guard let value, let root = try? parser.parse(value), let member = root[name] else {
            return nil
        }
        return member.string
            ?? (member.isNull ? nil : String(decoding: member.source, as: UTF8.self))
    }
}

/// The whole pipeline on a mock cluster and an in-memory index.
final class World {
    let cluster: MockCluster
    let index = InMemoryTokenIndex()
    let marks = InMemoryEventMarks()
    let usage = InMemoryUsage()
    /// Counts in `usage` unless a test has others.
    var makeUsage: (@Sendable (EventLoop) -> any UsageCounters)?
    let registry = MetricsRegistry()
    let producer: TopicProducer
    private var dispatcher: Dispatcher?
    let apps: [PushApp]
    /// Changed before `start()` only.
    var settings: DispatcherSettings
    private let log = CollectingSink()
    private let stopGateways: () -> Void

    static let partitions: Int32 = 4

    init(apps: [PushApp], lanes: Int, stopGateways: @escaping () -> Void) throws {
        self.apps = apps
        self.stopGateways = stopGateways
        // As `bugle` does: hiredis and librdkafka write to sockets whose other end may have gone.
        signal(SIGPIPE, SIG_IGN)
        cluster = try MockCluster()
        let outputs = [
            "push.results", "push.invalidations", "push.events-dlt", "push.receipts",
            "push.expo-tickets", "push.users",
        ]
        let retries = RetryTier.allCases.map { $0.topic(of: "push.events-retry") }
        let parked = ParkedTopics.names(of: "push.events-parked")
        for topic in ["push.events"] + outputs + retries + parked {
            try cluster.createTopic(topic, partitions: Self.partitions)
        }
        let kafka = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
        producer = try TopicProducer(kafka)
        var group = GroupConfiguration(groupID: "bugle")
        group.sessionTimeout = .seconds(6)
        group.heartbeatInterval = .milliseconds(300)
        group.fetchWait = .milliseconds(10)
        group.drainDeadline = .seconds(10)
        settings = DispatcherSettings(
            kafka: kafka, group: group, eventTopics: [("push.events", .transactional)])
        settings.lanes = lanes
        settings.retry.base = .milliseconds(1)
        settings.retryDivisor = 100
        index.mark(complete: true)
    }

    /// A world whose APNs is a scripted gateway; its apps have one key and a topic each.
    convenience init(
        _ gateway: ScriptedGateway, apps names: [String] = ["shop"], lanes: Int = 2
    ) throws {
        let keys = try KeyPair.generate(for: .es256)
        let endpoint = GatewayEndpoint(
            host: "localhost", port: gateway.port,
            trusting: try TLSAuthorities(file: gateway.caFile))
        let credential = try APNsCredential(
            teamID: "ABCDE12345", keyID: "FGHIJ67890", pem: keys.privateKeyPEM,
            setting: "apps.shop.apns.key")
        let apps = names.map { name in
            PushApp(
                name: name,
                apns: PushApp.APNs(
                    topic: "com.example.\(name)", credential: credential, production: endpoint,
                    sandbox: endpoint))
        }
        try self.init(apps: apps, lanes: lanes) { gateway.stop() }
    }

    /// A world whose APNs, FCM and token endpoint are the simulator's.
    convenience init(_ simulator: Simulator, lanes: Int = 2) throws {
        let caFile = "/tmp/bugle-test-ca-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pem"
        try simulator.writeAuthority(to: caFile)
        let authorities = try TLSAuthorities(file: caFile)
        unlink(caFile)
        func endpoint(_ service: SimulatedService) -> GatewayEndpoint {
            GatewayEndpoint(
                host: "localhost", port: simulator.port(of: service), trusting: authorities)
        }
        let key = try simulator.makeAPNsKey()
        let account = try simulator.makeServiceAccount()
        var fcm = PushApp.FCM(
            projectID: account.projectID,
            credential: OAuthCredential(
                try ServiceAccount(
                    json: Array(account.json.utf8), setting: "apps.shop.fcm.service_account")),
            endpoint: endpoint(.fcm))
        fcm.ramp = .zero
        let app = PushApp(
            name: "shop",
            apns: PushApp.APNs(
                topic: "com.example.shop",
                credential: try APNsCredential(
                    teamID: key.teamID, keyID: key.keyID, pem: key.privateKeyPEM,
                    setting: "apps.shop.apns.key"),
                production: endpoint(.apnsProduction), sandbox: endpoint(.apnsSandbox)),
            fcm: fcm,
            webPush: PushApp.WebPush(
                credential: try Self.vapidCredential(),
                hosts: WebPushHosts(allowsLoopback: true), trusting: authorities),
            expo: PushApp.Expo(
                credential: try #require(ExpoCredential(accessToken: nil)),
                endpoint: endpoint(.expo)))
        try self.init(apps: [app], lanes: lanes) {
            simulator.stop()
        }
    }

    /// Two VAPID keys, `v1` and `v2`; the first is the default.
    private static func vapidCredential() throws -> WebPushCredential {
        let keys = try ["v1", "v2"].map { id in
            try VAPIDKey(
                id: id, text: try KeyPair.generate(for: .es256).privateKeyPEM, setting: "test")
        }
        return WebPushCredential(subject: "mailto:ops@example.com", keys: keys)
    }

    /// The public half of a VAPID key.
    func vapidPublicKey(_ id: String) throws -> String {
        let credential = try #require(apps[0].webPush?.credential)
        return credential.publicKeys[try #require(credential.keyIDs.firstIndex(of: id))]
    }

    deinit {
        _ = dispatcher?.stop(deadline: SystemTime.shared.monotonic + .seconds(10))
        stopGateways()
    }

    func start() throws {
        let index = index
        let marks = marks
        let usage = usage
        let makeUsage = makeUsage
        dispatcher = try Dispatcher(
            settings, apps: apps, index: { index.reader(on: $0) },
            marks: { _ in marks.marks() }, usage: { makeUsage?($0) ?? usage.counters() },
            registry: registry,
            log: Log(level: .debug, format: .json, sink: log))
    }

    func replaceRoutes(_ routes: RouteTable, hash: String = "changed") {
        dispatcher?.replaceRoutes(routes, configurationHash: hash)
    }

    /// Why the process is not ready.
    var hindrances: [String] { dispatcher?.hindrances ?? [] }

    /// The log's lines so far.
    var logLines: [String] { log.lines }

    /// How many lines of the log hold a text.
    func lines(with text: String) -> Int { log.lines.count { $0.contains(text) } }

    func replace(_ levers: Levers) { _ = dispatcher?.replace(levers) }

    /// Sends with another credential from now on.
    func replaceCredential(of app: PushApp, at gateway: Gateway) throws {
        let dispatcher = try #require(dispatcher)
        #expect(dispatcher.replaceCredential(of: app, at: gateway) == nil)
    }

    /// Why the process would have to end.
    var failure: String? { dispatcher?.failure }

    /// Stops as SIGTERM does; true when everything was finished in time.
    func stop() -> Bool {
        let stopped = dispatcher?.stop(deadline: SystemTime.shared.monotonic + .seconds(15))
        dispatcher = nil
        return stopped ?? true
    }

    /// Registers a device; its token is derived from its name unless it is given. `extra` are more
    /// members of the record, with a comma in front.
    func register(
        _ install: String, user: String?, app: String = "shop", gateway: Gateway = .apns,
        platform: String? = nil, kind: String = "alert", instance: String? = nil,
        token: String? = nil, registeredAt: Int64 = 1_735_689_600_000,
        permission: String = "granted",
        extra: String = ""
    ) throws {
        let owner = user.map { "\"\($0)\"" } ?? "null"
        let id = try #require(
            AddressID(app: app, installID: install, kind: kind, instance: instance))
        let key = Array(id.text.utf8)
        let instanceMember = instance.map { #","instance":"\#($0)""# } ?? ""
        let token = token ?? Self.token(of: install, gateway: gateway)
        let platform = platform ?? (gateway == .apns ? "ios" : "android")
        let value = Array(
            """
            {"v":1,"app":"\(app)","install_id":"\(install)","kind":"\(kind)","user_id":\(owner),
             "platform":"\(platform)","gateway":"\(gateway.rawValue)",
             "environment":"\(gateway == .apns ? "production" : "none")",
             "token":"\(token)","version":\(offset + 1),"registered_at":\(registeredAt),
             "permission":"\(permission)"\(instanceMember)\(extra)}
            """.utf8)
        try apply(key, value, at: registeredAt)
    }

    /// Stores what a user said for all devices: members of a record of `push.users`, with a comma
    /// in front.
    func say(_ members: String, user: String) throws {
        let value = Array(#"{"v":1,"app":"shop","user_id":"\#(user)"\#(members)}"#.utf8)
        let parser = JSONParser()
        let change = try Array("shop/\(user)".utf8).withUnsafeBytes { key in
            try value.withUnsafeBytes {
                try UserChange.decode(key: key, value: $0, parser: parser)
            }
        }
        offset += 1
        let position = TopicPosition(partition: 0, offset: offset, timestamp: offset)
        _ = index.apply(.user(change), at: position)
    }

    /// Registers a browser of a user: a subscription that the simulated service knows.
    func subscribe(
        _ install: String, user: String, at endpoint: String, with keys: SubscriberKeys,
        vapidKeyID: String? = nil, registeredAt: Int64 = 1_735_689_600_000
    ) throws {
        let keyID = vapidKeyID.map { #","vapid_key_id":"\#($0)""# } ?? ""
        try apply(
            Array("shop/\(install)".utf8),
            Array(
                """
                {"v":1,"app":"shop","install_id":"\(install)","user_id":"\(user)","platform":"web",
                 "gateway":"webpush","environment":"none","endpoint":"\(endpoint)",
                 "keys":{"p256dh":"\(keys.p256dh)","auth":"\(keys.auth)"}\(keyID),
                 "version":\(offset + 1),"registered_at":\(registeredAt)}
                """.utf8), at: registeredAt)
    }

    /// Registers a device of a user at Expo.
    func registerExpo(
        _ install: String, user: String, token: String, registeredAt: Int64 = 1_735_689_600_000
    ) throws {
        try apply(
            Array("shop/\(install)".utf8),
            Array(
                """
                {"v":1,"app":"shop","install_id":"\(install)","user_id":"\(user)",
                 "platform":"android","gateway":"expo","environment":"none","token":"\(token)",
                 "version":\(offset + 1),"registered_at":\(registeredAt)}
                """.utf8), at: registeredAt)
    }

    /// Keys of a browser, made of a name.
    static func browser(_ name: String) throws -> SubscriberKeys {
        try #require(
            SubscriberKeys(
                scalar: SHA256Digest(of: name).bytes,
                auth: Array(SHA256Digest(of: "auth of \(name)").bytes.prefix(16))))
    }

    private func apply(_ key: [UInt8], _ value: [UInt8], at registeredAt: Int64) throws {
        let parser = JSONParser()
        let record = try key.withUnsafeBytes { key in
            try value.withUnsafeBytes { value in
                try RegistrationRecord.decode(
                    key: key, value: value, timestamp: registeredAt, parser: parser)
            }
        }
        offset += 1
        _ = index.apply(
            .registration(record),
            at: TopicPosition(partition: 0, offset: offset, timestamp: registeredAt))
    }

    /// Applies a record of `push.invalidations` as the index's writer would.
    func apply(verdict record: TopicRecord) throws {
        let key = Array(try #require(record.key).utf8)
        let value = Array(try #require(record.value).utf8)
        let verdict = try key.withUnsafeBytes { key in
            try value.withUnsafeBytes { value in
                try InvalidationDecoder().decode(key: key, value: value)
            }
        }
        offset += 1
        // Only what a writer applies is counted by fuses, and weighs when it is two seconds old.
        indexWriter.apply(
            .invalidation(try #require(verdict)),
            at: TopicPosition(
                partition: 0, offset: offset,
                timestamp: (SystemTime.shared.wall - .seconds(2)).value), tag: 0)
    }

    private lazy var indexWriter = index.writer()

    private var offset: Int64 = 0

    static func token(of install: String, gateway: Gateway = .apns) -> String {
        let digest = SHA256Digest(of: install).hex
        return gateway == .apns ? digest : "f\(digest.prefix(21)):APA91b\(digest)\(digest)"
    }

    func publish(
        _ value: String?, key: String?, to topic: String = "push.events",
        headers: [TopicProducer.Header] = []
    ) throws {
        try producer.send(
            to: topic, key: key.map { Array($0.utf8) }, value: value.map { Array($0.utf8) },
            headers: headers)
    }

    /// Publishes a plain alert for a user.
    func publish(id: String, user: String, extra: String = "") throws {
        try publish(
            """
            {"id":"\(id)","type":"test.alert","user_id":"\(user)",
             "notification":{"title":"t"}\(extra)}
            """, key: user)
    }

    /// Whether a condition comes true; looked at every 10 ms.
    func eventually(within span: TimeSpan = .seconds(90), _ condition: () -> Bool) -> Bool {
        let deadline = SystemTime.shared.monotonic + span
        while !condition() {
            guard SystemTime.shared.monotonic < deadline else { return false }
            poll(nil, 0, 10)
        }
        return true
    }

    func flush() throws { try producer.flush(timeout: .seconds(10)) }

    /// Reads a topic until it has so many records, and then whatever follows at once.
    func records(of topic: String, atLeast count: Int, within span: TimeSpan = .seconds(90)) throws
        -> [TopicRecord]
    {
        let reader = try TopicReader(
            KafkaConfiguration(
                bootstrapServers: cluster.bootstrapServers,
                properties: ["fetch.wait.max.ms": "10"]), topics: [topic], from: .beginning)
        var records: [TopicRecord] = []
        let deadline = SystemTime.shared.monotonic + span
        while records.count < count, SystemTime.shared.monotonic < deadline {
            reader.read(timeout: .milliseconds(100)) { record in
                var headers: [String: String] = [:]
                record.forEachHeader { name, value in
                    headers[String(decoding: name, as: UTF8.self)] =
                        value.map { String(decoding: $0, as: UTF8.self) }
                }
                records.append(
                    TopicRecord(
                        key: record.key.map { String(decoding: $0, as: UTF8.self) },
                        value: record.value.map { String(decoding: $0, as: UTF8.self) },
                        headers: headers, partition: record.partition))
            }
        }
        return records
    }

    /// What a group has committed in the events topic, all partitions together.
    func committed() throws -> Int64 {
        let consumer = try Consumer(
            KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
            group: GroupConfiguration(groupID: "bugle"))
        let places = (0..<Self.partitions).map { TopicPartition("push.events", $0) }
        return try consumer.committedOffsets(places, timeout: .seconds(10)).values.reduce(0, +)
    }
}
