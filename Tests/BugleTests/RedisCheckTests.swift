// What `check --online` says about a Redis that cannot be used as configured, on real servers.

import Base
import Config
import Crypto
import Glibc
import Redis
import RedisServer
import Testing

@testable import Bugle

/// The findings about Redis of a configuration whose section `redis` has these further lines.
private func findings(_ server: RedisServer, _ lines: String...) throws -> [String] {
    let text = """
        kafka: {brokers: "localhost:9"}
        apps: {one: {fcm: {service_account: "${SA}"}}}
        redis:
          address: 127.0.0.1:\(server.port)
          timeout: 300ms
        \(lines.map { "  \($0)\n" }.joined())
        """
    let configuration = try Configuration.parse(text: text, environment: ["SA": "{}", "PW": "no"])
    return OnlineCheck(configuration).redis().map { "\($0.level.rawValue): \($0.text)" }
}

/// A file that is there for one test.
private final class File {
    let path = "/tmp/bugle-check-\(getpid())-\(UInt64.random(in: 0...UInt64.max))"

    init(_ text: String) throws {
        let file = try #require(fopen(path, "w"))
        fputs(text, file)
        fclose(file)
    }

    deinit { unlink(path) }
}

@Suite struct `The check of Redis` {
    private func expectOne(
        _ said: [String], _ words: String..., sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(said.count == 1, "\(said)", sourceLocation: sourceLocation)
        for word in words {
            #expect(said[0].contains(word), "\(said[0])", sourceLocation: sourceLocation)
        }
        #expect(!said[0].contains("\n"), sourceLocation: sourceLocation)
    }

    @Test func `is content with a server as it should be`() throws {
        let server = try RedisServer()
        expectOne(try findings(server), "ok: redis: 127.0.0.1:\(server.port) answers")
    }

    @Test func `names the setting that the password is missing from`() throws {
        let server = try RedisServer(arguments: ["--requirepass", "secret"])
        expectOne(try findings(server), "error: ", "redis.password_file")
        let wrong = try findings(server, "password: \"${PW}\"")
        expectOne(wrong, "error: ", "correct redis.username and redis.password_file")
        let open = try RedisServer()
        expectOne(
            try findings(open, "password: \"${PW}\""), "error: ", "remove redis.password_file")
    }

    @Test func `tells who speaks TLS and who does not`() throws {
        let authority = try CertificateAuthority()
        let leaf = try authority.issue(hosts: ["127.0.0.1"])
        let ca = try File(authority.certificatePEM)
        let (certificate, key) = (try File(leaf.certificatePEM), try File(leaf.keyPEM))
        func server(_ asks: String) throws -> RedisServer {
            try RedisServer(
                arguments: [
                    "--tls-cert-file", certificate.path, "--tls-key-file", key.path,
                    "--tls-ca-cert-file", ca.path, "--tls-auth-clients", asks,
                ], usesTLS: true)
        }
        let (secured, strict, plain) = (try server("no"), try server("yes"), try RedisServer())
        let trusting = "tls: {ca_file: \(ca.path)}"
        expectOne(try findings(secured), "error: ", "set redis.tls")
        expectOne(try findings(secured, trusting), "ok: ")
        expectOne(try findings(secured, "tls: true"), "error: ", "redis.tls.ca_file")
        expectOne(
            try findings(secured, "tls: {ca_file: \(ca.path), server_name: other}"), "error: ",
            "redis.tls.server_name")
        expectOne(try findings(strict, trusting), "error: ", "redis.tls.cert_file and key_file")
        let identity = "cert_file: \(certificate.path), key_file: \(key.path)"
        expectOne(try findings(strict, "tls: {ca_file: \(ca.path), \(identity)}"), "ok: ")
        expectOne(try findings(plain, trusting), "error: ", "leave out redis.tls")
        expectOne(
            try findings(secured, "tls: {ca_file: /does/not/exist}"), "error: redis.tls: ",
            "/does/not/exist")
    }

    @Test func `REDIS-12: warns of a server that evicts`() throws {
        let server = try RedisServer(arguments: ["--maxmemory-policy", "allkeys-lru"])
        let said = try findings(server)
        #expect(said.count == 2)
        #expect(said[0].hasPrefix("warning: ") && said[0].contains("maxmemory-policy noeviction"))
    }

    @Test func `tells a cluster from a single server`() throws {
        let single = try RedisServer()
        expectOne(try findings(single, "cluster: true"), "error: ", "leave out redis.cluster")
        // A node without slots is one of a cluster all the same.
        let node = try RedisServer(arguments: ["--cluster-enabled", "yes"])
        expectOne(try findings(node), "error: ", "16384 of 16384 slots", "CLUSTER NODES")
        node.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        expectOne(try findings(node, "cluster: false"), "error: ", "set redis.cluster: true")
        expectOne(try findings(node, "database: 2"), "error: ", "leave out redis.database")
    }

    @Test func `names a replica, and silence`() throws {
        let master = try RedisServer()
        let replica = try RedisServer(arguments: ["--replicaof", "127.0.0.1 \(master.port)"])
        expectOne(try findings(replica), "error: ", "is a replica", "redis.address")
        master.freeze()
        expectOne(try findings(master), "error: ", "did not reply in time", "redis.address")
        master.kill()
        expectOne(try findings(master), "error: ", "Connection refused", "redis.address")
    }
}
