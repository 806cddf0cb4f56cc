// The section `egress`.

internal import Base

extension Configuration {
    /// How connections to gateways leave this machine.
    public struct Egress: Sendable {
        /// A proxy that opens tunnels (CONNECT).
        public struct Proxy: Sendable {
            /// Where it listens.
            public var address: HostPort
            /// The user; nil for a proxy that asks for none.
            public var user: String?
            /// The user's password.
            public var password: SecretSource?
            /// Hosts that are connected to without it: names, or `.example.net` for all below one.
            public var bypass: [String]
        }

        /// Which of a host's addresses are connected to, and which first.
        public enum Addresses: String, Sendable, CaseIterable {
            /// In the order of the system's resolver.
            case auto
            /// IPv4 first.
            case ipv4
            /// IPv6 first.
            case ipv6
            /// IPv4 only.
            case onlyIPv4 = "ipv4_only"
            /// IPv6 only.
            case onlyIPv6 = "ipv6_only"
        }

        /// The proxy; nil for none.
        public var proxy: Proxy?
        /// Certificate authorities to trust besides the system's and those of each gateway, a PEM
        /// file.
        public var caFile: String?
        /// Which addresses are connected to; default `auto`.
        public var addresses: Addresses
    }
}

extension Configuration.Egress {
    internal init(_ section: ConfigurationSection) {
        var section = section
        proxy = Proxy.read(&section)
        caFile = section.file("ca_file")
        addresses = section.choice("addresses", default: .auto)
        section.finish()
    }
}

extension Configuration.Egress.Proxy {
    fileprivate static func read(_ section: inout ConfigurationSection) -> Self? {
        var inner = section.section("proxy")
        guard section.has("proxy") else { return nil }
        if !inner.has("address") { inner.reportMissing("address") }
        let address = inner.value(
            "address", default: HostPort(host: "", port: 0),
            "host:port of a proxy that takes CONNECT, with or without http:// in front"
        ) { text in
            let bare = text.hasPrefix("http://") ? String(text.dropFirst(7)) : text
            return HostPort(bare.hasSuffix("/") ? String(bare.dropLast()) : bare)
        }
        let user = inner.value(
            "user", default: nil, "a name without a colon and control characters"
        ) { text -> String?? in
            let isName = text.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0 != ":" }
            return isName && !text.isEmpty ? .some(text) : nil
        }
        let password = inner.secret("password", file: "password_file")
        if (user == nil) != (password == nil) {
            inner.report(
                user == nil ? "password" : "user",
                "a user and a password belong together: give both or neither")
        }
        let bypass = inner.texts("bypass", "a host, or .example.net for all names below one") {
            !$0.isEmpty && $0.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x2F }
        }
        inner.finish()
        return Self(address: address, user: user, password: password, bypass: bypass)
    }
}

extension ConfigurationSection {
    /// A list of texts, or one of them; empty when nothing is given.
    fileprivate mutating func texts(
        _ key: String, _ expected: String, _ isGood: (String) -> Bool
    ) -> [String] {
        guard let node = node(key) else { return [] }
        var elements = [node]
        if case .sequence(let list) = node.content { elements = list }
        return elements.compactMap { element in
            guard let text = reader.text(element, path(of: key)) else { return nil }
            if !isGood(text) { reader.report(element.line, path(of: key), "expected \(expected)") }
            return text
        }
    }
}
