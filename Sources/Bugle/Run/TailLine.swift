internal import Base
internal import JSON
internal import Kafka

/// A result or a dead letter as one line for a person: no token, no content.
internal struct TailLine {
    private let parser = JSONParser()

    /// The line of a record of `push.results`.
    func result(_ value: UnsafeRawBufferPointer) -> String {
        guard let result = try? parser.parse(value), result.isObject else {
            return "a result that is not JSON"
        }
        func text(_ name: StaticString) -> String { (result[name]?.string ?? "").printable }
        let settled = result["settled_at"]?.int64
        var parts = [
            settled.map { Self.clock(UnixMillis($0)) } ?? "--:--:--.---",
            text("outcome").padded(to: 15),
        ]
        let gateway = text("gateway")
        let environment = text("environment")
        parts.append(
            (environment.isEmpty || environment == "none" ? gateway : "\(gateway) \(environment)")
                .padded(to: 15))
        parts.append("\(text("event_type")) \(text("event_id")) user \(text("user_id"))")
        if let install = result["install_id"]?.string { parts.append("on \(install.printable)") }
        if let status = result["status"]?.int64 { parts.append("\(status)") }
        let reason = text("reason")
        if !reason.isEmpty { parts.append(reason) }
        if let settled, let consumed = result["consumed_at"]?.int64 {
            parts.append("\(settled &- consumed) ms")
        }
        return parts.joined(separator: "  ")
    }

    /// The line of a record of `push.events-dlt`.
    static func deadLetter(_ headers: [String: String], _ time: UnixMillis?) -> String {
        func text(_ name: String) -> String { (headers["bugle-\(name)"] ?? "?").printable }
        let place =
            "\(text("original-topic")) partition \(text("original-partition")) offset "
            + text("original-offset")
        return (time.map(clock) ?? "--:--:--.---") + "  "
            + "dead letter".padded(to: 15) + "  " + text("error-code").padded(to: 15) + "  "
            + place + "  " + text("error-reason")
    }

    /// The headers of a dead letter as one object.
    static func deadLetterJSON(_ headers: [String: String]) -> String {
        let bytes = ByteWriter()
        bytes.append("{")
        for (index, name) in headers.keys.filter({ $0.hasPrefix("bugle-") }).sorted().enumerated() {
            if index > 0 { bytes.append(",") }
            bytes.append(jsonString: name)
            bytes.append(":")
            bytes.append(jsonString: headers[name] ?? "")
        }
        bytes.append("}")
        return bytes.text
    }

    /// Hours, minutes, seconds and milliseconds of a time, UTC.
    private static func clock(_ time: UnixMillis) -> String {
        String(RFC3339.text(time).dropFirst(11).prefix(12))
    }
}
