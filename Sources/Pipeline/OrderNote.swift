// What is remembered of a line outside the lane: a note in the user's index entry. It names, for
// each address, the newest event of the line as soon as an older one waits in a retry or parking
// topic, or may have to be done again, so that the older one is folded when it comes back, in
// whichever lane or process that is. An event that waits as a whole has no addresses yet: while one
// does, whatever is sent is named. Pure.

internal import Base
internal import JSON

/// An event's place in the order of its user's events.
internal struct OrderedEvent: Equatable, Sendable {
    /// Where it was first read.
    var position: RecordPosition
    /// When it was to be sent: at its record's timestamp, or not before a later moment.
    var moment: UnixMillis
    /// Whether its publisher put it off, so that its offset says nothing about its turn.
    var isDelayed = false
    /// The publisher's id of it.
    var id: String
    /// How far the truth had advanced.
    var log: String?
    var sequence: Int64 = 0

    /// Clocks of publishers differ; and offsets begin anew in a topic that was made anew. Beyond
    /// this the timestamps have the last word.
    static let clockTolerance = TimeSpan.minutes(1)

    /// Whether it knows of something in its log that `other` does not.
    func isAhead(of other: OrderedEvent) -> Bool {
        log != nil && log == other.log && sequence > other.sequence
    }

    /// Whether `other` is newer.
    func isBefore(_ other: OrderedEvent) -> Bool {
        let isNeighbour =
            position.topic == other.position.topic
            && position.partition == other.position.partition
        if isNeighbour, !isDelayed, !other.isDelayed {
            return position.offset < other.position.offset
                && moment <= other.moment + Self.clockTolerance
        }
        if moment != other.moment { return moment < other.moment }
        return (position.topic, position.partition, position.offset)
            < (other.position.topic, other.position.partition, other.position.offset)
    }
}

/// An event that waits as a whole, before it is known for which addresses it is: in quiet hours, in
/// a long window, for its publisher's moment or an operator's word.
internal struct WaitingEvent: Equatable, Sendable {
    var event: OrderedEvent
    /// When it is let go; `distantFuture` when nobody can say.
    var due: UnixMillis
    /// When it is worth nothing any more.
    var expiry: UnixMillis
    /// Events with the same value are for the same addresses.
    var audience: UInt64
    /// Whether it still waits; if not, others may that it has hidden.
    var isWaiting = true

    static let distantFuture = UnixMillis(.max)

    /// Whether it is as good as here.
    func isComing(at now: UnixMillis) -> Bool { isWaiting && due <= now && now < expiry }
}

/// The note of one line.
internal struct OrderNote: Equatable {
    private struct Entry: Equatable {
        var event: OrderedEvent
        /// Whether the event itself waits; if not, only older ones do.
        var isWaiting: Bool
        /// The addresses for which it is the newest.
        var addresses: [UInt64]
    }

    private var entries: [Entry] = []
    /// The newest of the events that wait as a whole; nil when none ever did.
    private(set) var whole: WaitingEvent?
    /// Until when something may come back.
    private(set) var until = UnixMillis(0)

    /// Addresses in a note; what is over has no order across retries.
    static let addressesMax = 256

    init() {}

    var isEmpty: Bool { entries.isEmpty && whole == nil }

    /// The newest event at an address that is known.
    func newest(at address: UInt64) -> OrderedEvent? {
        entries.first { $0.addresses.contains(address) }?.event
    }

    /// A newer event is on its way to an address. True when it has to be known outside: when one
    /// that it follows may come back.
    mutating func supersede(at address: UInt64, by event: OrderedEvent) -> Bool {
        if let entry = entries.first(where: { $0.addresses.contains(address) }) {
            guard entry.event.isBefore(event) else { return false }
            // What waits as a whole may be newer than what is named, or that event itself.
            let mayFollow = whole.map { !$0.event.isBefore(entry.event) } ?? false
            guard entry.isWaiting || mayFollow else { return false }
        } else if whole == nil {
            return false
        }
        put(event, isWaiting: false, at: address)
        return true
    }

    /// An event waits before its addresses are known. Only the newest is remembered: it stands for
    /// those before it, which fold into it when it is for the same addresses.
    mutating func wait(_ waiting: WaitingEvent) {
        until = max(until, waiting.expiry)
        let isNewest =
            whole.map {
                $0.event.position == waiting.event.position || $0.event.isBefore(waiting.event)
            } ?? true
        if isNewest { whole = waiting }
    }

    /// An event that may have waited as a whole is over. True when the note says so from now on.
    mutating func end(_ event: OrderedEvent) -> Bool {
        guard whole?.isWaiting == true, whole?.event.position == event.position else {
            return false
        }
        whole?.isWaiting = false
        return true
    }

    /// An event waits at an address until it comes back, at the latest at its expiry.
    mutating func wait(_ event: OrderedEvent, at address: UInt64, until expiry: UnixMillis) {
        until = max(until, expiry)
        if let newest = newest(at: address), event.isBefore(newest) { return }
        put(event, isWaiting: true, at: address)
    }

