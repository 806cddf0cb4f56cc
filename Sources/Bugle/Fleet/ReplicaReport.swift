// What a replica says about itself on `push.status`, as far as the fleet's view shows it. Schema
// `topics/push.status.schema.json`.

internal import Base
internal import JSON
internal import Pipeline

/// One replica's last report.
internal struct ReplicaReport: Sendable {
    /// A thing that is wrong, with the page that says what to do.
    struct Problem: Sendable, Hashable {
        /// A page's name under `deploy/runbooks/`.
        var page: String
        /// For a person.
        var text: String
    }

    /// When it was written.
    var at: UnixMillis
    var instance = ""
    var version = ""
    var startedAt = UnixMillis(0)
    var isReady = false
    var isIndexWriter = false
    var partitions: Int64 = 0
    var eventsPerSecond = 0.0
    var acceptedPerSecond = 0.0
    var lagRecords: Int64 = 0
    var lagMillis: Int64 = 0
    var drainMillis: Int64 = 0
    var bottleneck = "none"
    var memoryBytes: Int64 = 0
    /// The highest offset of the control topic that is in force there.
    var controlOffset: Int64 = -1
    var problems: [Problem] = []

    /// Reads a report; nil when it is none.
    init?(_ value: UnsafeRawBufferPointer, at: UnixMillis, parser: JSONParser) {
        guard let root = try? parser.parse(value), let instance = root["instance"]?.string else {
            return nil
        }
        self.at = at
        self.instance = instance
        func number(_ name: StaticString) -> Int64 { root[name]?.int64 ?? 0 }
        version = root["version"]?.string ?? ""
        startedAt = UnixMillis(number("started_at"))
        isReady = root["ready"]?.bool ?? false
        isIndexWriter = root["index_writer"]?.bool ?? false
        partitions = number("partitions")
        eventsPerSecond = Double(number("events_per_minute")) / 60
        acceptedPerSecond = Double(number("accepted_per_minute")) / 60
        lagRecords = number("lag_records")
        lagMillis = number("lag_ms")
        drainMillis = number("drain_ms")
        bottleneck = root["bottleneck"]?.string ?? "none"
        memoryBytes = number("memory_bytes")
        controlOffset = root["control_offset"]?.int64 ?? -1
        var problems: [Problem] = []
        root["problems"]?.forEachElement { problem in
            problems.append(
                Problem(
                    page: problem["page"]?.string ?? "", text: problem["text"]?.string ?? ""))
        }
        self.problems = problems
    }

    /// Whether it was not heard for so long that it is gone or stuck.
    func isStale(at now: UnixMillis) -> Bool { now - at > FleetSettings.staleAfter }

    /// What is wrong with it, seen from outside.
    func problems(at now: UnixMillis) -> [Problem] {
        guard isStale(at: now) else { return problems }
        return [
            Problem(
                page: "BugleDown",
                text: "it was heard last \(((now - at).millis + 500) / 1000) s ago")
        ]
    }

    /// What is wrong with a fleet and with none of its replicas.
    static func problems(
        ofFleet replicas: [Self], _ book: ControlBook, at now: UnixMillis
    ) -> [Problem] {
        var problems: [Problem] = []
        let live = replicas.filter { !$0.isStale(at: now) }
        if !live.isEmpty, !live.contains(where: \.isIndexWriter) {
            problems.append(
                Problem(page: "BugleIndexWithoutWriter", text: "no replica writes the token index"))
        }
        for record in book.pauses(at: now) where now - record.at > FleetSettings.pausedForLong {
            guard case .pause(let lever) = record.action else { continue }
            let minutes = (now - record.at).millis / 60_000
            problems.append(
                Problem(page: "BuglePaused", text: "\(lever) is paused, for \(minutes) min"))
        }
        return problems
    }

    /// Appends it as a member of a fleet.
    func write(to bytes: ByteWriter, at now: UnixMillis) {
        var object = JSONObjectWriter(bytes)
        object.string("instance", instance)
        object.string("version", version)
        object.integer("at", at.value)
        object.integer("started_at", startedAt.value)
        object.bool("stale", isStale(at: now))
        object.bool("ready", isReady)
        object.bool("index_writer", isIndexWriter)
        object.integer("partitions", partitions)
        object.integer("events_per_minute", Int64(eventsPerSecond * 60))
        object.integer("accepted_per_minute", Int64(acceptedPerSecond * 60))
        object.integer("lag_records", lagRecords)
        object.integer("lag_ms", lagMillis)
        object.integer("drain_ms", drainMillis)
        object.string("bottleneck", bottleneck)
        object.integer("memory_bytes", memoryBytes)
        object.integer("control_offset", controlOffset)
        object.name("problems")
        Problem.write(problems(at: now), to: bytes)
        object.end()
    }
}

extension ReplicaReport.Problem {
    /// Appends a list.
    static func write(_ problems: [Self], to bytes: ByteWriter) {
        bytes.append("[")
        for (index, problem) in problems.enumerated() {
            if index > 0 { bytes.append(",") }
            var object = JSONObjectWriter(bytes)
            object.string("page", problem.page)
            object.string("text", problem.text)
            object.end()
        }
        bytes.append("]")
    }
}
