internal import Base
internal import Config
internal import JSON
internal import Pipeline

/// `bugle validate EVENT.json`: what a publisher's own tests ask.
internal enum ValidateCommand: Command {
    static let name = "validate"
    static let summary = "says whether an event is one, before it is published; needs no server"
    static let synopsis = "validate EVENT.json [--config FILE] [--json]"
    static let options: [Option] = [.config, .json]
    static let details = """
        EVENT.json holds the record's value: a native event or a structured CloudEvent; - is
        standard input. With --config the limits, apps and default notification of that
        configuration count as well. Exit code 0: it would be sent; 1: it would become a dead
        letter, and the line says why.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let file = try EventFile(try arguments.positional("EVENT.json")[0])
        let configuration: Configuration? =
            arguments.has("config") ? try ConfigurationFile.load(arguments) : nil
        let summary = try file.check(
            maximumBytes: configuration?.limits.eventBytes ?? 256 << 10,
            takesUserFromSubject: configuration?.cloudEvents.userFromSubject ?? false)
        if let configuration { try check(summary, configuration, file) }
        if arguments.has("json") {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.bool("valid", true)
            object.string("type", summary.type)
            object.string("user_id", orNull: summary.isBroadcast ? nil : summary.userID)
            object.string("app", orNull: summary.app)
            object.bool("has_content", summary.hasContent)
            object.end()
            Terminal.print(bytes.text)
        } else {
            Terminal.print("\(file.name): fine: \(summary.type.printable)")
        }
        if !summary.hasContent {
            Terminal.note(
                "note: it has no notification, data, apns or fcm; without a default notification "
                    + "in the configuration it becomes a dead letter (no_route)")
        }
        return .ok
    }

    private static func check(
        _ summary: EventCheck.Summary, _ configuration: Configuration, _ file: EventFile
    ) throws(Failure) {
        let apps = configuration.apps.map(\.name)
        let known = apps.joined(separator: ", ")
        if let app = summary.app, !apps.contains(app) {
            let nearest = NearestName.find(app, among: apps).map { "; did you mean \($0)?" } ?? ""
            throw .failed(
                "\(file.name): unknown_app: app is not configured; known are: \(known)\(nearest)")
        }
        if summary.app == nil && apps.count > 1 {
            throw .failed(
                "\(file.name): unknown_app: app is missing and several are configured: \(known)")
        }
    }
}
