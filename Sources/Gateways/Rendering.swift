/// What came of building a request.
public enum Rendering: Equatable, Sendable {
    /// The request is built.
    case request(RenderingNotes)
    /// The token is not what the gateway defines; nothing was built.
    case malformedToken(detail: String)
    /// The gateway would refuse the request; nothing was built.
    case rejected(reason: Reason, detail: String)
    /// The payload has more bytes than the gateway takes; nothing was built.
    case tooLarge(bytes: Int, limit: Int)
    /// The event's time is over; nothing was built.
    case expired
}

/// What was changed about the content while a request was built.
public struct RenderingNotes: OptionSet, Sendable {
    /// The bits.
    public let rawValue: UInt8

    /// Notes from their bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Members of `data` with names that the gateway reserves were left out.
    public static let droppedReservedKeys = RenderingNotes(rawValue: 1)
    /// Members of `data` that are null were left out.
    public static let droppedNulls = RenderingNotes(rawValue: 2)
    /// The expiry was brought forward to the gateway's limit.
    public static let shortenedExpiry = RenderingNotes(rawValue: 4)

    /// An Android device is woken by a message that the system does not show: the app has to.
    public static let wakesUnseen = RenderingNotes(rawValue: 8)

    /// The notes as words for a result's detail; empty when there are none.
    public var detail: String {
        if isEmpty || self == .wakesUnseen { return "" }
        var words: [String] = []
        if contains(.droppedReservedKeys) { words.append("reserved data keys left out") }
        if contains(.droppedNulls) { words.append("null data values left out") }
        if contains(.shortenedExpiry) { words.append("expiry cut to the gateway's limit") }
        return words.joined(separator: ", ")
    }
}
