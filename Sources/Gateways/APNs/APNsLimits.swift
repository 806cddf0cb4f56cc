public import Base

/// The limits of APNs, and ours where Apple names none.
public enum APNsLimits {
    /// The longest device token, in hex digits. Apple names no length; the longest in use have
    /// a few hundred.
    public static let tokenDigitsMax = 512
    /// The largest payload of a VoIP push, in bytes.
    public static let payloadBytesVoIP = 5120
    /// The largest payload of every other push to a device, in bytes.
    public static let payloadBytes = 4096
    /// The largest payload of a push to a channel, in bytes.
    public static let payloadBytesBroadcast = 5120
    /// The longest channel id that is sent, in bytes: Apple names no length.
    public static let channelIDBytes = 255
    /// The longest collapse id, in bytes.
    public static let collapseIDBytes = 64
    /// The longest topic that is sent, in bytes.
    public static let topicBytes = 255
    /// How long a channel stores its newest message at most.
    public static let channelStorage = TimeSpan.hours(8)
    /// How long APNs stores a notification at most.
    public static let storage = TimeSpan.seconds(30 * 86_400)

    /// The youngest provider token that may be replaced.
    public static let tokenAgeMin = TimeSpan.minutes(20)
    /// The age around which a provider token is replaced.
    public static let tokenAgeRefresh = TimeSpan.minutes(45)
    /// How far that age varies, both ways.
    public static let tokenAgeJitter = TimeSpan.minutes(5)
    /// The age up to which a token serves while the fleet has not agreed on the next.
    public static let tokenAgeHeld = TimeSpan.minutes(54)
    /// The age at which the fleet agrees on the next token, before any process makes its own.
    public static let tokenAgeShared = TimeSpan.minutes(38)
    /// The age at which APNs refuses a provider token.
    public static let tokenAgeMax = TimeSpan.minutes(60)

    /// The wait after an error of the server: Apple's text asks for 15 minutes.
    public static let serverErrorWait = TimeSpan.minutes(15)
    /// The wait after `Shutdown`: that server goes away, another one answers at once.
    public static let shutdownWait = TimeSpan.milliseconds(200)
    /// The first wait after `TooManyRequests`, for that token only.
    public static let tokenBusyWait = TimeSpan.seconds(60)
    /// The wait after `TooManyProviderTokenUpdates`, for that connection.
    public static let tokenUpdatesWait = TimeSpan.seconds(60)
    /// So long after a registration APNs would know a token that was really renewed: one that is
    /// dead still was only uploaded again.
    public static let renewalSpan = TimeSpan.hours(1)
    /// A 410's timestamp below this is in seconds by mistake.
    public static let timestampMin = UnixMillis(1_000_000_000_000)
    /// How far in the future a 410's timestamp may lie.
    public static let timestampSkewMax = TimeSpan.minutes(5)
}
