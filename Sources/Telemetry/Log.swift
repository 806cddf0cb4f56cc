// Structured logging. Lines are rare by rule (never one per event), so building one may allocate;
// a line below the level costs one comparison, because message and fields are autoclosures.

public import Base

/// Writes log lines. A small value that is passed down and copied into threads.
public struct Log: Sendable {
    /// The fields of a line; names are literals.
    public typealias Fields = KeyValuePairs<StaticString, LogValue>

    /// Lines below this are not written.
    public let level: LogLevel
    /// The clock behind the lines' times.
    public let time: any TimeSource
    private let format: LogFormat
    private let sink: any LogSink
    private let component: StaticString?
    private var troubles: RecentTroubles?

    /// A log with everything injected.
    public init(
        level: LogLevel, format: LogFormat, sink: any LogSink,
        time: any TimeSource = SystemTime.shared
    ) {
        self.init(level: level, format: format, sink: sink, time: time, component: nil)
    }

    private init(
        level: LogLevel, format: LogFormat, sink: any LogSink, time: any TimeSource,
        component: StaticString?
    ) {
        self.level = level
        self.format = format
        self.sink = sink
        self.time = time
        self.component = component
    }

    /// A log on standard error: pretty on a terminal, else JSON, when no format is given.
    public static func standardError(level: LogLevel = .info, format: LogFormat? = nil) -> Log {
        let format = format ?? (StandardErrorSink.isTerminal ? .pretty : .json)
        return Log(level: level, format: format, sink: StandardErrorSink())
    }

    /// A log that writes nothing.
    public static var silent: Log {
        Log(level: .error, format: .json, sink: SilentSink())
    }

    /// The same log whose lines carry the name of a component.
    public func named(_ component: StaticString) -> Log {
        var log = Log(level: level, format: format, sink: sink, time: time, component: component)
        log.troubles = troubles
        return log
    }

    /// The same log, whose warnings and errors are also kept.
    public func keeping(_ troubles: RecentTroubles) -> Log {
        var log = self
        log.troubles = troubles
        return log
    }

    /// For whoever works on the program.
    public func debug(
        _ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]
    ) {
        if level <= .debug { write(.debug, message(), fields()) }
    }

    /// What an operator may want to know.
    public func info(
        _ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]
    ) {
        if level <= .info { write(.info, message(), fields()) }
    }

    /// What an operator should look at.
    public func warning(
        _ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]
    ) {
        if level <= .warning { write(.warning, message(), fields()) }
    }

    /// What an operator must act upon.
    public func error(
        _ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]
    ) {
        write(.error, message(), fields())
    }

    /// Writes a line of a level chosen at run time.
    public func write(
        _ level: LogLevel, _ message: String, _ fields: Fields = [:], suppressed: Int = 0
    ) {
        guard level >= self.level else { return }
        let line = ByteWriter(capacity: 256)
        switch format {
        case .json: writeJSON(level, message, fields, suppressed, to: line)
        case .pretty: writePretty(level, message, fields, suppressed, to: line)
        }
        line.append(0x0A)
        sink.write(line.bytes)
        if let troubles, level >= .warning {
            troubles.note(
                RecentTroubles.Line(
                    at: time.wall.value, level: level, component: component?.description ?? "",
                    message: message,
                    fields: fields.map { ($0.key.description, $0.value.text) },
                    suppressed: suppressed))
        }
    }

    private func writeJSON(
        _ level: LogLevel, _ message: String, _ fields: Fields, _ suppressed: Int,
        to line: ByteWriter
    ) {
        line.append("{\"ts\":\"" as StaticString)
        line.append(RFC3339.text(time.wall))
        line.append("\",\"level\":\"" as StaticString)
        line.append(level.rawValue)
        line.append("\",\"msg\":" as StaticString)
        line.append(jsonString: message)
        if let component {
            line.append(",\"component\":\"" as StaticString)
            line.append(component)
            line.append(0x22)
        }
        for (name, value) in fields {
            line.append(",\"" as StaticString)
            line.append(name)
            line.append("\":" as StaticString)
            line.append(json: value)
        }
        if suppressed > 0 {
            line.append(",\"suppressed\":" as StaticString)
            line.append(decimal: Int64(suppressed))
        }
        line.append(0x7D)
    }

    private func writePretty(
        _ level: LogLevel, _ message: String, _ fields: Fields, _ suppressed: Int,
        to line: ByteWriter
    ) {
        line.append(RFC3339.text(time.wall))
        let label: StaticString =
            switch level {
            case .debug: " debug   "
            case .info: " info    "
            case .warning: " WARNING "
            case .error: " ERROR   "
            }
        line.append(label)
        if let component {
            line.append(component)
            line.append(": " as StaticString)
        }
        line.append(printable: message)
        for (name, value) in fields {
            line.append(0x20)
            line.append(name)
            line.append(0x3D)
            if case .string(let text) = value, !text.isEmpty, text.utf8.allSatisfy(Self.isPlain) {
                line.append(text)
            } else {
                line.append(json: value)
            }
        }
        if suppressed > 0 {
            line.append(" suppressed=" as StaticString)
            line.append(decimal: Int64(suppressed))
        }
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte < 0x7F && byte != 0x22 && byte != 0x3D
    }
}

private final class SilentSink: LogSink {
    func write(_ line: UnsafeRawBufferPointer) {}
}

extension ByteWriter {
    fileprivate func append(json value: LogValue) {
        switch value {
        case .string(let text): append(jsonString: text)
        case .integer(let number): append(decimal: number)
        case .bool(let flag): append(flag ? "true" as StaticString : "false")
        case .double(let number) where number.isFinite: append(number.description)
        case .double: append("null" as StaticString)
        }
    }

    /// Appends text whose control characters become spaces, so that it stays one line and cannot
    /// steer a terminal.
    fileprivate func append(printable text: String) {
        for byte in text.utf8 { append(byte < 0x20 || byte == 0x7F ? 0x20 : byte) }
    }
}
