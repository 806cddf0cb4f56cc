internal import Base
internal import Config
internal import Crypto
internal import Glibc
internal import Kafka
internal import Pipeline

extension DispatcherSettings {
    /// What a configuration asks for.
    internal init(_ configuration: Configuration, kafka: KafkaConfiguration) {
        var group = GroupConfiguration(groupID: configuration.kafka.group)
        group.drainDeadline = configuration.drainDeadline
        group.commitMetadata = configuration.kafka.instance
        if configuration.kafka.staticMembership { group.instanceID = configuration.kafka.instance }
        let topics = configuration.kafka.topics
        self.init(
            kafka: kafka, group: group,
            eventTopics: topics.events.map { ($0.name, $0.eventClass) })
        if configuration.kafka.commit == .transactional {
            commit = .transactional(
                group: configuration.kafka.group, instance: configuration.kafka.instance)
        }
        resultsTopic = topics.results
        invalidationsTopic = topics.invalidations
        deadLettersTopic = topics.deadLetters
        receiptsTopic = topics.receipts
        ticketsTopic = topics.tickets
        receiptWait = configuration.dispatch.receiptWait
        retryTopicBase = topics.retry
        parkedTopicBase = topics.parked
        inFlightPerBulkhead = configuration.dispatch.inFlightPerBulkhead
        lanes = configuration.lanes.number
        eventsInFlight = configuration.dispatch.maxInFlightEvents
        eventBytes = configuration.limits.eventBytes
        retry.attempts = configuration.dispatch.retry.attempts
        retry.base = configuration.dispatch.retry.base
        retry.longestWait = configuration.dispatch.retry.maxWait
        deduplicate = configuration.dispatch.deduplicate
        takesUserFromSubject = configuration.cloudEvents.userFromSubject
        apnsConnections = configuration.dispatch.apnsConnections.range
        fcmConnections = configuration.dispatch.fcmConnections.range
        gatewayPreference = configuration.index.gatewayPreference
        configurationHash = configuration.shortHash
        replica = configuration.kafka.instance
    }
}

extension Configuration {
    /// Identifies the text of the configuration in results and logs.
    internal var shortHash: String { String(SHA256Digest(of: sourceText).hex.prefix(12)) }
}

extension Configuration.Lanes {
    /// The number of lanes on this machine.
    internal var number: Int {
        switch self {
        case .count(let count): count
        case .auto: min(max(Self.coreCount, 1), 4)
        }
    }

    /// The cores that this process may run on at a time: the affinity mask, and the quota of the
    /// control group where there is one.
    private static var coreCount: Int {
        let cores = sysconf(Int32(_SC_NPROCESSORS_ONLN))
        guard let quota = CPUQuota.read() else { return cores }
        return min(cores, max(Int(quota.rounded(.up)), 1))
    }
}

extension Configuration.Dispatch.Connections {
    internal var range: ClosedRange<Int> { min...max }
}

/// The CPU quota of the process's control group, version 2.
private enum CPUQuota {
    /// Cores; nil where there is no quota.
    static func read() -> Double? {
        let fd = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC)
        guard fd >= 0 else { return nil }
        defer { close(fd) }
        var buffer = [UInt8](repeating: 0, count: 128)
        let count = Glibc.read(fd, &buffer, buffer.count)
        guard count > 0 else { return nil }
        let words = String(decoding: buffer[..<count], as: UTF8.self)
            .split { $0 == " " || $0 == "\n" }
        guard words.count == 2, let quota = Double(words[0]), let period = Double(words[1]),
            period > 0
        else { return nil }
        return quota / period
    }
}
