// The section `tracing`.

internal import Base

extension Configuration.Tracing {
    /// Nil without a section; faults are left with the reader.
    internal static func read(_ top: inout ConfigurationSection) -> Self? {
        // Asked for in any case, so that it counts as known.
        var section = top.section("tracing")
        guard top.has("tracing") else { return nil }
        if !section.has("endpoint") { section.reportMissing("endpoint") }
        let (collector, path) = section.value(
            "endpoint", default: (HostPort(host: "127.0.0.1", port: 4318), "/v1/traces"),
            "http://host[:port][/path]; for https and everything else put a collector beside Bugle",
            endpoint)
        let sample = section.value("sample", default: 0.0, "a number from 0 to 1") { text in
            Double(text).flatMap { (0...1).contains($0) ? $0 : nil }
        }
        let headers = section.file("headers_file")
        section.finish()
        return Self(collector: collector, path: path, sample: sample, headersFile: headers)
    }

    private static func endpoint(_ text: String) -> (HostPort, String)? {
        let scheme = "http://"
        guard text.hasPrefix(scheme) else { return nil }
        let rest = text.dropFirst(scheme.count)
        let slash = rest.firstIndex(of: "/") ?? rest.endIndex
        guard let collector = HostPort(String(rest[..<slash]), defaultPort: 4318),
            rest[slash...].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
        else { return nil }
        let path = String(rest[slash...])
        return (collector, path.isEmpty || path == "/" ? "/v1/traces" : path)
    }
}
