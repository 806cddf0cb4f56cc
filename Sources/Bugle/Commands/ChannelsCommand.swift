internal import Base
internal import Config
internal import Gateways
internal import JSON

/// `bugle channels create|list|read|delete`: the broadcast channels of an app at APNs.
internal enum ChannelsCommand: Command {
    static let name = "channels"
    static let summary = "creates, lists, reads and deletes broadcast channels of APNs"
    static let synopsis =
        "channels create|list|read ID|delete ID --config FILE [--app NAME] [--sandbox]"
        + " [--storage none|newest] [--yes] [--json]"
    static let options: [Option] = [
        .config,
        .value("app", "NAME", "the app; default the only one"),
        .flag("sandbox", "channels of the sandbox; default those of production"),
        .value(
            "storage", "none|newest",
            "create: what is kept for devices that are away, for 8 hours at most; default newest"),
        .flag("yes", "do not ask before a channel is deleted"), .json,
    ]
    static let details = """
        A channel is what many devices follow with one Live Activity; an event reaches them with
        "to": {"apns_channel": ID}. Apple makes the ids, 10,000 for an app in an environment, and
        takes none back: who deletes a channel loses its followers. The app's Broadcast Capability
        has to be enabled in Apple's developer portal.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        guard let action = arguments.positional.first else {
            throw .usage("create, list, read or delete is missing")
        }
        let rest = Arguments(
            values: arguments.values, positional: Array(arguments.positional.dropFirst()))
        let configuration = try ConfigurationFile.load(arguments)
        let api = try ChannelAPI(
            try app(arguments, configuration), of: configuration,
            environment: arguments.has("sandbox") ? .sandbox : .production)
        let isJSON = arguments.has("json")
        switch action {
        case "create":
            _ = try rest.positional()
            let id = try api.create(storage: try storage(arguments))
            Terminal.print(isJSON ? text { $0.string("channel", id) } : id)
        case "list":
            _ = try rest.positional()
            let ids = try api.list()
            if isJSON {
                Terminal.print(list(ids))
            } else {
                for id in ids { Terminal.print(id.printable) }
                if ids.isEmpty { Terminal.note("there are no channels") }
            }
        case "read":
            let id = try channel(rest)
            let policy = try api.read(id)
            let storage = policy == 0 ? "none" : "newest"
            Terminal.print(
                isJSON
                    ? text {
                        $0.string("channel", id)
                        $0.string("storage", storage)
                    } : "\(id.printable) keeps \(storage)")
        case "delete":
            let id = try channel(rest)
            try Confirmation.ask(
                "Delete channel \(id.printable) for good?", arguments,
                unasked: "the channel's followers would be lost", refused: "nothing was deleted")
            try api.delete(id)
            Terminal.print(isJSON ? text { $0.string("deleted", id) } : "deleted")
        default: throw .usage("\(action): expected create, list, read or delete")
        }
        return .ok
    }

    private static func app(
        _ arguments: Arguments, _ configuration: Configuration
    ) throws(Failure) -> Configuration.App {
        let known = configuration.apps.map(\.name).joined(separator: ", ")
        guard let name = arguments.text("app") else {
            if configuration.apps.count == 1 { return configuration.apps[0] }
            throw .usage("--app is missing; known are \(known)")
        }
        guard let app = configuration.app(named: name) else {
            throw .usage("--app \(name): known are \(known)")
        }
        return app
    }

    private static func storage(_ arguments: Arguments) throws(Failure) -> Int {
        switch arguments.text("storage") {
        case nil, "newest": return 1
        case "none": return 0
        case let other?: throw .usage("--storage \(other): expected none or newest")
        }
    }

    private static func channel(_ arguments: Arguments) throws(Failure) -> String {
        let id = try arguments.positional("ID")[0]
        do throws(BroadcastNameError) {
            try APNsChannelID.check(id)
        } catch {
            throw .usage("ID: \(error.rule)")
        }
        return id
    }

    private static func text(_ write: (inout JSONObjectWriter) -> Void) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        write(&object)
        object.end()
        return bytes.text
    }

    private static func list(_ ids: [String]) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.name("channels")
        bytes.append("[")
        for (index, id) in ids.enumerated() {
            if index > 0 { bytes.append(",") }
            bytes.append(jsonString: id)
        }
        bytes.append("]")
        object.end()
        return bytes.text
    }
}
