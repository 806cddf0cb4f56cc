internal import Base
internal import Glibc

extension Configuration {
    /// What reading a file gave, faults and all.
    public struct Draft: Sendable {
        /// The configuration with stand-ins where a value is at fault; nil when the file is no
        /// mapping at all.
        public let configuration: Configuration?
        /// The faults in the order of their lines.
        public let problems: [ConfigurationErrors.Problem]
    }

    /// Reads a file. Relative paths inside it start at its folder, and the files that it names
    /// must be readable.
    public static func load(
        path: String, environment: [String: String]
    ) throws(ConfigurationErrors) -> Configuration {
        try whole(draft(path: path, environment: environment))
    }

    /// Reads a file as far as that goes, for whoever looks for further faults.
    public static func draft(path: String, environment: [String: String]) -> Draft {
        let bytes: [UInt8]
        do throws(SecretSourceError) {
            bytes = try FileBytes.read(path, limit: fileBytesMax)
        } catch {
            return Draft(
                configuration: nil,
                problems: [.init(file: path, line: 0, key: "", message: error.message)])
        }
        let slash = path.lastIndex(of: "/")
        let directory = slash.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? ""
        return read(
            bytes, file: path, directory: directory, environment: environment, checkFiles: true)
    }

    /// Reads a text as if it stood in a file of that name in the current folder. The files that
    /// it names are not looked at.
    public static func parse(
        text: String, file: String = "bugle.yaml", environment: [String: String] = [:]
    ) throws(ConfigurationErrors) -> Configuration {
        try whole(
            read(
                Array(text.utf8), file: file, directory: "", environment: environment,
                checkFiles: false))
    }

    private static func whole(_ draft: Draft) throws(ConfigurationErrors) -> Configuration {
        guard let configuration = draft.configuration, draft.problems.isEmpty else {
            throw ConfigurationErrors(problems: draft.problems)
        }
        return configuration
    }

    private static func read(
        _ bytes: [UInt8], file: String, directory: String, environment: [String: String],
        checkFiles: Bool
    ) -> Draft {
        let reader = ConfigurationReader(
            file: file, directory: directory, environment: environment)
        var configuration: Configuration?
        do throws(YAMLError) {
            if let root = try YAMLParser.parse(bytes), !root.isNull {
                let section = ConfigurationSection(root, path: "", reader: reader)
                configuration = section.map {
                    Configuration(
                        $0, text: String(decoding: bytes, as: UTF8.self), hostName: hostName())
                }
            } else {
                reader.report(1, "", "empty; at least kafka and apps are needed")
            }
        } catch {
            reader.report(error.line, "", error.message)
        }
        if checkFiles {
            for (path, line, key) in reader.files {
                guard let fault = FileBytes.openingFault(path) else { continue }
                reader.report(line, key, "cannot read \(path): \(fault)")
            }
        }
        return Draft(
            configuration: configuration, problems: reader.problems.sorted { $0.line < $1.line })
    }

    /// The machine's name, as far as it can serve as a name in Kafka.
    private static func hostName() -> String {
        var buffer = [CChar](repeating: 0, count: 256)
        guard gethostname(&buffer, buffer.count - 1) == 0 else { return "bugle" }
        let name = buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        return Topics.checked(String(decoding: name, as: UTF8.self)) ?? "bugle"
    }
}
