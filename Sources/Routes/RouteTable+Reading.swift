// Compiling the sections `content`, `caps` and `routes`.

internal import Base
public import Config

extension RouteTable {
    /// Compiles a configuration's routes; every fault is thrown at once, with line and key.
    public static func compile(
        _ configuration: Configuration
    ) throws(ConfigurationErrors) -> RouteTable {
        let apps = configuration.apps
        return try configuration.routing.read { top in
            let defaults = RouteDefaults(top.section("content"))
            let caps = Caps(top.section("caps"))
            let section = top.section("routes")
            top.finish()
            let entries = section.members.map { entry in
                let path = section.path(of: entry.key)
                if let problem = Self.problem(withPattern: entry.key) {
                    section.reader.report(entry.line, path, problem)
                }
                return (
                    entry.key,
                    Self.routes(entry, path: path, defaults, apps: apps, section.reader)
                )
            }
            return RouteTable(
                file: configuration.routing.file, entries, apps: apps, caps: caps)
        }
    }

    private static func problem(withPattern pattern: String) -> String? {
        guard (1...128).contains(pattern.utf8.count) else {
            return "a type has 1 to 128 bytes"
        }
        let star = pattern.firstIndex(of: "*")
        guard let star else { return nil }
        let fits = pattern.index(after: star) == pattern.endIndex
        let front = pattern[..<star]
        return fits && (front.isEmpty || front.hasSuffix("."))
            ? nil : "a star stands alone or behind the last dot, as in chat.*"
    }

    /// One route, or a list of routes with conditions.
    private static func routes(
        _ entry: YAMLNode.Entry, path: String, _ defaults: RouteDefaults,
        apps: [Configuration.App], _ reader: ConfigurationReader
    ) -> [Route] {
        let nodes: [YAMLNode]
        if case .sequence(let list) = entry.value.content {
            nodes = list
        } else {
            nodes = [entry.value]
        }
        if nodes.isEmpty {
            reader.report(entry.line, path, "an empty list; name at least one route")
        }
        return nodes.enumerated().compactMap { number, node in
            let isOnly = nodes.count == 1
            let key = isOnly ? path : "\(path)[\(number)]"
            guard let section = ConfigurationSection(node, path: key, reader: reader) else {
                return nil
            }
            var route = RouteReader(section, defaults, apps: apps)
            let settings = route.read()
            return Route(
                settings, name: number == 0 ? entry.key : "\(entry.key)#\(number + 1)",
                line: isOnly ? entry.line : node.line)
        }
    }
}

/// The section `content`: what routes share.
internal struct RouteDefaults {
    /// The language of texts outside `translations`.
    var language: LocaleTag
    /// The zone of devices that name none.
    var timeZone: String
    /// The quiet hours of people who have not said theirs, for routes that respect them.
    var quietHours: QuietHours?

    init(_ section: ConfigurationSection) {
        var section = section
        language = section.value(
            "locale", default: .english, "a locale such as en or de-AT"
        ) { LocaleTag($0) }
        timeZone = section.value("time_zone", default: "UTC", "a time zone such as Europe/Vienna") {
            LocalFormats().isZone($0) ? $0 : nil
        }
        var quiet = section.section("quiet_hours")
        quietHours = quiet.quietHours()
        quiet.finish()
        section.finish()
    }
}

extension ConfigurationSection {
    /// The members `from` and `to`, two times of day; nil when neither is given.
    internal mutating func quietHours() -> QuietHours? {
        func minute(_ key: String, _ section: inout ConfigurationSection) -> Int? {
            section.value(key, default: nil, "a time of day such as \"22:00\"") {
                QuietHours.minute($0).map { .some($0) }
            }
        }
        let from = minute("from", &self)
        let to = minute("to", &self)
        if has("from") != has("to") {
            report(has("from") ? "from" : "to", "from and to go together")
        }
        guard let from, let to else { return nil }
        if from == to { report("to", "the same time as from: that is no span of the day") }
        return QuietHours(from: from, to: to)
    }
}
