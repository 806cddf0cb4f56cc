// What works and is a mistake nevertheless.

internal import Base
public import Config

/// A warning about a route, with its place.
public struct RouteLint: Sendable, Equatable, CustomStringConvertible {
    /// The file as it was named.
    public let file: String
    /// The line, counted from 1.
    public let line: Int
    /// The route.
    public let route: String
    /// What is doubtful and what to do.
    public let message: String

    /// `bugle.yaml:12: routes.chat.*: an alert without ttl …`
    public var description: String {
        "\(file):\(line): \(route.hasPrefix("caps.") ? route : "routes.\(route)"): \(message)"
    }
}

extension RouteTable {
    /// FCM keeps messages apart by at most so many keys for each app on a device.
    private static let fcmCollapseKeysMax = 4

    /// Everything that is doubtful about the routes, in the order of the file.
    public func lints(_ configuration: Configuration) -> [RouteLint] {
        var lints: [RouteLint] = []
        for route in routes {
            func add(_ message: String) {
                lints.append(
                    RouteLint(file: file, line: route.line, route: route.name, message: message))
            }
            lintRoute(route, isMarketing: isMarketing(route, configuration), add)
            for app in configuration.apps where route.apps?.contains(app.name) ?? true {
                lintRoute(route, in: app, add)
            }
        }
        return lints + lintCollapseKeys(configuration) + lintCaps()
    }

    /// Caps that nothing counts for.
    private func lintCaps() -> [RouteLint] {
        let preferences = Set(routes.compactMap(\.preference))
        var lints = caps.preferences.keys.filter { !preferences.contains($0) }.sorted().map {
            RouteLint(
                file: file, line: 1, route: "caps.preferences.\($0)",
                message: "no route has this preference")
        }
        if caps.user != nil, preferences.isEmpty {
            lints.append(
                RouteLint(
                    file: file, line: 1, route: "caps.user",
                    message: "counts events of routes with a preference, and there is none"))
        }
        return lints
    }

    /// Whether its events come from topics of marketing: since it takes no others, or since there
    /// are no others.
    private func isMarketing(_ route: Route, _ configuration: Configuration) -> Bool {
        if let eventClass = route.eventClass { return eventClass == .marketing }
        return configuration.kafka.topics.events.allSatisfy { $0.eventClass == .marketing }
    }

    private func lintRoute(_ route: Route, isMarketing: Bool, _ add: (String) -> Void) {
        if route.kind == .alert, route.ttl == nil {
            add("an alert without ttl is shown up to a day late; say how long it is worth showing")
        }
        if let window = route.coalescing?.window, let ttl = route.ttl, window >= ttl {
            add("coalesce.window is not shorter than ttl; windows will end early")
        }
        if isMarketing, route.preference == nil {
            add("marketing without preference: nobody can opt out of it")
        }
        if isMarketing, route.quiet == nil, route.kind == .alert || route.kind == .raw {
            add("marketing without quiet_hours: it is shown in the middle of the night")
        }
        if let quiet = route.quiet, !quiet.suppresses, let ttl = route.ttl, let hours = quiet.hours,
            ttl < .minutes(Int64(hours.minutes))
        {
            add("ttl is shorter than quiet_hours: much of what they hold ends as suppressed")
        }
        let clear = route.clearPaths
        for path in route.sensitive.sorted(by: { $0.text < $1.text }) {
            let places = Set(clear.filter(path.overlaps).map(\.text))
            guard !places.isEmpty else { continue }
            // A part of it, the whole that it is a part of, or another spelling.
            let others = places.contains(path.text) ? [] : places.sorted()
            add(
                "\(path.text) is sensitive and goes out in clear"
                    + (others.isEmpty ? "" : ", by \(others.joined(separator: ", "))")
                    + "; use a pointer to it, or encrypt")
        }
    }

    private func lintRoute(
        _ route: Route, in app: Configuration.App, _ add: (String) -> Void
    ) {
        guard route.kind == .alert else { return }
        let abilities = app.abilities
        if app.fcm != nil, route.channel(in: abilities) == nil {
            add(
                "no Android channel in \(app.name): give android_channel, or"
                    + " apps.\(app.name).android_channels.\(route.importance.rawValue)")
        }
        if app.apns != nil, let entitlement = route.entitlement,
            !abilities.entitlements.contains(entitlement)
        {
            add(
                "importance \(route.importance.rawValue) needs an entitlement that"
                    + " apps.\(app.name).entitlements does not name; Apple lowers it silently")
        }
        for link in [route.link].compactMap({ $0 }) + route.actions.compactMap(\.link) {
            guard let scheme = link.literalScheme, !abilities.linkSchemes.contains(scheme) else {
                continue
            }
            add("\(scheme): is not one of apps.\(app.name).link_schemes; its events are refused")
        }
        if route.image != nil, abilities.imageHosts.isEmpty {
            add("image without apps.\(app.name).image_hosts: its events are refused")
        }
    }

    private func lintCollapseKeys(_ configuration: Configuration) -> [RouteLint] {
        configuration.apps.filter { $0.fcm != nil }.compactMap { app in
            let keyed = routes.filter {
                $0.fcmCollapseKey != nil && $0.apps?.contains(app.name) ?? true
            }
            var keys: Set<String> = []
            for route in keyed {
                keys.insert(route.fcmCollapseKey ?? "")
                guard keys.count > Self.fcmCollapseKeysMax else { continue }
                return RouteLint(
                    file: file, line: route.line, route: route.name,
                    message: "fcm_collapse: more than \(Self.fcmCollapseKeysMax) keys in"
                        + " \(app.name); FCM does not say which of them survive")
            }
            return nil
        }
    }
}

extension Route {
    /// The fields whose values a push carries readably. A pointer names something without saying
    /// what is in it.
    fileprivate var clearPaths: Set<FieldPath> {
        var always = [thread, collapse].compactMap { $0 }.flatMap(\.references).map(\.path)
        if case .field(let reference, _) = badge { always.append(reference.path) }
        if encrypts {
            return Set(
                fallback.all.flatMap(\.templates).flatMap(\.references).map(\.path) + always)
        }
        let templates =
            (texts.all + burstTexts.all + fallback.all + actions.map(\.title))
            .flatMap(\.templates)
            + [image, link].compactMap { $0 } + actions.compactMap(\.link)
        let json = (overrides.all + [data].compactMap { $0 }).flatMap(\.references)
        return Set((templates.flatMap(\.references) + json).map(\.path) + always)
    }

    fileprivate var entitlement: Configuration.App.Abilities.Entitlement? {
        switch importance {
        case .timeSensitive: .timeSensitive
        case .critical: .critical
        case .passive, .normal, .high: nil
        }
    }
}

extension Template {
    /// The scheme of an address when the route itself says it.
    fileprivate var literalScheme: String? {
        literalStart.firstIndex(of: ":").map { literalStart[..<$0].lowercased() }
    }
}
