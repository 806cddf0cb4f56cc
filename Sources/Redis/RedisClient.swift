// What others see of this room: one client that takes commands, whether a single server or a
// cluster stands behind it.

public import Base
public import EventLoop

/// What a client tells its owner.
public enum RedisEvent: Equatable, Sendable {
    /// Commands are taken for every slot.
    case ready
    /// Commands are not taken any more, or not for every slot; those that waited on an ended
    /// connection fail right after this.
    case lost(RedisError)
    /// An attempt to connect came to nothing.
    case attemptFailed(RedisError)
}

/// A Redis client confined to one loop.
public final class RedisClient {
    private let configuration: RedisConfiguration
    private let settings: NodeSettings
    private let loop: EventLoop
    /// The only server; nil in a cluster.
    private var lone: RedisNode?
    /// The only server's connection when commands are taken.
    @exclusivity(unchecked) private var direct: RedisConnection?
    @exclusivity(unchecked) private var cluster: ClusterRouter?

    /// Told of every change, on the loop. Set before `start`.
    public var observer: ((RedisEvent) -> Void)?

    /// Called with the time every answered command took, for a histogram. Set before `start`.
    public var latencyObserver: ((TimeSpan) -> Void)? {
        get { settings.latencyObserver }
        set { settings.latencyObserver = newValue }
    }

    /// A client that does nothing until it is started.
    public init(_ configuration: RedisConfiguration, on loop: EventLoop) {
        self.configuration = configuration
        self.loop = loop
        settings = NodeSettings(configuration, loop)
    }

    /// Begins to connect, and to reconnect whenever that is needed.
    public func start() {
        guard lone == nil && cluster == nil else { return }
        if configuration.demandsCluster {
            makeCluster().start()
        } else {
            let node = RedisNode(
                configuration.endpoints[0], settings, owner: self,
                asksTopology: configuration.cluster == .auto, isInCluster: false)
            lone = node
            node.start()
        }
    }

    /// Ends the connections and all attempts; commands that wait fail.
    public func close() {
        observer = nil
        direct = nil
        lone?.close()
        cluster?.close()
    }

    /// Whether commands are taken for every slot.
    public var isReady: Bool { direct != nil || cluster?.isReady ?? false }

    /// Whether commands are taken for some slots.
    public var isUsable: Bool { direct != nil || cluster?.someConnection != nil }

    /// Whether a cluster stands behind the client, as far as it knows.
    public var isCluster: Bool { cluster != nil }

    /// Commands that wait for their reply.
    public var pendingCount: Int { lone?.pendingCount ?? cluster?.pendingCount ?? 0 }

    /// Sends a command, appended by `write` in full, all of whose keys are in one slot; it leaves
    /// at the end of the loop's turn.
    ///
    /// An error means that the command was not taken: the handler then hears nothing of it.
    /// Otherwise the handler is called exactly once with `tag`, never within this call.
    public func send(
        slot: RedisSlot, to handler: any RedisReplyHandler, tag: UInt64,
        _ write: (ByteWriter) -> Void
    ) -> RedisError? {
        guard let connection = direct ?? cluster?.connection(for: slot) else {
            return .notConnected
        }
        return connection.send(to: handler, tag: tag, write)
    }

    /// Sends a command given by its arguments to where its key is; one without a key to any
    /// server.
    public func send(
        _ arguments: [String], key: String? = nil, to handler: any RedisReplyHandler, tag: UInt64
    ) -> RedisError? {
        let found =
            direct
            ?? (key.map { cluster?.connection(for: RedisSlot(of: $0)) } ?? cluster?.someConnection)
        guard let connection = found else { return .notConnected }
        return Self.send(arguments, on: connection, to: handler, tag)
    }

    /// Sends a command to every server that is connected; returns how many took it, with tags
    /// from 0 on.
    public func sendToAll(_ arguments: [String], to handler: any RedisReplyHandler) -> Int {
        let connections = direct.map { [$0] } ?? cluster?.connected.compactMap(\.usable) ?? []
        var count = 0
        for connection in connections
        where Self.send(arguments, on: connection, to: handler, UInt64(count)) == nil {
            count += 1
        }
        return count
    }

    /// A slot of each server that serves any, by which a command without a key is sent to it.
    public var slotsOfServers: [RedisSlot] {
        direct != nil ? [RedisSlot(number: 0)] : cluster?.slotsOfServers ?? []
    }

    private static func send(
        _ arguments: [String], on connection: RedisConnection,
        to handler: any RedisReplyHandler, _ tag: UInt64
    ) -> RedisError? {
        connection.send(to: handler, tag: tag) { writer in
            writer.append(commandOf: arguments.count)
            for argument in arguments { writer.append(argument: argument) }
        }
    }

    private func makeCluster() -> ClusterRouter {
        let router = ClusterRouter(settings) { [unowned self] in observer?($0) }
        cluster = router
        return router
    }
}

extension RedisClient: RedisNodeOwner {
    func nodeReady(_ node: RedisNode, _ outcome: GreetingOutcome) {
        switch outcome {
        case .cluster(let map):
            lone = nil
            makeCluster().start(with: map, from: node)
        case .alone, .served, .failed:
            node.standAlone()
            direct = node.usable
            observer?(.ready)
        }
    }

    func nodeFailed(_ node: RedisNode, _ error: RedisError, wasReady: Bool) {
        direct = nil
        observer?(wasReady ? .lost(error) : .attemptFailed(error))
    }

    func redirect(
        _ refusal: RedisRefusal, _ command: PendingCommand, _ bytes: [UInt8], from: RedisNode
    ) -> Bool { false }
}
