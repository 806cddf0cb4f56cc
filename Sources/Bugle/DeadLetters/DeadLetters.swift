// Dead letters as an operator looks at them: which there are, which are meant, and what a replay of
// one writes.

internal import Base
internal import JSON
internal import Kafka

/// One record of the dead-letter topic.
internal struct StoredLetter {
    /// Where it stands.
    var place: TopicPartition
    var offset: Int64
    /// When it was written.
    var time: UnixMillis
    /// Where its event was read first; nil when the headers do not say.
    var origin: (place: TopicPartition, offset: Int64)?
    /// Why it is here: one word, and a sentence.
    var code = ""
    var reason = ""
    /// The event's type and id, as far as they can be read.
    var type: String?
    var eventID: String?
    /// Whether the value is not whole.
    var isCut = false
    /// The installation that wrote it; nil when its headers do not say.
    var group: String?
    /// The dead letter that its event replayed, if it did.
    var replayOf: String?
    var key: [UInt8]?
    var value: [UInt8]?
    /// The headers as its publisher wrote them.
    var headers: [TopicProducer.Header] = []

    /// What a replay says that it replays: the first event of a chain of replays, so that one that
    /// failed again and its forerunner are not both sent.
    var root: String? {
        replayOf ?? origin.map { "\($0.place.topic)-\($0.place.partition)-\($0.offset)" }
    }

    /// Why it cannot be replayed; nil when it can.
    func hindrance(events topics: Set<String>) -> String? {
        guard let origin else { return "its origin is unknown" }
        if !topics.contains(origin.place.topic) { return "it did not come from an events topic" }
        if value == nil { return "it has no value" }
        return isCut ? "its value was cut" : nil
    }
}

extension StoredLetter {
    /// Reads a record; `parser` lends its memory. Values are kept on demand.
    init(_ record: borrowing KafkaRecord, parser: JSONParser, keepsValue: Bool) {
        place = record.place
        offset = record.offset
        time = UnixMillis(record.timestampMillis ?? 0)
        var topic: String?
        var partition: Int32?
        var number: Int64?
        var others: [TopicProducer.Header] = []
        var facts: (code: String, reason: String, type: String?, id: String?) = ("", "", nil, nil)
        var replay: String?
        var cut = false
        record.forEachHeader { name, value in
            let name = String(decoding: name, as: UTF8.self)
            let text = value.map { String(decoding: $0, as: UTF8.self) } ?? ""
            switch name {
            case "bugle-original-topic": topic = text
            case "bugle-original-partition": partition = Int32(text)
            case "bugle-original-offset": number = Int64(text)
            case "bugle-error-code": facts.code = text
            case "bugle-error-reason": facts.reason = text
            case "bugle-truncated": cut = true
            case "bugle-consumer-group": group = text
            case "bugle-replay-of": replay = text
            default:
                if name == "ce_type" { facts.type = text }
                if name == "ce_id" { facts.id = text }
                if !name.hasPrefix("bugle-") {
                    others.append(TopicProducer.Header(name, value.map { Array($0) }))
                }
            }
        }
        if let topic, let partition, let number {
            origin = (TopicPartition(topic, partition), number)
        }
        (code, reason, isCut, replayOf) = (facts.code, facts.reason, cut, replay)
        if let value = record.value, let event = parser.event(in: value) {
            facts.type = facts.type ?? event["type"]?.string ?? event["event_type"]?.string
            facts.id = facts.id ?? event["id"]?.identifier
        }
        (type, eventID) = (facts.type, facts.id)
        // An empty array stands for a value that is there and not kept.
        value = record.value.map { keepsValue ? Array($0) : [] }
        guard keepsValue else { return }
        key = record.key.map { Array($0) }
        headers = others
    }
}

/// Which dead letters are meant.
internal struct LetterFilter {
    /// Several installations may share a topic; each has its own dead letters, and those that name
    /// no group belong to all.
    var group: String
    var code: String?
    var type: String?
    var since: UnixMillis?
    var until: UnixMillis?

    func admits(_ letter: StoredLetter) -> Bool {
        if let other = letter.group, other != group { return false }
        if let code, letter.code != code { return false }
        if let type, letter.type != type { return false }
        if let since, letter.time < since { return false }
        if let until, letter.time >= until { return false }
        return true
    }
}

/// What a command works on: the first dead letters that are meant, each event once.
internal struct LetterSelection {
    private let filter: LetterFilter
    private let limit: Int
    private let events: Set<String>
    private let forReplay: Bool
    private(set) var letters: [StoredLetter] = []
    /// How many are meant, those beyond the limit too.
    private(set) var matching = 0
    /// Letters left out because they cannot be replayed, by reason.
    private(set) var hindered: [String: Int] = [:]
    /// Letters left out because another one stands for the same event.
    private(set) var repeated = 0
    private var roots: Set<String> = []

    init(_ filter: LetterFilter, limit: Int, events: Set<String>, forReplay: Bool) {
        self.filter = filter
        self.limit = limit
        self.events = events
        self.forReplay = forReplay
    }

    /// Takes a letter in, in the order of the topic.
    mutating func add(_ letter: StoredLetter) {
        guard filter.admits(letter) else { return }
        if forReplay {
            if let hindrance = letter.hindrance(events: events) {
                hindered[hindrance, default: 0] += 1
                return
            }
            guard let root = letter.root, roots.insert(root).inserted else {
                repeated += 1
                return
            }
        }
        matching += 1
        if letters.count < limit { letters.append(letter) }
    }
}
