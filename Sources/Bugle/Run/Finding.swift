/// Something that a check found out: one line that says what, where, and what to do.
internal struct Finding: Equatable {
    /// How much it matters.
    enum Level: String {
        /// As it should be.
        case ok
        /// Worth knowing.
        case note
        /// It works, and something goes wrong nevertheless.
        case warning
        /// It does not work.
        case error
    }

    let level: Level
    let text: String

    static func ok(_ text: String) -> Finding { Finding(level: .ok, text: text) }
    static func note(_ text: String) -> Finding { Finding(level: .note, text: text) }
    static func warning(_ text: String) -> Finding { Finding(level: .warning, text: text) }
    static func error(_ text: String) -> Finding { Finding(level: .error, text: text) }
}
