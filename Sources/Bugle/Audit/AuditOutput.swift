internal import Base
internal import JSON
internal import Kafka

/// What an audit found, for people and for machines.
internal enum AuditOutput {
    /// Lines for a person.
    static func text(_ report: AuditReport) -> String {
        var lines = report.findings.map { finding in
            "\(finding.kind.rawValue.padded(to: 8))  \(place(finding.place, finding.offset))  "
                + (finding.eventID.map { "\($0.printable)  " } ?? "") + finding.detail
        }
        lines.append(
            "\(report.events) events, \(report.targets) outcomes, \(report.deadLetters) dead "
                + "letters, \(report.waiting) waiting")
        if report.repeated > 0 {
            lines.append("\(report.repeated) records are there again, as plain commits allow")
        }
        lines.append(
            report.isBalanced
                ? "ledger balanced"
                : "ledger not balanced: \(report.missing) missing, \(report.doubled) doubled, "
                    + "\(report.strays) of no event")
        return lines.joined(separator: "\n")
    }

    /// One object.
    static func json(_ report: AuditReport) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.bool("balanced", report.isBalanced)
        object.integer("events", Int64(report.events))
        object.integer("targets", Int64(report.targets))
        object.integer("missing", Int64(report.missing))
        object.integer("doubled", Int64(report.doubled))
        object.integer("strays", Int64(report.strays))
        object.integer("waiting", Int64(report.waiting))
        object.integer("dead_letters", Int64(report.deadLetters))
        object.integer("repeated", Int64(report.repeated))
        object.name("findings")
        bytes.append("[")
        for (index, finding) in report.findings.enumerated() {
            if index > 0 { bytes.append(",") }
            write(finding, to: bytes)
        }
        bytes.append("]")
        object.string("continue_from", continuation(report))
        object.end()
        return bytes.text
    }

    private static func write(_ finding: AuditFinding, to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.string("kind", finding.kind.rawValue)
        object.string("place", place(finding.place, finding.offset))
        object.string("event_id", orNull: finding.eventID)
        object.string("detail", finding.detail)
        object.end()
    }

    private static func continuation(_ report: AuditReport) -> String {
        report.settledUpTo.sorted { $0.key < $1.key }.map { place($0.key, $0.value) }
            .joined(separator: ",")
    }

    private static func place(_ place: TopicPartition, _ offset: Int64) -> String {
        "\(place.topic)-\(place.partition)-\(offset)"
    }
}
