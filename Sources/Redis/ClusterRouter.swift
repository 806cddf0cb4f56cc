// The nodes of a Redis Cluster and the way to them: a table from slots to nodes, one connection
// for each, redirections, and a map that is asked for again whenever something hints that it is
// old. Of whom to ask: any node that is connected, else those of the configuration in turn, their
// names looked up afresh.

internal import Base
internal import EventLoop

/// Loop-confined.
internal final class ClusterRouter: RedisNodeOwner {
    private let settings: NodeSettings
    private var configuration: RedisConfiguration { settings.configuration }
    private var loop: EventLoop { settings.loop }
    private let report: (RedisEvent) -> Void

    /// The place in `nodes` of each slot's master.
    @exclusivity(unchecked) private var table: UnsafeMutablePointer<UInt16>
    @exclusivity(unchecked) private var nodes: [RedisNode] = []
    private var retired: [ObjectIdentifier: RedisNode] = [:]
    /// A configured node that is asked for the map.
    private var seed: RedisNode?
    private var nextSeed = 0
    private var nextSource = 0
    private var uncovered = RedisSlot.count
    private var wasReady = false
    private var isClosed = false
    private var refresh = MapRefresh()
    private lazy var refreshTimer = LoopTimer { [unowned self] in
        perform(refresh.waited(at: loop.now))
    }
    private let asking = AskingReply()

    private static let nobody = UInt16.max
    private static let seedsTurn = 3

    init(_ settings: NodeSettings, report: @escaping (RedisEvent) -> Void) {
        self.settings = settings
        self.report = report
        table = .allocate(capacity: RedisSlot.count)
        table.initialize(repeating: Self.nobody, count: RedisSlot.count)
    }

    deinit { table.deallocate() }

    /// Begins with the configured nodes.
    func start() { perform(refresh.wanted(at: loop.now)) }

    /// Begins with a map, and with the connected node that sent it.
    func start(with map: SlotMap, from node: RedisNode) {
        node.owner = self
        node.joinCluster()
        nodes = [node]
        _ = refresh.wanted(at: loop.now)
        mapArrived(map)
    }

    func close() {
        isClosed = true
        loop.cancel(refreshTimer)
        seed?.close()
        for node in nodes + Array(retired.values) { node.close() }
        seed = nil
        nodes = []
        retired = [:]
        table.update(repeating: Self.nobody, count: RedisSlot.count)
    }

    // MARK: - Ways

    /// The connection to a slot's master; nil when there is none now.
    func connection(for slot: RedisSlot) -> RedisConnection? {
        let place = Int(table[Int(slot.number)])
        return place < nodes.count ? nodes[place].usable : nil
    }

    /// A connection to some node.
    var someConnection: RedisConnection? { connected.first?.usable }

    /// The masters that are connected.
    var connected: [RedisNode] { nodes.filter { $0.usable != nil } }

    /// The first slot of each node that the table names.
    var slotsOfServers: [RedisSlot] {
        var isNamed = [Bool](repeating: false, count: nodes.count)
        var slots: [RedisSlot] = []
        for slot in 0..<RedisSlot.count where table[slot] != Self.nobody {
            guard !isNamed[Int(table[slot])] else { continue }
            isNamed[Int(table[slot])] = true
            slots.append(RedisSlot(number: UInt16(slot)))
        }
        return slots
    }

    var pendingCount: Int { nodes.reduce(0) { $0 + $1.pendingCount } }

    /// Whether every slot has a master that is connected.
    var isReady: Bool { uncovered == 0 && mapped.allSatisfy { $0.usable != nil } }

    /// The nodes that the table names; others were only redirected to.
    private var mapped: [RedisNode] {
        var isNamed = [Bool](repeating: false, count: nodes.count)
        for slot in 0..<RedisSlot.count where table[slot] != Self.nobody {
            isNamed[Int(table[slot])] = true
        }
        return zip(nodes, isNamed).filter(\.1).map(\.0)
    }

    // MARK: - Nodes

    func nodeReady(_ node: RedisNode, _ outcome: GreetingOutcome) {
        guard node === seed else { return evaluate(nil) }
        switch outcome {
        case .cluster(let map):
            seed = nil
            node.joinCluster()
            // Mostly the map knows it by another name, and it goes again.
            if nodes.contains(where: { $0.endpoint == node.endpoint }) {
                retire(node)
            } else {
                nodes.append(node)
            }
            mapArrived(map)
        case .alone, .served, .failed: seedFailed(.notACluster)
        }
    }

    func nodeFailed(_ node: RedisNode, _ error: RedisError, wasReady: Bool) {
        if node === seed { return seedFailed(error) }
        evaluate(.atNode(node.endpoint, error))
        perform(refresh.wanted(at: loop.now))
    }

    private func seedFailed(_ error: RedisError) {
        guard let node = seed else { return }
        seed = nil
        retire(node)
        evaluate(.atNode(node.endpoint, error))
        perform(refresh.finished(isWhole: false, &loop.random))
    }

    private func retire(_ node: RedisNode) {
        let key = ObjectIdentifier(node)
        retired[key] = node
        node.retire { [unowned self] in retired[key] = nil }
    }

    private func node(at endpoint: RedisEndpoint) -> RedisNode? {
        if let known = nodes.first(where: { $0.endpoint == endpoint }) { return known }
        guard nodes.count < RedisLimits.nodes else { return nil }
        let node = RedisNode(
            endpoint, settings, owner: self, asksTopology: false, isInCluster: true)
        nodes.append(node)
        node.start()
        return node
    }

