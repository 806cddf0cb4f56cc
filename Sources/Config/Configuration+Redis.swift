// The section `redis`.

internal import Base

extension Configuration.Redis {
    internal init(_ section: ConfigurationSection) {
        var section = section
        addresses = Self.readAddresses(&section)
        let isList = addresses.count > 1
        cluster = section.choice("cluster", default: isList ? .true : .auto)
        if isList && cluster != .true {
            section.report("cluster", "several addresses are those of one cluster: leave it out")
            cluster = .true
        }
        tls = TLS.read(&section)
        prefix = section.value("prefix", default: "bugle:", "at most 64 bytes without braces") {
            $0.utf8.count <= 64 && !$0.contains("{") && !$0.contains("}") ? $0 : nil
        }
        database = section.integer("database", default: 0, in: 0...65_535)
        if database != 0 && cluster == .true {
            section.report("database", "a cluster has database 0 only: leave it out")
        }
        username = section.text("username")
        password = section.secret("password", file: "password_file")
        timeout = section.span(
            "timeout", default: .seconds(1), in: .milliseconds(10) ... .seconds(60))
        section.finish()
    }

    private static func readAddresses(_ section: inout ConfigurationSection) -> [HostPort] {
        let fallback = [HostPort(host: "localhost", port: 6379)]
        guard let node = section.node("address") else { return fallback }
        var elements = [node]
        if case .sequence(let list) = node.content {
            guard !list.isEmpty else {
                section.report("address", "expected at least one host:port")
                return fallback
            }
            elements = list
        }
        let addresses = elements.compactMap { element -> HostPort? in
            guard let text = section.reader.text(element, section.path(of: "address")) else {
                return nil
            }
            guard let address = HostPort(text) else {
                section.reader.report(
                    element.line, section.path(of: "address"),
                    "expected host:port, or a list of them for a cluster; a host has at most "
                        + "\(HostPort.hostBytesMax) bytes")
                return nil
            }
            return address
        }
        return addresses.isEmpty ? fallback : addresses
    }
}

extension Configuration.Redis.TLS {
    /// `true`, `false`, or a mapping, which may be empty.
    fileprivate static func read(_ section: inout ConfigurationSection) -> Self? {
        guard let node = section.node("tls") else { return nil }
        let none = Self()
        if case .scalar = node.content {
            guard let text = section.reader.text(node, section.path(of: "tls")) else { return nil }
            guard let isOn = Bool(text) else {
                section.report("tls", "expected true, false or a mapping")
                return nil
            }
            return isOn ? none : nil
        }
        guard
            var inner = ConfigurationSection(
                node, path: section.path(of: "tls"), reader: section.reader)
        else { return none }
        let tls = Self(
            caFile: inner.file("ca_file"), certificateFile: inner.file("cert_file"),
            keyFile: inner.file("key_file"), serverName: serverName(&inner))
        if (tls.certificateFile == nil) != (tls.keyFile == nil) {
            let missing = tls.keyFile == nil ? "key_file" : "cert_file"
            inner.report(
                tls.keyFile == nil ? "cert_file" : "key_file", "given without \(missing)")
        }
        inner.finish()
        return tls
    }

    private static func serverName(_ section: inout ConfigurationSection) -> String? {
        let limit = HostPort.hostBytesMax
        return section.value(
            "server_name", default: nil,
            "the name in the servers' certificates, 1 to \(limit) bytes"
        ) { text -> String?? in
            let isName =
                (1...limit).contains(text.utf8.count)
                && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
            return isName ? .some(text) : nil
        }
    }
}
