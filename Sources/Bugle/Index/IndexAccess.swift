// The token index as a command reaches it.

internal import Base
internal import Config
internal import Kafka
internal import TokenIndex

/// A configuration's index and topics.
internal struct IndexAccess {
    let configuration: Configuration
    let cluster: ClusterAccess

    init(_ configuration: Configuration) throws(Failure) {
        self.configuration = configuration
        cluster = try ClusterAccess(configuration)
    }

    /// The app that `--app` names; without it the only one.
    func app(_ arguments: Arguments) throws(Failure) -> String {
        let apps = configuration.apps.map(\.name)
        guard let name = arguments.text("app") else {
            if apps.count == 1 { return apps[0] }
            throw .usage("--app is missing; one of \(apps.joined(separator: ", "))")
        }
        guard apps.contains(name) else {
            let nearest = NearestName.find(name, among: apps)
            throw .usage(
                "--app \(name): there is no such app"
                    + (nearest.map { "; did you mean \($0)?" } ?? ""))
        }
        return name
    }

    /// The index in Redis, for what concerns the store itself.
    func redis() throws(Failure) -> RedisIndexOperator {
        guard configuration.index.store == .redis else {
            throw .failed(
                "index.store is memory: each process has an index of its own, and there is no "
                    + "other to look at")
        }
        // A command can wait; a lane could not.
        var patient = configuration
        patient.redis.timeout = max(patient.redis.timeout, .seconds(10))
        let index = try IndexStore.redisIndex(patient)
        return try Self.orFail { () throws(IndexOperationError) in try RedisIndexOperator(index) }
    }

    /// The index, wherever it is. One in the processes' memory is built here from the topics.
    func operations() throws(Failure) -> any IndexOperations {
        if configuration.index.store == .redis { return try redis() }
        let model = InMemoryTokenIndex(fusePolicy: FusePolicy(configuration.index.fuse))
        try IndexTopicScan(configuration, cluster).readToEnd { model.apply($0) }
        return model
    }

    /// The policy by which addresses are stale.
    var staleness: StalenessPolicy { StalenessPolicy(configuration.index.staleness) }

    /// Says in a command's words why the index did not do something.
    static func orFail<Value>(
        _ body: () throws(IndexOperationError) -> Value
    ) throws(Failure) -> Value {
        do throws(IndexOperationError) {
            return try body()
        } catch {
            switch error {
            case .unavailable:
                throw .failed("\(error); start Redis, or correct redis.address and its password")
            case .noSuchFuse: throw .failed("\(error); bugle index stats lists them")
            }
        }
    }
}

extension InMemoryTokenIndex {
    /// Applies all that a record says.
    internal func apply(_ record: IndexRecord) {
        for change in record.changes { apply(change, at: record.position) }
    }
}
