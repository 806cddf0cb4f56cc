internal import Base
internal import Config
internal import JSON
internal import Pipeline

/// `bugle backlog`: what waits, how old it is, and why.
internal enum BacklogCommand: Command {
    static let name = "backlog"
    static let summary = "shows what waits in Kafka: how old, what would expire, what holds it back"
    static let synopsis = "backlog --config FILE [--limit N] [--json]"
    static let options: [Option] = [
        .config, .value("limit", "N", "look at no more than so many records; default 1000000"),
        .json,
    ]
    static let details = """
        Reads from the group's committed offsets to the ends of the topics, and joins nothing.
        Events behind one that is open are counted though they may be done.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let limit =
            try arguments.integer("limit", in: 1...1_000_000_000) ?? BacklogScan.recordsMax
        let configuration = try ConfigurationFile.load(arguments)
        let fleet = try FleetAccess(configuration)
        let now = SystemTime.shared.wall
        var sum = BacklogSum(
            at: now, levers: fleet.book.levers(at: now),
            parkedTopics: configuration.kafka.topics.parked)
        let isWhole = try BacklogScan(configuration, fleet.cluster).run(limit: limit, into: &sum)
        if arguments.has("json") {
            let bytes = ByteWriter()
            sum.write(to: bytes, isWhole: isWhole)
            Terminal.print(bytes.text)
            return .ok
        }
        show(sum)
        for record in fleet.book.pauses(at: now) {
            guard case .pause(let lever) = record.action else { continue }
            let reason = record.reason.map { ": \($0.printable)" } ?? ""
            Terminal.print("paused: \(lever.description.printable)\(reason)")
        }
        if !isWhole { Terminal.note("bugle: there is more than \(limit) records; --limit N") }
        return .ok
    }

    static func show(_ sum: BacklogSum) {
        guard sum.records > 0 else { return Terminal.print("nothing waits") }
        var rows = [
            ["TOPIC", "RECORDS"] + BacklogSum.ages.map(\.name)
                + ["OLDEST", "EXPIRED", "IN 1 H", "HELD"]
        ]
        for name in sum.topics.keys.sorted() {
            guard let topic = sum.topics[name] else { continue }
            rows.append(
                [name, "\(topic.records)"] + topic.byAge.map { $0 == 0 ? "-" : "\($0)" } + [
                    StatusCommand.span(topic.oldest.millis), "\(topic.expired)",
                    "\(topic.expiresSoon)", "\(topic.held)",
                ])
        }
        let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        for row in rows {
            Terminal.print(
                row.enumerated().map { column, cell in
                    column == 0 ? cell.padded(to: widths[0]) : cell.aligned(to: widths[column])
                }.joined(separator: "  "))
        }
        for (code, count) in sum.byCode.sorted(by: { $0.value > $1.value }) {
            Terminal.print("\(count) wait because of \(code.printable)")
        }
    }
}

/// `bugle skip`: ends old events, each with a result.
internal enum SkipCommand: Command {
    static let name = "skip"
    static let summary = "ends events that are too old to be worth sending, each with a result"
    static let synopsis =
        "skip --config FILE --older-than DURATION [--type T | --source S | --app A] [--dry-run]"
        + " [--undo] [--yes] [--json]"
    static let options: [Option] =
        LeverOptions.all.filter { $0.name != "gateway" } + [
            .value("older-than", "DURATION", "events that have been due for longer: 90s, 2h, 1d"),
            .flag("dry-run", "say what would be ended, and end nothing"),
            .flag("undo", "take the order back; what it has ended stays ended"),
            .flag("yes", "do not ask"), .json,
        ]
    static let details = """
        The lever is one of bugle pause's: a type, 'chat.*' or '*', a source or an app; without one
        all events are meant. Nothing is removed: replicas end each such event as expired, skipped,
        when it is read or its turn comes, with a result for each target that is open, so the ledger
        balances. The moment is fixed when the order is given and forgotten after 7 days. Age counts
        from when an event was due: its timestamp, or not_before.
        """

    /// An order outlasts what can wait.
    private static let lifetime = TimeSpan.hours(7 * 24)

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let isUndo = arguments.has("undo")
        let lever = try arguments.lever(isSaidBefore: isUndo)
        let age = try arguments.span("older-than")
        guard (age == nil) == isUndo else {
            throw .usage("say --older-than DURATION, or --undo")
        }
        let configuration = try ConfigurationFile.load(arguments)
        if let lever, !isUndo { try LeverOptions.check(lever, configuration) }
        let fleet = try FleetAccess(configuration)
        let now = SystemTime.shared.wall
        let order = SkipOrder(lever, before: UnixMillis(now.value - (age?.millis ?? 0)))
        let record = ControlRecord(
            .skip(order), at: now, until: now + lifetime, by: OperatorName.current)
        if isUndo {
            guard let former = fleet.book.records[record.key] else {
                throw .failed("there is no such order; bugle status shows those in force")
            }
            return try takeBack(former, fleet, arguments)
        }
        var sum = BacklogSum(
            at: now, levers: fleet.book.levers(at: now),
            parkedTopics: configuration.kafka.topics.parked, order: order)
        let isWhole = try BacklogScan(configuration, fleet.cluster).run(
            limit: BacklogScan.recordsMax, into: &sum)
        let count = (isWhole ? "" : "more than ") + "\(sum.coveredCount)"
        if arguments.has("dry-run") {
            arguments.has("json") ? showJSON(sum, isWhole) : show(sum, count)
            return .ok
        }
        if !arguments.has("json") { show(sum, count) }
        try Confirmation.ask(
            "End \(count) events that were due before \(RFC3339.text(order.before))?", arguments,
            unasked: "\(count) events would be ended and never sent", refused: "nothing was ended")
        return try LeverOptions.say([record], fleet, arguments)
    }

    private static func takeBack(
        _ order: ControlRecord, _ fleet: FleetAccess, _ arguments: Arguments
    ) throws(Failure) -> ExitCode {
        let isTried = arguments.has("dry-run")
        let offset = isTried ? nil : try fleet.takeBack(order.key)
        if arguments.has("json") {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.name("taken_back")
            order.write(to: bytes)
            object.bool("dry_run", isTried)
            object.integer("offset", orNull: offset)
            object.end()
            Terminal.print(bytes.text)
        } else {
            Terminal.print(isTried ? "the order would be taken back" : "the order is taken back")
        }
        return .ok
    }

    private static func show(_ sum: BacklogSum, _ count: String) {
        for (type, covered) in sum.covered.sorted(by: { ($1.value, $0.key) < ($0.value, $1.key) }) {
            Terminal.print("\(covered)  \(type.printable)")
        }
        Terminal.print("\(count) events in all, of \(sum.records) that wait")
    }

    private static func showJSON(_ sum: BacklogSum, _ isWhole: Bool) {
        let bytes = ByteWriter()
        sum.write(to: bytes, isWhole: isWhole)
        Terminal.print(bytes.text)
    }
}
