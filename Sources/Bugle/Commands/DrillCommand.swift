internal import Base
internal import Config
internal import JSON
internal import Pipeline

/// `bugle drill`: whether the levers reach every replica in time, without touching traffic.
internal enum DrillCommand: Command {
    static let name = "drill"
    static let summary = "tries the levers: does a pause reach every replica within a second?"
    static let synopsis = "drill --config FILE [--within DURATION] [--json]"
    static let options: [Option] = [
        .config, .value("within", "DURATION", "what is demanded of each replica; default 1s"),
        .json,
    ]
    static let details = """
        Pauses and resumes the type bugle.drill, which nobody publishes, and measures when each
        replica has it in force. The way is the one of every lever: push.control, the replica's
        lanes, push.status. Exit 1 if a replica is late or silent, or none runs. For a schedule.
        """

    /// The type that stands for all others.
    static let type = "bugle.drill"
    private static let patience = TimeSpan.seconds(10)

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let demanded = try arguments.span("within") ?? .seconds(1)
        let configuration = try ConfigurationFile.load(arguments)
        guard let lever = Lever(.type, type) else { return .failed }
        let fleet = try FleetAccess(configuration)
        guard !fleet.live.isEmpty else {
            throw .failed(
                "no replica of group \(fleet.settings.group) reports: see "
                    + "deploy/runbooks/BugleDown.md")
        }
        let now = SystemTime.shared.wall
        // Should the drill break off, nothing stays behind for long.
        let steps: [(String, ControlRecord)] = [
            (
                "pause",
                ControlRecord(
                    .pause(lever), at: now, until: now + .minutes(1), reason: "a drill",
                    by: OperatorName.current)
            ),
            ("resume", ControlRecord(.resume(lever), at: now, by: OperatorName.current)),
        ]
        var times: [(step: String, instance: String, span: TimeSpan)] = []
        var silent: [(step: String, instance: String)] = []
        for (step, record) in steps {
            let offset = try fleet.say(record)
            let missing = fleet.wait(for: offset, upTo: patience) { replica, span in
                times.append((step, replica.instance, span))
            }
            silent += missing.map { (step, $0) }
        }
        let late = times.filter { $0.span > demanded }
        show(times, silent, late.count, demanded, asJSON: arguments.has("json"))
        return late.isEmpty && silent.isEmpty ? .ok : .failed
    }

    private static func show(
        _ times: [(step: String, instance: String, span: TimeSpan)],
        _ silent: [(step: String, instance: String)], _ late: Int, _ demanded: TimeSpan,
        asJSON: Bool
    ) {
        if asJSON {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.bool("passed", late == 0 && silent.isEmpty)
            object.integer("demanded_ms", demanded.millis)
            object.name("steps")
            bytes.append("[")
            let all =
                times.map { ($0.step, $0.instance, Int64?($0.span.millis)) }
                + silent.map { ($0.step, $0.instance, nil) }
            for (index, entry) in all.enumerated() {
                if index > 0 { bytes.append(",") }
                var step = JSONObjectWriter(bytes)
                step.string("step", entry.0)
                step.string("instance", entry.1)
                step.integer("ms", orNull: entry.2)
                step.end()
            }
            bytes.append("]")
            object.end()
            return Terminal.print(bytes.text)
        }
        for time in times {
            Terminal.print(
                "\(time.step.padded(to: 6))  \(time.instance.printable)  \(time.span.millis) ms"
                    + (time.span > demanded ? "  late" : ""))
        }
        for entry in silent {
            Terminal.print(
                "\(entry.step.padded(to: 6))  \(entry.instance.printable)  no word: see "
                    + "deploy/runbooks/BugleControlUnread.md")
        }
        Terminal.print(
            late == 0 && silent.isEmpty
                ? "the levers reach every replica within \(demanded.millis) ms"
                : "the levers do not reach every replica within \(demanded.millis) ms")
    }
}
