// Redis as it is in the field, on real servers: users, TLS, fail-over, loading, a cluster.

import Base
import Crypto
import EventLoop
import Glibc
import RedisServer
import Testing

@testable import Redis

@Suite struct `A client behind a fail-over` {
    /// A client at one address behind which a master and its replica stand.
    private struct Pair {
        let master: RedisServer
        let replica: RedisServer
        let forwarder: Forwarder
        let rig: ClientRig

        init() throws {
            let master = try RedisServer()
            let replica = try RedisServer(
                arguments: [
                    "--replicaof", "127.0.0.1 \(master.port)", "--repl-diskless-sync-delay", "0",
                ])
            self.master = master
            self.replica = replica
            let loop = try EventLoop(name: "rig")
            forwarder = try Forwarder(to: master.port, on: loop)
            var configuration = RedisConfiguration.local(forwarder.port)
            configuration.probeKey = "never"
            rig = try ClientRig(configuration, on: loop)
            try rig.waitUntilReady()
            #expect(try rig.run("SET", "k", "v") == .text("OK"))
            try rig.turn { replica.command("GET", "k") == "v" }
        }
    }

    @Test func `leaves a server that became a replica and finds the new master`() throws {
        let pair = try Pair()
        pair.replica.command("REPLICAOF", "NO", "ONE")
        pair.forwarder.target = pair.replica.port
        pair.master.command("REPLICAOF", "127.0.0.1", "\(pair.replica.port)")
        // Nobody writes: the heartbeat finds out.
        let readOnly = RedisError.refused(RedisRefusal("READONLY You can't write"))
        try pair.rig.turn { pair.rig.events.contains(.lost(readOnly)) }
        try pair.rig.waitUntilReady()
        #expect(try pair.rig.run("SET", "k", "w") == .text("OK"))
        #expect(pair.replica.command("GET", "k") == "w")
        #expect(pair.forwarder.connectionCount == 2)
    }

    @Test func `leaves it after the first write that is refused`() throws {
        let pair = try Pair()
        pair.replica.command("REPLICAOF", "NO", "ONE")
        pair.forwarder.target = pair.replica.port
        pair.master.command("REPLICAOF", "127.0.0.1", "\(pair.replica.port)")
        guard case .error(.refused(let refusal)) = try pair.rig.run("SET", "k", "w") else {
            Issue.record("a replica took a write")
            return
        }
        #expect(refusal.kind == .readOnly && !pair.rig.client.isReady)
        try pair.rig.waitUntilReady()
        #expect(try pair.rig.run("SET", "k", "w") == .text("OK"))
    }

    @Test func `does not settle on a replica, and works within a second of its promotion`() throws {
        let pair = try Pair()
        pair.forwarder.target = pair.replica.port
        pair.master.kill()
        try pair.rig.turn { pair.rig.events.count > 4 }
        #expect(!pair.rig.events.dropFirst().contains(.ready))
        pair.replica.command("REPLICAOF", "NO", "ONE")
        let promoted = SystemTime.shared.monotonic
        try pair.rig.waitUntilReady()
        #expect(SystemTime.shared.monotonic - promoted < .seconds(1))
        #expect(try pair.rig.run("GET", "k") == .text("v"))
    }
}

@Suite struct `A client of a server in trouble` {
    @Test func `waits while it loads its data`() throws {
        // The server takes a millisecond for each key, and answers now and then.
        let server = try RedisServer(
            arguments: [
                "--enable-debug-command", "yes", "--key-load-delay", "1000",
                "--loading-process-events-interval-bytes", "1024",
            ])
        server.command("DEBUG", "POPULATE", "700", "key", "10")
        server.command("SAVE")
        let rig = try ClientRig(.local(server.port))
        try rig.waitUntilReady()
        server.kill()
        try server.start(untilItSays: "Server initialized")
        let loading = RedisError.refused(RedisRefusal("LOADING Redis is loading"))
        try rig.turn { rig.events.contains(.attemptFailed(loading)) }
        #expect(try rig.run("GET", "key:1") == .error(.notConnected))
        try rig.waitUntilReady()
        #expect(try rig.run("EXISTS", "key:699") == .integer(1))
    }

