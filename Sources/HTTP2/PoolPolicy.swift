public import Base
public import EventLoop

/// How a pool treats one gateway: the numbers that differ between APNs, FCM and the rest.
public struct PoolPolicy: Sendable {
    /// When a connection's liveness is checked by PING.
    public struct Ping: Sendable {
        /// Silence, with a stream open, after which a PING is sent.
        public var afterSilence: TimeSpan
        /// How long the answer may take before the connection counts as dead.
        public var answerWithin: TimeSpan
        /// The shortest time between two PINGs on one connection.
        public var interval: TimeSpan
        /// A connection that was silent that long is asked before it gets a new request.
        public var beforeReuse: Bool
        /// Silence, with no stream open, after which a PING is sent; nil means never.
        public var whileIdle: TimeSpan?

        /// A PING policy.
        public init(
            afterSilence: TimeSpan, answerWithin: TimeSpan, interval: TimeSpan, beforeReuse: Bool,
            whileIdle: TimeSpan?
        ) {
            self.afterSilence = afterSilence
            self.answerWithin = answerWithin
            self.interval = interval
            self.beforeReuse = beforeReuse
            self.whileIdle = whileIdle
        }
    }

    /// Whether a peer that does not offer HTTP/2 is spoken to over HTTP/1.1, one request at a time
    /// on each connection.
    public var speaksHTTP11 = false
    /// Connections kept while there is work.
    public var connectionsMin = 1
    /// Connections never exceeded, those being drained not counted.
    public var connectionsMax = 1
    /// Streams open on one connection, whatever more the peer allows.
    public var streamsMax = 1000
    /// From writing a request to its answer.
    public var requestTimeout = TimeSpan.seconds(20)
    /// How connections leave this machine.
    public var egress = Egress.direct
    /// Which addresses connections may lead to.
    public var reach = AddressReach.any
    /// Look-up, TCP and TLS together.
    public var connectTimeout = TimeSpan.seconds(10)
    /// From the end of the TLS handshake to the peer's first SETTINGS.
    public var settingsTimeout = TimeSpan.seconds(10)
    /// How long the socket may refuse to take bytes.
    public var writeStall = TimeSpan.seconds(10)
    /// How long a connection with open streams may be silent, PING or not.
    public var noProgress = TimeSpan.seconds(30)
    /// When and whether PINGs are sent.
    public var ping: Ping
    /// How long a connection without streams is kept; nil means until the peer closes it.
    public var idleClose: TimeSpan?
    /// The age at which a connection is replaced by a fresh one; nil means never.
    public var ageMax: TimeSpan? = .hours(18)
    /// Streams after which a connection is replaced; ids end at 2^31 - 1 and only odd ones are ours.
    public var streamsPerConnection: UInt64 = Limits.streamsPerConnectionMax
    /// Connection attempts are made once in this time on average.
    public var dialInterval = TimeSpan.seconds(1)
    /// How many attempts may follow each other at once, after a time without any: the first
    /// connections, and the replacement of one that a GOAWAY ends, are not kept waiting.
    public var dialBurst = 3
    /// The first and the longest reconnect delay; the delay is drawn evenly from zero up to it.
    public var reconnectDelayMin = TimeSpan.milliseconds(500)
    /// See `reconnectDelayMin`.
    public var reconnectDelayMax = TimeSpan.seconds(60)
    /// The first wait after ENHANCE_YOUR_CALM; it doubles up to ten times as much.
    public var calmDelay = TimeSpan.seconds(30)
    /// A request that waited longer than this counts as pressure to open a connection.
    public var growthWait = TimeSpan.milliseconds(200)
    /// How long pressure must last before a connection is added.
    public var growthPressure = TimeSpan.seconds(2)
    /// How long use must stay low before a surplus connection is retired.
    public var shrinkAfter = TimeSpan.minutes(10)
    /// Use below this part of the pool's streams counts as low.
    public var shrinkBelow = 0.3
    /// How often a pool that stopped for a credential fault tries whether it still is one.
    public var suspendedRetry = TimeSpan.minutes(5)

    /// A policy with the given PING rules and the common defaults.
    public init(ping: Ping) { self.ping = ping }

    /// APNs: connections live for days; a silent one proves itself before it is used.
    public static func apns(connectionsMin: Int = 2, connectionsMax: Int = 10) -> PoolPolicy {
        var policy = PoolPolicy(
            ping: Ping(
                afterSilence: .seconds(15), answerWithin: .seconds(10), interval: .seconds(15),
                beforeReuse: true, whileIdle: .hours(1)))
        policy.connectionsMin = connectionsMin
        policy.connectionsMax = connectionsMax
        return policy
    }

    /// FCM: never a PING without an open stream; an idle connection is given up after five minutes.
    public static func fcm(connectionsMin: Int = 2, connectionsMax: Int = 4) -> PoolPolicy {
        var policy = PoolPolicy(ping: .onlyWithStreams)
        policy.connectionsMin = connectionsMin
        policy.connectionsMax = connectionsMax
        policy.requestTimeout = .seconds(15)
        policy.idleClose = .minutes(5)
        return policy
    }

    /// Web Push: many hosts, few requests each, at addresses that clients chose.
    public static func webPush(
        connectionsMax: Int = 4, reach: AddressReach = .publicOnly
    ) -> PoolPolicy {
        var policy = PoolPolicy(ping: .onlyWithStreams)
        policy.reach = reach
        policy.speaksHTTP11 = true
        policy.connectionsMax = connectionsMax
        policy.requestTimeout = .seconds(15)
        policy.idleClose = .seconds(90)
        return policy
    }

    /// Expo: at most six requests in flight.
    public static func expo() -> PoolPolicy {
        var policy = PoolPolicy(ping: .onlyWithStreams)
        policy.streamsMax = 6
        policy.requestTimeout = .seconds(30)
        policy.idleClose = .minutes(5)
        return policy
    }
}

extension PoolPolicy.Ping {
    /// No PING unless a request waits for its answer, and at most one in 30 seconds.
    public static let onlyWithStreams = PoolPolicy.Ping(
        afterSilence: .seconds(15), answerWithin: .seconds(10), interval: .seconds(30),
        beforeReuse: false, whileIdle: nil)
}
