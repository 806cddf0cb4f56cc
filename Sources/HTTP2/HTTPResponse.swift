public import Base

/// The response header fields that somebody reads.
public enum ResponseHeader: Int, Sendable, CaseIterable {
    case apnsID, apnsUniqueID, apnsChannelID, apnsRequestID
    case retryAfter, contentType, date, location, link, wnsError, wnsStatus
    case wnsNotificationStatus

    /// The field's name on the wire.
    public var name: StaticString {
        switch self {
        case .apnsID: "apns-id"
        case .apnsUniqueID: "apns-unique-id"
        case .apnsChannelID: "apns-channel-id"
        case .apnsRequestID: "apns-request-id"
        case .retryAfter: "retry-after"
        case .contentType: "content-type"
        case .date: "date"
        case .location: "location"
        case .link: "link"
        case .wnsError: "x-wns-error-description"
        case .wnsStatus: "x-wns-status"
        case .wnsNotificationStatus: "x-wns-notificationstatus"
        }
    }
}

/// A final answer: status, a few header fields, the body.
///
/// Borrowed: its bytes belong to the pool and are valid during the callback that hands it over.
public struct HTTPResponse {
    private let exchange: Exchange

    init(of exchange: Exchange) { self.exchange = exchange }

    /// A response with the given parts, for tests of what reads responses.
    public init(status: Int, headers: [(ResponseHeader, String)] = [], body: [UInt8] = []) {
        exchange = Exchange()
        exchange.status = status
        for (name, value) in headers {
            var value = value
            value.withUTF8 { exchange.keep(name, UnsafeRawBufferPointer($0)) }
        }
        exchange.responseBody.append(body)
    }

    /// The status code.
    public var status: Int { exchange.status }

    /// The bytes of a header field, or nil when the response has none.
    public func header(_ header: ResponseHeader) -> UnsafeRawBufferPointer? {
        exchange.field(header)
    }

    /// A header field as text.
    public func text(_ header: ResponseHeader) -> String? {
        exchange.field(header).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The body, at most `Limits.responseBodyBytesMax` of it.
    public var body: UnsafeRawBufferPointer { exchange.responseBody.bytes }

    /// Whether the body was longer than what is kept of it.
    public var isBodyTruncated: Bool { exchange.isBodyTruncated }

    /// When the request was handed to the connection.
    public var sentAt: MonotonicTime { exchange.sentAt }

    /// When the first byte of the answer was read.
    public var firstByteAt: MonotonicTime { exchange.firstByteAt }
}

/// How a request ended.
public enum HTTPResult {
    /// The gateway answered.
    case response(HTTPResponse)
    /// The gateway has provably not processed the request: it may go out again freely.
    case notProcessed(TransportFault)
    /// The request was written and its answer lost: the gateway may have processed it.
    case ambiguous(TransportFault, sentAt: MonotonicTime)
    /// The delegate took the request back before it was written.
    case withdrawn
}
