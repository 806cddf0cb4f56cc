// What replicas agree on in a real Redis: names and tokens.

import Base
import Crypto
import EventLoop
import Gateways
import Glibc
import Kafka
import Redis
import RedisServer
import Simulator
import Synchronization
import Telemetry
import Testing

@testable import Bugle
@testable import Pipeline

@Suite(.serialized) struct `Names that replicas lease` {
    private func lease(
        _ server: RedisServer, _ sink: CollectingSink, as kind: InstanceLease.Kind = .leased,
        who: String = "host (pid 1)", within span: TimeSpan = .seconds(20)
    ) throws -> InstanceLease? {
        let deadline = SystemTime.shared.monotonic + span
        return try InstanceLease(
            kind, group: "bugle", RedisConfiguration(host: "127.0.0.1", port: server.port),
            prefix: "bugle:",
            identity: InstanceLease.Identity(
                owner: String(UInt64.random(in: 1 ... .max), radix: 36), who: who),
            log: Log(level: .debug, format: .json, sink: sink)
        ) {
            poll(nil, 0, 10)
            return SystemTime.shared.monotonic < deadline
        }
    }

    private func eventually(_ condition: () -> Bool) -> Bool {
        let deadline = SystemTime.shared.monotonic + .seconds(40)
        while !condition() {
            guard SystemTime.shared.monotonic < deadline else { return false }
            poll(nil, 0, 20)
        }
        return true
    }

    @Test func `replicas get the first names that are free, and give them back`() throws {
        let server = try RedisServer()
        let sink = CollectingSink()
        let first = try #require(try lease(server, sink))
        let second = try #require(try lease(server, sink))
        let third = try #require(try lease(server, sink))
        #expect([first.name, second.name, third.name] == ["slot-0", "slot-1", "slot-2"])
        second.release()
        let fourth = try #require(try lease(server, sink))
        #expect(fourth.name == "slot-1")
        #expect([first, third, fourth].allSatisfy { $0.failure == nil })
        for lease in [first, third, fourth] { lease.release() }
    }

    @Test func `a name that Redis forgot and gave to another ends its former holder`() throws {
        let server = try RedisServer()
        let sink = CollectingSink()
        let first = try #require(try lease(server, sink, who: "old (pid 7)"))
        server.command("FLUSHALL")
        let second = try #require(try lease(server, sink, who: "new (pid 8)"))
        #expect(second.name == "slot-0")
        #expect(eventually { first.failure != nil })
        #expect(first.failure?.contains("new (pid 8)") == true)
        #expect(second.failure == nil)
        // What is lost is not given back: it belongs to somebody else.
        first.release()
        let third = try #require(try lease(server, sink))
        #expect(third.name == "slot-1")
        for lease in [second, third] { lease.release() }
    }

    @Test func `a name that Redis forgot is taken again by its holder`() throws {
        let server = try RedisServer()
        let sink = CollectingSink()
        let first = try #require(try lease(server, sink))
        server.command("FLUSHALL")
        #expect(eventually { server.command("EXISTS", "bugle:{fleet}:n:bugle") == "1" })
        let second = try #require(try lease(server, sink))
        #expect(second.name == "slot-1")
        #expect(first.failure == nil)
        for lease in [first, second] { lease.release() }
    }

    @Test func `two processes of one configured name notice each other`() throws {
        let server = try RedisServer()
        let (oldSink, newSink) = (CollectingSink(), CollectingSink())
        let old = try #require(try lease(server, oldSink, as: .configured("web"), who: "a (pid 7)"))
        #expect(
            eventually { server.command("HEXISTS", "bugle:{fleet}:n:bugle", "web") == "1" })
        let new = try #require(try lease(server, newSink, as: .configured("web"), who: "b (pid 8)"))
        #expect(eventually { newSink.lines.contains { $0.contains("a (pid 7)") } })
        #expect(eventually { oldSink.lines.contains { $0.contains("b (pid 8)") } })
        // Which of them ends is up to brokers: without transactions both may work.
        #expect(old.failure == nil && new.failure == nil)
        for lease in [old, new] { lease.release() }
    }

    @Test func `without Redis a leased name is waited for, and a configured one is not`() throws {
        let server = try RedisServer()
        server.kill()
        let sink = CollectingSink()
        #expect(try lease(server, sink, within: .seconds(3)) == nil)
        #expect(sink.lines.contains { $0.contains("waiting for Redis") })
        let configured = try #require(try lease(server, sink, as: .configured("web")))
        #expect(configured.failure == nil)
        configured.release()
    }

    @Test func `a lease ends by the sender's clock before it ends by Redis's`() {
        let start = MonotonicTime(nanos: 0)
        var watch = LeaseWatch(grantedAt: start)
        watch.renewed(sentAt: start + .seconds(10))
        // An answer that came late says nothing about the time since it was asked for.
        watch.renewed(sentAt: start + .seconds(5))
        let end = start + .seconds(10) + InstanceLeaseLimits.giveUp
        #expect(!watch.isOver(at: end - .milliseconds(1)))
        #expect(watch.isOver(at: end))
        #expect(InstanceLeaseLimits.giveUp + .seconds(6) < InstanceLeaseLimits.life)
        watch.renewed(sentAt: end)
        #expect(!watch.isOver(at: end))
        watch.lost(to: "somebody")
        #expect(watch.isOver(at: end))
    }
}

