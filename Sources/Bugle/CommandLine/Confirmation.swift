internal import Glibc

/// Asks a person before something is done that cannot be undone.
internal enum Confirmation {
    /// Goes on when `--yes` was given or the person types yes. `unasked` is what to say where
    /// nobody can be asked.
    static func ask(
        _ question: String, _ arguments: Arguments, unasked: String, refused: String
    ) throws(Failure) {
        if arguments.has("yes") { return }
        guard isatty(STDIN_FILENO) == 1 else {
            throw .usage(unasked + "; say --yes if that is meant")
        }
        Terminal.note("\(question) Type yes:")
        guard readLine()?.lowercased() == "yes" else { throw .failed(refused) }
    }
}
