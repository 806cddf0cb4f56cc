internal import Base

/// How a stream ended without a usable answer.
enum StreamEnd: Equatable {
    /// HEADERS never reached the socket.
    case neverWritten
    /// Above the last stream id of a GOAWAY.
    case aboveGoAway(ErrorCode)
    case refused
    case http11Required
    /// The answer was 421.
    case misdirected
    case reset(ErrorCode)
    case timedOut
    /// The connection ended below it.
    case connectionEnded(TransportFault)
    /// END_STREAM without a final status.
    case malformed
}

/// What becomes of a request whose stream ended without an answer (RFC 9113, section 8.7): two
/// proofs of "not processed", REFUSED_STREAM and a lower last stream id, beside the plain fact
/// that nothing was written. Everything else about a POST is uncertain. Pure.
enum Disposition: Equatable {
    /// Back into the queue, at its old place.
    case resend
    /// Back into the queue after a short jittered delay.
    case resendAfterDelay
    case notProcessed(TransportFault)
    case ambiguous(TransportFault)

    init(of end: StreamEnd, resends: Int, speaksHTTP11: Bool = false) {
        let mayResend = resends < Limits.resendsMax
        switch end {
        case .neverWritten: self = .resend
        case .aboveGoAway(let code): self = mayResend ? .resend : .notProcessed(.goAway(code))
        case .refused: self = mayResend ? .resendAfterDelay : .notProcessed(.refused)
        case .misdirected: self = mayResend ? .resend : .notProcessed(.misdirected)
        case .http11Required:
            self = speaksHTTP11 && mayResend ? .resend : .notProcessed(.http11Required)
        case .reset(let code): self = .ambiguous(.reset(code))
        case .timedOut: self = .ambiguous(.timedOut)
        case .connectionEnded(let fault): self = .ambiguous(fault)
        case .malformed: self = .ambiguous(.malformedResponse)
        }
    }
}
