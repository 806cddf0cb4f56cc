internal import Base
internal import Config
internal import JSON
internal import Routes

/// `bugle check`: whether a configuration would work, and what to do where it would not.
internal enum CheckCommand: Command {
    static let name = "check"
    static let summary = "says whether a configuration would work, and what to do where not"
    static let synopsis = "check --config FILE [--online] [--checklist] [--json]"
    static let options: [Option] = [
        .config,
        .flag("online", "also ask broker, Redis and gateways, and look at a sample of the events"),
        .flag("checklist", "answer the checklist before production, line by line"), .json,
    ]
    static let details = """
        Exit code 0 when there is no error; warnings do not count. Nothing is changed. --online tries
        each credential with a request that reaches no device: a push to a token that cannot exist
        at APNs, validate_only at FCM, a question for no receipt at Expo.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let configuration: Configuration
        do throws(Failure) {
            configuration = try ConfigurationFile.load(arguments)
        } catch {
            // Machines find the faults where they find everything else.
            guard error.code == .failed, arguments.has("json"), !arguments.has("checklist") else {
                throw error
            }
            Terminal.print(json(error.lines.map { .error($0) }))
            return .failed
        }
        if arguments.has("checklist") { return checklist(configuration, arguments) }
        var findings = OfflineCheck(configuration).run()
        if arguments.has("online") { findings += OnlineCheck(configuration).run() }
        if arguments.has("json") {
            Terminal.print(json(findings))
        } else {
            for finding in findings {
                Terminal.print("\(finding.level.rawValue.padded(to: 8)) \(finding.text)")
            }
        }
        return findings.contains { $0.level == .error } ? .failed : .ok
    }

    private static func checklist(
        _ configuration: Configuration, _ arguments: Arguments
    ) -> ExitCode {
        let routes = try? ConfigurationFile.routes(of: configuration)
        let lines = Checklist(
            configuration: configuration, lints: routes.map { $0.lints(configuration) }
        ).run()
        if arguments.has("json") {
            let bytes = ByteWriter()
            Checklist.write(lines, to: bytes)
            Terminal.print(bytes.text)
        } else {
            for line in lines {
                Terminal.print(
                    "\(String(line.number).aligned(to: 2)) \(line.state.rawValue.padded(to: 8)) "
                        + line.demand)
                Terminal.print("            \(line.answer.printable)")
                Terminal.print("            shown by: \(line.shownBy)")
            }
        }
        return lines.contains { $0.state == .error } ? .failed : .ok
    }

    private static func json(_ findings: [Finding]) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.bool("ok", !findings.contains { $0.level == .error })
        object.name("findings")
        bytes.append("[")
        for (index, finding) in findings.enumerated() {
            if index > 0 { bytes.append(",") }
            var entry = JSONObjectWriter(bytes)
            entry.string("level", finding.level.rawValue)
            entry.string("text", finding.text)
            entry.end()
        }
        bytes.append("]")
        object.end()
        return bytes.text
    }
}
