// Comparing what Redis holds with what the topics say, and having it built anew.

internal import Base
internal import EventLoop
internal import Redis

/// What a comparison found.
public struct IndexVerification: Sendable, Equatable {
    /// The differences found first.
    public var differences: [IndexDifference] = []
    /// How many there are.
    public var count = 0
    /// Users compared.
    public var users = 0

    /// Whether both say the same.
    public var isEqual: Bool { count == 0 }

    /// Differences kept in the list.
    public static let listed = 1_000

    internal mutating func add(_ difference: IndexDifference) {
        count += 1
        if differences.count < Self.listed { differences.append(difference) }
    }
}

/// How far the index is, as its markers say it.
public struct IndexMarkers: Sendable, Equatable {
    /// For each partition, the offset up to which every bucket shows it; 0 where one shows nothing.
    public var positions: [IndexTopicPosition] = []
    /// Buckets that look-ups trust, of `IndexLimits.buckets`.
    public var completeBuckets = 0

    /// Whether look-ups are answered.
    public var isComplete: Bool { completeBuckets == IndexLimits.buckets }
}

extension RedisIndexOperator {
    /// Compares the store with a model that has read the topics to their end. What changes
    /// meanwhile may look like a difference: compare those users once more, with `users`.
    public func verify(
        against model: InMemoryTokenIndex, only users: Set<String>? = nil,
        progress: (Int) -> Void = { _ in }
    ) throws(IndexOperationError) -> IndexVerification {
        let expected = model.withState { Expectation(users: $0.users, records: $0.records) }
        var found = IndexVerification()
        var batch: [IndexState.UserKey] = []
        for key in expected.keys where users?.contains(key.userID) ?? true {
            batch.append(key)
            if batch.count == Self.depth { try compare(&batch, expected, &found, progress) }
        }
        try compare(&batch, expected, &found, progress)
        for key in try strangers(to: expected) where users?.contains(key.userID) ?? true {
            batch.append(key)
            if batch.count == Self.depth { try compare(&batch, expected, &found, progress) }
        }
        try compare(&batch, expected, &found, progress)
        return found
    }

    /// Has the index built anew from the start of both topics: the writer misses its markers
    /// within a second. Look-ups wait until it is done; `markers` tells how far it is.
    public func requestRebuild() throws(IndexOperationError) {
        for bucket in 0..<IndexLimits.buckets {
            try ask(["DEL", layout.marker(bucket)]) { _ in }
        }
    }

    /// How far the index is.
    public func markers() throws(IndexOperationError) -> IndexMarkers {
        var markers = IndexMarkers()
        var lowest: [IndexTopicPartition: Int64] = [:]
        var seen: [IndexTopicPartition: Int] = [:]
        for bucket in 0..<IndexLimits.buckets {
            let fields = try ask(["HGETALL", layout.marker(bucket)]) {
                $0.elements.compactMap(\.text)
            }
            for index in stride(from: 0, to: fields.count - 1, by: 2) {
                if fields[index] == "c" { markers.completeBuckets += 1 }
                guard let place = IndexTopicPartition(markerField: fields[index]),
                    let offset = Int64(fields[index + 1])
                else { continue }
                lowest[place] = min(lowest[place] ?? .max, offset)
                seen[place, default: 0] += 1
            }
        }
        markers.positions = lowest.map { place, offset in
            IndexTopicPosition(
                topic: place.topic, partition: place.partition,
                nextOffset: seen[place] == IndexLimits.buckets ? offset : 0)
        }.sorted { ($0.topic.rawValue, $0.partition) < ($1.topic.rawValue, $1.partition) }
        return markers
    }

    // MARK: - Comparing

    /// Users in the store whom the model does not know.
    private func strangers(
        to expected: Expectation
    ) throws(IndexOperationError) -> Set<IndexState.UserKey> {
        let found = UserSet()
        try walk("u") { [client, layout] key, done in
            // The app may hold a colon as the user may: an address of the user tells where it ends.
            RedisQuestion.ask(client, ["HKEYS", key]) { reply in
                found.note(reply)
                guard case .success(let reply) = reply,
                    let rest = layout.rest(of: key, kind: "u")
                else { return done() }
                let add = { (appLength: Int) in
                    guard let user = IndexState.UserKey(rest, appLength: appLength) else { return }
                    if !expected.knows(user) { found.users.insert(user) }
                }
                let id = reply.elements.lazy.compactMap { AddressID($0.text ?? "") }.first
                if let id {
                    if rest.hasPrefix(id.app + ":") { add(id.app.utf8.count) }
                    return done()
                }
                RedisQuestion.ask(client, ["HGET", key, StoredUser.field]) { reply in
                    found.note(reply)
                    if case .success(let reply) = reply,
                        let length = StoredUser.appLength(reply.bytes)
                    {
                        add(length)
                    }
                    done()
                }
            }
        }
        if let failure = found.failure { throw .unavailable(failure.description) }
        return found.users
    }

