// From the words of the command line to a command, and from its failure to lines and an exit code.

internal import Config
internal import Crypto
internal import HTTP2
internal import Kafka

/// The program `bugle`.
internal enum Program {
    /// The version of this program.
    static let version = "0.1.0"

    /// The C libraries behind it, as they are loaded.
    static var libraries: String {
        "librdkafka \(KafkaLibrary.version), nghttp2 \(HTTP2Library.version), "
            + CryptoLibrary.version
    }

    /// The commands in the order of the help.
    static var commands: [any Command.Type] {
        [
            DemoCommand.self, DevCommand.self, SimulateCommand.self, RunCommand.self,
            TopicsCommand.self, CheckCommand.self, ValidateCommand.self, ExplainCommand.self,
            SendCommand.self, TailCommand.self, IndexCommand.self, WhyCommand.self,
            AuditCommand.self, DeadLettersCommand.self, StatusCommand.self, PauseCommand.self,
            ResumeCommand.self, DrillCommand.self, BacklogCommand.self, SkipCommand.self,
            TraceCommand.self, ChannelsCommand.self, KeysCommand.self, ReasonsCommand.self,
        ]
    }

    /// Runs what the words ask for and returns the exit code.
    static func run(_ words: [String]) -> ExitCode {
        do throws(Failure) {
            return try runCommand(words)
        } catch {
            for line in error.lines { Terminal.note("bugle: \(line)") }
            return error.code
        }
    }

    private static func runCommand(_ words: [String]) throws(Failure) -> ExitCode {
        guard let word = words.first else {
            Terminal.note(help)
            return .usage
        }
        switch word {
        case "--help", "-h":
            Terminal.print(help)
            return .ok
        case "help":
            let named = words.dropFirst().first
            Terminal.print(try named.map(command)?.help ?? help)
            return .ok
        case "--version", "version":
            Terminal.print("bugle \(version) with \(libraries)")
            return .ok
        default: break
        }
        if word.hasPrefix("-") {
            throw .usage("\(word): options follow the command, as in bugle check --config FILE")
        }
        let command = try command(word)
        let arguments: Arguments
        do throws(Failure) {
            arguments = try OptionParser.parse(Array(words.dropFirst()), command.options + [.help])
            if arguments.has("help") {
                Terminal.print(command.help)
                return .ok
            }
            if command.awaitsSignals { ProcessSignals.block() }
            return try command.run(arguments)
        } catch {
            guard error.code == .usage else { throw error }
            throw Failure(
                code: .usage,
                lines: error.lines.map { "\(command.name): \($0)" } + [
                    "usage: bugle \(command.synopsis)"
                ])
        }
    }

    private static func command(_ name: String) throws(Failure) -> any Command.Type {
        if let command = commands.first(where: { $0.name == name }) { return command }
        let nearest = NearestName.find(name, among: commands.map { $0.name })
        let advice = nearest.map { "did you mean \($0)?" } ?? "bugle --help lists the commands"
        throw .usage("\(name): there is no such command; \(advice)")
    }

    private static var help: String {
        var text =
            "bugle turns business events on Kafka into push notifications, one result each.\n\n"
        text += "Usage: bugle COMMAND [OPTIONS]; bugle help COMMAND says more.\n\n"
        for command in commands {
            text += "  \(command.name.padded(to: 10)) \(command.summary)\n"
        }
        text +=
            "  \("version".padded(to: 10)) says the version, and those of the libraries behind it\n"
        return text
            + "\nThe environment variable BUGLE_CONFIG names the configuration where --config FILE "
            + "does not.\nExit codes: 0 done, 1 failed, 2 wrong usage."
    }
}