    /// Says what became of the whole; `error` is what just happened.
    private func evaluate(_ error: RedisError?) {
        let isReady = isReady
        if isReady != wasReady {
            wasReady = isReady
            report(isReady ? .ready : .lost(error ?? .slotsUncovered(uncovered)))
        } else if !isReady, let error {
            report(.attemptFailed(error))
        }
    }

    // MARK: - The map

    private func perform(_ action: MapRefresh.Action) {
        guard !isClosed else { return }
        switch action {
        case .none: break
        case .wait(let span): loop.schedule(refreshTimer, at: loop.now + span)
        case .ask: ask()
        }
    }

    private func ask() {
        loop.cancel(refreshTimer)
        let sources = connected
        // Nodes that left the cluster together may know of nobody else: while something is
        // missing the configured ones are asked now and then.
        let isSeedsTurn = refresh.failures % Self.seedsTurn == Self.seedsTurn - 1
        if !sources.isEmpty && !isSeedsTurn {
            nextSource = (nextSource + 1) % sources.count
            let source = sources[nextSource]
            let question = MapQuestion(source.endpoint) { [unowned self] in answered($0) }
            let error = source.usable?.send(to: question, tag: 0) { writer in
                writer.append(commandOf: 2)
                writer.append(argument: "CLUSTER" as StaticString)
                writer.append(argument: "SLOTS" as StaticString)
            }
            if error == nil { return }
        }
        let endpoint = configuration.endpoints[nextSeed % configuration.endpoints.count]
        nextSeed += 1
        let node = RedisNode(
            endpoint, settings, owner: self, asksTopology: true, isInCluster: true)
        seed = node
        node.start()
    }

    private func answered(_ map: SlotMap?) {
        guard !isClosed else { return }
        if let map { return mapArrived(map) }
        perform(refresh.finished(isWhole: false, &loop.random))
    }

    private func mapArrived(_ map: SlotMap) {
        // A node that was reset, or does not know the others yet, knows less than is known here.
        let isBetter = map.uncovered <= uncovered
        if isBetter { adopt(map) }
        evaluate(uncovered > 0 ? .slotsUncovered(uncovered) : nil)
        perform(refresh.finished(isWhole: isBetter && isReady, &loop.random))
    }

    /// Makes the map the truth: connections to its nodes are kept or begun, others are let go.
    private func adopt(_ map: SlotMap) {
        let named = Set(map.ranges.map(\.master))
        let strangers = nodes.filter { node in
            let isAsked = node.askedAt.map { loop.now - $0 < RedisLimits.strangerSpan } ?? false
            return !named.contains(node.endpoint) && !isAsked
        }
        nodes.removeAll { node in strangers.contains { $0 === node } }
        var places: [RedisEndpoint: UInt16] = [:]
        for endpoint in named where node(at: endpoint) != nil {
            places[endpoint] = nodes.firstIndex { $0.endpoint == endpoint }.map { UInt16($0) }
        }
        table.update(repeating: Self.nobody, count: RedisSlot.count)
        for range in map.ranges {
            let place = places[range.master] ?? Self.nobody
            for slot in range.slots { table[Int(slot)] = place }
        }
        uncovered = (0..<RedisSlot.count).count { table[$0] == Self.nobody }
        for node in strangers { retire(node) }
    }

    // MARK: - Redirections

    func redirect(
        _ refusal: RedisRefusal, _ command: PendingCommand, _ bytes: [UInt8], from: RedisNode
    ) -> Bool {
        if refusal.kind == .clusterDown { perform(refresh.wanted(at: loop.now)) }
        guard !isClosed, let target = Redirection(refusal.detail, from: from.endpoint),
            let node = node(at: target.endpoint)
        else { return false }
        node.askedAt = loop.now
        if refusal.kind == .moved { moved(target.slot, to: node) }
        guard command.hops < RedisLimits.redirections, let connection = node.usable else {
            return false
        }
        if refusal.kind == .ask {
            let error = connection.send(to: asking, tag: 0) { $0.append("*1\r\n$6\r\nASKING\r\n") }
            guard error == nil else { return false }
        }
        return connection.send(
            to: command.handler, tag: command.tag, hops: command.hops + 1
        ) { $0.append(bytes) } == nil
    }

    private func moved(_ slot: RedisSlot, to node: RedisNode) {
        if let place = nodes.firstIndex(where: { $0 === node }) {
            if table[Int(slot.number)] == Self.nobody { uncovered -= 1 }
            table[Int(slot.number)] = UInt16(place)
        }
        perform(refresh.wanted(at: loop.now))
    }
}

/// The reply to ASKING says nothing; what follows it does.
private final class AskingReply: RedisReplyHandler {
    func replied(_ reply: RedisReply, tag: UInt64) {}
    func failed(_ error: RedisError, tag: UInt64) {}
}

/// Asks a node for its map; told once.
private final class MapQuestion: RedisReplyHandler {
    private let source: RedisEndpoint
    private let done: (SlotMap?) -> Void

    init(_ source: RedisEndpoint, _ done: @escaping (SlotMap?) -> Void) {
        self.source = source
        self.done = done
    }

    func replied(_ reply: RedisReply, tag: UInt64) { done(SlotMap(reply, from: source)) }
    func failed(_ error: RedisError, tag: UInt64) { done(nil) }
}
