// An event that comes back from a retry topic: where it was read first, and which of its targets
// are still open. The set of targets was fixed by the first look-up; it travels with the event.

internal import Base
internal import Gateways
internal import JSON
internal import TokenIndex

/// One target that is still open, as it travels in the headers.
///
/// It holds what a result tells of a target, since the address may be gone when its turn comes.
internal struct PendingTarget: Equatable {
    var addressID: String
    /// Its place in the set.
    var index: Int
    /// Requests written so far.
    var attempts = 0
    /// Waits that brought no attempt.
    var waits = 0
    var notBefore = UnixMillis(0)
    var firstSentAt: UnixMillis?
    var wasAmbiguous = false
    var gateway: String
    var environment: String
    /// The origin of the push service that it waits for; nil at gateways with one address.
    var service: String?
    var platform: String
    var appVersion: String?
    /// The first eight hex digits of the token's hash.
    var tokenHash: String

    init(
        addressID: String, index: Int, gateway: String, environment: String, platform: String,
        appVersion: String?, tokenHash: String
    ) {
        self.addressID = addressID
        self.index = index
        self.gateway = gateway
        self.environment = environment
        self.platform = platform
        self.appVersion = appVersion
        self.tokenHash = tokenHash
    }

    /// The install of the address.
    var installID: String { AddressID(addressID)?.installID ?? "" }
    /// The kind of the address.
    var kind: String { AddressID(addressID)?.kind ?? "alert" }
}

/// What the headers of a record in a retry topic say.
internal struct Reentry: Equatable {
    /// Where the event was read first; its results and ids are those of this place.
    var origin: RecordPosition
    /// The record's timestamp there.
    var timestamp: UnixMillis
    var firstFailedAt: UnixMillis
    var notBefore: UnixMillis
    /// Until when it waits for others of its burst.
    var windowUntil: UnixMillis?
    /// What the burst was that it carries: `Burst.count`, `foldedCount` and `names`.
    var burstCount: Int64?
    var foldedCount: Int64 = 0
    var foldedNames: [UInt8] = []
    /// The furthest cursor of the events folded into it, when that is not its own.
    var cursor: EventCursor?
    /// How many targets the event has; nil when it was not looked up yet.
    var targets: Int?
    var fannedOutAt: UnixMillis?
    /// The open ones.
    var pending: [PendingTarget] = []
}

// MARK: - Reading

extension Reentry {
    /// Reads the headers; refuses a record that nobody but Bugle can have meant and that Bugle has
    /// not written.
    init(_ record: InputRecord, parser: JSONParser) throws(Refusal) {
        func text(_ name: String) throws(Refusal) -> String {
            guard let bytes = record.header(name) else { throw Self.refusal("\(name) is missing") }
            return String(decoding: bytes, as: UTF8.self)
        }
        func number(_ name: String) throws(Refusal) -> Int64 {
            guard let value = Int64(try text(name)), value >= 0 else {
                throw Self.refusal("\(name) is not a number")
            }
            return value
        }
        let partition = try number(Self.partitionHeader)
        guard let partition = Int32(exactly: partition) else {
            throw Self.refusal("\(Self.partitionHeader) is not a partition")
        }
        origin = RecordPosition(
            topic: try text(Self.topicHeader), partition: partition,
            offset: try number(Self.offsetHeader))
        timestamp = UnixMillis(try number(Self.timestampHeader))
        firstFailedAt = UnixMillis(try number(Self.firstFailedHeader))
        notBefore = UnixMillis(try number(Self.notBeforeHeader))
        if record.header(Self.windowHeader) != nil {
            windowUntil = UnixMillis(try number(Self.windowHeader))
        }
        if record.header(Self.burstHeader) != nil { try readBurst(record, number, parser) }
        if let bytes = record.header(Self.cursorHeader) {
            guard let root = try? parser.parse(bytes), let cursor = EventCursor(root) else {
                throw Self.refusal("\(Self.cursorHeader) is not a cursor")
            }
            self.cursor = cursor
        }
        guard record.header(Self.targetsHeader) != nil else { return }
        targets = Int(try number(Self.targetsHeader))
        fannedOutAt = UnixMillis(try number(Self.fanoutHeader))
        pending = try Self.pending(
            record.header(Self.pendingHeader), record.header(Self.stateHeader), parser)
    }

    private mutating func readBurst(
        _ record: InputRecord, _ number: (String) throws(Refusal) -> Int64, _ parser: JSONParser
    ) throws(Refusal) {
        burstCount = try number(Self.burstHeader)
        guard let names = record.header(Self.foldedHeader) else { return }
        // It becomes a part of results as it is.
        _ = try Self.list(names, Self.foldedHeader, parser) { $0.string }
        foldedNames = Array(names)
        foldedCount = try number(Self.foldedCountHeader)
    }

