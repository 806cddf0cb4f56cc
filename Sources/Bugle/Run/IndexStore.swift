internal import Base
internal import Config
internal import EventLoop
internal import Redis
internal import TokenIndex

/// Where a configuration keeps its token index.
internal enum IndexStore: Sendable {
    /// In Redis.
    case redis(RedisTokenIndex)
    /// In this process.
    case memory(InMemoryTokenIndex)

    /// The store of a configuration; the password is read here.
    init(_ configuration: Configuration) throws(Failure) {
        switch configuration.index.store {
        case .memory: self = .memory(InMemoryTokenIndex())
        case .redis:
            self = .redis(
                RedisTokenIndex(
                    try Self.connection(configuration.redis), prefix: configuration.redis.prefix))
        }
    }

    /// How Redis is reached.
    static func connection(_ redis: Configuration.Redis) throws(Failure) -> RedisConfiguration {
        var password: String?
        do throws(SecretSourceError) {
            password = try redis.password?.read().exposed
        } catch {
            throw .failed("redis.password: \(error)")
        }
        var connection = RedisConfiguration(
            host: redis.address.host, port: redis.address.port, user: redis.username,
            password: password, database: redis.database, clientName: "bugle")
        connection.commandTimeout = redis.timeout
        connection.connectTimeout = redis.timeout
        return connection
    }

    /// A lane's reader.
    func reader(on loop: EventLoop, addressesPerUser: Int) -> any TokenIndex {
        switch self {
        case .redis(let index): index.reader(on: loop, addressesPerUser: addressesPerUser)
        case .memory(let index): index.reader(on: loop, addressesPerUser: addressesPerUser)
        }
    }

    /// The feed's writer.
    func writer(on loop: EventLoop) -> any IndexWriter {
        switch self {
        case .redis(let index): index.writer(on: loop)
        case .memory(let index): index.writer()
        }
    }

    /// Whether other processes see the same index.
    var isShared: Bool {
        if case .redis = self { return true }
        return false
    }
}
