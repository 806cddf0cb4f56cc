// Reads what an audit adds up. The order makes it right while Bugle runs: first what the group has
// committed, then everything else. Whatever is below a committed offset was visible in the topics
// before it was committed; what comes later only makes things waiting, never missing.

internal import Base
internal import Config
internal import JSON
internal import Kafka
internal import Pipeline

/// Which events an audit is about.
internal struct AuditScope {
    /// Where it begins; a partition that is not named begins with its oldest record.
    var from: [TopicPartition: Int64] = [:]
    /// Events with an earlier Kafka timestamp are left out.
    var since: UnixMillis?
    /// Findings of each kind that are listed.
    var listed = 100
    /// The most memory for the books, in bytes.
    var bytes = 1 << 30
    /// How long outcomes that seem to be missing are waited for: readers of committed records see
    /// nothing behind a transaction that its process left open, for up to 10 s.
    var patience = TimeSpan.seconds(15)
}

/// The topics of an audit, read from their beginning to their present end. Confined to one thread.
internal final class AuditScan {
    private let cluster: ClusterAccess
    private let configuration: Configuration
    private let scope: AuditScope
    private let events: Set<String>
    private let waiting: Set<String>
    private let counts: [String: Int32]
    private let committed: [TopicPartition: Int64]
    private let ranges: [TopicPartition: Range<Int64>]
    private var ledger: AuditLedger
    private var records = 0
    private let progress = ProgressLine()
    private let parser = JSONParser()

    private static let timeout = TimeSpan.seconds(10)
    /// Records between two looks at the memory.
    private static let turn = 20_000

    init(_ configuration: Configuration, _ scope: AuditScope) throws(Failure) {
        self.configuration = configuration
        self.scope = scope
        cluster = try ClusterAccess(configuration)
        let topics = configuration.kafka.topics
        events = Set(topics.events.map(\.name))
        waiting = Set(
            RetryTier.allCases.map { $0.topic(of: topics.retry) }
                + ParkedTopics.names(of: topics.parked))
        let counts = try cluster.partitionCounts()
        self.counts = counts
        for name in events.union([topics.results, topics.deadLetters])
        where (counts[name] ?? 0) == 0 {
            throw .failed("\(name) does not exist; bugle topics apply creates it")
        }
        do throws(KafkaError) {
            committed = try Self.committed(configuration, cluster, events.union(waiting), counts)
            ranges = try Self.ranges(cluster, events, counts, scope)
        } catch {
            throw cluster.failure(error, doing: "look up offsets")
        }
        let offsets = ranges.values.reduce(0) { $0 + $1.count }
        guard offsets * AuditLedger.bytesPerOffset <= scope.bytes else {
            throw Self.tooMuch(scope)
        }
        ledger = AuditLedger(
            ranges, committed: committed,
            allowsRepeats: configuration.kafka.commit == .plain)
    }

    /// Reads, adds up, and reads on for a while if something seems to be missing.
    func run() throws(Failure) -> AuditReport {
        defer { progress.end() }
        let names = events.union(waiting).union([
            configuration.kafka.topics.results, configuration.kafka.topics.deadLetters,
        ]).filter { (counts[$0] ?? 0) > 0 }
        let reader = try open(names.sorted(), ranges.mapValues(\.lowerBound))
        try read(reader) { record in take(record) }
        var report = ledger.report(listing: scope.listed)
        let deadline = SystemTime.shared.monotonic + scope.patience
        while report.missing > 0, SystemTime.shared.monotonic < deadline {
            let got = reader.read(max: Self.turn, timeout: .milliseconds(500)) { take($0) }
            if got > 0 { report = ledger.report(listing: scope.listed) }
            progress.show("\(report.missing) outcomes seem to be missing; looking again")
        }
        try name(&report.findings)
        return report
    }

    // MARK: Offsets

    /// The consumer asks for its group's offsets and joins nothing.
    private static func committed(
        _ configuration: Configuration, _ cluster: ClusterAccess, _ names: Set<String>,
        _ counts: [String: Int32]
    ) throws(KafkaError) -> [TopicPartition: Int64] {
        let consumer = try Consumer(
            cluster.configuration, group: GroupConfiguration(groupID: configuration.kafka.group))
        let places = names.sorted().flatMap { name in
            (0..<(counts[name] ?? 0)).map { TopicPartition(name, $0) }
        }
        return try consumer.committedOffsets(places, timeout: timeout)
    }

    private static func ranges(
        _ cluster: ClusterAccess, _ names: Set<String>, _ counts: [String: Int32],
        _ scope: AuditScope
    ) throws(KafkaError) -> [TopicPartition: Range<Int64>] {
        var ranges: [TopicPartition: Range<Int64>] = [:]
        for name in names {
            for partition in 0..<(counts[name] ?? 0) {
                let place = TopicPartition(name, partition)
                let marks = try cluster.admin.watermarks(place, timeout: timeout)
                let start = max(marks.lowerBound, scope.from[place] ?? marks.lowerBound)
                ranges[place] = min(start, marks.upperBound)..<marks.upperBound
            }
        }
        return ranges
    }

    // MARK: Reading