    @Test func `tells a full server from one that is gone`() throws {
        let server = try RedisServer(arguments: ["--maxmemory", "1"])
        var configuration = RedisConfiguration.local(server.port)
        configuration.probeKey = "never"
        let rig = try ClientRig(configuration)
        try rig.waitUntilReady()
        guard case .error(.refused(let refusal)) = try rig.run("SET", "k", "v") else {
            Issue.record("a full server took a write")
            return
        }
        #expect(refusal.kind == .outOfMemory)
        let read = try rig.run("GET", "k")
        #expect(read == Outcome.none)
        server.command("CONFIG", "SET", "maxmemory", "0")
        #expect(try rig.run("SET", "k", "v") == .text("OK"))
        #expect(rig.events == [.ready])
    }

    @Test func `reads on when replicas are missing for a write`() throws {
        let server = try RedisServer(arguments: ["--min-replicas-to-write", "1"])
        var configuration = RedisConfiguration.local(server.port)
        configuration.probeKey = "never"
        let rig = try ClientRig(configuration)
        try rig.waitUntilReady()
        guard case .error(.refused(let refusal)) = try rig.run("SET", "k", "v") else {
            Issue.record("written")
            return
        }
        #expect(refusal.code == "NOREPLICAS")
        let read = try rig.run("GET", "k")
        #expect(read == Outcome.none)
        #expect(rig.events == [.ready])
    }

    @Test func `serves a user that may do no more than needed`() throws {
        let server = try RedisServer()
        server.command(
            "ACL", "SETUSER", "bugle", "on", ">pass", "~bugle:*", "+@read", "+@write",
            "+@scripting", "+@connection", "+info", "+time", "+cluster|slots")
        server.command("ACL", "SETUSER", "poor", "on", "nopass", "~bugle:*", "+get")
        var configuration = RedisConfiguration.local(server.port)
        (configuration.user, configuration.password) = ("bugle", "pass")
        (configuration.clientName, configuration.probeKey) = ("bugle", "bugle:{b0}:w")
        let rig = try ClientRig(configuration)
        try rig.waitUntilReady()
        #expect(try rig.run("SET", "bugle:k", "v") == .text("OK"))
        #expect(rig.client.sendToAll(["INFO", "memory"], to: rig) == 1)
        guard case .error(.refused(let refusal)) = try rig.run("SET", "other", "v") else {
            Issue.record("wrote where it must not")
            return
        }
        #expect(refusal.kind == .authentication && rig.client.isReady)
        // Without a password, and without what the greeting asks.
        (configuration.user, configuration.password) = ("poor", nil)
        let poor = try ClientRig(configuration)
        try poor.waitUntilReady()
        #expect(try poor.run("GET", "bugle:k") == .text("v"))
    }
}

/// A folder with certificates: `ca.pem`, `server.pem`, `server.key` for 127.0.0.1 and
/// redis.internal.
private final class Certificates {
    let folder: String
    let authority: CertificateAuthority

    init() throws {
        folder = "/tmp/bugle-tls-\(getpid())-\(UInt64.random(in: 0...UInt64.max))"
        try #require(mkdir(folder, 0o700) == 0)
        authority = try CertificateAuthority()
        try write(authority.certificatePEM, "ca.pem")
        let leaf = try authority.issue(hosts: ["127.0.0.1", "redis.internal"])
        try write(leaf.certificatePEM, "server.pem")
        try write(leaf.keyPEM, "server.key")
    }

    deinit {
        for name in ["ca.pem", "server.pem", "server.key", "other.pem"] { unlink(path(name)) }
        rmdir(folder)
    }

    func path(_ name: String) -> String { "\(folder)/\(name)" }

    func write(_ text: String, _ name: String) throws {
        let file = try #require(fopen(path(name), "w"))
        fputs(text, file)
        fclose(file)
    }

