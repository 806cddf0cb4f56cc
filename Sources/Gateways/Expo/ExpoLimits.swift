public import Base

/// The limits of Expo's push service, and ours where Expo names none.
public enum ExpoLimits {
    /// Messages in one request, each to one device.
    public static let messagesPerRequest = 100
    /// The largest payload: the texts, the image's address, the data and what is around them.
    public static let payloadBytes = 4096
    /// What is around them when Expo hands a message on: how much is not documented, and what is a
    /// byte too large is taken and never arrives.
    public static let overheadBytes = 200
    /// The longest token that is sent, in bytes.
    public static let tokenBytesMax = 256
    /// Bodies that are larger are compressed, in bytes.
    public static let compressedFrom = 1024
    /// How long a message is stored at most: 28 days.
    public static let storage = TimeSpan.seconds(2_419_200)
    /// Notifications a second that a project may send.
    public static let rate = 600
    /// Permits a second that replicas share: with a request that was saved up they stay below the
    /// rate.
    public static let permitsPerSecond = rate - messagesPerRequest
    /// Requests that are open at a time.
    public static let requestsInFlight = 6

    /// Receipts that are asked for in one request; the service takes 1,000.
    public static let receiptsPerRequest = 300
    /// From the ticket to the first question for its receipt, and between two looks at a ticket
    /// whose receipt is not there yet.
    public static let receiptWait = TimeSpan.minutes(15)
    /// Expo forgets receipts after 24 hours; a ticket that is older than this is asked about no
    /// more.
    public static let receiptAgeMax = TimeSpan.hours(23)

    /// The first wait after 429 when the answer names none.
    public static let throttledWait = TimeSpan.seconds(1)
    /// The longest wait after 429 that is not asked for.
    public static let throttledWaitMax = TimeSpan.seconds(60)
    /// The first wait after a failure of the service, of APNs or of FCM behind it.
    public static let failureWait = TimeSpan.seconds(5)
    /// The first wait for a device that got too many messages.
    public static let deviceWait = TimeSpan.seconds(60)
}
