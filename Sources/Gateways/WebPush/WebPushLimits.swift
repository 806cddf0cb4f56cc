public import Base
internal import Crypto

/// The limits of web push, and ours where no document names one.
public enum WebPushLimits {
    /// The largest payload before encryption: what every push service has to take.
    public static let payloadBytes = MessageEncryptor.plaintextBytesMax
    /// The largest encrypted message that fits every road: Firefox on Android gets it in base64, and
    /// refuses more than 4,096 characters of that.
    public static let bridgedBytes = 3070
    /// The longest endpoint that is sent to, in bytes.
    public static let endpointBytesMax = 4096
    /// How long a message is stored at most: the shortest maximum among the services, 28 days.
    public static let storage = TimeSpan.seconds(2_419_200)
    /// Characters of a topic (RFC 8030, section 5.4).
    public static let topicCharacters = 32

    /// How long a VAPID token is valid; services take up to 24 hours.
    public static let tokenLife = TimeSpan.hours(12)
    /// The age from which a VAPID token is replaced.
    public static let tokenAgeRefresh = TimeSpan.hours(10)
    /// A token that is younger is not replaced, whatever a service says: Apple takes at most one
    /// new token in an hour.
    public static let tokenAgeMin = TimeSpan.hours(1)
    /// VAPID tokens that are kept: one for each push service and key.
    public static let tokensMax = 2048
    /// Subscriptions that are kept decoded, on each lane: those used last, twice this many at most.
    public static let subscriptionsKept = 8192

    /// Push services that one app has connections to, on each lane.
    public static let servicesMax = 64
    /// How long a push service without a request is remembered.
    public static let serviceIdle = TimeSpan.minutes(10)
    /// How long a service has had no request before it makes room for another one.
    public static let serviceIdleMin = TimeSpan.seconds(10)

    /// A subscription that is younger may answer 410 although it lives.
    public static let youngSubscription = TimeSpan.seconds(60)
    /// How long such a one is given before it is asked again.
    public static let youngSubscriptionWait = TimeSpan.seconds(20)
    /// The first wait after 429 when the answer names none.
    public static let throttledWait = TimeSpan.seconds(60)
    /// The first wait after a failure of the service when the answer names none.
    public static let failureWait = TimeSpan.seconds(10)
    /// The longest of these waits that is not asked for.
    public static let failureWaitMax = TimeSpan.minutes(15)
}