    func server(asksForCertificates: Bool = false) throws -> RedisServer {
        try RedisServer(
            arguments: [
                "--tls-cert-file", path("server.pem"), "--tls-key-file", path("server.key"),
                "--tls-ca-cert-file", path("ca.pem"),
                "--tls-auth-clients", asksForCertificates ? "yes" : "no",
            ], usesTLS: true)
    }

    func tls(
        caFile: String? = nil, identity: Bool = false, name: String? = nil
    ) throws -> RedisTLS {
        let shown = try TLSContext.Identity(
            certificateFile: path("server.pem"), keyFile: path("server.key"))
        return RedisTLS(
            try TLSContext.client(
                caFile: caFile ?? path("ca.pem"), alpn: [], identity: identity ? shown : nil),
            serverName: name)
    }
}

@Suite struct `A client over TLS` {
    private func rig(
        _ server: RedisServer, host: String = "127.0.0.1", _ tls: RedisTLS?
    ) throws -> ClientRig {
        var configuration = RedisConfiguration(host: host, port: server.port)
        configuration.tls = tls
        return try ClientRig(configuration)
    }

    private func firstFault(_ rig: ClientRig) throws -> RedisError? {
        try rig.turn { !rig.events.isEmpty }
        guard case .attemptFailed(let error) = rig.events[0] else { return nil }
        return error
    }

    private func kind(_ error: RedisError?) -> TLSError.Kind? {
        guard case .tlsFailed(let error) = error else { return nil }
        return error.kind
    }

    @Test func `answers a pipeline in order, whatever its size`() throws {
        let certificates = try Certificates()
        let server = try certificates.server(asksForCertificates: true)
        let rig = try rig(server, try certificates.tls(identity: true))
        try rig.waitUntilReady()
        let big = String(repeating: "x", count: 100_000)
        let tags = (0..<600).map { rig.start("ECHO", $0 % 20 == 0 ? big : "\($0)") }
        try rig.turn { tags.allSatisfy { rig.finished($0) != nil } }
        #expect(rig.order == tags)
        for (index, tag) in tags.enumerated() {
            #expect(rig.finished(tag) == .text(index % 20 == 0 ? big : "\(index)"))
        }
    }

    @Test func `sends the configured name and verifies it`() throws {
        let certificates = try Certificates()
        let server = try certificates.server()
        let named = try rig(
            server, host: "localhost", try certificates.tls(name: "redis.internal"))
        try named.waitUntilReady()
        #expect(try named.run("PING") == .text("PONG"))
        let misnamed = try rig(server, host: "localhost", try certificates.tls())
        #expect(kind(try firstFault(misnamed)) == .verification)
    }

    @Test func `trusts no other authority`() throws {
        let certificates = try Certificates()
        let server = try certificates.server()
        try certificates.write(CertificateAuthority().certificatePEM, "other.pem")
        let rig = try rig(server, try certificates.tls(caFile: certificates.path("other.pem")))
        #expect(kind(try firstFault(rig)) == .verification)
    }

    @Test func `says that a certificate is asked for`() throws {
        let certificates = try Certificates()
        let server = try certificates.server(asksForCertificates: true)
        let rig = try rig(server, try certificates.tls())
        let fault = try firstFault(rig)
        // The server's word comes after the handshake, and what was sent meanwhile may cut it off.
        #expect(kind(fault) == .refused || fault == .closedUnanswered)
    }

    @Test func `says who of both speaks TLS`() throws {
        let certificates = try Certificates()
        let server = try certificates.server()
        let plain = try rig(server, nil)
        #expect(try firstFault(plain) == .closedUnanswered)
        let other = try RedisServer()
        var configuration = RedisConfiguration.local(other.port)
        configuration.tls = try certificates.tls()
        configuration.commandTimeout = .milliseconds(200)
        let secured = try ClientRig(configuration)
        #expect(try firstFault(secured) == .handshakeTimedOut)
    }