@Suite(.serialized) struct `Tokens that replicas share` {
    private struct Replica {
        let app: PushApp
        let keeper: TokenKeeper
        let registry = MetricsRegistry()

        init(_ server: RedisServer, pem: String, makes owner: String) throws {
            let apns = PushApp.APNs(
                topic: "com.example.shop",
                credential: try APNsCredential(
                    teamID: "TEAM000001", keyID: "KEY0000001", pem: pem, setting: "test"),
                production: GatewayEndpoint(host: "localhost"),
                sandbox: GatewayEndpoint(host: "localhost"))
            try self.init(server, PushApp(name: "shop", apns: apns), makes: owner)
        }

        init(_ server: RedisServer, _ app: PushApp, makes owner: String) throws {
            self.app = app
            let redis = RedisConfiguration(host: "127.0.0.1", port: server.port)
            keeper = try TokenKeeper(
                GatewayAccess(), registry: registry,
                log: Log(level: .debug, format: .json, sink: CollectingSink())
            ) { RedisTokenStore(redis, prefix: "bugle:", owner: owner, on: $0) }
            keeper.keep([app])
            keeper.waitForTokens(upTo: .seconds(20))
        }

        var header: [UInt8]? {
            let time = SystemTime.shared
            return try? app.apns?.credential.token(at: time.monotonic, wall: time.wall).header
        }

        /// The access token; nil while there is none.
        var accessToken: AccessToken? {
            let time = SystemTime.shared
            guard let credential = app.fcm?.tokens.credential,
                credential.age(at: time.monotonic) != nil,
                case .use(let token) = credential.next(at: time.monotonic, wall: time.wall)
            else { return nil }
            return token
        }

        func count(_ origin: String) -> Double {
            registry.readings(of: "bugle_fleet_tokens_total")
                .filter { $0.label("origin") == origin }.reduce(0) { $0 + $1.value }
        }
    }

