// What waits, added up: how old it is, what would expire, what holds it back. Pure.

internal import Base
internal import JSON
internal import Pipeline

/// An event that waits, as far as sums need it.
internal struct WaitingEvent {
    var topic: String
    /// Its type; nil when the record cannot be read, which its reader will find too.
    var type: String?
    var source = ""
    var app: String?
    var dueAt: UnixMillis
    var expiresAt: UnixMillis
    /// Why it waits, as its header says; nil on an events topic.
    var code: String?
}

/// The sums of a backlog.
internal struct BacklogSum {
    /// The ages by which events are sorted: names, and what an age is below.
    static let ages: [(name: String, below: TimeSpan)] = [
        ("<1m", .minutes(1)), ("<10m", .minutes(10)), ("<1h", .hours(1)), ("<6h", .hours(6)),
        ("<24h", .hours(24)), (">=24h", TimeSpan(nanos: .max)),
    ]

    /// Of one topic.
    struct Topic {
        var records = 0
        var byAge = [Int](repeating: 0, count: BacklogSum.ages.count)
        var oldest = TimeSpan.zero
        /// What is read only to end as expired.
        var expired = 0
        /// What will have expired an hour from now.
        var expiresSoon = 0
        var unreadable = 0
        /// What levers hold back.
        var held = 0
    }

    let now: UnixMillis
    let levers: Levers
    /// What the names of the parking topics begin with.
    let parkedTopics: String
    /// An order that is thought of; what it would end is counted.
    var order: SkipOrder?
    private(set) var topics: [String: Topic] = [:]
    private(set) var byCode: [String: Int] = [:]
    private(set) var byLever: [LeverKind: Int] = [:]
    /// What the order would end, by type.
    private(set) var covered: [String: Int] = [:]

    init(at now: UnixMillis, levers: Levers, parkedTopics: String, order: SkipOrder? = nil) {
        self.now = now
        self.levers = levers
        self.parkedTopics = parkedTopics
        self.order = order
    }

    /// Everything in all topics.
    var records: Int { topics.values.reduce(0) { $0 + $1.records } }
    /// Everything that the order would end.
    var coveredCount: Int { covered.values.reduce(0, +) }

    /// Takes an event in.
    mutating func add(_ event: WaitingEvent) {
        var sum = topics[event.topic] ?? Topic()
        defer { topics[event.topic] = sum }
        let age = now - event.dueAt
        sum.records += 1
        sum.byAge[Self.ages.firstIndex { age < $0.below } ?? Self.ages.count - 1] += 1
        sum.oldest = max(sum.oldest, age)
        if let code = event.code { byCode[code, default: 0] += 1 }
        guard let type = event.type else {
            sum.unreadable += 1
            return
        }
        if event.expiresAt <= now {
            sum.expired += 1
        } else if event.expiresAt <= now + .hours(1) {
            sum.expiresSoon += 1
        }
        if let kind = lever(holding: event, type) {
            sum.held += 1
            byLever[kind, default: 0] += 1
        }
        guard let order,
            order.covers(type: type, source: event.source, app: event.app, dueAt: event.dueAt)
        else { return }
        covered[type, default: 0] += 1
    }

    private func lever(holding event: WaitingEvent, _ type: String) -> LeverKind? {
        if let kind = levers.hold(type: type, source: event.source, app: event.app) { return kind }
        // Nothing leaves a paused gateway's parking topic, whatever brought it there.
        return levers.holds(parkingTopic: event.topic, of: parkedTopics) ? .gateway : nil
    }

    /// The sums as one object.
    func write(to bytes: ByteWriter, isWhole: Bool) {
        var object = JSONObjectWriter(bytes)
        object.integer("now", now.value)
        object.integer("records", Int64(records))
        object.bool("complete", isWhole)
        object.name("topics")
        bytes.append("[")
        for (index, name) in topics.keys.sorted().enumerated() {
            guard let topic = topics[name] else { continue }
            if index > 0 { bytes.append(",") }
            var entry = JSONObjectWriter(bytes)
            entry.string("topic", name)
            entry.integer("records", Int64(topic.records))
            entry.integer("oldest_ms", topic.oldest.millis)
            entry.name("ages")
            Self.write(zip(Self.ages.map(\.name), topic.byAge).map { ($0, $1) }, to: bytes)
            entry.integer("expired", Int64(topic.expired))
            entry.integer("expires_within_1h", Int64(topic.expiresSoon))
            entry.integer("held_back", Int64(topic.held))
            entry.integer("unreadable", Int64(topic.unreadable))
            entry.end()
        }
        bytes.append("]")
        object.name("reasons")
        Self.write(byCode.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }, to: bytes)
        object.name("held_back_by")
        Self.write(
            byLever.map { ($0.key.rawValue, $0.value) }.sorted { $0.0 < $1.0 }, to: bytes)
        if order != nil {
            object.name("would_be_skipped")
            Self.write(covered.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }, to: bytes)
        }
        object.end()
    }

    private static func write(_ counts: [(String, Int)], to bytes: ByteWriter) {
        bytes.append("{")
        for (index, (name, count)) in counts.enumerated() {
            if index > 0 { bytes.append(",") }
            bytes.append(jsonString: name)
            bytes.append(":")
            bytes.append(decimal: Int64(count))
        }
        bytes.append("}")
    }
}
