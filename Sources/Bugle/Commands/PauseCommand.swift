internal import Base
internal import Config
internal import JSON
internal import Pipeline

/// `bugle pause`: holds pushes back on all replicas at once.
internal enum PauseCommand: Command {
    static let name = "pause"
    static let summary = "holds back a type, source, gateway or app on all replicas at once"
    static let synopsis =
        "pause --config FILE --type T | --source S | --gateway G | --app A [--for DURATION]"
        + " [--reason TEXT] [--json]"
    static let options: [Option] =
        LeverOptions.all + [
            .value("for", "DURATION", "end the pause by itself after 90s, 15m, 2h, 7d"),
            .value("reason", "TEXT", "why, for whoever looks later"),
            .json,
        ]
    static let details = """
        Nothing of it is sent from a second later on. What is published meanwhile waits in Kafka and
        expires by its own ttl; bugle resume lets the rest go on. The word stays on push.control
        until then, over restarts and for replicas that are started later.

        A type may end in .* for all types that begin so, and * is all types; quote both, or the
        shell looks for files: --type 'chat.*'. A gateway is apns, fcm, webpush or expo, or one
        environment of it: apns/sandbox. A source is named as a whole. Waits until every replica has
        confirmed, up to 10 s; exit 1 if one does not.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        guard let lever = try arguments.lever() else {
            throw .usage("say what to pause: --type, --source, --gateway or --app")
        }
        let span = try arguments.span("for")
        let configuration = try ConfigurationFile.load(arguments)
        try LeverOptions.check(lever, configuration)
        let fleet = try FleetAccess(configuration)
        let now = SystemTime.shared.wall
        let record = ControlRecord(
            .pause(lever), at: now, until: span.map { now + $0 }, reason: arguments.text("reason"),
            by: OperatorName.current)
        return try LeverOptions.say([record], fleet, arguments)
    }
}

/// `bugle resume`: lets go on what was paused.
internal enum ResumeCommand: Command {
    static let name = "resume"
    static let summary = "lets go on what was paused"
    static let synopsis =
        "resume --config FILE --type T | --source S | --gateway G | --app A | --all [--json]"
    static let options: [Option] =
        LeverOptions.all + [.flag("all", "everything that is paused"), .json]
    static let details = """
        What waited is sent from its oldest event on, as far as it has not expired. bugle backlog
        says how much that is; bugle skip ends what is too old first.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let named = try arguments.lever(isSaidBefore: true)
        guard (named != nil) != arguments.has("all") else {
            throw .usage("say what to resume: --type, --source, --gateway, --app or --all")
        }
        let fleet = try FleetAccess(try ConfigurationFile.load(arguments))
        let now = SystemTime.shared.wall
        let paused = fleet.book.pauses(at: now).compactMap { record -> Lever? in
            guard case .pause(let lever) = record.action else { return nil }
            return lever
        }
        if let named, !paused.contains(named) {
            let known = paused.map(\.description).joined(separator: ", ")
            throw .failed(
                "\(named) is not paused; paused are: \(known.isEmpty ? "none" : known)")
        }
        let levers = named.map { [$0] } ?? paused
        guard !levers.isEmpty else {
            Terminal.note("nothing is paused")
            return .ok
        }
        return try LeverOptions.say(
            levers.map { ControlRecord(.resume($0), at: now, by: OperatorName.current) }, fleet,
            arguments)
    }
}

/// What both have in common.
internal enum LeverOptions {
    static let all: [Option] = [
        .config,
        .value("type", "TYPE", "events of a type; 'chat.*': of all that begin so; '*': of all"),
        .value("source", "SOURCE", "events of one publisher, named as a whole"),
        .value("gateway", "GATEWAY", "everything for a gateway or one environment of it"),
        .value("app", "APP", "everything of an app"),
    ]

    /// How long confirmations are waited for.
    private static let patience = TimeSpan.seconds(10)

    /// A lever for what does not exist would hold nothing back, which nobody would notice.
    static func check(_ lever: Lever, _ configuration: Configuration) throws(Failure) {
        if lever.kind == .source, lever.value.contains("*") {
            Terminal.note(
                "note: a source is named as a whole: only the one called "
                    + "\(lever.value.printable) is meant")
        }
        guard lever.kind == .app, !configuration.apps.contains(where: { $0.name == lever.value })
        else { return }
        let known = configuration.apps.map(\.name).joined(separator: ", ")
        throw .usage("--app \(lever.value): the app is not configured; known are: \(known)")
    }

    /// Says it, and waits until all replicas have it in force.
    static func say(
        _ records: [ControlRecord], _ fleet: FleetAccess, _ arguments: Arguments
    ) throws(Failure) -> ExitCode {
        var offset: Int64 = -1
        for record in records { offset = try fleet.say(record) }
        var slowest = TimeSpan.zero
        var confirmed = 0
        let missing = fleet.wait(for: offset, upTo: patience) { _, span in
            confirmed += 1
            slowest = span
        }
        if arguments.has("json") {
            showJSON(records, offset, confirmed, slowest, missing)
        } else {
            for record in records { Terminal.print(sentence(record)) }
            Terminal.print(
                confirmed == 0 && missing.isEmpty
                    ? "no replica runs now; those that start will know"
                    : "in force on \(confirmed) of \(confirmed + missing.count) replicas after "
                        + "\(slowest.millis) ms")
        }
        for instance in missing {
            Terminal.note(
                "bugle: \(instance.printable) has not confirmed within \(patience.millis / 1000) s: "
                    + "see deploy/runbooks/BugleControlUnread.md")
        }
        return missing.isEmpty ? .ok : .failed
    }

    private static func sentence(_ record: ControlRecord) -> String {
        switch record.action {
        case .pause(let lever):
            "\(lever.description.printable) is paused"
                + (record.until.map { " until \(RFC3339.text($0))" } ?? "")
        case .resume(let lever): "\(lever.description.printable) goes on"
        case .skip(let order):
            "\(order.lever?.description.printable ?? "all") events from before "
                + "\(RFC3339.text(order.before)) are skipped"
        }
    }

    private static func showJSON(
        _ records: [ControlRecord], _ offset: Int64, _ confirmed: Int, _ slowest: TimeSpan,
        _ missing: [String]
    ) {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.name("records")
        bytes.append("[")
        for (index, record) in records.enumerated() {
            if index > 0 { bytes.append(",") }
            record.write(to: bytes)
        }
        bytes.append("]")
        object.integer("offset", offset)
        object.integer("confirmed", Int64(confirmed))
        object.integer("confirmed_after_ms", slowest.millis)
        object.name("unconfirmed")
        bytes.append("[")
        for (index, instance) in missing.enumerated() {
            if index > 0 { bytes.append(",") }
            bytes.append(jsonString: instance)
        }
        bytes.append("]")
        object.end()
        Terminal.print(bytes.text)
    }
}
