public import Base
public import Crypto
public import EventLoop

/// HTTP/2 connections to one origin with one credential, and the requests that go over them.
///
/// The pool owns a request from `submit` until it hands it back with its result. A request waits in
/// the pool's queue, never in a connection's, and what a connection provably did not process
/// returns to its old place in that queue. What may have been processed is reported, not resent.
///
/// Loop-confined. Nothing is called back from inside `submit`. The owner calls `close()` before it
/// lets go: connections and pool hold each other until then.
public final class HTTP2Pool: TurnEndHandler {
    /// Where the requests go.
    public let origin: Origin

    /// Told about results and faults; a strong reference.
    @exclusivity(unchecked) public var delegate: (any HTTP2PoolDelegate)?

    // What is touched for each request is not checked for exclusivity at run time: everything runs
    // on the loop's thread, and no access lasts longer than its statement or calls out.

    /// Counts since the pool was made.
    @exclusivity(unchecked) public internal(set) var statistics = PoolStatistics()

    @exclusivity(unchecked) var written = 0

    /// Requests written and not answered.
    public var inFlight: Int { written }

    let loop: EventLoop
    private(set) var tls: TLSContext
    let policy: PoolPolicy
    /// Input of the connection that is being read; all connections of the pool take turns.
    let readBuffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: Limits.readBufferBytes, alignment: 16)

    @exclusivity(unchecked) var connections: [Connection] = []
    @exclusivity(unchecked) var plan: PoolPlan
    @exclusivity(unchecked) var delay: ReconnectDelay
    @exclusivity(unchecked) var calm = CalmCap()
    @exclusivity(unchecked) var queue = ExchangeList()
    /// Refused requests that wait out their delay.
    @exclusivity(unchecked) var delayed: [Exchange] = []
    /// Requests that were not taken in, to be handed back at the end of the turn.
    @exclusivity(unchecked) var rejected: [(Exchange, TransportFault)] = []
    @exclusivity(unchecked) var earliestDeadline = MonotonicTime.distantFuture
    @exclusivity(unchecked) var lastSweep = MonotonicTime(nanos: 0)
    /// One delay for all requests refused in a turn, so that they keep their order.
    @exclusivity(unchecked) var refusedDelayEnd: MonotonicTime?
    /// When the next connection is dialled, if one is wanted.
    @exclusivity(unchecked) var dialTime: MonotonicTime?
    @exclusivity(unchecked) var timerDue = MonotonicTime.distantFuture
    /// Whether the peer has asked for HTTP/1.1 on a connection that speaks HTTP/2.
    @exclusivity(unchecked) var isHTTP11Only = false
    /// Whether connections that were made before it has are to be replaced.
    @exclusivity(unchecked) private var leavesHTTP2 = false
    @exclusivity(unchecked) var isDraining = false
    /// Whether the last word on connections was that they do not come about.
    @exclusivity(unchecked) var isUnreachable = false
    @exclusivity(unchecked) var isClosed = false

    @exclusivity(unchecked) private var exchanges: [Exchange] = []
    @exclusivity(unchecked) private var spare: [Exchange] = []
    @exclusivity(unchecked) private var submissions: UInt64 = 0
    @exclusivity(unchecked) private var needsTurnEnd = false
    private(set) lazy var timer = LoopTimer { [unowned self] in setNeedsTurnEnd() }

    /// A pool without connections; the first request dials.
    public init(loop: EventLoop, origin: Origin, tls: TLSContext, policy: PoolPolicy) {
        self.loop = loop
        self.origin = origin
        self.tls = tls
        self.policy = policy
        plan = PoolPlan(policy: policy)
        delay = ReconnectDelay(policy: policy)
    }

    deinit {
        loop.cancel(timer)
        readBuffer.deallocate()
    }

    /// Requests that wait to be written.
    public var queued: Int { queue.count + delayed.count }

    /// Connections of any state.
    public var connectionCount: Int { connections.count }

    /// Connections that take requests.
    public var openConnectionCount: Int { connections.count { $0.machine.isOpen } }

    /// The streams that the peer allows on the connections that take requests, in sum.
    public var streamLimit: Int {
        let cap = calm.value(at: loop.now)
        return connections.reduce(0) {
            $0 + ($1.machine.isOpen ? $1.machine.limit(cap: cap) : 0)
        }
    }

    /// Puts what is not urgent behind what is, in the order of submission.
    static let afterUrgent: UInt64 = 1 << 63

    /// Takes a request in. No attempt is written after `deadline`; a written one has the policy's
    /// request time-out for its answer. The request belongs to the pool until it is handed back.
    /// Urgent ones are written before all that are not.
    public func submit(
        _ request: OutboundRequest, tag: UInt64, deadline: MonotonicTime, isUrgent: Bool = false
    ) {
        let exchange = takeSpare()
        submissions += 1
        exchange.request = request
        exchange.tag = tag
        exchange.deadline = deadline
        exchange.sequence = isUrgent ? submissions : submissions | Self.afterUrgent
        exchange.resends = 0
        exchange.queuedAt = loop.now
        if isClosed || isDraining {
            rejected.append((exchange, .closed))
        } else if queued >= Limits.queuedRequestsMax {
            rejected.append((exchange, .queueFull))
        } else {
            earliestDeadline = min(earliestDeadline, deadline)
            if isUrgent { queue.insertInOrder(exchange) } else { queue.append(exchange) }
        }
        setNeedsTurnEnd()
    }

    /// Takes no new requests; what was submitted is still sent, then the connections close.
    public func drain() {
        isDraining = true
        setNeedsTurnEnd()
    }

    /// Closes all connections and hands everything back, before it returns: as not processed what
    /// was not written, as ambiguous what was.
    public func close() {
        guard !isClosed else { return }
        isClosed = true
        loop.cancel(timer)
        for connection in connections { connection.close(.closed) }
        handBackQueue(.closed)
        handBackRejected()
    }

    /// Lets no further request on the present connections and dials anew: for a credential that
    /// was replaced, and the way out of a pool that stopped because of it.
    public func replaceConnections() {
        guard !isClosed else { return }
        delay.credentialsReplaced()
        for connection in connections {
            if connection.machine.isOpening { connection.close(nil) } else { connection.drain() }
        }
        setNeedsTurnEnd()
    }

    /// The same with another context: connections that are dialled from now on trust and show what
    /// it says. What is under way ends on its connection, what waits goes over a new one.
    public func replaceConnections(with tls: TLSContext) {
        self.tls = tls
        isHTTP11Only = false
        replaceConnections()
    }

    /// The peer takes requests over HTTP/1.1 only, whatever it agreed on: it gets them so from now
    /// on.
    func leaveHTTP2() {
        guard !isHTTP11Only else { return }
        isHTTP11Only = true
        leavesHTTP2 = true
        setNeedsTurnEnd()
    }

    /// Lets no further request on connections that speak HTTP/2, or may come to. At the end of a
    /// turn: one of them is being read when the peer asks for it.
    private func endHTTP2Connections() {
        guard leavesHTTP2 else { return }
        leavesHTTP2 = false
        for connection in connections {
            if connection.machine.isOpening { connection.close(nil) } else { connection.drain() }
        }
    }

    /// Lets the next request dial without waiting out the back-off of earlier failures: for an
    /// owner that paces its attempts itself. The cap of one attempt a second stays.
    public func forgetBackOff() { delay.forgetBackOff() }

    func setNeedsTurnEnd() {
        guard !needsTurnEnd else { return }
        needsTurnEnd = true
        loop.atEndOfTurn(self)
    }

    /// Writes what the turn has brought; called by the loop.
    public func turnEnded() {
        needsTurnEnd = false
        handBackRejected()
        guard !isClosed else { return }
        refusedDelayEnd = nil
        endHTTP2Connections()
        releaseDelayed()
        sweepQueue()
        dispatch()
        for connection in connections { connection.flush() }
        adjustConnections()
        armTimer()
    }

    // MARK: Slots

    private func takeSpare() -> Exchange {
        if let exchange = spare.popLast() { return exchange }
        let exchange = Exchange()
        exchanges.append(exchange)
        return exchange
    }

    /// Tells a result and frees the slot.
    func finish(_ exchange: Exchange, _ result: HTTPResult) {
        guard let request = exchange.request else { return }
        exchange.request = nil
        exchange.streamID = 0
        delegate?.pool(self, finished: exchange.tag, request, result)
        spare.append(exchange)
    }
}
