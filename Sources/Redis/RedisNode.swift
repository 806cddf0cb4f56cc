// A server and the connection to it that comes back: dial, secure, greet, serve, and start again
// when it ends, with every time limit set anew.

internal import Base
internal import Crypto
internal import EventLoop

/// What all nodes of a client share.
internal final class NodeSettings {
    let configuration: RedisConfiguration
    let loop: EventLoop
    var latencyObserver: ((TimeSpan) -> Void)?

    init(_ configuration: RedisConfiguration, _ loop: EventLoop) {
        self.configuration = configuration
        self.loop = loop
    }
}

/// Hears of a node's connection.
internal protocol RedisNodeOwner: AnyObject {
    /// Commands are taken.
    func nodeReady(_ node: RedisNode, _ outcome: GreetingOutcome)
    /// A connection in use ended, or an attempt came to nothing.
    func nodeFailed(_ node: RedisNode, _ error: RedisError, wasReady: Bool)
    /// A command belongs elsewhere; returns whether it went there.
    func redirect(
        _ refusal: RedisRefusal, _ command: PendingCommand, _ bytes: [UInt8], from: RedisNode
    ) -> Bool
}

/// Takes no notice: what a heartbeat finds out is in the connection's end.
private final class Heartbeat: RedisReplyHandler {
    func replied(_ reply: RedisReply, tag: UInt64) {}
    func failed(_ error: RedisError, tag: UInt64) {}
}

/// Loop-confined.
internal final class RedisNode {
    let endpoint: RedisEndpoint
    /// Told of changes; outlives the node.
    unowned var owner: any RedisNodeOwner
    /// The connection when commands are taken, nil otherwise.
    @exclusivity(unchecked) private(set) var usable: RedisConnection?
    /// Why there is none.
    private(set) var lastError: RedisError?
    /// Whether the greeting asks for the cluster's map.
    var asksTopology: Bool
    /// When a command was last redirected to it.
    var askedAt: MonotonicTime?

    private let settings: NodeSettings
    private var configuration: RedisConfiguration { settings.configuration }
    private var loop: EventLoop { settings.loop }
    private var state = ReconnectState()
    private var connection: RedisConnection?
    private var dial: DialAttempt?
    private let heartbeat = Heartbeat()
    private var isInCluster: Bool
    private lazy var waitTimer = LoopTimer { [unowned self] in perform(state.waited(at: loop.now)) }
    private lazy var heartbeatTimer = LoopTimer { [unowned self] in beat() }

    init(
        _ endpoint: RedisEndpoint, _ settings: NodeSettings, owner: any RedisNodeOwner,
        asksTopology: Bool, isInCluster: Bool
    ) {
        self.endpoint = endpoint
        self.settings = settings
        self.owner = owner
        self.asksTopology = asksTopology
        self.isInCluster = isInCluster
    }

    var pendingCount: Int { connection?.pendingCount ?? 0 }

    func start() { perform(state.started(at: loop.now)) }

    /// Ends the connection and all attempts; commands that wait fail.
    func close() {
        stopTrying()
        let connection = connection
        self.connection = nil
        connection?.ended = nil
        connection?.end(.closed)
    }

    /// Takes nothing more; what waits is answered or runs into its time limit. `done` follows.
    func retire(_ done: @escaping () -> Void) {
        stopTrying()
        guard let connection else { return done() }
        connection.ended = { [unowned self] _ in
            self.connection = nil
            done()
        }
        connection.drain()
    }

    /// It turned out to be a node of a cluster.
    func joinCluster() {
        isInCluster = true
        asksTopology = false
    }

    /// It turned out to be a single server.
    func standAlone() {
        isInCluster = false
        connection?.forgetSent()
    }

    private func stopTrying() {
        usable = nil
        state.closed()
        dial?.cancel()
        dial = nil
        loop.cancel(waitTimer)
        loop.cancel(heartbeatTimer)
    }

    // MARK: - Connecting

    private func perform(_ action: ReconnectState.Action) {
        switch action {
        case .none: break
        case .wait(let span): loop.schedule(waitTimer, at: loop.now + span)
        case .dial:
            dial = Dialer.dial(
                host: endpoint.host, port: endpoint.port, on: loop,
                deadline: loop.now + configuration.connectTimeout
            ) { [unowned self] in dialed($0) }
        }
    }

    private func dialed(_ result: Result<Int32, DialError>) {
        dial = nil
        switch result {
        case .failure(let error): attemptFailed(.dialFailed(error))
        case .success(let fd):
            do throws(RedisError) {
                let connection = try connect(fd)
                self.connection = connection
                connection.ended = { [unowned self] in connectionEnded($0) }
                state.connected()
                greet(connection)
                connection.start()
            } catch {
                SocketIO.close(fd)
                attemptFailed(error)
            }
        }
    }

    private func connect(_ fd: Int32) throws(RedisError) -> RedisConnection {
        var session: TLSSession?
        if let tls = configuration.tls {
            do throws(TLSError) {
                session = try TLSSession(
                    client: tls.context, fd: fd, hostName: tls.serverName ?? endpoint.host)
            } catch {
                throw .tlsFailed(error)
            }
        }
        do throws(SystemError) {
            let connection = try RedisConnection(
                fd: fd, tls: session, loop: loop, commandTimeout: configuration.commandTimeout,
                keepsSent: isRedirectable)
            if isRedirectable {
                connection.redirect = { [unowned self] refusal, command, bytes in
                    owner.redirect(refusal, command, bytes, from: self)
                }
            }
            return connection
        } catch {
            throw .failed(error)
        }
    }

    /// Until a server has said that it is a single one it may be a cluster's.
    private var isRedirectable: Bool { isInCluster || asksTopology }

    private func greet(_ connection: RedisConnection) {
        let greeting = Greeting(configuration, to: endpoint, asksTopology, heartbeatCommand) {
            [unowned self, unowned connection] outcome in
            greeted(connection, outcome)
        }
        greeting.send(on: connection)
    }

    private func greeted(_ connection: RedisConnection, _ outcome: GreetingOutcome) {
        guard connection === self.connection else { return }
        if case .failed(let error) = outcome {
            connection.end(error)
            return
        }
        connection.answered = settings.latencyObserver
        state.greeted(at: loop.now)
        lastError = nil
        usable = connection
        loop.schedule(heartbeatTimer, at: loop.now + RedisLimits.heartbeatInterval)
        owner.nodeReady(self, outcome)
    }

    private func connectionEnded(_ error: RedisError) {
        connection = nil
        let wasReady = usable != nil
        usable = nil
        loop.cancel(heartbeatTimer)
        lastError = error
        perform(state.failed(at: loop.now, &loop.random))
        owner.nodeFailed(self, error, wasReady: wasReady)
    }

    private func attemptFailed(_ error: RedisError) {
        lastError = error
        perform(state.failed(at: loop.now, &loop.random))
        owner.nodeFailed(self, error, wasReady: false)
    }

    /// Deleting a key that does not exist changes nothing, and a replica refuses it. In a cluster
    /// the map says who is a master.
    private var heartbeatCommand: [String] {
        guard !isInCluster, let key = configuration.probeKey else { return ["PING"] }
        return ["DEL", key]
    }

    private func beat() {
        guard let connection = usable else { return }
        loop.schedule(heartbeatTimer, at: loop.now + RedisLimits.heartbeatInterval)
        let words = heartbeatCommand
        _ = connection.send(to: heartbeat, tag: 0) { writer in
            writer.append(commandOf: words.count)
            for word in words { writer.append(argument: word) }
        }
    }
}
