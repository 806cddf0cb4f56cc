// The sections `routes`, `content` and `caps`: kept as they stand, for the room that knows what a route is.

public import Base

extension Configuration {
    /// Sections that another room reads, with the places where they stand. Environment variables
    /// are replaced.
    public struct Sections: Sendable {
        /// The file as it was named.
        public let file: String
        private let entries: [YAMLNode.Entry]

        /// Whether nothing was given.
        public var isEmpty: Bool { entries.isEmpty }

        internal init(file: String, entries: [YAMLNode.Entry]) {
            self.file = file
            self.entries = entries
        }

        /// Lets `body` read the sections as members of one; every fault that it reports is thrown.
        public func read<Value>(
            _ body: (inout ConfigurationSection) -> Value
        ) throws(ConfigurationErrors) -> Value {
            let reader = ConfigurationReader(file: file, directory: "", environment: nil)
            var section = ConfigurationSection(entries: entries, line: 1, path: "", reader: reader)
            let value = body(&section)
            guard reader.problems.isEmpty else {
                throw ConfigurationErrors(problems: reader.problems.sorted { $0.line < $1.line })
            }
            return value
        }
    }

    internal static func readRouting(_ top: inout ConfigurationSection) -> Sections {
        let entries = ["content", "caps", "routes"].compactMap { key -> YAMLNode.Entry? in
            let line = top.line(of: key)
            guard let node = top.node(key) else { return nil }
            return YAMLNode.Entry(
                key: key, line: line, value: top.reader.resolved(node, top.path(of: key)))
        }
        return Sections(file: top.reader.file, entries: entries)
    }
}

extension ConfigurationReader {
    /// The node with its environment variables replaced; faults are reported.
    fileprivate func resolved(_ node: YAMLNode, _ key: String) -> YAMLNode {
        var node = node
        switch node.content {
        case .scalar(_, let plain):
            node.content = .scalar(text(node, key) ?? "", plain: plain)
        case .sequence(let elements):
            node.content = .sequence(elements.map { resolved($0, key) })
        case .mapping(let entries):
            node.content = .mapping(
                entries.map { entry in
                    var entry = entry
                    entry.value = resolved(entry.value, "\(key).\(entry.key)")
                    return entry
                })
        }
        return node
    }
}

extension Configuration.App {
    /// What the app can do, which routes ask for.
    public struct Abilities: Sendable {
        /// What Apple granted the app beyond plain notifications.
        public enum Entitlement: String, Sendable, CaseIterable {
            case timeSensitive = "time_sensitive"
            case critical
        }

        /// Schemes that a deep link may have, in lower case; default only `https`.
        public var linkSchemes: [String]
        /// Whether the configuration lists them: then links that events bring are held to the list.
        public var statesLinkSchemes: Bool
        /// Hosts that an image may come from, in lower case; `*.` in front stands for any
        /// subdomain. Default none.
        public var imageHosts: [String]
        /// Granted entitlements; default none.
        public var entitlements: Set<Entitlement>
        /// The Android channel by importance.
        public var androidChannels: [Importance: String]
    }
}

extension Configuration.App.Abilities {
    internal init(_ section: inout ConfigurationSection) {
        statesLinkSchemes = section.has("link_schemes")
        linkSchemes = section.texts(
            "link_schemes", default: ["https"], "schemes such as https or myapp, without a colon"
        ) { text in
            let isScheme =
                text.utf8.allSatisfy { Self.isSchemeByte($0) }
                && text.utf8.first.map { $0 | 0x20 >= 0x61 && $0 | 0x20 <= 0x7A } ?? false
            return isScheme ? text.lowercased() : nil
        }
        imageHosts = section.texts(
            "image_hosts", default: [], "host names such as cdn.example.com or *.example.com"
        ) { text in
            let host = text.hasPrefix("*.") ? text.dropFirst(2) : text[...]
            return !host.isEmpty && host.utf8.allSatisfy(Self.isHostByte)
                ? text.lowercased() : nil
        }
        entitlements = Set(
            section.texts("entitlements", default: [], "only time_sensitive and critical") {
                Entitlement(rawValue: $0)
            })
        androidChannels = Self.readChannels(section.section("android_channels"))
    }

    private static func readChannels(_ section: ConfigurationSection) -> [Importance: String] {
        var section = section
        var channels: [Importance: String] = [:]
        for importance in Importance.allCases {
            channels[importance] = section.text(importance.rawValue)
        }
        section.finish()
        return channels
    }

    private static func isSchemeByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2B, 0x2D, 0x2E: true
        default: false
        }
    }

    private static func isHostByte(_ byte: UInt8) -> Bool {
        isSchemeByte(byte) && byte != 0x2B
    }
}

extension ConfigurationSection {
    /// A list of texts, or one text; `expected` says what would have been right.
    public mutating func texts<Value>(
        _ key: String, default fallback: [Value], _ expected: String, _ read: (String) -> Value?
    ) -> [Value] {
        guard let node = node(key) else { return fallback }
        let elements: [YAMLNode]
        if case .sequence(let list) = node.content { elements = list } else { elements = [node] }
        return elements.compactMap { element in
            guard let text = reader.text(element, path(of: key)) else { return nil }
            if let value = read(text) { return value }
            reader.report(element.line, path(of: key), "expected \(expected)")
            return nil
        }
    }
}

extension ConfigurationSection {
    /// So many in so long, such as `3/1h`; `none` for no bound.
    public mutating func cap(
        _ key: String, default fallback: Cap?, upTo most: Int, in range: ClosedRange<TimeSpan>
    ) -> Cap? {
        let (low, high) = (SpanText.write(range.lowerBound), SpanText.write(range.upperBound))
        return value(
            key, default: fallback,
            "none, or 1 to \(most) in \(low) to \(high), such as 3/1h"
        ) { text in
            if text == "none" { return .some(nil) }
            let parts = text.split(separator: "/", omittingEmptySubsequences: false)
            guard parts.count == 2, let count = Int(parts[0]), (1...most).contains(count),
                let span = SpanText.read(String(parts[1])), range.contains(span)
            else { return nil }
            return .some(Cap(count, in: span))
        }
    }

    /// What `cap` reads, written again.
    public static func text(of cap: Cap) -> String { "\(cap.count)/\(SpanText.write(cap.span))" }
}
