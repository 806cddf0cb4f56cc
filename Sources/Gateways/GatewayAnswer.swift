public import Base

/// What a gateway answered, borrowed from the connection while the answer is judged.
public struct GatewayAnswer {
    /// The HTTP status.
    public var status: Int
    /// The body; borrowed.
    public var body: UnsafeRawBufferPointer
    /// The value of `retry-after`.
    public var retryAfter: String?
    /// The value of `date`.
    public var date: String?
    /// What a header field says about the error, where a gateway has one for that.
    public var note: String?
    /// The wall clock when the answer was read.
    public var now: UnixMillis

    /// An answer.
    public init(
        status: Int, body: UnsafeRawBufferPointer, retryAfter: String? = nil,
        date: String? = nil, note: String? = nil, now: UnixMillis
    ) {
        self.status = status
        self.body = body
        self.retryAfter = retryAfter
        self.date = date
        self.note = note
        self.now = now
    }
}

/// What is known about the request that was answered.
public struct SentRequest: Sendable {
    /// The wall clock when the request was written.
    public var sentAt: UnixMillis
    /// When the token was last registered.
    public var registeredAt: UnixMillis
    /// How old the credential was that the request carried.
    public var credentialAge: TimeSpan
    /// How often this push was tried, this time included.
    public var attempts: Int
    /// Whether this push already had its one retry with a fresh credential.
    public var refreshTried: Bool

    /// A request.
    public init(
        sentAt: UnixMillis, registeredAt: UnixMillis, credentialAge: TimeSpan = .zero,
        attempts: Int = 1, refreshTried: Bool = false
    ) {
        self.sentAt = sentAt
        self.registeredAt = registeredAt
        self.credentialAge = credentialAge
        self.attempts = attempts
        self.refreshTried = refreshTried
    }
}

/// The limits that all gateways share.
public enum GatewayLimits {
    /// The longest detail, in bytes.
    public static let detailBytes = 200
    /// The largest answer that is read as JSON, in bytes.
    public static let answerBytes = 64 << 10
    /// The shortest wait a `retry-after` can ask for.
    public static let retryAfterMin = TimeSpan.seconds(1)
    /// The longest wait that is honoured.
    public static let waitMax = TimeSpan.hours(1)
    /// From here on a difference between the clocks is named in details.
    public static let clockSkewMin = TimeSpan.minutes(5)

    /// A first wait, doubled for every attempt after the first, up to `waitMax`.
    internal static func doubled(_ first: TimeSpan, attempts: Int) -> TimeSpan {
        let doublings = Int64(min(max(attempts - 1, 0), 16))
        return min(first * (1 << doublings), waitMax)
    }
}

extension GatewayAnswer {
    /// How far the gateway's clock is ahead of ours, when it told its time.
    internal var clockSkew: TimeSpan? {
        date.flatMap { HTTPDate.parse($0) }.map { $0 - now }
    }

    /// The wait that `retry-after` asks for, clamped; nil when there is none or it is garbage.
    ///
    /// A date is compared with the gateway's own clock when the answer tells it.
    internal var retryAfterWait: TimeSpan? {
        guard let text = retryAfter else { return nil }
        let digits = text.utf8.drop { $0 == 0x20 }
        let wait: TimeSpan
        if !digits.isEmpty, digits.allSatisfy({ (0x30...0x39).contains($0) }) {
            wait =
                Int64(String(text.drop { $0 == " " })).map { seconds in
                    .seconds(min(seconds, 86_400))
                } ?? GatewayLimits.waitMax
        } else if let date = HTTPDate.parse(text) {
            wait = date - (self.date.flatMap { HTTPDate.parse($0) } ?? now)
        } else {
            return nil
        }
        return min(max(wait, GatewayLimits.retryAfterMin), GatewayLimits.waitMax)
    }
}

/// Raw text of a gateway, made fit for a record.
internal enum AnswerDetail {
    /// At most 200 bytes of well-formed text without control characters.
    static func clean(_ bytes: UnsafeRawBufferPointer) -> String {
        let window = bytes[..<min(bytes.count, 4 * GatewayLimits.detailBytes)]
        return clean(String(decoding: window, as: UTF8.self))
    }

    /// At most 200 bytes of text without control characters.
    static func clean(_ text: String) -> String {
        var result = ""
        var count = 0
        for scalar in text.unicodeScalars {
            let isControl = scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
            if isControl { continue }
            let length = UTF8.width(scalar)
            if count + length > GatewayLimits.detailBytes { break }
            count += length
            result.unicodeScalars.append(scalar)
        }
        return result
    }
}
