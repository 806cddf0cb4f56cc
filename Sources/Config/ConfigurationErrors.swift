/// Everything that is wrong with a configuration, each fault in one line with its place.
///
/// Texts name keys, never values, which may come from secrets.
public struct ConfigurationErrors: Error, Sendable, Equatable, CustomStringConvertible {
    /// One fault.
    public struct Problem: Sendable, Equatable, CustomStringConvertible {
        /// The file as it was named.
        public let file: String
        /// The line, counted from 1; 0 when the fault is not in a line.
        public let line: Int
        /// The key with its parents, such as `kafka.topics.events`; empty for the whole file.
        public let key: String
        /// What is wrong and what to do.
        public let message: String

        /// `bugle.yaml:12: kafka.comit: unknown key; did you mean "commit"?`
        public var description: String {
            (line > 0 ? "\(file):\(line): " : "\(file): ") + (key.isEmpty ? "" : "\(key): ")
                + message
        }
    }

    /// The faults in the order of their lines; at least one.
    public let problems: [Problem]

    /// One line per fault.
    public var description: String {
        problems.map(\.description).joined(separator: "\n")
    }
}
