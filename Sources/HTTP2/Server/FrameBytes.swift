// Frames written byte by byte, for what a correct library refuses to send: a GOAWAY with any last
// stream id, a second RST_STREAM for one stream.

internal import Base

/// Renders single HTTP/2 frames (RFC 9113, section 4.1 and 6).
enum FrameBytes {
    static func resetStream(_ stream: Int32, code: UInt32, into target: ByteWriter) {
        head(length: 4, type: 0x3, stream: stream, into: target)
        append(code, to: target)
    }

    static func goAway(
        lastStream: Int32, code: UInt32, debug: [UInt8], into target: ByteWriter
    ) {
        head(length: 8 + debug.count, type: 0x7, stream: 0, into: target)
        append(UInt32(bitPattern: lastStream) & 0x7FFF_FFFF, to: target)
        append(code, to: target)
        target.append(debug)
    }

    private static func head(length: Int, type: UInt8, stream: Int32, into target: ByteWriter) {
        target.append(UInt8(truncatingIfNeeded: length >> 16))
        target.append(UInt8(truncatingIfNeeded: length >> 8))
        target.append(UInt8(truncatingIfNeeded: length))
        target.append(type)
        target.append(0)
        append(UInt32(bitPattern: stream), to: target)
    }

    private static func append(_ value: UInt32, to target: ByteWriter) {
        withUnsafeBytes(of: value.bigEndian) { target.append($0) }
    }
}
