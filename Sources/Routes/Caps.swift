// How often people, devices and sources are served: the section `caps`. It changes with the routes.

public import Base
internal import Config

/// Bounds on what is sent to whom, and for whom.
public struct Caps: Sendable, Equatable {
    /// What a source may have sent.
    public struct Quota: Sendable, Equatable {
        /// Events in windows of a fixed length; nil for no bound.
        public var rate: Cap?
        /// Events in a day of UTC; nil for no bound.
        public var day: Cap?
    }

    /// Silent pushes to a device at APNs; nil for no bound.
    public var silent: Cap?
    /// Events of routes with a preference that a person gets; nil for no bound.
    public var user: Cap?
    /// Events of a preference that a person gets.
    public var preferences: [String: Cap]
    /// What sources may have sent, by name.
    public var sources: [String: Quota]
    /// What every other source may have sent; nil for no bound.
    public var otherSources: Quota?

    /// Whether any event may count for a person or a source: asked for every event.
    public let countsEvents: Bool

    /// What holds when the configuration says nothing: Apple lets two or three silent pushes an
    /// hour through to a device.
    public static let standard = Caps(silent: Cap(3, in: .hours(1)))

    internal init(
        silent: Cap?, user: Cap? = nil, preferences: [String: Cap] = [:],
        sources: [String: Quota] = [:], otherSources: Quota? = nil
    ) {
        self.silent = silent
        self.user = user
        self.preferences = preferences
        self.sources = sources
        self.otherSources = otherSources
        countsEvents =
            user != nil || !preferences.isEmpty || !sources.isEmpty || otherSources != nil
    }

    /// The quota of a source; nil for no bound.
    public func quota(of source: String) -> Quota? { sources[source] ?? otherSources }
}

extension Caps {
    /// The most that a cap of a person or a device counts: each is remembered.
    private static let most = 1_000
    private static let spans = TimeSpan.seconds(1) ... .hours(7 * 24)
    private static let quotaMost = 1_000_000_000

    internal init(_ section: ConfigurationSection) {
        var section = section
        let silent = section.cap(
            "silent", default: Self.standard.silent, upTo: Self.most, in: Self.spans)
        let user = section.cap("user", default: nil, upTo: Self.most, in: Self.spans)
        let preferences = Self.preferences(section.section("preferences"))
        var quotas = Self.quotas(section.section("sources"))
        section.finish()
        let others = quotas.removeValue(forKey: "*")
        self.init(
            silent: silent, user: user, preferences: preferences, sources: quotas,
            otherSources: others)
    }

    private static func preferences(_ section: ConfigurationSection) -> [String: Cap] {
        var section = section
        var caps: [String: Cap] = [:]
        for name in section.members.map(\.key) {
            caps[name] = section.cap(name, default: nil, upTo: most, in: spans)
        }
        return caps
    }

    private static func quotas(_ section: ConfigurationSection) -> [String: Quota] {
        var quotas: [String: Quota] = [:]
        for entry in section.members {
            let path = section.path(of: entry.key)
            guard
                var own = ConfigurationSection(entry.value, path: path, reader: section.reader)
            else { continue }
            var quota = Quota()
            quota.rate = own.cap(
                "rate", default: nil, upTo: quotaMost, in: .seconds(1) ... .hours(24))
            let day = own.integer("day", default: 0, in: 1...quotaMost)
            if day > 0 { quota.day = Cap(day, in: .hours(24)) }
            own.finish()
            if quota == Quota() {
                section.reader.report(entry.line, path, "give rate, day or both")
            } else {
                quotas[entry.key] = quota
            }
        }
        return quotas
    }
}
