internal import Base
internal import Config
internal import JSON
internal import Pipeline
internal import Routes

/// `bugle validate EVENT.json`: what a publisher's own tests ask.
internal enum ValidateCommand: Command {
    static let name = "validate"
    static let summary = "says whether an event is one, before it is published; needs no server"
    static let synopsis = "validate EVENT.json [--config FILE [--class NAME]] [--json]"
    static let options: [Option] = [
        .value("config", "FILE", "a configuration, whose limits, apps and routes then count too"),
        .eventClass, .json,
    ]
    static let details = """
        EVENT.json holds the record's value: a native event or a structured CloudEvent; - is
        standard input. Without --config nothing is known of apps and routes, so that an event
        without content of its own may still become a dead letter (BUGLE_CONFIG does not count
        here). Exit code 0: it would be sent to its user's devices; 1: it would become a dead
        letter, or every gateway would refuse it, and the line says why. Warnings name words that
        nobody reads, such as misspelt ones.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let file = try EventFile(try arguments.positional("EVENT.json")[0])
        let eventClass = try arguments.eventClass()
        var configured: (Configuration, RouteTable)?
        if arguments.has("config") {
            let configuration = try ConfigurationFile.load(arguments)
            configured = (configuration, try ConfigurationFile.routes(of: configuration))
        } else if eventClass != nil {
            throw .usage("--class goes with --config")
        }
        let now = SystemTime.shared.wall
        let judgement: EventJudgement
        do throws(EventFault) {
            judgement = try .of(file, configured, eventClass, at: now)
        } catch {
            guard arguments.has("json") else { throw error.failure(file) }
            Terminal.print(json(error))
            return .failed
        }
        let notes = notes(judgement, isConfigured: configured != nil, at: now)
        if arguments.has("json") {
            Terminal.print(json(judgement, notes))
            return .ok
        }
        let route = judgement.route.map { ", by the route \($0.printable)" } ?? ""
        Terminal.print("\(file.name): fine: \(judgement.summary.type.printable)\(route)")
        for warning in judgement.warnings { Terminal.note("warning: \(warning.printable)") }
        for note in notes { Terminal.note("note: \(note)") }
        return .ok
    }

    private static func notes(
        _ judgement: EventJudgement, isConfigured: Bool, at now: UnixMillis
    ) -> [String] {
        var notes: [String] = []
        if !judgement.summary.hasContent, !isConfigured {
            notes.append(
                "it brings no content of its own (notification, data, apns, fcm, webpush, expo); "
                    + "whether a route makes some is not known here: say --config FILE")
        }
        if judgement.expiresAt <= now {
            notes.append(
                "its time was over \(AgoText.text(since: judgement.expiresAt, at: now)): published "
                    + "now it ends as expired")
        }
        return notes
    }

    private static func json(_ fault: EventFault) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.bool("valid", false)
        object.string("code", fault.code)
        object.string("reason", fault.reason)
        object.end()
        return bytes.text
    }

    private static func json(_ judgement: EventJudgement, _ notes: [String]) -> String {
        let summary = judgement.summary
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.bool("valid", true)
        object.string("type", summary.type)
        object.string("user_id", orNull: summary.isBroadcast ? nil : summary.userID)
        object.string("app", orNull: summary.app)
        object.bool("has_content", summary.hasContent)
        object.string("route", orNull: judgement.route)
        object.strings("warnings", judgement.warnings)
        object.strings("notes", notes)
        object.end()
        return bytes.text
    }
}

extension Option {
    static let eventClass = value(
        "class", "NAME", "the class of the topic: critical, transactional or marketing")
}

extension Arguments {
    /// The class that `--class` names.
    func eventClass() throws(Failure) -> EventClass? {
        guard let text = text("class") else { return nil }
        guard let eventClass = EventClass(rawValue: text) else {
            throw .usage("--class \(text): expected critical, transactional or marketing")
        }
        return eventClass
    }
}

/// How long ago something was, in words.
internal enum AgoText {
    static func text(since moment: UnixMillis, at now: UnixMillis) -> String {
        let seconds = max((now - moment).millis, 0) / 1000
        switch seconds {
        case ..<120: return "\(seconds) s ago"
        case ..<7_200: return "\(seconds / 60) min ago"
        case ..<172_800: return "\(seconds / 3600) h ago"
        default: return "\(seconds / 86_400) days ago"
        }
    }
}
