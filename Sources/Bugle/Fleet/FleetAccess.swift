internal import Base
internal import Config
internal import Glibc
internal import JSON
internal import Kafka
internal import Pipeline

/// The fleet as the command line sees it: operators' words, replicas' reports, and how to say
/// something. Confined to one thread.
internal final class FleetAccess {
    let cluster: ClusterAccess
    let settings: FleetSettings
    /// What operators have said.
    private(set) var book = ControlBook()
    /// What the replicas of the group said last, by instance.
    private(set) var replicas: [String: ReplicaReport] = [:]
    private let reader: TopicReader
    private let parser = JSONParser()

    /// How long both topics may take to be read.
    private static let timeout = TimeSpan.seconds(20)

    /// Reads everything that was said so far.
    init(_ configuration: Configuration) throws(Failure) {
        let cluster = try ClusterAccess(configuration)
        let names = configuration.kafka.topics
        let settings = FleetSettings(
            kafka: cluster.configuration, control: names.control, status: names.status,
            group: configuration.kafka.group, instance: "")
        self.cluster = cluster
        self.settings = settings
        let counts = try cluster.partitionCounts()
        for name in [names.control, names.status] where (counts[name] ?? 0) == 0 {
            throw .failed("\(name) does not exist; bugle topics apply creates it")
        }
        do throws(KafkaError) {
            reader = try TopicReader(
                cluster.configuration, topics: [names.control, names.status], from: .beginning)
        } catch {
            throw cluster.failure(error, doing: "read \(names.control)")
        }
        let deadline = SystemTime.shared.monotonic + Self.timeout
        while !reader.hasReachedEveryEnd {
            guard SystemTime.shared.monotonic < deadline else {
                throw .failed("kafka: \(names.control) cannot be read to its end")
            }
            read(upTo: .milliseconds(100))
        }
    }

    /// Takes in what is said meanwhile.
    func read(upTo timeout: TimeSpan) { reader.read(max: 1_000, timeout: timeout) { take($0) } }

    /// The replicas that were heard lately.
    var live: [ReplicaReport] {
        let now = SystemTime.shared.wall
        return replicas.values.filter { !$0.isStale(at: now) }
            .sorted { $0.instance < $1.instance }
    }

    /// Says something; returns its offset.
    func say(_ record: ControlRecord) throws(Failure) -> Int64 {
        let bytes = ByteWriter()
        record.write(to: bytes)
        return try write(record.key, bytes.array)
    }

    /// Takes the word of a key back.
    func takeBack(_ key: String) throws(Failure) -> Int64 { try write(key, nil) }

    private func write(_ key: String, _ value: [UInt8]?) throws(Failure) -> Int64 {
        do throws(KafkaError) {
            let producer = try TopicProducer(cluster.configuration)
            return try producer.sendAndWait(
                to: settings.control, key: Array(key.utf8), value: value
            ).offset
        } catch {
            throw cluster.failure(error, doing: "publish to \(settings.control)")
        }
    }

    /// Waits until every live replica has a word in force; calls `confirmed` for each. Returns the
    /// instances that did not say so in time.
    func wait(
        for offset: Int64, upTo span: TimeSpan, _ confirmed: (ReplicaReport, TimeSpan) -> Void
    ) -> [String] {
        let start = SystemTime.shared.monotonic
        var done: Set<String> = []
        // One that falls silent meanwhile has not said so; one that has stopped need not.
        var asked: Set<String> = []
        while true {
            asked.formUnion(live.map(\.instance))
            for replica in live
            where replica.controlOffset >= offset && !done.contains(replica.instance) {
                done.insert(replica.instance)
                confirmed(replica, SystemTime.shared.monotonic - start)
            }
            let missing = asked.subtracting(done).filter { replicas[$0] != nil }.sorted()
            if missing.isEmpty || SystemTime.shared.monotonic - start > span { return missing }
            read(upTo: .milliseconds(50))
        }
    }

    private func take(_ record: borrowing KafkaRecord) {
        let now = SystemTime.shared.wall
        guard record.topic == settings.status else {
            return book.apply(key: record.key, value: record.value, at: now, parser: parser)
        }
        let key = record.key.map { String(decoding: $0, as: UTF8.self) } ?? ""
        guard key.hasPrefix(settings.group + "/") else { return }
        let at = UnixMillis(record.timestampMillis ?? now.value)
        replicas[String(key.dropFirst(settings.group.count + 1))] = record.value.flatMap {
            ReplicaReport($0, at: at, parser: parser)
        }
    }
}

extension Arguments {
    /// The one lever that was named by an option.
    func lever(isSaidBefore: Bool = false) throws(Failure) -> Lever? {
        let named = LeverKind.allCases.filter { has($0.rawValue) }
        guard let kind = named.first else { return nil }
        guard named.count == 1, let value = text(kind.rawValue) else {
            throw .usage("--\(named[1].rawValue): name one lever at a time")
        }
        if kind == .type, !isSaidBefore, let fault = Self.fault(inPattern: value) {
            throw .usage("--type \(value): \(fault)")
        }
        guard let lever = Lever(kind, value) else {
            throw .usage(
                kind == .gateway
                    ? "--gateway \(value): expected one of "
                        + ParkingLot.all.map(\.operatorName).joined(separator: ", ")
                        + ", or a gateway for both its environments"
                    : "--\(kind.rawValue): expected 1 to 256 bytes")
        }
        return lever
    }

    /// Why a pattern of types is none: it would be taken for the name of a type that nobody
    /// publishes, and hold nothing back.
    private static func fault(inPattern pattern: String) -> String? {
        guard let star = pattern.firstIndex(of: "*") else { return nil }
        let isLast = pattern.index(after: star) == pattern.endIndex
        let front = pattern[..<star]
        return isLast && (front.isEmpty || front.hasSuffix("."))
            ? nil : "a star stands alone or behind the last dot, as in chat.*"
    }

    /// An option that is a length of time such as `90s`, `15m`, `2h` or `7d`.
    func span(_ name: String) throws(Failure) -> TimeSpan? {
        guard let text = text(name) else { return nil }
        let units: [Character: Int64] = ["s": 1, "m": 60, "h": 3600, "d": 86_400]
        if let unit = text.last.flatMap({ units[$0] }), let count = Int64(text.dropLast()),
            (1...1_000_000).contains(count)
        {
            return .seconds(count * unit)
        }
        throw .usage("--\(name) \(text): expected a length of time such as 90s, 15m, 2h or 7d")
    }
}

extension ParkingLot {
    /// As a lever names it.
    internal var operatorName: String {
        environment == .none ? gateway.rawValue : "\(gateway.rawValue)/\(environment.rawValue)"
    }
}

/// Who sits at the keyboard, for the record.
internal enum OperatorName {
    static var current: String {
        let user = getenv("USER").map { String(cString: $0) } ?? "uid \(getuid())"
        var buffer = [CChar](repeating: 0, count: 256)
        guard gethostname(&buffer, buffer.count - 1) == 0 else { return user }
        return user + "@"
            + String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init), as: UTF8.self)
    }
}
