internal import Config
internal import Glibc
internal import Routes

/// The configuration that the command line names.
internal enum ConfigurationFile {
    /// Names the file where `--config` does not.
    static let variable = "BUGLE_CONFIG"

    /// Reads the one that the command line or the environment names.
    static func load(_ arguments: Arguments) throws(Failure) -> Configuration {
        try load(path: try path(arguments))
    }

    /// The file that `--config` names, or else the environment.
    static func path(_ arguments: Arguments) throws(Failure) -> String {
        try path(arguments, environment)
    }

    static func path(
        _ arguments: Arguments, _ environment: [String: String]
    ) throws(Failure) -> String {
        if let path = arguments.text("config") { return path }
        if let path = environment[variable], !path.isEmpty { return path }
        throw .usage("no configuration is named; say --config FILE, or set \(variable)")
    }

    /// Whether there is one to read.
    static func isNamed(_ arguments: Arguments) -> Bool { (try? path(arguments)) != nil }

    /// Reads a file, or says in one line each what is wrong with it, its routes included.
    static func load(path: String) throws(Failure) -> Configuration {
        let draft = Configuration.draft(path: path, environment: environment)
        if let configuration = draft.configuration, draft.problems.isEmpty { return configuration }
        var problems = draft.problems
        if let configuration = draft.configuration {
            do throws(ConfigurationErrors) {
                _ = try RouteTable.compile(configuration)
            } catch {
                // A stand-in may be at fault where the value was already.
                problems += error.problems.filter { fault in
                    !draft.problems.contains { $0.line == fault.line }
                }
            }
        }
        throw .failed(problems.sorted { $0.line < $1.line }.map(\.description))
    }

    /// Compiles a configuration's routes, or says in one line each what is wrong with them.
    static func routes(of configuration: Configuration) throws(Failure) -> RouteTable {
        do throws(ConfigurationErrors) {
            return try RouteTable.compile(configuration)
        } catch {
            throw .failed(error.problems.map(\.description))
        }
    }

    /// The process's environment variables.
    private static var environment: [String: String] {
        var found: [String: String] = [:]
        var entry = environ
        while let text = entry.pointee {
            let pair = String(cString: text).split(separator: "=", maxSplits: 1)
            if let name = pair.first { found[String(name)] = pair.count > 1 ? String(pair[1]) : "" }
            entry += 1
        }
        return found
    }
}
