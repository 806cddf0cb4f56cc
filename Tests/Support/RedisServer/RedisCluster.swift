// A Redis Cluster of real servers on loopback, formed by hand: that takes two seconds, the time
// for which a server that starts in a cluster takes no writes.

public import EventLoop
internal import Glibc

/// Running masters that share the slots evenly, and replicas of the first ones.
public final class RedisCluster {
    /// The servers: the masters first. A test that replaces one puts the new one in its place.
    public var servers: [RedisServer]
    private let masters: Int

    /// Starts the servers and returns when all of them serve.
    public init(masters: Int = 3, replicas: Int = 0) throws(SystemError) {
        self.masters = masters
        servers = []
        for _ in 0..<(masters + replicas) { servers.append(try Self.makeServer()) }
        for (index, server) in servers.enumerated() {
            server.command("CLUSTER", "SET-CONFIG-EPOCH", "\(index + 1)")
            if index < masters { take(slotsOf: index, by: server) }
            if index > 0 { server.meet(servers[0]) }
        }
        try wait("no cluster came about") {
            servers.allSatisfy { $0.serves(nodes: masters + replicas) }
        }
        for index in 0..<replicas {
            let master = servers[index].command("CLUSTER", "MYID")
            servers[masters + index].command("CLUSTER", "REPLICATE", master)
        }
        try wait("no replica has caught up") {
            servers[masters...].allSatisfy {
                $0.command("INFO", "replication").contains("master_link_status:up")
            }
        }
    }

    /// The slots of a master, as they were dealt out.
    public func slots(of master: Int) -> ClosedRange<Int> {
        (master * 16_384 / masters)...((master + 1) * 16_384 / masters - 1)
    }

    /// Puts a new, empty server in the place of one that was killed. All others are running.
    public func replace(_ master: Int) throws(SystemError) {
        let others = servers.indices.filter { $0 != master }.map { servers[$0] }
        let running = others.map { $0.command("CLUSTER", "MYID") }
        for server in others {
            for line in server.command("CLUSTER", "NODES").split(whereSeparator: \.isNewline) {
                let id = String(line.prefix { $0 != " " })
                if !running.contains(id) { server.command("CLUSTER", "FORGET", id) }
            }
        }
        let server = try Self.makeServer()
        server.command("CLUSTER", "SET-CONFIG-EPOCH", "\(100 + master)")
        take(slotsOf: master, by: server)
        server.meet(others[0])
        servers[master] = server
        try wait("no cluster came about again") {
            servers.allSatisfy { $0.serves(nodes: servers.count) }
        }
    }

    /// Waits until something is so at the servers.
    public func wait(_ failure: StaticString, until condition: () -> Bool) throws(SystemError) {
        for _ in 0..<1_000 {
            if condition() { return }
            // The servers have to get at the processor.
            poll(nil, 0, 20)
        }
        throw SystemError(failure, errno: ETIMEDOUT)
    }

    private func take(slotsOf master: Int, by server: RedisServer) {
        let slots = slots(of: master)
        server.command("CLUSTER", "ADDSLOTSRANGE", "\(slots.lowerBound)", "\(slots.upperBound)")
    }

    private static func makeServer() throws(SystemError) -> RedisServer {
        let bus = try RedisServer.freePort()
        return try RedisServer(
            arguments: [
                "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
                "--cluster-port", "\(bus)", "--cluster-node-timeout", "1000",
                "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
            ], busPort: bus)
    }
}

extension RedisServer {
    fileprivate func meet(_ other: RedisServer) {
        command("CLUSTER", "MEET", "127.0.0.1", "\(other.port)", "\(other.busPort)")
    }

    fileprivate func serves(nodes: Int) -> Bool {
        let info = command("CLUSTER", "INFO").split(whereSeparator: \.isNewline)
        return ["cluster_state:ok", "cluster_known_nodes:\(nodes)", "cluster_slots_ok:16384"]
            .allSatisfy { info.contains(Substring($0)) }
    }
}