    private func open(
        _ names: [String], _ offsets: [TopicPartition: Int64]
    ) throws(Failure) -> TopicReader {
        do throws(KafkaError) {
            return try TopicReader(
                cluster.configuration, topics: names, from: .offsets(offsets))
        } catch {
            throw cluster.failure(error, doing: "read \(names.joined(separator: ", "))")
        }
    }

    private func read(
        _ reader: TopicReader, _ body: (borrowing KafkaRecord) -> Void
    ) throws(Failure) {
        let before = records
        _ = try reader.readWhole(atOnce: Self.turn, body) { count throws(Failure) in
            records = before + count
            progress.show("\(records) records read")
            if ledger.bytes > scope.bytes { throw Self.tooMuch(scope) }
            return true
        }
    }

    private static func tooMuch(_ scope: AuditScope) -> Failure {
        .failed(
            "the books would take more than \(scope.bytes >> 20) MiB; narrow them with --from or "
                + "--since, or raise --memory")
    }

    private func take(_ record: borrowing KafkaRecord) {
        if events.contains(record.topic) {
            let isOld = scope.since.map { (record.timestampMillis ?? .max) < $0.value } ?? false
            isOld
                ? ledger.addOther(record.place, record.offset)
                : ledger.addEvent(record.place, record.offset)
        } else if waiting.contains(record.topic) {
            takeWaiting(record)
        } else if record.topic == configuration.kafka.topics.results {
            takeResult(record)
        } else {
            takeLetter(record)
        }
    }

    private func takeResult(_ record: borrowing KafkaRecord) {
        guard let value = record.value, let result = try? parser.parse(value),
            let topic = result["input_topic"]?.string,
            let partition = result["input_partition"]?.int64.flatMap({ Int32(exactly: $0) }),
            let offset = result["input_offset"]?.int64, let id = result["result_id"]?.stringBytes
        else { return }
        ledger.add(
            AuditedResult(
                id: Self.fingerprint(id), index: Int(result["target_index"]?.int64 ?? 0),
                targets: Int(result["targets"]?.int64 ?? 0),
                isDeadLetter: result["outcome"]?.string == Outcome.deadLettered.rawValue),
            of: TopicPartition(topic, partition), offset)
    }

    /// FNV-1a.
    private static func fingerprint(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }

    private func takeLetter(_ record: borrowing KafkaRecord) {
        guard isOfGroup(record), let origin = origin(of: record) else { return }
        let code = record.headerText("bugle-error-code") ?? ""
        ledger.addLetter(
            of: origin.place, origin.offset, isCopy: Outcome(rawValue: code) != nil)
    }

    private func takeWaiting(_ record: borrowing KafkaRecord) {
        guard isOfGroup(record), let origin = origin(of: record) else { return }
        let targets = record.headerText("bugle-targets").flatMap { Int($0) }
        guard record.offset >= committed[record.place] ?? 0 else {
            return ledger.addPassed(targets: targets, of: origin.place, origin.offset)
        }
        var pending: [Int] = []
        if let state = record.headerText("bugle-pending-state"), let list = try? parser.parse(state)
        {
            list.forEachElement { pending.append(Int($0["target_index"]?.int64 ?? -1)) }
        }
        ledger.addWaiting(pending, targets: targets, of: origin.place, origin.offset)
    }

    /// Several installations may share topics; each audits its own.
    private func isOfGroup(_ record: borrowing KafkaRecord) -> Bool {
        guard let group = record.headerText("bugle-consumer-group") else { return true }
        return group == configuration.kafka.group
    }

    private func origin(
        of record: borrowing KafkaRecord
    ) -> (place: TopicPartition, offset: Int64)? {
        guard let topic = record.headerText("bugle-original-topic"),
            let partition = record.headerText("bugle-original-partition").flatMap({ Int32($0) }),
            let offset = record.headerText("bugle-original-offset").flatMap({ Int64($0) })
        else { return nil }
        return (TopicPartition(topic, partition), offset)
    }

    // MARK: Names

    /// Looks the events of the findings up: their ids are not kept for all events.
    private func name(_ findings: inout [AuditFinding]) throws(Failure) {
        guard !findings.isEmpty else { return }
        var starts = ranges.mapValues(\.upperBound)
        var ids: [TopicPartition: [Int64: String]] = [:]
        for finding in findings {
            starts[finding.place] = min(starts[finding.place] ?? .max, finding.offset)
            ids[finding.place, default: [:]][finding.offset] = ""
        }
        let reader = try open(Set(findings.map(\.place.topic)).sorted(), starts)
        try read(reader) { record in
            guard ids[record.place]?[record.offset] != nil else { return }
            ids[record.place]?[record.offset] = self.eventID(of: record)
        }
        for index in findings.indices {
            let found = ids[findings[index].place]?[findings[index].offset] ?? ""
            findings[index].eventID = found.isEmpty ? nil : found
        }
    }

    private func eventID(of record: borrowing KafkaRecord) -> String {
        if let id = record.headerText("ce_id") { return id }
        guard let value = record.value, let event = try? parser.parse(value),
            let id = event["id"]?.string
        else { return "" }
        return id
    }
}

extension KafkaRecord {
    /// A header as text.
    fileprivate borrowing func headerText(_ name: StaticString) -> String? {
        withHeader(name) { String(decoding: $0, as: UTF8.self) }
    }
}