    private func compare(
        _ batch: inout [IndexState.UserKey], _ expected: Expectation,
        _ found: inout IndexVerification, _ progress: (Int) -> Void
    ) throws(IndexOperationError) {
        let users = batch
        batch = []
        guard !users.isEmpty else { return }
        let lists: [StoredList] = try wait { done in
            let gathering = Gathering(count: users.count, done)
            for (index, user) in users.enumerated() {
                let key = layout.user(user.userID, app: user.app)
                RedisQuestion.ask(client, ["HGETALL", key]) {
                    gathering.take(index, $0.map { StoredList($0) })
                }
            }
        }
        for (index, user) in users.enumerated() {
            var list = lists[index]
            if list.hasMore { list.add(try furtherEntries(user)) }
            compare(user, expected.users[user] ?? [:], expected.records[user], list, &found)
        }
        let before = found.users
        found.users += users.count
        if before / 10_000 != found.users / 10_000 { progress(found.users) }
    }

    private func furtherEntries(
        _ user: IndexState.UserKey
    ) throws(IndexOperationError) -> StoredList {
        var list = StoredList()
        var cursor = "0"
        repeat {
            let command = [
                "HSCAN", layout.further(user.userID, app: user.app), cursor, "COUNT",
                String(IndexLimits.entriesPerPage),
            ]
            let (next, page) = try ask(command) { reply in
                let parts = reply.elements
                return (parts.first?.text ?? "0", parts.count == 2 ? StoredList(parts[1]) : nil)
            }
            if let page { list.add(page) }
            cursor = next
        } while cursor != "0"
        return list
    }

    private func compare(
        _ user: IndexState.UserKey, _ expected: [AddressID: IndexState.Listed],
        _ record: UserRecord?, _ list: StoredList, _ found: inout IndexVerification
    ) {
        func report(_ kind: IndexDifference.Kind, _ id: String?) {
            found.add(
                IndexDifference(app: user.app, userID: user.userID, addressID: id, kind: kind))
        }
        if list.isDamaged { report(.unreadable, nil) }
        switch (record, list.record) {
        case (nil, nil): break
        case (_?, nil): report(.missing, nil)
        case (nil, _?): report(.extra, nil)
        case (let record?, let stored?): if record != stored { report(.different, nil) }
        }
        for (id, entry) in expected.sorted(by: { $0.key < $1.key }) {
            guard let stored = list.entries[id.text] else {
                report(.missing, id.text)
                continue
            }
            let address = entry.address.withStored { Array($0) }
            if stored != UserEntry.encode(entry.standing, address) { report(.different, id.text) }
        }
        for id in list.entries.keys.sorted() {
            guard let known = AddressID(id), expected[known] != nil else {
                report(.extra, id)
                continue
            }
        }
    }
}

/// What the topics say of users.
private struct Expectation {
    let users: [IndexState.UserKey: [AddressID: IndexState.Listed]]
    let records: [IndexState.UserKey: UserRecord]

    var keys: Set<IndexState.UserKey> { Set(users.keys).union(records.keys) }

    func knows(_ user: IndexState.UserKey) -> Bool { users[user] != nil || records[user] != nil }
}

extension IndexState.UserKey {
    /// Reads `<app>:<user>`, in which either may hold a colon.
    fileprivate init?(_ text: String, appLength: Int) {
        let bytes = Array(text.utf8)
        guard bytes.count > appLength, bytes[appLength] == 0x3A else { return nil }
        self.init(
            app: String(decoding: bytes[..<appLength], as: UTF8.self),
            userID: String(decoding: bytes[(appLength + 1)...], as: UTF8.self))
    }
}

/// A user's entries as they are stored, without their revisions.
private struct StoredList {
    var entries: [String: [UInt8]] = [:]
    var hasMore = false
    var record: UserRecord?
    var isDamaged = false

    init() {}

    init(_ reply: RedisReply) {
        let parts = reply.elements
        for index in stride(from: 0, to: parts.count - 1, by: 2) {
            guard let id = parts[index].text, !id.isEmpty else {
                hasMore = true
                continue
            }
            if id == StoredUser.field {
                record = StoredUser.decode(parts[index + 1].bytes)
                isDamaged = isDamaged || record == nil
                continue
            }
            let value = Array(parts[index + 1].bytes)
            guard let colon = value.firstIndex(of: 0x3A) else {
                isDamaged = true
                continue
            }
            entries[id] = Array(value[(colon + 1)...])
        }
    }

    mutating func add(_ other: StoredList) {
        entries.merge(other.entries) { _, new in new }
        isDamaged = isDamaged || other.isDamaged
    }
}

/// Collects the replies to commands that were sent together.
private final class Gathering<Value> {
    private var values: [Int: Value] = [:]
    private let count: Int
    private var done: ((Result<[Value], RedisError>) -> Void)?

    init(count: Int, _ done: @escaping (Result<[Value], RedisError>) -> Void) {
        self.count = count
        self.done = done
    }

    func take(_ index: Int, _ result: Result<Value, RedisError>) {
        switch result {
        case .failure(let error):
            done?(.failure(error))
            done = nil
        case .success(let value):
            values[index] = value
            guard values.count == count else { return }
            done?(.success((0..<count).compactMap { values[$0] }))
            done = nil
        }
    }
}

/// Carries users out of a walk.
private final class UserSet {
    var users: Set<IndexState.UserKey> = []
    /// What kept a key from being looked at: what lies there is not known.
    var failure: RedisError?

    func note(_ reply: Result<RedisReply, RedisError>) {
        if case .failure(let error) = reply { failure = failure ?? error }
    }
}