    /// An older event that is open here may have to be done again, until its expiry.
    mutating func name(_ event: OrderedEvent, at address: UInt64, until expiry: UnixMillis) {
        until = max(until, expiry)
        put(event, isWaiting: false, at: address)
    }

    private mutating func put(_ event: OrderedEvent, isWaiting: Bool, at address: UInt64) {
        for index in entries.indices { entries[index].addresses.removeAll { $0 == address } }
        entries.removeAll(where: \.addresses.isEmpty)
        let place = entries.firstIndex {
            $0.event.position == event.position && $0.isWaiting == isWaiting
        }
        if let place {
            guard entries[place].addresses.count < Self.addressesMax else { return }
            entries[place].addresses.append(address)
        } else {
            let known = entries.reduce(0) { $0 + $1.addresses.count }
            guard known < Self.addressesMax else { return }
            entries.append(Entry(event: event, isWaiting: isWaiting, addresses: [address]))
        }
    }
}

// MARK: - Text

extension OrderNote {
    /// The note's text, which `init(_:parser:)` reads.
    func text(_ bytes: ByteWriter) -> String {
        bytes.removeAll()
        var object = JSONObjectWriter(bytes)
        object.integer("until", until.value)
        object.name("newest")
        bytes.append(0x5B)
        for (index, entry) in entries.enumerated() {
            if index > 0 { bytes.append(0x2C) }
            write(entry, to: bytes)
        }
        bytes.append(0x5D)
        if let whole {
            object.name("whole")
            write(whole, to: bytes)
        }
        object.end()
        return String(decoding: bytes.bytes, as: UTF8.self)
    }

    private func write(_ event: OrderedEvent, _ object: inout JSONObjectWriter) {
        object.string("topic", event.position.topic)
        object.integer("partition", Int64(event.position.partition))
        object.integer("offset", event.position.offset)
        object.integer("moment", event.moment.value)
        if event.isDelayed { object.bool("delayed", true) }
        object.string("id", event.id)
        if let log = event.log {
            object.string("log", log)
            object.integer("seq", event.sequence)
        }
    }

    private func write(_ waiting: WaitingEvent, to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        write(waiting.event, &object)
        object.integer("due", waiting.due.value)
        object.integer("expiry", waiting.expiry.value)
        object.string("audience", String(waiting.audience, radix: 16))
        if waiting.isWaiting { object.bool("waits", true) }
        object.end()
    }

    private func write(_ entry: Entry, to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        write(entry.event, &object)
        if entry.isWaiting { object.bool("waits", true) }
        object.name("at")
        bytes.append(0x5B)
        for (index, address) in entry.addresses.enumerated() {
            if index > 0 { bytes.append(0x2C) }
            bytes.append(jsonString: String(address, radix: 16))
        }
        bytes.append(0x5D)
        object.end()
    }

    /// Reads a note; nil when it is not one.
    init?(_ text: String, parser: JSONParser) {
        guard let root = try? parser.parse(Array(text.utf8)), root.isObject,
            let until = root["until"]?.int64, let newest = root["newest"], newest.isArray
        else { return nil }
        self.until = UnixMillis(until)
        var isWhole = true
        newest.forEachElement { value in
            guard let entry = Self.entry(value) else { return isWhole = false }
            entries.append(entry)
        }
        guard isWhole else { return nil }
        guard let value = root["whole"] else { return }
        guard let event = Self.event(value), let due = value["due"]?.int64,
            let expiry = value["expiry"]?.int64,
            let audience = value["audience"]?.string.flatMap({ UInt64($0, radix: 16) })
        else { return nil }
        whole = WaitingEvent(
            event: event, due: UnixMillis(due), expiry: UnixMillis(expiry), audience: audience,
            isWaiting: value["waits"]?.bool ?? false)
    }

    private static func event(_ value: JSONValue) -> OrderedEvent? {
        guard let topic = value["topic"]?.string,
            let partition = value["partition"]?.int64.flatMap({ Int32(exactly: $0) }),
            let offset = value["offset"]?.int64, let moment = value["moment"]?.int64,
            let id = value["id"]?.string
        else { return nil }
        var event = OrderedEvent(
            position: RecordPosition(topic: topic, partition: partition, offset: offset),
            moment: UnixMillis(moment), id: id)
        event.isDelayed = value["delayed"]?.bool ?? false
        event.log = value["log"]?.string
        event.sequence = value["seq"]?.int64 ?? 0
        return event
    }

    private static func entry(_ value: JSONValue) -> Entry? {
        guard let event = event(value), let list = value["at"], list.isArray else { return nil }
        var addresses: [UInt64] = []
        list.forEachElement { element in
            if let address = element.string.flatMap({ UInt64($0, radix: 16) }) {
                addresses.append(address)
            }
        }
        return Entry(
            event: event, isWaiting: value["waits"]?.bool ?? false, addresses: addresses)
    }
}
