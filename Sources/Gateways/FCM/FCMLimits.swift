public import Base

/// The limits of FCM HTTP v1, and ours where Google names none.
public enum FCMLimits {
    /// The longest registration token that is sent, in bytes.
    public static let tokenBytesMax = 4096
    /// The largest payload: keys and values of the data and the texts of the notification.
    public static let payloadBytes = 4096
    /// The same of a message to a topic or a condition (FCM's error page; guides name more).
    public static let broadcastPayloadBytes = 2048
    /// The longest name of a topic, in bytes: Google names no limit.
    public static let topicNameBytes = 900
    /// The longest condition, in bytes: ours.
    public static let conditionBytes = 5000
    /// Topics in a condition.
    public static let conditionTopics = 5
    /// Parentheses inside each other in a condition: ours; five topics need no more than four.
    public static let conditionDepth = 16
    /// How long FCM stores a message at most.
    public static let storage = TimeSpan.seconds(2_419_200)

    /// Messages a minute that a project may send.
    public static let messagesPerMinute = 600_000
    /// Permits a second that replicas share: a minute of them, what was saved up for a second, and
    /// what is in hand for a second stay below the minute's messages.
    public static let permitsPerSecond = messagesPerMinute / 60 * 96 / 100
    /// How long traffic climbs to the whole rate: Google asks for a minute or more for any burst.
    public static let ramp = TimeSpan.seconds(60)
    /// The shortest wait after any failure.
    public static let failureWaitMin = TimeSpan.seconds(10)
    /// The first wait after 429 when the answer names none.
    public static let quotaWait = TimeSpan.seconds(60)

    /// The earliest part of an access token's life, in percent, at which it is replaced.
    public static let refreshPercentMin: Int64 = 80
    /// The latest part of an access token's life, in percent, at which it is replaced.
    public static let refreshPercentMax: Int64 = 90
    /// The part of an access token's life, in percent, at which the fleet agrees on the next.
    public static let sharedPercent: Int64 = 75
    /// How long before its end an access token is not used any more.
    public static let expiryMargin = TimeSpan.seconds(10)
    /// The life that is assumed when the token endpoint names none.
    public static let tokenLifeAssumed = TimeSpan.minutes(30)
    /// The longest life that is believed.
    public static let tokenLifeMax = TimeSpan.hours(24)
    /// The longest access token, in bytes.
    public static let accessTokenBytes = 8192
    /// How long an assertion is valid.
    public static let assertionLife = TimeSpan.hours(1)
    /// A 401 does not replace a token that is younger than this.
    public static let forcedRefreshMin = TimeSpan.seconds(60)
    /// How long a call of the token endpoint may take before another one is allowed.
    public static let fetchTime = TimeSpan.seconds(30)
    /// The first wait after the token endpoint failed without a verdict.
    public static let fetchWait = TimeSpan.seconds(1)
    /// The first wait after the token endpoint refused the credential.
    public static let refusedWait = TimeSpan.seconds(5)
    /// The longest wait between calls of the token endpoint.
    public static let fetchWaitMax = TimeSpan.seconds(60)
}
