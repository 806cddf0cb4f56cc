/// Counts since a pool was made; plain numbers, read on the loop's thread.
public struct PoolStatistics: Sendable {
    /// Connection attempts.
    public var dials = 0
    /// Connections that reached their first SETTINGS.
    public var connectionsOpened = 0
    /// Attempts that did not.
    public var connectFailures = 0
    /// Connections that died with requests in flight.
    public var connectionsLost = 0
    /// GOAWAY frames read.
    public var goAways = 0
    /// Requests written, repetitions included.
    public var requestsWritten = 0
    /// Final answers.
    public var responses = 0
    /// Requests written again because they were provably not processed.
    public var resends = 0
    /// Streams refused by the peer.
    public var refusals = 0
    /// Requests whose answer was lost.
    public var ambiguous = 0
    /// Requests without an answer in time.
    public var timeouts = 0
    /// PINGs sent.
    public var pings = 0
    /// PINGs not answered in time.
    public var pingsUnanswered = 0
    /// ENHANCE_YOUR_CALM received.
    public var calms = 0
}
