internal import Base
internal import Config
internal import Crypto
internal import EventLoop
internal import Redis
internal import Telemetry
internal import TokenIndex

/// Where a configuration keeps its token index.
internal enum IndexStore: Sendable {
    /// In Redis.
    case redis(RedisTokenIndex, RedisEventLog)
    /// In this process.
    case memory(InMemoryTokenIndex, InMemoryEventMarks, InMemoryUsage)

    /// The store of a configuration; the password is read here.
    init(_ configuration: Configuration, log: Log) throws(Failure) {
        switch configuration.index.store {
        case .memory:
            self = .memory(
                InMemoryTokenIndex(
                    staleness: StalenessPolicy(configuration.index.staleness),
                    sweep: SweepPolicy(configuration.index.sweep),
                    fusePolicy: FusePolicy(configuration.index.fuse),
                    lagMax: configuration.index.lagMax), InMemoryEventMarks(), InMemoryUsage())
        case .redis:
            self = .redis(
                try Self.redisIndex(configuration),
                RedisEventLog(log, address: configuration.redis.addressText))
        }
    }

    /// The index in Redis that a configuration names.
    static func redisIndex(_ configuration: Configuration) throws(Failure) -> RedisTokenIndex {
        var index = RedisTokenIndex(
            try Self.connection(configuration.redis), prefix: configuration.redis.prefix)
        index.staleness = StalenessPolicy(configuration.index.staleness)
        index.sweep = SweepPolicy(configuration.index.sweep)
        index.fusePolicy = FusePolicy(configuration.index.fuse)
        index.lagMax = configuration.index.lagMax
        return index
    }

    /// How Redis is reached; password and certificates are read here.
    static func connection(_ redis: Configuration.Redis) throws(Failure) -> RedisConfiguration {
        var password: String?
        do throws(SecretSourceError) {
            password = try redis.password?.read().exposed
        } catch {
            throw .failed("redis.password: \(error)")
        }
        var connection = RedisConfiguration(
            endpoints: redis.addresses.map { RedisEndpoint(host: $0.host, port: $0.port) },
            user: redis.username, password: password, database: redis.database,
            clientName: "bugle")
        switch redis.cluster {
        case .auto: connection.cluster = .auto
        case .true: connection.cluster = .always
        case .false: connection.cluster = .never
        }
        connection.tls = try redis.tls.map { tls throws(Failure) in try secured(tls) }
        connection.probeKey = RedisTokenIndex.probeKey(prefix: redis.prefix)
        connection.commandTimeout = redis.timeout
        connection.connectTimeout = redis.timeout
        return connection
    }

    private static func secured(_ tls: Configuration.Redis.TLS) throws(Failure) -> RedisTLS {
        do throws(TLSError) {
            var identity: TLSContext.Identity?
            if let certificate = tls.certificateFile, let key = tls.keyFile {
                identity = try .init(certificateFile: certificate, keyFile: key)
            }
            return RedisTLS(
                try TLSContext.client(caFile: tls.caFile, alpn: [], identity: identity),
                serverName: tls.serverName)
        } catch {
            throw .failed("redis.tls: \(error)")
        }
    }

    /// A lane's reader.
    func reader(on loop: EventLoop, addressesPerUser: Int) -> any TokenIndex {
        switch self {
        case .redis(let index, let events):
            index.reader(
                on: loop, addressesPerUser: addressesPerUser, observer: { events.note($0) })
        case .memory(let index, _, _): index.reader(on: loop, addressesPerUser: addressesPerUser)
        }
    }

    /// A lane's view of the marks of what was pushed.
    func marks(on loop: EventLoop) -> any EventMarks {
        switch self {
        case .redis(let index, _): index.marks(on: loop)
        case .memory(_, let marks, _): marks.marks()
        }
    }

    /// A lane's view of how often people, devices and sources were served.
    func usage(on loop: EventLoop) -> any UsageCounters {
        switch self {
        case .redis(let index, _): index.usage(on: loop)
        case .memory(_, _, let usage): usage.counters()
        }
    }

    /// The feed's writer.
    func writer(on loop: EventLoop) -> any IndexWriter {
        switch self {
        case .redis(let index, let events):
            index.writer(
                on: loop, observer: { events.note($0) }, warning: { events.warn($0) })
        case .memory(let index, _, _): index.writer()
        }
    }

    /// Whether other processes see the same index.
    var isShared: Bool {
        if case .redis = self { return true }
        return false
    }
}

/// Tells in the log when Redis cannot be used, not more often than is useful: several connections
/// meet the same trouble, and each tries again and again.
internal final class RedisEventLog: Sendable {
    private let log: RateLimitedLog
    private let address: String

    init(_ log: Log, address: String) {
        self.log = RateLimitedLog(log, limit: 1, interval: .minutes(1))
        self.address = address
    }

    /// Something about the server that an operator should change.
    func warn(_ text: String) { log.warning(text, ["address": LogValue(address)]) }

    /// Called on the loops of lanes and writer.
    func note(_ event: RedisEvent) {
        switch event {
        case .ready: break
        case .lost(let error), .attemptFailed(let error):
            log.warning(
                "no use of Redis; look-ups wait until it is back",
                ["address": LogValue(address), "error": LogValue(error.description)])
        }
    }
}

extension StalenessPolicy {
    /// The policy of a configuration.
    internal init(_ settings: Configuration.Index.Staleness) {
        self.init(after: settings.after, fcmAfter: settings.fcmAfter)
    }
}

extension SweepPolicy {
    /// The policy of a configuration.
    internal init(_ settings: Configuration.Index.Sweep) {
        self.init(interval: settings.interval, keysPerSecond: settings.rate)
    }
}

extension FusePolicy {
    /// The policy of a configuration.
    internal init(_ settings: Configuration.Index.Fuse) {
        self.init()
        permille = settings.percent * 10
        tokensMin = settings.tokensMin
        window = settings.window
    }
}