    @Test func `comes back after its server did`() throws {
        let certificates = try Certificates()
        let server = try certificates.server()
        let rig = try rig(server, try certificates.tls())
        try rig.waitUntilReady()
        server.kill()
        try rig.turn { rig.events.count > 3 }
        try server.start()
        let returned = SystemTime.shared.monotonic
        try rig.waitUntilReady()
        #expect(SystemTime.shared.monotonic - returned < .seconds(1))
    }
}

@Suite(.serialized) struct `A client of a real cluster` {
    // One for all tests: it takes seconds to form. Each leaves it whole.
    private static nonisolated(unsafe) let shared = Result<RedisCluster, SystemError> {
        () throws(SystemError) in
        try RedisCluster(replicas: 1)
    }

    private func rig(_ cluster: RedisCluster) throws -> ClientRig {
        // Two seeds, as one of them may have been replaced by an earlier test.
        let rig = try ClientRig(
            RedisConfiguration(
                endpoints: cluster.servers.prefix(3).map {
                    RedisEndpoint(host: "127.0.0.1", port: $0.port)
                }, clientName: "rig"))
        try rig.waitUntilReady()
        return rig
    }

    /// A tag of a slot that the master had from the start.
    private func tag(of master: Int, _ cluster: RedisCluster) -> String {
        var number = 0
        while !cluster.slots(of: master).contains(Int(RedisSlot(of: "{\(number)}").number)) {
            number += 1
        }
        return "{\(number)}"
    }

    @Test func `spreads a pipeline over one connection to each node`() throws {
        let cluster = try Self.shared.get()
        let rig = try rig(cluster)
        let tags = (0..<300).map { rig.start("SET", "key\($0)", "\($0)") }
        try rig.turn { tags.allSatisfy { rig.finished($0) == .text("OK") } }
        for number in 0..<300 {
            #expect(try rig.run("GET", "key\(number)") == .text("\(number)"))
        }
        #expect(rig.redirections.isEmpty)
        let connections = cluster.servers.map {
            $0.command("CLIENT", "LIST").split(separator: "\n").count { $0.contains("name=rig") }
        }
        #expect(connections == [1, 1, 1, 0])
    }

    @Test func `teaches each node a script`() throws {
        let cluster = try Self.shared.get()
        let rig = try rig(cluster)
        for server in cluster.servers.prefix(3) { server.command("SCRIPT", "FLUSH") }
        let script = RedisScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        for master in 0..<3 {
            for turn in 1...2 {
                let outcome = try rig.run(script, [tag(of: master, cluster) + "n"], ["1"])
                #expect(outcome == .integer(Int64(turn)))
            }
        }
    }

