/// How much a log line matters.
public enum LogLevel: String, Sendable, CaseIterable, Comparable {
    case debug, info, warning, error

    private var rank: Int {
        switch self {
        case .debug: 0
        case .info: 1
        case .warning: 2
        case .error: 3
        }
    }

    /// Order by how much it matters.
    public static func < (left: LogLevel, right: LogLevel) -> Bool { left.rank < right.rank }
}

/// How log lines look.
public enum LogFormat: String, Sendable, CaseIterable {
    /// One JSON object a line.
    case json
    /// For people: time, level, message, then `name=value`.
    case pretty
}

/// The value of a field of a log line.
public enum LogValue: Sendable, Equatable, ExpressibleByStringInterpolation,
    ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral, ExpressibleByFloatLiteral
{
    case string(String)
    case integer(Int64)
    case double(Double)
    case bool(Bool)

    /// A text.
    public init(stringLiteral value: String) { self = .string(value) }

    /// A whole number.
    public init(integerLiteral value: Int64) { self = .integer(value) }

    /// A boolean.
    public init(booleanLiteral value: Bool) { self = .bool(value) }

    /// A real number.
    public init(floatLiteral value: Double) { self = .double(value) }

    /// A text.
    public init(_ value: String) { self = .string(value) }

    /// A whole number; one beyond 64 bits signed is cut to the nearest.
    public init(_ value: some BinaryInteger) { self = .integer(Int64(clamping: value)) }

    /// A boolean.
    public init(_ value: Bool) { self = .bool(value) }

    /// The description of anything else, such as an error.
    public init(describing value: some CustomStringConvertible) {
        self = .string(value.description)
    }
}
