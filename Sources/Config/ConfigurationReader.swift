// Reading values out of the tree. Nothing here throws: each fault is noted with its place, a
// stand-in is returned, and reading goes on, so that one run reports all faults.

public import Base
internal import Telemetry

/// What one reading shares: the surroundings and the faults found so far.
public final class ConfigurationReader {
    internal let file: String
    internal let directory: String
    /// nil where the references to it are resolved already.
    private let environment: [String: String]?
    internal private(set) var problems: [ConfigurationErrors.Problem] = []
    /// Files that must be readable, with the place that names them.
    internal private(set) var files: [(path: String, line: Int, key: String)] = []

    internal init(file: String, directory: String, environment: [String: String]?) {
        self.file = file
        self.directory = directory
        self.environment = environment
    }

    /// Notes a fault at a place.
    public func report(_ line: Int, _ key: String, _ message: String) {
        problems.append(.init(file: file, line: line, key: key, message: message))
    }

    private static let missing = "missing; it has no default"

    /// Notes that a key is not given and has to be.
    internal func reportMissing(_ line: Int, _ key: String) { report(line, key, Self.missing) }

    /// Takes back that a key, or something below it, is missing: it is there under a wrong name, and
    /// one line about that is enough. A secret that is missing is asked for as a file.
    internal func forgiveMissing(_ key: String) {
        problems.removeAll {
            $0.message == Self.missing
                && ($0.key == key || $0.key == "\(key)_file" || $0.key.hasPrefix("\(key)."))
        }
    }

    internal func expectFile(_ path: String, _ line: Int, _ key: String) {
        files.append((path, line, key))
    }

    /// The scalar's text with its environment variables; nil, and reported, when it has none.
    public func text(_ node: YAMLNode, _ key: String) -> String? {
        guard case .scalar(let text, _) = node.content else {
            report(node.line, key, "expected a single value, found \(node.kindName)")
            return nil
        }
        guard let environment else { return text }
        do throws(EnvironmentReference.Unresolved) {
            return try EnvironmentReference.resolve(text, in: environment)
        } catch {
            report(node.line, key, error.message)
            return nil
        }
    }

    /// A path relative to the configuration's folder.
    internal func resolve(_ path: String) -> String {
        path.hasPrefix("/") || directory.isEmpty ? path : "\(directory)/\(path)"
    }
}

/// A mapping that is being read. The keys that were asked for are the known ones; `finish()`
/// reports all others.
public struct ConfigurationSection {
    /// Where faults are noted.
    public let reader: ConfigurationReader
    /// The keys that lead here, with dots; empty at the top.
    public let path: String
    /// The line it starts in.
    public let line: Int
    private let entries: [YAMLNode.Entry]
    private var known: [String] = []

    /// A section; nil, and reported, when the node is no mapping.
    public init?(_ node: YAMLNode, path: String, reader: ConfigurationReader) {
        guard case .mapping(let entries) = node.content else {
            reader.report(node.line, path, "expected a mapping, found \(node.kindName)")
            return nil
        }
        self.init(entries: entries, line: node.line, path: path, reader: reader)
    }

    internal init(entries: [YAMLNode.Entry], line: Int, path: String, reader: ConfigurationReader) {
        self.reader = reader
        self.path = path
        self.line = line
        self.entries = entries
    }

    /// Names and values in order, for mappings whose keys are free.
    public var members: [YAMLNode.Entry] { entries }

    /// The key with its parents.
    public func path(of key: String) -> String { path.isEmpty ? key : "\(path).\(key)" }

    /// The line of a key; that of the section when it is not given.
    public func line(of key: String) -> Int { entries.first { $0.key == key }?.line ?? line }

    /// Notes a fault of a key.
    public func report(_ key: String, _ message: String) {
        reader.report(line(of: key), path(of: key), message)
    }

    /// Notes that a key is not given and has to be.
    public func reportMissing(_ key: String) { reader.reportMissing(line(of: key), path(of: key)) }

    /// Whether a value is given.
    public func has(_ key: String) -> Bool {
        entries.contains { $0.key == key && !$0.value.isNull }
    }

    /// Whether a list is given that has no elements.
    internal func isEmptyList(_ key: String) -> Bool {
        guard case .sequence(let elements)? = entries.first(where: { $0.key == key })?.value.content
        else { return false }
        return elements.isEmpty
    }

    /// The node of a key; nil when nothing is given.
    public mutating func node(_ key: String) -> YAMLNode? {
        known.append(key)
        return entries.first { $0.key == key && !$0.value.isNull }?.value
    }

    /// Reports the keys that nobody asked for.
    public func finish() {
        for entry in entries where !known.contains(entry.key) {
            var message = "unknown key"
            if let nested = nested(entry.key) {
                message += "; nest it: \(nested)"
            } else if let near = NearestName.find(entry.key, among: known) {
                message += "; did you mean \"\(near)\"?"
                if !has(near) { reader.forgiveMissing(path(of: near)) }
            } else {
                message += "; known here: " + known.joined(separator: ", ")
            }
            reader.report(entry.line, path(of: entry.key), message)
        }
    }

