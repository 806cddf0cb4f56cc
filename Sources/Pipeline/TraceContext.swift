// W3C Trace Context, level 1: the header `traceparent`, read from an event's record and written to
// its results.

public import Base

/// Where an event belongs in a trace.
public struct TraceContext: Sendable, Equatable {
    /// The trace's id, 16 bytes, never zero.
    public let traceHigh: UInt64
    /// Its second half.
    public let traceLow: UInt64
    /// The id of the span that caused this one; zero for the first of a trace.
    public let parent: UInt64
    /// The id of our own span.
    public let span: UInt64
    /// The flags; bit 0 says that the caller records.
    public let flags: UInt8
    /// Whether spans are exported.
    public let isRecorded: Bool

    /// Whether the caller records.
    public var isSampled: Bool { flags & 1 == 1 }

    /// The first span of a trace of our own.
    internal init(root high: UInt64, _ low: UInt64, span: UInt64) {
        traceHigh = high
        traceLow = low
        parent = 0
        self.span = span
        flags = 1
        isRecorded = true
    }

    /// A span below the one that a header names; nil when the header breaks the rules of section
    /// 3.2, in which case a receiver acts as if there were none.
    internal init?(
        traceparent text: UnsafeRawBufferPointer, span: UInt64, records: Bool
    ) {
        guard text.count >= 55, text[2] == 0x2D, text[35] == 0x2D, text[52] == 0x2D,
            let version = Self.hex(text, 0, 2), version != 0xFF,
            version == 0 ? text.count == 55 : text.count == 55 || text[55] == 0x2D,
            let high = Self.hex(text, 3, 16), let low = Self.hex(text, 19, 16), high | low != 0,
            let parent = Self.hex(text, 36, 16), parent != 0, let flags = Self.hex(text, 53, 2)
        else { return nil }
        traceHigh = high
        traceLow = low
        self.parent = parent
        self.span = span
        self.flags = UInt8(flags) & 1
        isRecorded = records && self.flags == 1
    }

    /// Lower-case digits only, as the specification has it.
    private static func hex(
        _ text: UnsafeRawBufferPointer, _ start: Int, _ count: Int
    ) -> UInt64? {
        var value: UInt64 = 0
        for byte in text[start..<start + count] {
            switch byte {
            case 0x30...0x39: value = value << 4 | UInt64(byte - 0x30)
            case 0x61...0x66: value = value << 4 | UInt64(byte - 0x57)
            default: return nil
            }
        }
        return value
    }

    /// Appends the header that names our span as the cause of what follows.
    public func write(to bytes: ByteWriter) {
        bytes.append("00-" as StaticString)
        Self.append(traceHigh, to: bytes)
        Self.append(traceLow, to: bytes)
        bytes.append(0x2D)
        Self.append(span, to: bytes)
        bytes.append(flags == 1 ? "-01" as StaticString : "-00")
    }

    /// Appends the 16 hex digits of a half.
    public static func append(_ value: UInt64, to bytes: ByteWriter) {
        withUnsafeBytes(of: value.bigEndian) { bytes.append(hex: $0) }
    }
}
