// How a command ends: with an exit code that a script can use, and with lines for a person.

/// The exit codes of every command.
internal enum ExitCode: Int32 {
    /// What was asked for is done.
    case ok = 0
    /// It is not done, or something was found wrong.
    case failed = 1
    /// The command line could not be understood; nothing was done.
    case usage = 2
}

/// Why a command did not do its work.
internal struct Failure: Error, Equatable {
    let code: ExitCode
    /// Each says what is wrong, where, and what to do.
    let lines: [String]

    static func failed(_ lines: [String]) -> Failure { Failure(code: .failed, lines: lines) }

    static func failed(_ line: String) -> Failure { .failed([line]) }

    static func usage(_ line: String) -> Failure { Failure(code: .usage, lines: [line]) }
}