    /// How a key with dots is written, as `a: {b: ...}`, when its beginning is a key of this
    /// section: documentation names keys that way.
    private func nested(_ key: String) -> String? {
        let parts = key.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count > 1, known.contains(String(parts[0])), !parts.contains("") else {
            return nil
        }
        let inner = parts.dropFirst().reversed().reduce("...") { "{\($1): \($0)}" }
        return "\(parts[0]): \(inner)"
    }

    /// A section inside this one, empty when it is not given.
    public mutating func section(_ key: String) -> ConfigurationSection {
        let empty = ConfigurationSection(
            entries: [], line: line(of: key), path: path(of: key), reader: reader)
        guard let node = node(key) else { return empty }
        return ConfigurationSection(node, path: path(of: key), reader: reader) ?? empty
    }

    /// A text; nil when nothing is given.
    public mutating func text(_ key: String) -> String? {
        node(key).flatMap { reader.text($0, path(of: key)) }
    }

    /// A text that must be given.
    public mutating func requiredText(_ key: String) -> String {
        if !has(key) { reportMissing(key) }
        return text(key) ?? ""
    }

    /// A value that `read` makes of a text; `expected` says what would have been right.
    public mutating func value<Value>(
        _ key: String, default fallback: Value, _ expected: String, _ read: (String) -> Value?
    ) -> Value {
        guard let text = text(key) else { return fallback }
        if let value = read(text) { return value }
        report(key, "expected \(expected)")
        return fallback
    }

    /// A whole number.
    public mutating func integer(_ key: String, default fallback: Int, in range: ClosedRange<Int>)
        -> Int
    {
        value(
            key, default: fallback,
            "a whole number from \(range.lowerBound) to \(range.upperBound)"
        ) { text in Int(text).flatMap { range.contains($0) ? $0 : nil } }
    }

    /// `true` or `false`.
    public mutating func bool(_ key: String, default fallback: Bool) -> Bool {
        value(key, default: fallback, "true or false") { Bool($0) }
    }

    /// A time with its unit.
    public mutating func span(
        _ key: String, default fallback: TimeSpan, in range: ClosedRange<TimeSpan>
    ) -> TimeSpan {
        let (low, high) = (SpanText.write(range.lowerBound), SpanText.write(range.upperBound))
        return value(
            key, default: fallback, "a time from \(low) to \(high) with its unit, such as 20s"
        ) { text in SpanText.read(text).flatMap { range.contains($0) ? $0 : nil } }
    }

    /// One of a closed list of names.
    public mutating func choice<Choice: RawRepresentable<String> & CaseIterable>(
        _ key: String, default fallback: Choice
    ) -> Choice {
        let names = Choice.allCases.map(\.rawValue)
        return value(key, default: fallback, "one of " + names.joined(separator: ", ")) {
            Choice(rawValue: $0)
        }
    }

    /// A file that must be readable; nil when nothing is given.
    mutating func file(_ key: String) -> String? {
        guard let text = text(key) else { return nil }
        let path = reader.resolve(text)
        reader.expectFile(path, line(of: key), self.path(of: key))
        return path
    }

    /// A secret, given as `key: ${NAME}` or by the path of a file; nil when neither is given.
    mutating func secret(_ key: String, file fileKey: String) -> SecretSource? {
        let filePath = file(fileKey)
        guard let node = node(key) else { return filePath.map { .file($0) } }
        if filePath != nil { report(key, "given twice: here and as \(fileKey)") }
        return SecretText.read(node, path(of: key), orFile: fileKey, reader)
    }
}

/// Secrets that stand in the file as a reference to the environment.
internal enum SecretText {
    /// The secret; nil, and reported, when it is a literal or its variable is not set.
    static func read(
        _ node: YAMLNode, _ key: String, orFile fileKey: String, _ reader: ConfigurationReader
    ) -> SecretSource? {
        if case .scalar(let text, _) = node.content, !EnvironmentReference.isOnlyReference(text) {
            reader.report(
                node.line, key,
                "a secret must not stand in this file; write ${NAME} to take it from the"
                    + " environment, or use \(fileKey)")
            return nil
        }
        return reader.text(node, key).map { .value(Secret($0)) }
    }
}

/// Times such as `200ms`, `20s`, `5m`, `1h` and `2d`.
internal enum SpanText {
    private static let units: [(name: String, nanos: Int64)] = [
        ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ]

    static func read(_ text: String) -> TimeSpan? {
        let digits = text.prefix { $0.isASCII && $0.isWholeNumber }
        guard let count = Int64(digits),
            let unit = units.first(where: { $0.name == text.dropFirst(digits.count) })
        else { return nil }
        let (nanos, overflow) = count.multipliedReportingOverflow(by: unit.nanos)
        return overflow ? nil : TimeSpan(nanos: nanos)
    }

    static func write(_ span: TimeSpan) -> String {
        let unit = units.last { span.nanos % $0.nanos == 0 && span.nanos >= $0.nanos }
        return unit.map { "\(span.nanos / $0.nanos)\($0.name)" } ?? "0s"
    }
}
