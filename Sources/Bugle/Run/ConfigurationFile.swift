internal import Config
internal import Glibc
internal import Routes

/// The configuration that the command line names.
internal enum ConfigurationFile {
    /// Reads the one that `--config` names.
    static func load(_ arguments: Arguments) throws(Failure) -> Configuration {
        try load(path: try arguments.required("config", "FILE"))
    }

    /// Reads a file, or says in one line each what is wrong with it.
    static func load(path: String) throws(Failure) -> Configuration {
        do throws(ConfigurationErrors) {
            return try Configuration.load(path: path, environment: environment)
        } catch {
            throw .failed(error.problems.map(\.description))
        }
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