    @Test func `follows a slot that moves, key by key, under load`() throws {
        let cluster = try Self.shared.get()
        let rig = try rig(cluster)
        let (source, target) = (cluster.servers[0], cluster.servers[1])
        let tag = tag(of: 0, cluster)
        let slot = "\(RedisSlot(of: tag).number)"
        let keys = (0..<40).map { "\(tag)move\($0)" }
        for key in keys { #expect(try rig.run("SET", key, key) == .text("OK")) }
        /// Everything is asked for while the next step of the move is made.
        func load(_ step: () -> Void) throws {
            let reads = keys.map { rig.start("GET", $0) }
            let absent = rig.start("GET", "\(tag)nobody")
            rig.loop.turn(waitingUpTo: .zero)
            step()
            try rig.turn {
                rig.finished(absent) != nil && reads.allSatisfy { rig.finished($0) != nil }
            }
            for (key, read) in zip(keys, reads) { #expect(rig.finished(read) == .text(key)) }
            #expect(rig.finished(absent) == Outcome.none)
        }
        let ids = (source.command("CLUSTER", "MYID"), target.command("CLUSTER", "MYID"))
        try load { target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids.0) }
        try load { source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids.1) }
        for key in keys.prefix(20) {
            try load { source.command("MIGRATE", "127.0.0.1", "\(target.port)", key, "0", "5000") }
        }
        // A script on keys of both nodes has to be tried again; on one of them it runs.
        let script = RedisScript("return redis.call('GET', KEYS[1])")
        guard case .error(.refused(let refusal)) = try rig.run(script, [keys[0], keys[39]]) else {
            Issue.record("two nodes answered one script")
            return
        }
        #expect(refusal.kind == .tryAgain && rig.client.isReady)
        for key in [keys[0], keys[39]] { #expect(try rig.run(script, [key]) == .text(key)) }
        #expect(try rig.run("SET", "\(tag)new", "1") == .text("OK"))
        #expect(target.command("CLUSTER", "COUNTKEYSINSLOT", slot) == "21")
        for key in keys.suffix(20) {
            source.command("MIGRATE", "127.0.0.1", "\(target.port)", key, "0", "5000")
        }
        try load { target.command("CLUSTER", "SETSLOT", slot, "NODE", ids.1) }
        try load { source.command("CLUSTER", "SETSLOT", slot, "NODE", ids.1) }
        let count = rig.redirections.count
        try load {}
        #expect(rig.redirections.count == count && count > 0 && rig.events == [.ready])
        // And home again, empty, for the other tests.
        for key in keys + ["\(tag)new"] { #expect(try rig.run("DEL", key) == .integer(1)) }
        // As a move: the one that takes it gets the newer epoch, which the other's last word about
        // the slot does not beat.
        source.command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids.1)
        target.command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids.0)
        for server in cluster.servers.prefix(3) {
            server.command("CLUSTER", "SETSLOT", slot, "NODE", ids.0)
        }
        try rig.turn {
            cluster.servers.prefix(3).allSatisfy { $0.owns("0-5460", ids.0) }
        }
    }

    @Test func `goes to the replica that took over`() throws {
        let cluster = try Self.shared.get()
        let rig = try rig(cluster)
        let key = tag(of: 2, cluster) + "k"
        #expect(try rig.run("SET", key, "v") == .text("OK"))
        // The replica of the first master becomes one of the last.
        let replica = cluster.servers[3]
        replica.command("CLUSTER", "REPLICATE", cluster.servers[2].command("CLUSTER", "MYID"))
        try rig.turn { replica.command("INFO", "replication").contains("master_link_status:up") }
        try rig.turn { replica.command("DBSIZE") == cluster.servers[2].command("DBSIZE") }
        cluster.servers[2].kill()
        replica.command("CLUSTER", "FAILOVER", "TAKEOVER")
        try rig.turn { !rig.client.isReady }
        try rig.waitUntilReady()
        #expect(try rig.run("GET", key) == .text("v"))
        cluster.servers.swapAt(2, 3)
        // All have heard of it: who has not would take the next loss for that of the majority.
        let id = replica.command("CLUSTER", "MYID")
        try rig.turn { cluster.servers.prefix(3).allSatisfy { $0.owns("10922-16383", id) } }
    }

    @Test func `REDIS-04: goes to the server that replaced one`() throws {
        let cluster = try Self.shared.get()
        let rig = try rig(cluster)
        let key = tag(of: 1, cluster) + "k"
        #expect(try rig.run("SET", key, "v") == .text("OK"))
        cluster.servers[1].kill()
        try rig.turn { !rig.client.isReady }
        #expect(try rig.run("GET", key) == .error(.notConnected))
        #expect(try rig.run("GET", tag(of: 0, cluster)) == Outcome.none)
        if cluster.servers.count > 3 { cluster.servers.removeLast() }
        try cluster.replace(1)
        try rig.waitUntilReady()
        #expect(try rig.run("GET", key) == Outcome.none)
        #expect(try rig.run("SET", key, "w") == .text("OK"))
    }
}

extension RedisServer {
    /// Whether, as far as this server knows, a node is the master of that range and no more of it.
    fileprivate func owns(_ range: String, _ id: String) -> Bool {
        command("CLUSTER", "NODES").split(separator: "\n").contains { line in
            line.hasPrefix(id) && line.contains("master")
                && line.split(separator: " ").contains(Substring(range))
        }
    }
}
