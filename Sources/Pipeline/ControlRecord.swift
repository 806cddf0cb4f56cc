// A record of `push.control`: an operator's word, kept under a key of its own until another one
// replaces it. Schema `topics/push.control.schema.json`.

public import Base
public import JSON

/// An operator's word.
public struct ControlRecord: Sendable, Equatable {
    /// What is asked for.
    public enum Action: Sendable, Equatable {
        /// Hold back what a lever is attached to.
        case pause(Lever)
        /// Let it go on.
        case resume(Lever)
        /// End what is older.
        case skip(SkipOrder)
    }

    /// What is asked for.
    public var action: Action
    /// When it was asked for.
    public var at: UnixMillis
    /// When a pause ends by itself, and a skip order is forgotten; nil: never.
    public var until: UnixMillis?
    /// Why, for whoever looks later; at most 200 characters.
    public var reason: String?
    /// Who asked.
    public var by: String?

    /// A record of a moment.
    public init(
        _ action: Action, at: UnixMillis, until: UnixMillis? = nil, reason: String? = nil,
        by: String? = nil
    ) {
        self.action = action
        self.at = at
        self.until = until
        self.reason = reason
        self.by = by
    }

    /// What it is kept under: one key per lever, and one per set of events that are skipped.
    public var key: String {
        switch action {
        case .pause(let lever), .resume(let lever): "pause/\(lever.kind.rawValue)/\(lever.value)"
        case .skip(let order):
            order.lever.map { "skip/\($0.kind.rawValue)/\($0.value)" } ?? "skip/all"
        }
    }

    /// Appends the record's value.
    public func write(to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.integer("v", 1)
        func write(_ lever: Lever?) {
            guard let lever else { return }
            object.string("lever", lever.kind.rawValue)
            object.string("value", lever.value)
        }
        switch action {
        case .pause(let lever):
            object.literal("action", "pause")
            write(lever)
        case .resume(let lever):
            object.literal("action", "resume")
            write(lever)
        case .skip(let order):
            object.literal("action", "skip")
            write(order.lever)
            object.integer("before", order.before.value)
        }
        object.integer("at", at.value)
        if let until { object.integer("until", until.value) }
        if let reason { object.string("reason", String(reason.prefix(200))) }
        if let by { object.string("by", String(by.prefix(200))) }
        object.end()
    }

    /// Reads a record; nil when it is none that this version knows.
    public init?(_ value: UnsafeRawBufferPointer, parser: JSONParser) {
        guard let root = try? parser.parse(value), root.isObject,
            let word = root["action"]?.string, let at = root["at"]?.int64
        else { return nil }
        var lever: Lever?
        if let kind = root["lever"]?.string {
            guard let kind = LeverKind(rawValue: kind), let name = root["value"]?.string,
                let found = Lever(kind, name)
            else { return nil }
            lever = found
        }
        switch (word, lever) {
        case ("pause", let lever?): action = .pause(lever)
        case ("resume", let lever?): action = .resume(lever)
        case ("skip", _):
            guard let before = root["before"]?.int64, lever?.kind != .gateway else { return nil }
            action = .skip(SkipOrder(lever, before: UnixMillis(before)))
        default: return nil
        }
        self.at = UnixMillis(at)
        until = root["until"]?.int64.map { UnixMillis($0) }
        reason = root["reason"]?.string
        by = root["by"]?.string
    }
}

/// All that operators have said: the newest record of each key. Pure; time is an argument.
public struct ControlBook: Sendable {
    /// The records by their keys.
    public private(set) var records: [String: ControlRecord] = [:]
    /// Records that could not be read.
    public private(set) var unreadable = 0

    /// Nobody has said anything yet.
    public init() {}

    /// Takes a record in, in the topic's order; a null value takes the key's record back.
    public mutating func apply(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, at now: UnixMillis,
        parser: JSONParser
    ) {
        let key = key.map { String(decoding: $0, as: UTF8.self) } ?? ""
        guard let value else {
            // A null loosens like a word that says so.
            if case .pause(let lever) = records[key]?.action {
                records[key] = ControlRecord(.resume(lever), at: now)
            } else {
                records[key] = nil
            }
            return
        }
        guard var record = ControlRecord(value, parser: parser), record.key == key else {
            unreadable += 1
            return
        }
        // An operator's clock may be ahead: its word's moment is not, or it would be another one each
        // time that somebody asks.
        record.at = min(record.at, now)
        records[key] = record
    }

    /// The pauses in force, in the order in which they began.
    public func pauses(at now: UnixMillis) -> [ControlRecord] {
        records.values.filter {
            guard case .pause = $0.action else { return false }
            return $0.isInForce(at: now)
        }.sorted { ($0.at, $0.key) < ($1.at, $1.key) }
    }

    /// The skip orders in force.
    public func skips(at now: UnixMillis) -> [ControlRecord] {
        records.values.filter {
            guard case .skip = $0.action else { return false }
            return $0.isInForce(at: now)
        }.sorted { ($0.at, $0.key) < ($1.at, $1.key) }
    }

    /// What lanes are told. No moment of it is ahead of `now`, whatever an operator's clock says:
    /// what was set aside is looked at once for each word, not again and again.
    public func levers(at now: UnixMillis) -> Levers {
        var paused: Set<Lever> = []
        var skips: [SkipOrder] = []
        var loosenedAt = UnixMillis(0)
        for record in records.values {
            switch record.action {
            case .pause(let lever):
                if record.isInForce(at: now) {
                    paused.insert(lever)
                } else if let until = record.until {
                    loosenedAt = max(loosenedAt, until)
                }
            case .resume: loosenedAt = max(loosenedAt, record.at)
            case .skip(let order): if record.isInForce(at: now) { skips.append(order) }
            }
        }
        return Levers(
            paused: paused, skips: skips.sorted { $0.before < $1.before },
            loosenedAt: min(loosenedAt, now))
    }
}

extension ControlRecord {
    fileprivate func isInForce(at now: UnixMillis) -> Bool { until.map { $0 > now } ?? true }
}
