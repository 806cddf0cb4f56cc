internal import Base

/// What a connection speaks, once TLS is up: HTTP/2, or HTTP/1.1 where the peer offers no more.
///
/// A session turns requests into bytes and bytes into events; it does no I/O and keeps no time. An
/// exchange given to `open` must stay alive until its end was recorded or `reset` has detached it.
protocol WireSession: AnyObject {
    /// What happened; the caller looks at it after each call that takes bytes in.
    var recorder: SessionRecorder { get }
    /// Whether the peer answers a PING.
    var answersPings: Bool { get }
    /// Queues a request and sets the exchange's stream id.
    func open(_ exchange: Exchange, _ request: OutboundRequest) throws(ClientSession.OpenFailure)
    /// Gives a request up: no event about it follows.
    func reset(_ streamID: Int32, _ code: ErrorCode)
    /// Queues a PING, where there are any.
    func ping()
    /// Queues a farewell, where there is one.
    func terminate()
    /// Processes input; false means that the session is beyond repair.
    func receive(_ bytes: UnsafeRawBufferPointer) -> Bool
    /// The peer closes: what an answer without a length ends with.
    func inputEnded()
    /// Appends what there is to send, up to about `limit` bytes; false as in `receive`.
    func serialise(into output: ByteWriter, limit: Int) -> Bool
    /// Whether there may be something to serialise.
    var wantsWrite: Bool { get }
    /// Whether the session has nothing more to read or to write.
    var isFinished: Bool { get }
    /// Whether it takes no further request, and the connection is to close when the last is done.
    var isSpent: Bool { get }
    /// How many requests may be under way.
    var peerStreamsMax: Int { get }
}
