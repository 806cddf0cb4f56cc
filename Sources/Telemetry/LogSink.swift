internal import Glibc
internal import Synchronization

/// Where log lines go. Called on the logging thread, by several threads at once.
public protocol LogSink: AnyObject, Sendable {
    /// Takes one line with its line feed; the memory is lent for the call.
    func write(_ line: UnsafeRawBufferPointer)
}

/// Standard error, one `write` call a line, so that lines of several threads do not mix in a
/// pipe. What cannot be written is dropped: a log must not stop the program.
public final class StandardErrorSink: LogSink {
    /// A sink for standard error.
    public init() {}

    /// Whether standard error is a terminal.
    public static var isTerminal: Bool { isatty(STDERR_FILENO) == 1 }

    /// Writes one line.
    public func write(_ line: UnsafeRawBufferPointer) {
        var rest = line
        while !rest.isEmpty {
            let written = Glibc.write(STDERR_FILENO, rest.baseAddress, rest.count)
            if written < 0 && errno == EINTR { continue }
            if written <= 0 { return }
            rest = UnsafeRawBufferPointer(rebasing: rest[written...])
        }
    }
}

/// Keeps lines in memory, for tests.
public final class CollectingSink: LogSink {
    private let collected = Mutex<[String]>([])

    /// A sink without lines.
    public init() {}

    /// The lines so far, without their line feeds.
    public var lines: [String] { collected.withLock { $0 } }

    /// Keeps one line.
    public func write(_ line: UnsafeRawBufferPointer) {
        let text = String(decoding: line.dropLast(), as: UTF8.self)
        collected.withLock { $0.append(text) }
    }
}
