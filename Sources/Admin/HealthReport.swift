internal import Base

/// Whether something is well, and if not, why.
public struct HealthReport: Sendable, Equatable {
    /// What is wrong, one line each, for an operator; empty when all is well.
    public var reasons: [String]

    /// Whether there is nothing to complain about.
    public var isHealthy: Bool { reasons.isEmpty }

    /// A report with its reasons.
    public init(reasons: [String] = []) { self.reasons = reasons }

    /// All is well.
    public static let healthy = HealthReport()

    internal func writeJSON(to writer: ByteWriter, passing: StaticString, failing: StaticString) {
        writer.append("{\"status\":\"" as StaticString)
        writer.append(isHealthy ? passing : failing)
        writer.append("\",\"reasons\":[" as StaticString)
        for (index, reason) in reasons.enumerated() {
            if index > 0 { writer.append(0x2C) }
            writer.append(jsonString: reason)
        }
        writer.append("]}\n" as StaticString)
    }
}
