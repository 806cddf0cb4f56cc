/// An HTTP/2 error code (RFC 9113, section 7). The list is open: an unknown code is kept.
public struct ErrorCode: Hashable, Sendable, CustomStringConvertible {
    /// The code on the wire.
    public let value: UInt32

    /// The error with that code.
    public init(_ value: UInt32) { self.value = value }

    /// Graceful: no error.
    public static let noError = ErrorCode(0x0)
    /// The peer broke the protocol.
    public static let protocolError = ErrorCode(0x1)
    /// The stream was not processed at all.
    public static let refusedStream = ErrorCode(0x7)
    /// The stream is not wanted any more.
    public static let cancel = ErrorCode(0x8)
    /// The peer asks for less load.
    public static let enhanceYourCalm = ErrorCode(0xb)
    /// Only HTTP/1.1 will do; the stream was not processed.
    public static let http11Required = ErrorCode(0xd)

    private static let names = [
        "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
        "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR",
        "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
    ]

    /// The registered name, or the number.
    public var description: String {
        value < UInt32(Self.names.count) ? Self.names[Int(value)] : "error code \(value)"
    }
}
