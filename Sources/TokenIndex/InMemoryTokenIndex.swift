// The index for demonstrations, development and tests: one store per process, the same rules and
// the same test suite as the one in Redis. Readers on lanes and the writer reach the store under
// one lock, which is held for one change or one turn's look-ups.

public import Base
public import EventLoop
internal import Synchronization

/// A process-wide store that makes readers and writers.
public final class InMemoryTokenIndex: Sendable {
    private let state = Mutex(IndexState())
    private let complete = Atomic<Bool>(false)
    private let time: any TimeSource

    /// An empty store. Look-ups wait until it is marked complete.
    public init(time: any TimeSource = SystemTime.shared) { self.time = time }

    /// Says whether everything that the topics hold has been applied once.
    public func mark(complete isComplete: Bool) {
        complete.store(isComplete, ordering: .releasing)
    }

    /// Whether everything that the topics hold has been applied once.
    public var isComplete: Bool { complete.load(ordering: .acquiring) }

    /// How many addresses may be sent to, over all users.
    public var addressCount: Int { state.withLock { $0.listedCount } }

    /// A reader for one lane.
    public func reader(
        on loop: EventLoop, addressesPerUser: Int = IndexLimits.addressesPerUser
    ) -> any TokenIndex {
        InMemoryReader(store: self, loop: loop, addressesPerUser: addressesPerUser)
    }

    /// A writer; changes are applied within the call, under the lock.
    public func writer() -> any IndexWriter { InMemoryWriter(store: self) }

    /// Applies a change at once.
    @discardableResult
    public func apply(_ change: IndexChange, at position: TopicPosition) -> ChangeResult {
        let now = time.wall
        return state.withLock { $0.apply(change, at: position, now: now) }
    }

    /// A user's addresses at this moment, and how many over the limit were left out.
    public func addresses(
        app: String, userID: String, limit: Int = IndexLimits.addressesPerUser
    ) -> (addresses: [DeviceAddress], dropped: Int) {
        var found = NewestAddresses(limit: limit)
        state.withLock { $0.addresses(of: userID, app: app, into: &found) }
        let addresses = found.finish()
        return (addresses, found.dropped)
    }
}

private final class InMemoryWriter: IndexWriter {
    var delegate: (any IndexWriterDelegate)?
    private let store: InMemoryTokenIndex

    init(store: InMemoryTokenIndex) { self.store = store }

    func apply(_ change: IndexChange, at position: TopicPosition, tag: UInt64) {
        let result = store.apply(change, at: position)
        delegate?.changeFinished(tag: tag, result)
    }

    func assign(_ partitions: [IndexTopicPartition], of total: Int) {
        delegate?.applyFrom(
            partitions.map {
                IndexTopicPosition(topic: $0.topic, partition: $0.partition, nextOffset: 0)
            })
    }

    func mark(_ positions: [IndexTopicPosition]) {
        store.mark(complete: true)
        delegate?.markersWritten()
    }

    func renew(_ positions: [IndexTopicPosition]) {}

    func stop() { delegate = nil }
}

private final class InMemoryReader: TokenIndex, TurnEndHandler {
    private struct LookUp {
        var app: String
        var userID: String
        var tag: UInt64
    }

    var delegate: (any TokenIndexDelegate)?
    private let store: InMemoryTokenIndex
    private let loop: EventLoop
    private let addressesPerUser: Int
    private var lookUps: [LookUp] = []
    private var refused: [UInt64] = []
    private var wasReady: Bool
    private var isAwaitingTurnEnd = false
    private lazy var retryTimer = LoopTimer { [unowned self] in serve() }

    init(store: InMemoryTokenIndex, loop: EventLoop, addressesPerUser: Int) {
        self.store = store
        self.loop = loop
        self.addressesPerUser = addressesPerUser
        wasReady = store.isComplete
        if !wasReady { loop.schedule(retryTimer, at: loop.now + IndexLimits.readinessInterval) }
    }

    var readiness: IndexReadiness {
        store.isComplete ? .ready : .incomplete("the topics have not been read to their end yet")
    }

    func lookUp(app: String, userID: String, tag: UInt64) {
        if lookUps.count < IndexLimits.lookUpsOpen {
            lookUps.append(LookUp(app: app, userID: userID, tag: tag))
        } else {
            refused.append(tag)
        }
        guard !isAwaitingTurnEnd else { return }
        isAwaitingTurnEnd = true
        loop.atEndOfTurn(self)
    }

    func turnEnded() {
        isAwaitingTurnEnd = false
        serve()
    }

    func stop() {
        loop.cancel(retryTimer)
        lookUps = []
        refused = []
        delegate = nil
    }

    private func serve() {
        let isReady = store.isComplete
        if isReady != wasReady {
            wasReady = isReady
            delegate?.indexReadinessChanged()
        }
        for tag in refused {
            let fault = IndexFault.tooManyWaiting(limit: IndexLimits.lookUpsOpen)
            delegate?.lookUpFinished(tag: tag, .unavailable(fault))
        }
        refused = []
        guard isReady else {
            loop.schedule(retryTimer, at: loop.now + IndexLimits.readinessInterval)
            return
        }
        let batch = lookUps
        lookUps = []
        for lookUp in batch {
            let (addresses, dropped) = store.addresses(
                app: lookUp.app, userID: lookUp.userID, limit: addressesPerUser)
            delegate?.lookUpFinished(
                tag: lookUp.tag, .addresses(addresses, dropped: dropped, at: loop.now))
        }
    }
}
