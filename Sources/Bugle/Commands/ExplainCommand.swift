internal import Base
internal import Config
internal import JSON
internal import Pipeline
internal import Routes
internal import Telemetry
internal import TokenIndex

/// `bugle explain EVENT.json`: what would become of an event, without sending anything.
internal enum ExplainCommand: Command {
    static let name = "explain"
    static let summary = "shows the route of an event and the exact requests that would go out"
    static let synopsis =
        "explain EVENT.json --config FILE [--device FILE [--user FILE]] [--class NAME] "
        + "[--burst N] [--format curl|simctl] [--json]"
    static let options: [Option] = [
        .config,
        .value("device", "FILE", "devices: a record of push.devices, or one on each line"),
        .value("user", "FILE", "the user: a record of push.users; without it there is none"),
        .eventClass,
        .value("burst", "N", "the push that stands for a burst of so many such events"),
        .value("format", "NAME", "commands for a shell: curl, or simctl for a simulated iPhone"),
        .json,
    ]
    static let details = """
        EVENT.json holds the record's value; - is standard input. The user's devices are those of
        the token index, or of --device, and so is what the user said for all of them (push.users,
        or --user); what operators have paused is told with them. The same code decodes, routes and renders as in run; no gateway is asked. It
        also says which events of the user would be folded with this one, or would replace it
        (--burst shows the push that stands for several: EVENT.json is the latest of them), and
        warns of values that look like a card number, an IBAN or a JWT. Tokens and credentials are
        masked, sizes are the true ones. Exit code 1: the event would become a dead letter, and the
        line says why.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let file = try EventFile(try arguments.positional("EVENT.json")[0])
        let configuration = try ConfigurationFile.load(arguments)
        let routes = try ConfigurationFile.routes(of: configuration)
        let eventClass = try arguments.eventClass() ?? .transactional
        let format = try format(arguments)
        let count = try arguments.integer("burst", in: 1...1_000_000) ?? 1
        let now = SystemTime.shared.wall
        let summary: EventCheck.Summary
        do throws(EventFault) {
            summary = try file.examine(
                configuration.limits.eventBytes,
                takesUserFromSubject: configuration.cloudEvents.userFromSubject, at: now)
        } catch {
            throw error.failure(file)
        }
        let app = summary.app ?? configuration.apps[0].name
        let (devices, user) =
            summary.isBroadcast
            ? ([], nil) : try readers(arguments, configuration, app, summary.userID)
        // The index has done so already.
        let passed =
            arguments.has("device")
            ? DeviceList.divided(
                devices, app: app, userID: summary.userID,
                staleness: StalenessPolicy(configuration.index.staleness), at: now)
            : (reached: devices, notSent: [])
        let explainer = EventExplainer(configuration, routes, projects: projects(configuration))
        let explanation: Explanation
        do throws(EventCheck.Refusal) {
            explanation = try explainer.explain(
                file.bytes, of: eventClass, count: Int64(count), to: passed.reached, user: user,
                levers: arguments.has("device") ? .none : levers(configuration, at: now), at: now)
        } catch {
            throw .failed("\(file.name): \(error.code.rawValue): \(error.reason)")
        }
        // The decoder has read it: what is left to say is about its words.
        let content = try? EventCheck.content(
            of: file.bytes, isRouted: explanation.route != nil,
            maximumBytes: configuration.limits.eventBytes,
            takesUserFromSubject: configuration.cloudEvents.userFromSubject, at: now)
        let surroundings = ExplanationText.Surroundings(
            now: now, eventTime: summary.time, isVisible: content?.isVisible,
            notSent: passed.notSent)
        if let format {
            for line in ExplanationCommands.lines(explanation, format) { Terminal.print(line) }
        } else if arguments.has("json") {
            Terminal.print(ExplanationText.json(explanation, surroundings))
        } else {
            for line in ExplanationText.lines(explanation, surroundings) { Terminal.print(line) }
        }
        return .ok
    }

    /// What operators have paused. An explanation is worth something without it.
    private static func levers(_ configuration: Configuration, at now: UnixMillis) -> Levers {
        do throws(Failure) {
            return try FleetAccess(configuration).book.levers(at: now)
        } catch {
            let why = error.lines.first ?? ""
            Terminal.note("note: nobody could be asked what is paused: \(why)")
            return .none
        }
    }

    private static func format(
        _ arguments: Arguments
    ) throws(Failure) -> ExplanationCommands.Format? {
        guard let text = arguments.text("format") else { return nil }
        if arguments.has("json") { throw .usage("--format and --json exclude each other") }
        guard let format = ExplanationCommands.Format(rawValue: text) else {
            throw .usage("--format \(text): expected curl or simctl")
        }
        return format
    }

    /// The user's devices and record, from files or from the index.
    private static func readers(
        _ arguments: Arguments, _ configuration: Configuration, _ app: String, _ userID: String
    ) throws(Failure) -> (addresses: [DeviceAddress], user: UserRecord?) {
        guard let path = arguments.text("device") else {
            if arguments.has("user") { throw .usage("--user goes with --device") }
            return try DeviceList.ask(configuration, app: app, userID: userID)
        }
        let user = try arguments.text("user").map { path throws(Failure) in
            try DeviceList.readUser(path, app: app, userID: userID)
        }
        return (try DeviceList.read(path), user)
    }

    /// The Firebase projects as far as the key files can be read here.
    private static func projects(_ configuration: Configuration) -> [String: String] {
        var projects: [String: String] = [:]
        for app in configuration.apps {
            projects[app.name] = (try? PushApp.load(app))?.fcm?.projectID
        }
        return projects
    }
}
