// The index in Redis: makes a reader per lane and a writer for the index role.

public import Base
public import EventLoop
public import Redis

/// Where the index lives in Redis.
public struct RedisTokenIndex: Sendable {
    internal let configuration: RedisConfiguration
    internal let layout: RedisLayout
    /// When an address counts as dead because it was not seen.
    public var staleness = StalenessPolicy.never
    /// How often and how fast a writer looks for such addresses.
    public var sweep = SweepPolicy.never
    /// When a fuse trips.
    public var fusePolicy = FusePolicy()
    /// How far the topics may be ahead of what look-ups show; beyond it they wait.
    public var lagMax = TimeSpan.minutes(2)

    /// An index under a key prefix, which must hold no braces.
    public init(_ configuration: RedisConfiguration, prefix: String = "bugle:") {
        layout = RedisLayout(prefix: prefix)
        var configuration = configuration
        configuration.probeKey = Self.probeKey(prefix: prefix)
        self.configuration = configuration
    }

    /// A key under the prefix that never exists: deleting it shows whether a server takes writes.
    public static func probeKey(prefix: String) -> String { "\(prefix){b0}:w" }

    /// A reader with a connection of its own. The observers are called on the loop: for every
    /// change of the connection, and with the time each command took.
    public func reader(
        on loop: EventLoop, addressesPerUser: Int = IndexLimits.addressesPerUser,
        observer: ((RedisEvent) -> Void)? = nil, latencyObserver: ((TimeSpan) -> Void)? = nil
    ) -> any TokenIndex {
        RedisIndexReader(
            configuration, layout: layout, on: loop, addressesPerUser: addressesPerUser,
            staleness: staleness, lagMax: lagMax,
            observer: observer, latencyObserver: latencyObserver)
    }

    /// A writer with a connection of its own. `warning` gets a text for the operator when the
    /// server is set up in a way that endangers the index.
    public func writer(
        on loop: EventLoop, observer: ((RedisEvent) -> Void)? = nil,
        warning: ((String) -> Void)? = nil
    ) -> any IndexWriter {
        RedisIndexWriter(self, on: loop, observer: observer, warning: warning)
    }

    internal func testableWriter(on loop: EventLoop) -> RedisIndexWriter {
        RedisIndexWriter(self, on: loop, observer: nil, warning: nil)
    }
}