    @Test func `a fleet sends with one token, and Redis knows nothing of it`() throws {
        let server = try RedisServer()
        let pem = try KeyPair.generate(for: .es256).privateKeyPEM
        let replicas = try (0..<4).map { try Replica(server, pem: pem, makes: "r\($0)") }
        defer { for replica in replicas { replica.keeper.stop() } }
        let headers = replicas.map(\.header)
        #expect(Set(headers).count == 1)
        #expect(replicas.reduce(0) { $0 + $1.count("own") } == 1)
        #expect(replicas.reduce(0) { $0 + $1.count("replica") } == 3)
        #expect(replicas.reduce(0) { $0 + Int($1.app.apns!.credential.mintCount) } == 1)
        let key = server.command("KEYS", "*")
        let stored = server.command("HGET", key, "t")
        let token = String(decoding: try #require(headers[0]), as: UTF8.self)
        for part in token.dropFirst(7).split(separator: ".") {
            #expect(!stored.contains(part))
        }
        #expect(!key.contains("TEAM") && !key.contains("KEY0"))
    }

    /// The app at FCM as each replica has it: a credential of its own of the same account.
    private func app(
        at simulator: Simulator, _ account: SimulatedServiceAccount
    ) throws -> PushApp {
        let caFile = "/tmp/bugle-fleet-ca-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pem"
        try simulator.writeAuthority(to: caFile)
        defer { unlink(caFile) }
        let credential = OAuthCredential(
            try ServiceAccount(json: Array(account.json.utf8), setting: "test"))
        let endpoint = GatewayEndpoint(
            host: "localhost", port: simulator.port(of: .fcm),
            trusting: try TLSAuthorities(file: caFile))
        return PushApp(
            name: "shop",
            fcm: PushApp.FCM(
                projectID: account.projectID, credential: credential, endpoint: endpoint))
    }

    @Test func `AUTH-14: a fleet fetches one access token, and one more when that is refused`()
        throws
    {
        let (server, simulator) = (try RedisServer(), try Simulator())
        defer { simulator.stop() }
        let account = try simulator.makeServiceAccount()
        let replicas = try (0..<4).map {
            try Replica(server, try app(at: simulator, account), makes: "r\($0)")
        }
        defer { for replica in replicas { replica.keeper.stop() } }
        func headers() -> [[UInt8]] { replicas.compactMap { $0.accessToken?.header } }
        let first = headers()
        #expect(first.count == 4 && Set(first).count == 1)
        #expect(simulator.journal.counters.tokenRequests == 1)
        // FCM refuses it to two of them at once, and to the others when these have a new one.
        for pair in [replicas.prefix(2), replicas.suffix(2)] {
            for replica in pair {
                let token = try #require(replica.accessToken)
                replica.app.fcm?.tokens.credential.refuse(
                    token.generation, at: SystemTime.shared.monotonic)
            }
            let deadline = SystemTime.shared.monotonic + .seconds(30)
            while headers().count < 4, SystemTime.shared.monotonic < deadline { poll(nil, 0, 10) }
        }
        let second = headers()
        #expect(second.count == 4 && Set(second).count == 1)
        #expect(Set(second) != Set(first))
        #expect(simulator.journal.counters.tokenRequests == 2)
        #expect(replicas.reduce(0) { $0 + $1.count("alone") } == 0)
    }

    @Test func `without Redis each replica fetches its own access token, once`() throws {
        let (server, simulator) = (try RedisServer(), try Simulator())
        defer { simulator.stop() }
        server.kill()
        let account = try simulator.makeServiceAccount()
        let replicas = try (0..<2).map {
            try Replica(server, try app(at: simulator, account), makes: "r\($0)")
        }
        defer { for replica in replicas { replica.keeper.stop() } }
        #expect(replicas.allSatisfy { $0.accessToken != nil && $0.count("alone") == 1 })
        #expect(simulator.journal.counters.tokenRequests == 2)
    }

    @Test func `without Redis each makes its own, and is not slower than a second or two`() throws {
        let server = try RedisServer()
        server.kill()
        let pem = try KeyPair.generate(for: .es256).privateKeyPEM
        let replica = try Replica(server, pem: pem, makes: "r")
        defer { replica.keeper.stop() }
        #expect(replica.header != nil)
        #expect(replica.count("alone") == 1)
    }

    @Test func `a token that was sealed for another key, or changed, is not taken`() throws {
        let server = try RedisServer()
        let pem = try KeyPair.generate(for: .es256).privateKeyPEM
        let replica = try Replica(server, pem: pem, makes: "r1")
        defer { replica.keeper.stop() }
        let key = server.command("KEYS", "*")
        server.command("HSET", key, "t", "garbage that is long enough to be a sealed token")
        let other = try Replica(server, pem: pem, makes: "r2")
        defer { other.keeper.stop() }
        #expect(other.header != nil && other.header != replica.header)
        #expect(other.count("replica") == 0)
    }
}

@Suite(.serialized) struct `The metrics of the fleet` {
    private func eventually(_ condition: () -> Bool) -> Bool {
        let deadline = SystemTime.shared.monotonic + .seconds(60)
        while !condition() {
            guard SystemTime.shared.monotonic < deadline else { return false }
            poll(nil, 0, 20)
        }
        return true
    }

    @Test(.timeLimit(.minutes(3)))
    func `tell what is paused, and for how long nothing was heard`() throws {
        let cluster = try MockCluster()
        for topic in ["push.control", "push.status"] {
            try cluster.createTopic(topic, partitions: 1)
        }
        let kafka = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
        let producer = try TopicProducer(kafka)
        for (kind, value) in [(LeverKind.type, "news"), (.type, "chat.*"), (.app, "shop")] {
            let lever = try #require(Lever(kind, value))
            let record = ControlRecord(.pause(lever), at: SystemTime.shared.wall)
            let bytes = ByteWriter()
            record.write(to: bytes)
            try producer.send(
                to: "push.control", key: Array(record.key.utf8), value: bytes.array)
        }
        try producer.flush(timeout: .seconds(10))
        let registry = MetricsRegistry()
        let fleet = try Fleet(
            FleetSettings(
                kafka: kafka, control: "push.control", status: "push.status", group: "bugle",
                instance: "one"),
            registry: registry, log: Log(level: .debug, format: .json, sink: CollectingSink()))
        defer { fleet.stop() }
        let paused = registry.readings(of: "bugle_paused_levers").map {
            "\($0.label("lever")) \(Int($0.value))"
        }
        #expect(Set(paused) == ["type 2", "source 0", "gateway 0", "app 1"])
        func age() -> Double { registry.sum(of: "bugle_fleet_heartbeat_age_seconds") }
        // Nobody reports yet, so there is nothing to hear.
        #expect(eventually { age() > 0.5 })
        #expect(registry.sum(of: "bugle_fleet_replicas") == 0)
        fleet.attach(
            apply: { _ in true },
            report: { $0.append(#"{"v":1,"instance":"one","group":"bugle"}"#) })
        #expect(eventually { age() < 0.5 })
        #expect(registry.sum(of: "bugle_fleet_replicas") == 1)
        cluster.setBroker(1, up: false)
        #expect(eventually { age() > FleetSettings.interval.seconds + 0.5 })
        cluster.setBroker(1, up: true)
        #expect(eventually { age() < 0.5 })
    }
}
