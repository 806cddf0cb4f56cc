internal import Base

/// The simulator's bounds and the documents' figures.
public enum Limits {
    /// Requests that a full journal keeps before it goes on counting only.
    public static let journalEntries = 2_000_000
    /// Bytes of a notification's payload.
    public static let apnsPayloadBytes = 4096
    /// Bytes of a VoIP notification's payload.
    public static let apnsVoIPPayloadBytes = 5120
    /// Bytes of a notification to a channel.
    public static let apnsBroadcastPayloadBytes = 5120
    /// Channels of an app in an environment.
    public static let apnsChannels = 10_000
    /// Bytes of an `apns-channel-id` that are looked at.
    public static let apnsChannelIDBytes = 255
    /// Bytes of an `apns-collapse-id`.
    public static let apnsCollapseBytes = 64
    /// Bytes of an FCM message to a token, names and values.
    public static let fcmPayloadBytes = 4096
    /// Bytes of an FCM message to a topic or condition.
    public static let fcmTopicPayloadBytes = 2048
    /// Seconds that FCM stores a message at most: 28 days.
    public static let fcmTimeToLiveSeconds: Int64 = 2_419_200
    /// Topics in an FCM condition.
    public static let fcmConditionTopics = 5
    /// Bytes of an FCM registration token.
    public static let fcmTokenBytes = 4096
    /// Bytes of an encrypted web push message (RFC 8030, section 7.2).
    public static let webPushBodyBytes = 4096
    /// Seconds that Mozilla stores a message at most: 30 days.
    public static let webPushTimeToLiveSeconds: Int64 = 2_592_000
    /// Messages in a request to Expo.
    public static let expoMessages = 100
    /// Messages a second of a project at Expo.
    public static let expoPerSecond = 600
    /// Receipts in a question to Expo.
    public static let expoReceipts = 1000
    /// Bytes of a message of Expo's: texts and data.
    public static let expoPayloadBytes = 4096
    /// What the gateways behind Expo need around a message's own texts, about.
    public static let expoEnvelope = 200
    /// Receipts that are kept before those that are over are dropped.
    public static let expoReceiptsKept = 100_000
    /// How long a receipt can be asked for.
    static let expoReceiptLife = TimeSpan.hours(24)
    /// Access tokens that are remembered before expired ones are dropped.
    public static let accessTokens = 10_000
    /// Provider tokens of a connection that may be used alternately.
    public static let providerTokensPerConnection = 4

    /// How far `iat` may be from now.
    static let providerTokenAge = TimeSpan.hours(1)
    /// The least difference between the `iat` of two tokens on a connection.
    static let providerTokenSpacing = TimeSpan.minutes(20)
    /// How far in the future an assertion's `iat` may be.
    static let assertionSkew = TimeSpan.minutes(5)
    /// How long an assertion may be valid.
    static let assertionLifetime = TimeSpan.hours(1)
    /// PING frames on an FCM connection without open streams before it is told to calm down.
    static let fcmIdlePings = 1
}
