internal import Base
internal import Config
internal import Glibc
internal import Simulator
internal import Telemetry

/// `bugle demo`: the main job on embedded parts.
internal enum DemoCommand: Command {
    static let name = "demo"
    static let awaitsSignals = true
    static let summary = "does the whole job on embedded parts and checks that the ledger balances"
    static let synopsis = "demo [--events N] [--lanes N] [--seed S] [--json] [--verbose]"
    static let options: [Option] = [
        .value("events", "N", "events to publish, 1 to \(eventsMax); default \(eventsDefault)"),
        .value("lanes", "N", "threads that dispatch; default as many as cores, at most 4"),
        .value("seed", "S", "repeats a run: users, devices, events and faults; default 1"),
        .flag("verbose", "show the dispatcher's log"),
        .json,
    ]
    static let details = """
        Needs nothing else: the broker is librdkafka's mock cluster, the gateways are simulated
        over real TLS and HTTP/2 with faults, the token index is in memory. The dispatcher between
        them is the one of `bugle run`. Afterwards the topics are read anew and compared with what
        was published and with what the gateways received. Exit code 0 only if everything fits.
        """

    private static let eventsDefault = 3_000
    /// The embedded broker keeps 5 MiB of a partition. An event leaves some 2.5 results of 1 KiB;
    /// at this number the fullest of 24 partitions holds about half of that.
    private static let eventsMax = 20_000
    private static let readyWithin = TimeSpan.seconds(30)

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let count = try arguments.integer("events", in: 1...eventsMax) ?? eventsDefault
        let lanes = try arguments.integer("lanes", in: 1...64)
        let seed = UInt64(try arguments.integer("seed", in: 0...Int.max) ?? 1)
        let log =
            arguments.has("verbose") ? Log.standardError(level: .info) : .silent

        var scenario = DemoScenario(seed: seed)
        var options = SimulatorOptions()
        options.faults = DemoFaults.plan(seed: seed)
        let folder = try StateFolder(nil, purpose: "demo")
        defer { folder.remove() }
        progress("starting broker, gateways and dispatcher")
        let world = try EmbeddedWorld(folder: folder, options: options, lanes: lanes)
        let run = try DemoRun(world)
        // Devices die after they registered, as real ones do: who is to blame for a dead token
        // is a matter of that order.
        let now = SystemTime.shared.wall
        scenario.prepare(world.simulator, at: now + .hours(-1))
        progress("registering \(scenario.devices.count) devices")
        try run.register(scenario.devices, at: now + .hours(-24))
        try world.start(log: log)
        guard try world.waitUntilReady(upTo: readyWithin) == nil else { return interrupted(world) }
        let poison = max(count / 250, 4)
        let records = scenario.records(events: count, poison: poison)
        let isSettled = try run.publish(records, wanted: count)
        let lanesUsed = world.configuration.lanes.number
        let isDrained = world.stopDispatcher()
        let report = try check(world, scenario, wanted: count)
        _ = world.stop()
        let summary = DemoSummary(
            report: report, measures: run.measures, users: scenario.users.count,
            devices: scenario.devices.count, lanes: lanesUsed, seed: seed, isSettled: isSettled,
            isDrained: isDrained)
        if Terminal.showsProgress { Terminal.endProgress() }
        if arguments.has("json") {
            Terminal.print(summary.json)
        } else {
            for line in summary.lines { Terminal.print(line) }
        }
        return summary.exitCode
    }

    private static func check(
        _ world: EmbeddedWorld, _ scenario: DemoScenario, wanted: Int
    ) throws(Failure) -> LedgerReport {
        progress("checking the ledger")
        let ledger = TopicLedger(kafka: world.kafka, topics: world.configuration.kafka.topics)
        var check = LedgerCheck()
        try ledger.collect(into: &check)
        return check.finish(
            published: try ledger.published(scenario), wanted: wanted,
            takenMessages: world.simulator.journal.acceptedMessages)
    }

    private static func progress(_ text: String) {
        if Terminal.showsProgress { Terminal.progress(text) }
    }

    private static func interrupted(_ world: EmbeddedWorld) -> ExitCode {
        if Terminal.showsProgress { Terminal.endProgress() }
        _ = world.stop()
        return .failed
    }
}
