public import Base

/// What an operator or a breaker wants to know about a pool; no request is tied to it.
public enum PoolAlarm: Sendable {
    /// The peer does not speak HTTP/2: most often an intercepting proxy. `negotiated` is what TLS
    /// agreed on, if anything.
    case http2NotNegotiated(negotiated: String?)
    /// TLS failed; the text says how.
    case tlsFailed(String)
    /// No connection could be made; the text says why. `failures` counts attempts in a row.
    case unreachable(String, failures: Int)
    /// A request was answered, after connections had not come about.
    case reachable
    /// GOAWAY or a TLS alert blamed the credentials, with the gateway's reason. The pool dials no
    /// more until `replaceConnections()`, save for one look every few minutes.
    case credentialsRefused(reason: String)
    /// The peer asked for less load: fewer streams from now on, and a pause.
    case calm(pause: TimeSpan)
    /// The peer ended a connection with a reason or an error.
    case goAway(ErrorCode, reason: String?)
    /// A connection died with requests in flight.
    case connectionLost(TransportFault, inFlight: Int)
}

/// What a pool asks and tells its owner. Called on the loop's thread, never from inside `submit`;
/// submitting, closing and replacing from inside is fine.
public protocol HTTP2PoolDelegate: AnyObject {
    /// Asked just before a request is written, also before it is written again: false withdraws it.
    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool

    /// Tells a request's result and hands the request back; called exactly once per submission.
    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult)

    /// Tells about the pool's connections.
    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm)
}
