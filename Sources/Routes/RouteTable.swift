// All routes, and the one for an event: an exact type beats any prefix, a longer prefix a shorter
// one; among routes of the same type the first whose conditions hold.

public import Base
public import Config

/// The compiled routes of a configuration.
public final class RouteTable: Sendable {
    /// A route with what its app can do.
    public struct Match: Sendable {
        /// The route.
        public let route: Route
        /// What the event's app can do.
        public let abilities: Configuration.App.Abilities
    }

    /// All routes in the order of the file.
    public let routes: [Route]
    private let exact: [String: [Route]]
    /// By the text in front of the `*`.
    private let prefixes: [String: [Route]]
    /// The patterns as they are written.
    private let patterns: [String]
    internal let abilities: [String: Configuration.App.Abilities]
    internal let file: String
    /// How often people, devices and sources are served.
    public let caps: Caps

    internal init(
        file: String, _ entries: [(pattern: String, routes: [Route])], apps: [Configuration.App],
        caps: Caps = .standard
    ) {
        self.caps = caps
        self.file = file
        routes = entries.flatMap(\.routes)
        patterns = entries.map(\.pattern)
        var (exact, prefixes): ([String: [Route]], [String: [Route]]) = ([:], [:])
        for (pattern, routes) in entries {
            if pattern.hasSuffix("*") {
                prefixes[String(pattern.dropLast())] = routes
            } else {
                exact[pattern] = routes
            }
        }
        self.exact = exact
        self.prefixes = prefixes
        abilities = Dictionary(
            apps.map { ($0.name, $0.abilities) }, uniquingKeysWith: { first, _ in first })
    }

    /// A table without routes.
    public static let empty = RouteTable(file: "", [], apps: [])

    /// Whether there is any route.
    public var isEmpty: Bool { routes.isEmpty }

    /// Refuses an event without a route whose own addresses lead where its app does not list.
    public func checkAddresses(
        of explicit: ExplicitContent, app: String
    ) throws(TemplateError) {
        guard explicit.notification != nil, let abilities = abilities[app] else { return }
        try explicit.checkAddresses(in: abilities)
    }

    /// The route for an event; nil when there is none, or the app is not configured.
    public func match(_ event: borrowing RouteEvent, of eventClass: EventClass) -> Match? {
        guard !routes.isEmpty, let abilities = abilities[event.app] else { return nil }
        var candidates = exact[event.type]
        var end = event.type.endIndex
        while true {
            if let route = candidates?.first(where: { $0.accepts(event, of: eventClass) }) {
                return Match(route: route, abilities: abilities)
            }
            // Only dots end a prefix, so there is one to look up for each.
            if end == event.type.startIndex { return nil }
            end = event.type[..<end].lastIndex(of: ".") ?? event.type.startIndex
            let prefix =
                end == event.type.startIndex ? "" : String(event.type[...end])
            candidates = prefixes.isEmpty ? nil : prefixes[prefix]
        }
    }

    /// The pattern that somebody probably meant by a type without a route.
    public func nearestPattern(to type: String) -> String? {
        NearestName.find(type, among: patterns)
    }
}
