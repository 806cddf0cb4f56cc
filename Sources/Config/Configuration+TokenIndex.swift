// How the token index judges addresses: `index.fuse`, `index.staleness`, `index.sweep` and
// `index.gateway_preference`.

public import Base

extension Configuration.Index {
    /// When a fuse trips: then verdicts that a misconfiguration can cause are held back.
    public struct Fuse: Sendable, Equatable {
        /// Tokens judged bad, in percent of the answers of the window; 1 to 100, default 5.
        public var percent: Int
        /// So many at least; 1 to 1,000,000, default 50.
        public var tokensMin: Int
        /// How far back verdicts and answers count; 1 min to 1 h, default 5 min.
        public var window: TimeSpan
    }

    /// When an address counts as dead because it was not seen.
    public struct Staleness: Sendable, Equatable {
        /// For all gateways; 1 h to 10 years, default 90 days.
        public var after: TimeSpan
        /// For FCM at most; 1 h to 270 days, default 270 days, at which Google deletes them.
        public var fcmAfter: TimeSpan
    }

    /// How the process that writes the index looks for addresses that are stale, to say so on the
    /// topic of verdicts.
    public struct Sweep: Sendable, Equatable {
        /// From the beginning of one walk to the next one's; 1 s to 7 days, default 1 h.
        public var interval: TimeSpan
        /// Keys of the store looked at in a second, at most; 1 to 100,000, default 1,000.
        public var rate: Int
    }
}

extension Configuration.Index.Sweep {
    internal init(_ section: ConfigurationSection) {
        var section = section
        interval = section.span("interval", default: .hours(1), in: .seconds(1) ... .hours(7 * 24))
        rate = section.integer("rate", default: 1_000, in: 1...100_000)
        section.finish()
    }
}

extension Configuration.Index.Fuse {
    internal init(_ section: ConfigurationSection) {
        var section = section
        percent = section.integer("percent", default: 5, in: 1...100)
        tokensMin = section.integer("tokens_min", default: 50, in: 1...1_000_000)
        window = section.span("window", default: .minutes(5), in: .minutes(1) ... .hours(1))
        section.finish()
    }
}

extension Configuration.Index.Staleness {
    internal init(_ section: ConfigurationSection) {
        var section = section
        after = section.span(
            "after", default: .hours(90 * 24), in: .hours(1) ... .hours(3_650 * 24))
        fcmAfter = section.span(
            "fcm_after", default: .hours(270 * 24), in: .hours(1) ... .hours(270 * 24))
        section.finish()
    }
}

extension Gateway {
    internal static func readPreference(_ section: inout ConfigurationSection) -> [Gateway] {
        guard let node = section.node("gateway_preference") else { return allCases }
        guard case .sequence(let elements) = node.content, !elements.isEmpty else {
            section.report("gateway_preference", "expected a list such as [apns, fcm]")
            return allCases
        }
        let path = section.path(of: "gateway_preference")
        var order: [Gateway] = []
        for element in elements {
            guard let text = section.reader.text(element, path) else { continue }
            guard let gateway = Gateway(rawValue: text), !order.contains(gateway) else {
                let names = allCases.map(\.rawValue).joined(separator: ", ")
                section.reader.report(
                    element.line, path, "expected each of \(names) at most once")
                continue
            }
            order.append(gateway)
        }
        return order
    }
}
