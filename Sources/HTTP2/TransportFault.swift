/// Why a request has no answer. Whether the gateway may have processed it is not said here but by
/// the `HTTPResult` around it.
public enum TransportFault: Error, Hashable, Sendable {
    /// The request's deadline passed before it could be written.
    case deadlinePassed
    /// The pool's queue is full.
    case queueFull
    /// The pool was closed.
    case closed
    /// The peer refused the stream more often than a request is written again.
    case refused
    /// The peer announced that it would not process the stream, more often than that.
    case goAway(ErrorCode)
    /// The stream was reset.
    case reset(ErrorCode)
    /// The host leads to addresses that may not be connected to.
    case forbiddenAddress
    /// The connection ended: end of file, a socket error or a TLS error.
    case connectionLost
    /// No answer within the request time-out.
    case timedOut
    /// A PING was not answered: the connection is dead.
    case pingUnanswered
    /// The socket took no bytes for too long.
    case writeStalled
    /// Nothing was read for too long although streams were open.
    case silent
    /// The peer broke the protocol, or says that we did.
    case protocolError
    /// The stream ended without a final status.
    case malformedResponse
    /// 421 again and again: no connection is the right one.
    case misdirected
    /// The peer wants this request over HTTP/1.1.
    case http11Required
    /// A field of the request holds a byte that no field may hold.
    case malformedRequest
    /// The request's header list is larger than the peer accepts.
    case headerListTooLarge(limit: Int)
}

extension TransportFault {
    /// Whether the request itself is at fault: another try ends as this one did, and the peer has not
    /// even seen it.
    public var isOfRequest: Bool {
        switch self {
        case .malformedRequest: true
        // Less than that takes no push at all: it is the peer that is not as it should be.
        case .headerListTooLarge(let limit): limit >= 8_192
        default: false
        }
    }
}
