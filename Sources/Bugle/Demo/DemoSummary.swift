internal import Base
internal import JSON
internal import Telemetry

/// What the demo says at its end, for a person and for a machine.
internal struct DemoSummary {
    var report: LedgerReport
    var measures: DemoMeasures
    var users: Int
    var devices: Int
    var lanes: Int
    var seed: UInt64
    /// Whether the run came to its end before it stood still for too long.
    var isSettled: Bool
    /// Whether the dispatcher stopped within its deadline.
    var isDrained: Bool

    /// Good only if everything fits: nothing missing, nothing given up, nothing left behind.
    var exitCode: ExitCode { report.isBalanced && isSettled && isDrained ? .ok : .failed }

    /// Lines of what is missing that a person is shown.
    private static let missingLines = 12

    var json: String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.integer("events", Int64(report.events))
        object.integer("targets", Int64(report.targets))
        object.name("outcomes")
        writeOutcomes(to: bytes)
        object.integer("dead_letters", Int64(report.deadLetters))
        object.bool("balanced", report.isBalanced)
        object.name("missing")
        bytes.append("[")
        for (index, line) in report.missing.enumerated() {
            if index > 0 { bytes.append(",") }
            bytes.append(jsonString: line)
        }
        bytes.append("]")
        object.integer("repeated", Int64(report.repeated))
        object.integer("sent_twice", Int64(report.sentTwice))
        object.integer("pushes", Int64(measures.pushes))
        number("seconds", measures.span.seconds, &object)
        number("pushes_per_second", measures.pushesPerSecond, &object)
        number("cpu_us_per_push", measures.cpuMicrosPerPush, &object)
        number("p50_ms", milliseconds(0.5), &object)
        number("p99_ms", milliseconds(0.99), &object)
        object.bool("drained", isDrained)
        object.integer("users", Int64(users))
        object.integer("devices", Int64(devices))
        object.integer("lanes", Int64(lanes))
        object.string("seed", String(seed))
        object.end()
        return bytes.text
    }

    var lines: [String] {
        var lines = [
            row(
                "events", "\(report.events) of \(users) users with \(devices) devices, seed \(seed)"
            ),
            row("targets", "\(report.targets)"),
        ]
        for (index, gateway) in report.outcomes.keys.sorted().enumerated() {
            let counts = (report.outcomes[gateway] ?? [:]).sorted { $0.value > $1.value }
            let text = counts.map { "\($0.key) \($0.value)" }.joined(separator: ", ")
            let name = gateway == "-" ? "none" : gateway
            lines.append(row(index == 0 ? "outcomes" : "", "\(name.padded(to: 8)) \(text)"))
        }
        lines.append(row("dead letters", "\(report.deadLetters)"))
        lines.append(
            row(
                "pushes",
                "\(measures.pushes) in \(fixed(measures.span.seconds)) s, "
                    + "\(Int(measures.pushesPerSecond)) per second on \(lanes) lanes"))
        lines.append(
            row(
                "CPU",
                "\(Int(measures.cpuMicrosPerPush)) us per push, of the whole process: dispatcher, "
                    + "broker, gateways, load"))
        lines.append(
            row(
                "latency",
                "p50 \(fixed(milliseconds(0.5))) ms, p99 \(fixed(milliseconds(0.99))) ms, from "
                    + "reading an event to its outcomes; all events were published at once"))
        if report.sentTwice > 0 {
            lines.append(row("sent twice", "\(report.sentTwice), whose answer was lost"))
        }
        if !isSettled { lines.append(row("run", "it stood still before all outcomes were there")) }
        if !isDrained { lines.append(row("stop", "the dispatcher did not drain in time")) }
        return lines + verdict
    }

    private var verdict: [String] {
        guard !report.isBalanced else { return ["", "ledger balanced"] }
        var lines = ["", "ledger NOT balanced: \(report.missing.count) things are missing"]
        lines += report.missing.prefix(Self.missingLines).map { "  \($0)" }
        let more = report.missing.count - Self.missingLines
        return more > 0 ? lines + ["  and \(more) more"] : lines
    }

    private func row(_ name: String, _ text: String) -> String { name.padded(to: 14) + text }

    private func milliseconds(_ quantile: Double) -> Double {
        measures.latencies.quantile(quantile).seconds * 1000
    }

    /// One digit behind the point.
    private func fixed(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }

    private func number(_ name: StaticString, _ value: Double, _ object: inout JSONObjectWriter) {
        let thousandths = Int((value * 1000).rounded())
        let digits = String(thousandths % 1000)
        let text =
            "\(thousandths / 1000)." + String(repeating: "0", count: 3 - digits.count) + digits
        Array(text.utf8).withUnsafeBytes { object.raw(name, $0) }
    }

    private func writeOutcomes(to bytes: ByteWriter) {
        bytes.append("{")
        for (index, gateway) in report.outcomes.keys.sorted().enumerated() {
            if index > 0 { bytes.append(",") }
            bytes.append(jsonString: gateway == "-" ? "none" : gateway)
            bytes.append(":{")
            let counts = (report.outcomes[gateway] ?? [:]).sorted { $0.key < $1.key }
            for (index, count) in counts.enumerated() {
                if index > 0 { bytes.append(",") }
                bytes.append(jsonString: count.key)
                bytes.append(":")
                bytes.append(decimal: Int64(count.value))
            }
            bytes.append("}")
        }
        bytes.append("}")
    }
}
