internal import Base
internal import Config
internal import JSON
internal import Pipeline

/// `bugle status`: the fleet in a terminal.
internal enum StatusCommand: Command {
    static let name = "status"
    static let awaitsSignals = true
    static let summary = "shows the fleet: every replica, what is paused, what is wrong"
    static let synopsis = "status --config FILE [--follow] [--json]"
    static let options: [Option] = [
        .config, .flag("follow", "go on, every three seconds, until interrupted"), .json,
    ]
    static let details = """
        Replicas report every three seconds through push.status. One that was not heard for 15 s is
        shown as stale: it is gone, or cut off. What is wrong is named with its page under
        deploy/runbooks/. Exit 1 if anything is.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let configuration = try ConfigurationFile.load(arguments)
        let fleet = try FleetAccess(configuration)
        while true {
            let now = SystemTime.shared.wall
            let isWell = show(fleet, at: now, asJSON: arguments.has("json"))
            guard arguments.has("follow") else { return isWell ? .ok : .failed }
            let next = SystemTime.shared.monotonic + FleetSettings.interval
            while SystemTime.shared.monotonic < next {
                fleet.read(upTo: .milliseconds(200))
                if ProcessSignals.wait(upTo: .zero) != nil { return isWell ? .ok : .failed }
            }
        }
    }

    private static func show(_ fleet: FleetAccess, at now: UnixMillis, asJSON: Bool) -> Bool {
        let replicas = fleet.replicas.values.sorted { $0.instance < $1.instance }
        let problems =
            replicas.flatMap { replica in
                replica.problems(at: now).map { (replica.instance, $0) }
            }
            + ReplicaReport.problems(ofFleet: replicas, fleet.book, at: now)
            .map { ("the fleet", $0) }
        if asJSON {
            showJSON(fleet, replicas, at: now)
            return problems.isEmpty && !replicas.isEmpty
        }
        if replicas.isEmpty {
            Terminal.print(
                "no replica of group \(fleet.settings.group) reports: see "
                    + "deploy/runbooks/BugleDown.md")
        } else {
            showTable(replicas, at: now)
        }
        for record in fleet.book.pauses(at: now) + fleet.book.skips(at: now) {
            Terminal.print(word(record, at: now))
        }
        for (instance, problem) in problems {
            Terminal.print(
                "\(instance.printable): \(problem.text.printable)  -> "
                    + "deploy/runbooks/\(problem.page.printable).md")
        }
        return problems.isEmpty && !replicas.isEmpty
    }

    private static let columns = [
        "REPLICA", "STATE", "EVENTS/S", "SENT/S", "LAG", "OLDEST", "DRAINS IN", "PARTS", "UP",
    ]

    private static func showTable(_ replicas: [ReplicaReport], at now: UnixMillis) {
        var rows = [columns]
        for replica in replicas {
            let state =
                replica.isStale(at: now) ? "stale" : replica.isReady ? "ready" : "not ready"
            let drain =
                replica.drainMillis == 0
                ? "-" : "\(span(replica.drainMillis)), \(replica.bottleneck.printable)"
            rows.append([
                replica.instance.printable + (replica.isIndexWriter ? " *" : ""), state,
                pace(replica.eventsPerSecond), pace(replica.acceptedPerSecond),
                "\(replica.lagRecords)", replica.lagMillis == 0 ? "-" : span(replica.lagMillis),
                drain, "\(replica.partitions)", span((now - replica.startedAt).millis),
            ])
        }
        let widths = columns.indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        for row in rows {
            let cells = zip(row, widths).map { $0.padded(to: $1) }
            Terminal.print(cells.joined(separator: "  "))
        }
        if replicas.contains(where: \.isIndexWriter) {
            Terminal.print("* writes the token index")
        }
    }

    /// A line about an operator's word.
    private static func word(_ record: ControlRecord, at now: UnixMillis) -> String {
        var text: String
        switch record.action {
        case .pause(let lever): text = "paused: \(lever.description.printable)"
        case .resume: return ""
        case .skip(let order):
            text =
                "skipped: \(order.lever?.description.printable ?? "all events") from before "
                + RFC3339.text(order.before)
        }
        text += ", since \(RFC3339.text(record.at))"
        if let until = record.until { text += ", until \(RFC3339.text(until))" }
        if let by = record.by { text += ", by \(by.printable)" }
        if let reason = record.reason { text += ": \(reason.printable)" }
        return text
    }

    private static func pace(_ perSecond: Double) -> String {
        perSecond < 10
            ? "\((perSecond * 10).rounded() / 10)" : "\(Int64(perSecond.rounded()))"
    }

    /// A length of time in one unit.
    static func span(_ millis: Int64) -> String {
        switch millis {
        case ..<1_000: "\(max(millis, 0)) ms"
        case ..<120_000: "\(millis / 1_000) s"
        case ..<7_200_000: "\(millis / 60_000) min"
        case ..<172_800_000: "\(millis / 3_600_000) h"
        default: "\(millis / 86_400_000) d"
        }
    }

    private static func showJSON(
        _ fleet: FleetAccess, _ replicas: [ReplicaReport], at now: UnixMillis
    ) {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("group", fleet.settings.group)
        object.integer("now", now.value)
        object.name("fleet")
        bytes.append("[")
        for (index, replica) in replicas.enumerated() {
            if index > 0 { bytes.append(",") }
            replica.write(to: bytes, at: now)
        }
        bytes.append("]")
        object.name("problems")
        ReplicaReport.Problem.write(
            ReplicaReport.problems(ofFleet: replicas, fleet.book, at: now), to: bytes)
        object.name("levers")
        bytes.append("[")
        let words = fleet.book.pauses(at: now) + fleet.book.skips(at: now)
        for (index, record) in words.enumerated() {
            if index > 0 { bytes.append(",") }
            record.write(to: bytes)
        }
        bytes.append("]")
        object.end()
        Terminal.print(bytes.text)
    }
}
