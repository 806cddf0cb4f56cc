internal import Base
internal import Kafka

/// Where an event was read first.
internal struct EventOrigin: Hashable, Sendable, CustomStringConvertible {
    var topic: String
    var partition: Int32
    var offset: Int64

    /// `push.events-3-1200`, as results and headers write it.
    var description: String { "\(topic)-\(partition)-\(offset)" }

    init(_ topic: String, _ partition: Int32, _ offset: Int64) {
        self.topic = topic
        self.partition = partition
        self.offset = offset
    }

    /// Reads `push.events/3/1200` or `push.events-3-1200`; nil when it is neither.
    init?(_ text: String) {
        for separator in ["/", "-"] as [Character] {
            let parts = text.split(separator: separator, omittingEmptySubsequences: false)
            guard parts.count >= 3, let offset = Int64(parts[parts.count - 1]), offset >= 0,
                let partition = Int32(parts[parts.count - 2]), partition >= 0
            else { continue }
            let topic = parts.dropLast(2).joined(separator: String(separator))
            guard !topic.isEmpty else { continue }
            self.init(topic, partition, offset)
            return
        }
        return nil
    }
}

/// What a story is told of, and what is learnt on the way: each topic knows the event by another
/// name.
internal struct TraceKey {
    /// The word that was given.
    let text: String
    /// Where the event was read first; several when one id was published more than once.
    private(set) var origins: Set<EventOrigin> = []
    private(set) var eventIDs: Set<String> = []
    private(set) var messageIDs: Set<String> = []
    private(set) var resultIDs: Set<String> = []
    /// Whether the word is a place and nothing else.
    private let isPlace: Bool

    /// A word is a place when its topic is one of the events topics; else it may be an event's id
    /// or a message's.
    init(_ text: String, events: Set<String>) {
        self.text = text
        if let origin = EventOrigin(text), events.contains(origin.topic) {
            origins = [origin]
            isPlace = true
        } else {
            eventIDs = [text]
            messageIDs = [text.lowercased()]
            isPlace = false
        }
    }

    /// Whether an event with this id, read first at that place, is meant.
    func means(eventID: String?, at origin: EventOrigin?) -> Bool {
        if let origin, origins.contains(origin) { return true }
        return !isPlace && eventID.map { eventIDs.contains($0) } ?? false
    }

    /// Whether a record that names a message or a result is meant.
    func means(messageID: String?, resultID: String?) -> Bool {
        messageID.map { messageIDs.contains($0) } ?? false
            || resultID.map { resultIDs.contains($0) } ?? false
    }

    /// Takes in what a record of the story said.
    mutating func learn(
        origin: EventOrigin?, messageID: String? = nil, resultID: String? = nil
    ) {
        if let origin { origins.insert(origin) }
        if let messageID { messageIDs.insert(messageID) }
        if let resultID { resultIDs.insert(resultID) }
    }
}
