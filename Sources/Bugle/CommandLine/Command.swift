/// A command of the program. One file in `Commands` each.
internal protocol Command {
    /// What it is called by.
    static var name: String { get }
    /// One line for the list of commands.
    static var summary: String { get }
    /// What follows `bugle` in the usage line.
    static var synopsis: String { get }
    /// The options, `help` left out.
    static var options: [Option] { get }
    /// What the help says beyond that; may have several lines.
    static var details: String { get }

    /// Whether it runs until a signal ends it.
    static var awaitsSignals: Bool { get }

    /// Does the work.
    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode
}

extension Command {
    static var awaitsSignals: Bool { false }

    static var help: String {
        var text = "bugle \(synopsis)\n\n\(summary)\n\nOptions:\n"
        for option in options + [.help] {
            let form = "--\(option.name)" + (option.argument.map { " \($0)" } ?? "")
            text += "  \(form.padded(to: 20)) \(option.help)\n"
        }
        return details.isEmpty ? text : text + "\n\(details)\n"
    }
}
