internal import Base
internal import Synchronization

/// The newest warnings and errors of a log, for a page that shows them.
public final class RecentTroubles: Sendable {
    /// One line.
    public struct Line: Sendable {
        /// When it was written, in ms since the epoch.
        public let at: Int64
        /// A warning or an error.
        public let level: LogLevel
        /// Which part of the program wrote it; empty when it did not say.
        public let component: String
        /// The message.
        public let message: String
        /// Its fields, as text.
        public let fields: [(name: String, value: String)]
        /// How many like it were left out before it.
        public let suppressed: Int
    }

    /// What is kept at most.
    public static let linesMax = 20

    private let kept = Mutex<[Line]>([])

    /// No lines yet.
    public init() {}

    /// The lines, the newest first.
    public var lines: [Line] { kept.withLock { $0.reversed() } }

    internal func note(_ line: Line) {
        kept.withLock { kept in
            if kept.count == Self.linesMax { kept.removeFirst() }
            kept.append(line)
        }
    }
}

extension LogValue {
    /// The value as a person reads it.
    internal var text: String {
        switch self {
        case .string(let text): text
        case .integer(let number): String(number)
        case .double(let number): String(number)
        case .bool(let flag): String(flag)
        }
    }
}