    /// The ids are one list for whoever reads the topic, what Bugle needs beside them another.
    private static func pending(
        _ ids: UnsafeRawBufferPointer?, _ states: UnsafeRawBufferPointer?, _ parser: JSONParser
    ) throws(Refusal) -> [PendingTarget] {
        let names = try list(ids, pendingHeader, parser) { value in
            value.string.flatMap { AddressID($0) == nil ? nil : $0 }
        }
        let targets = try list(states, stateHeader, parser) { PendingTarget($0) }
        guard !names.isEmpty, names.count == targets.count else {
            throw refusal("\(pendingHeader) and \(stateHeader) do not belong together")
        }
        return zip(names, targets).map { name, target in
            var target = target
            target.addressID = name
            return target
        }
    }

    private static func list<Element>(
        _ bytes: UnsafeRawBufferPointer?, _ name: String, _ parser: JSONParser,
        _ read: (JSONValue) -> Element?
    ) throws(Refusal) -> [Element] {
        guard let bytes, let root = try? parser.parse(bytes), root.isArray else {
            throw refusal("\(name) is not a JSON array")
        }
        var elements: [Element] = []
        try root.forEachElement { (value) throws(Refusal) in
            guard let element = read(value) else {
                throw refusal("\(name) has an entry that cannot be read")
            }
            elements.append(element)
        }
        return elements
    }

    private static func refusal(_ text: String) -> Refusal { Refusal(.invalidField, text) }

    static let prefix = "bugle-"
    static let groupHeader = "bugle-consumer-group"
    static let topicHeader = "bugle-original-topic"
    static let partitionHeader = "bugle-original-partition"
    static let offsetHeader = "bugle-original-offset"
    static let timestampHeader = "bugle-original-timestamp"
    static let firstFailedHeader = "bugle-first-failed-at"
    static let notBeforeHeader = "bugle-not-before"
    static let targetsHeader = "bugle-targets"
    static let fanoutHeader = "bugle-fanout-at"
    static let pendingHeader = "bugle-pending"
    static let stateHeader = "bugle-pending-state"
    static let windowHeader = "bugle-window-until"
    static let burstHeader = "bugle-burst"
    static let foldedHeader = "bugle-folded"
    static let foldedCountHeader = "bugle-folded-count"
    static let cursorHeader = "bugle-cursor"
    /// Which dead letter the event replays; it stays with the event on every road.
    static let replayHeader = "bugle-replay-of"
}

extension EventCursor {
    /// Reads what `write` has written.
    fileprivate init?(_ value: JSONValue) {
        guard value.isObject, let log = value["log"]?.string, let sequence = value["seq"]?.int64
        else { return nil }
        self.init(log: log, sequence: sequence)
    }

    /// Writes it as events state it.
    func write(to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.string("log", log)
        object.integer("seq", sequence)
        object.end()
    }
}

extension PendingTarget {
    /// Reads an entry of the state header.
    fileprivate init?(_ value: JSONValue) {
        guard value.isObject, let index = value["target_index"]?.int64, index >= 0,
            let gateway = value["gateway"]?.string, let environment = value["environment"]?.string,
            let attempts = value["attempts"]?.int64, (0...1_000_000).contains(attempts),
            let tokenHash = value["token_hash"]?.string
        else { return nil }
        self.init(
            addressID: "", index: Int(index), gateway: gateway, environment: environment,
            platform: value["platform"]?.string ?? "", appVersion: value["app_version"]?.string,
            tokenHash: tokenHash)
        self.attempts = Int(attempts)
        waits = Int(min(max(value["waits"]?.int64 ?? 0, 0), 1_000_000))
        notBefore = UnixMillis(value["not_before"]?.int64 ?? 0)
        firstSentAt = value["first_sent_at"]?.int64.map { UnixMillis($0) }
        wasAmbiguous = value["ambiguous"]?.bool ?? false
        service = value["service"]?.string
    }

    /// No more bytes than the entry takes in both lists: a control character becomes six.
    var bytesMax: Int {
        let texts = [addressID, gateway, environment, service ?? "", platform, appVersion ?? ""]
        let escapes = texts.reduce(0) { sum, text in
            sum + text.utf8.reduce(0) { $0 + ($1 < 0x20 || $1 == 0x22 || $1 == 0x5C ? 6 : 1) }
        }
        return escapes + tokenHash.utf8.count + 256
    }

    /// Writes an entry of the state header.
    func write(to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.integer("target_index", Int64(index))
        object.integer("attempts", Int64(attempts))
        if waits > 0 { object.integer("waits", Int64(waits)) }
        object.integer("not_before", notBefore.value)
        if let firstSentAt { object.integer("first_sent_at", firstSentAt.value) }
        if wasAmbiguous { object.bool("ambiguous", true) }
        object.string("gateway", gateway)
        object.string("environment", environment)
        if let service { object.string("service", service) }
        object.string("platform", platform)
        if let appVersion { object.string("app_version", appVersion) }
        object.string("token_hash", tokenHash)
        object.end()
    }
}
