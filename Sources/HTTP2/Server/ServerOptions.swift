/// What a server tells its peers in the first SETTINGS frame, and how strictly it reads.
public struct ServerOptions: Sendable {
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    public var maxConcurrentStreams: UInt32 = 1000
    /// SETTINGS_INITIAL_WINDOW_SIZE, in bytes.
    public var initialWindowBytes: UInt32 = 65_535
    /// SETTINGS_HEADER_TABLE_SIZE, in bytes.
    public var headerTableBytes: UInt32 = 4096
    /// The receive window of a whole connection, in bytes; at least 65,535.
    public var connectionWindowBytes: Int32 = 1 << 20
    /// Whether received data is kept from being acknowledged with WINDOW_UPDATE.
    public var withholdsWindowUpdates = false
    /// Whether PING frames stay unanswered.
    public var ignoresPings = false

    /// The options of an ordinary, strict server.
    public init() {}
}

/// A change of settings at run time; nil leaves a value as it is.
public struct SettingsChange: Sendable, Hashable {
    /// SETTINGS_MAX_CONCURRENT_STREAMS; zero is legal.
    public var maxConcurrentStreams: UInt32?
    /// SETTINGS_INITIAL_WINDOW_SIZE, in bytes.
    public var initialWindowBytes: UInt32?
    /// SETTINGS_HEADER_TABLE_SIZE, in bytes.
    public var headerTableBytes: UInt32?
    /// SETTINGS_MAX_HEADER_LIST_SIZE, in bytes.
    public var headerListBytes: UInt32?

    /// A change of the given values.
    public init(
        maxConcurrentStreams: UInt32? = nil, initialWindowBytes: UInt32? = nil,
        headerTableBytes: UInt32? = nil, headerListBytes: UInt32? = nil
    ) {
        self.headerListBytes = headerListBytes
        self.maxConcurrentStreams = maxConcurrentStreams
        self.initialWindowBytes = initialWindowBytes
        self.headerTableBytes = headerTableBytes
    }
}

/// What a connection noticed about its peer besides requests.
public enum ServerEvent: Sendable, Hashable {
    /// A stream above the acknowledged limit: a connection error, answered with GOAWAY.
    case streamLimitViolated(stream: Int32)
    /// A stream above a limit that was sent but not yet acknowledged: refused, and no fault of the
    /// peer unless it did not wait for the first SETTINGS.
    case streamRefused(stream: Int32)
    /// A request that was begun after GOAWAY had been sent, and was ignored.
    case requestAfterGoAway(stream: Int32)
    /// Any other breach of the protocol, in words.
    case protocolViolated(String)
    /// A PRIORITY frame, which push gateways ask not to be sent.
    case priorityReceived(stream: Int32)
    /// A PING of the peer, and how many streams were open then.
    case pingReceived(openStreams: Int)
    /// The answer to a PING of ours.
    case pingAcknowledged
    /// The answer to a SETTINGS frame of ours.
    case settingsAcknowledged
    /// The peer reset a stream.
    case streamReset(stream: Int32, code: UInt32)
    /// The peer sent GOAWAY.
    case goAwayReceived(code: UInt32)
}
