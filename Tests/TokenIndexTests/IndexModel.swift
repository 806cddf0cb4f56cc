// What the index must show after a history, computed in the plainest way: from the whole history
// at once, with no state carried from record to record but what the rules speak of.

import Base
import Testing
import TokenIndex

/// A record of a history: which topic and partition it is in follows from its key.
struct HistoryRecord {
    var change: IndexChange
    var position: TopicPosition
}

struct IndexModel {
    private struct Address {
        var id: AddressID
        var current: DeviceAddress?
        var newestTime: Int64
        var newestUser: String?
        var hasBeenAccepted = false
    }

    private var listed: [String: [String]] = [:]

    init(_ history: [HistoryRecord]) {
        var addresses: [AddressID: Address] = [:]
        var claims: [String: [(Int64, AddressID)]] = [:]
        for record in history {
            guard case .registration(let registration) = record.change else { continue }
            let id = registration.addressID
            var address = addresses[id] ?? Address(id: id, newestTime: .min)
            switch registration {
            case .gone: address.current = nil
            case .registered(let upload):
                if let current = address.current, upload.version < current.version { break }
                address.current = upload
                address.newestTime = max(address.newestTime, record.position.timestamp)
                address.newestUser = upload.userID
                address.hasBeenAccepted = true
                claims[Self.slot(upload), default: []].append((upload.registeredAt.value, id))
            }
            addresses[id] = address
        }
        for address in addresses.values {
            guard let current = address.current else { continue }
            let owner =
                addresses.values
                .filter { $0.id.installID == address.id.installID && $0.hasBeenAccepted }
                .max { ($0.newestTime, $0.id) < ($1.newestTime, $1.id) }?.newestUser
            let holder = claims[Self.slot(current)]?.max { $0 < $1 }?.1
            guard let owner, holder == address.id, !Self.isBlocked(current, history) else {
                continue
            }
            listed[owner, default: []].append(address.id.text)
        }
    }

    func ids(_ userID: String) -> [String] { (listed[userID] ?? []).sorted() }

    private static func slot(_ address: DeviceAddress) -> String {
        "\(address.gateway) \(address.environment) \(address.token)"
    }

    /// By what the records say, in whichever order they stand.
    private static func isBlocked(_ address: DeviceAddress, _ history: [HistoryRecord]) -> Bool {
        let verdicts = history.compactMap { record -> InvalidationRecord? in
            guard case .invalidation(let verdict) = record.change,
                verdict.addressID == address.id,
                verdict.tokenHash == nil || verdict.tokenHash == address.tokenHash
            else { return nil }
            return verdict
        }
        return verdicts.contains { verdict in
            guard verdict.verdict != .release, address.registeredAt <= verdict.asOf else {
                return false
            }
            guard verdict.verdict == .quarantine else { return true }
            return !verdicts.contains {
                $0.verdict == .release && $0.fuseID == verdict.fuseID
                    && $0.tokenHash == verdict.tokenHash
            }
        }
    }
}

/// Histories drawn from a seed: few installs, tokens and users, so that they get in each other's
/// way.
struct HistoryMaker {
    static let users = ["u1", "u2", "u3"]
    static let partitions: [IndexTopicPartition] = [
        IndexTopicPartition(.devices, 0), IndexTopicPartition(.devices, 1),
        IndexTopicPartition(.invalidations, 0),
    ]
    private static let keys: [(install: String, kind: String, partition: Int32)] = [
        ("a", "alert", 0), ("a", "voip", 1), ("b", "alert", 1), ("b", "voip", 0),
        ("c", "alert", 0),
    ]
    private var offsets: [IndexTopicPartition: Int64] = [:]

    /// The records in the order they were produced.
    static func make(_ count: Int, _ random: inout SeededRandom) -> [HistoryRecord] {
        var maker = HistoryMaker()
        return (0..<count).map { maker.record(time: Int64($0), &random) }
    }

    private mutating func record(
        time: Int64, _ random: inout SeededRandom
    ) -> HistoryRecord {
        let key = Self.keys[Int.random(in: 0..<Self.keys.count, using: &random)]
        let token = ["T1", "T2"][Int.random(in: 0..<2, using: &random)]
        let moment = Int64.random(in: 0..<12, using: &random)
        let change: IndexChange
        switch Int.random(in: 0..<10, using: &random) {
        case 0: change = gone(key.install, kind: key.kind)
        case 1, 2:
            let kinds: [TokenVerdict] = [
                .invalidate, .suspend, .forget, .quarantine, .quarantine, .release, .release,
            ]
            let kind = kinds[Int.random(in: 0..<kinds.count, using: &random)]
            let named = Int.random(in: 0..<3, using: &random) > 0 ? token : nil
            let fuse = ["F1", "F2"][Int.random(in: 0..<2, using: &random)]
            change =
                kind == .quarantine || kind == .release
                ? held(kind, key.install, token: named, asOf: moment, fuse, kind: key.kind)
                : verdict(kind, key.install, token: named, asOf: moment, kind: key.kind)
        default:
            let user = Int.random(in: 0...Self.users.count, using: &random)
            change = upload(
                key.install, user < Self.users.count ? Self.users[user] : nil, token: token,
                at: moment, version: Int64.random(in: 1...4, using: &random), kind: key.kind)
        }
        let place =
            if case .invalidation = change { Self.partitions[2] } else {
                IndexTopicPartition(.devices, key.partition)
            }
        let offset = offsets[place, default: 0]
        offsets[place] = offset + Int64.random(in: 1...3, using: &random)
        // Producers' clocks are not exact: some records share a moment.
        let position = TopicPosition(
            partition: place.partition, offset: offset, timestamp: 1_000 + time / 2)
        return HistoryRecord(change: change, position: position)
    }

    /// What is read in order: a partition, or with several builders and changes that overtake
    /// each other only a key.
    enum Order: CaseIterable {
        case partition, key
    }

    /// The order in which an index might see a history: partitions or keys mixed at random, each
    /// in order, with replays of a partition from any earlier offset in between.
    static func arrivals(
        _ history: [HistoryRecord], keeping order: Order = .partition,
        _ random: inout SeededRandom
    ) -> [HistoryRecord] {
        let queues =
            order == .partition
            ? partitions.map { partition in history.filter { partition == self.partition(of: $0) } }
            : queuesByKey(history)
        var cursors = queues.map { _ in 0 }
        var seen: [HistoryRecord] = []
        while true {
            let open = queues.indices.filter { cursors[$0] < queues[$0].count }
            guard !open.isEmpty else { return seen }
            let queue = open[Int.random(in: 0..<open.count, using: &random)]
            let record = queues[queue][cursors[queue]]
            seen.append(record)
            cursors[queue] += 1
            guard Int.random(in: 0..<12, using: &random) == 0 else { continue }
            let offset = Int64.random(in: 0...record.position.offset, using: &random)
            for other in queues.indices {
                guard queues[other].first.map(partition(of:)) == partition(of: record) else {
                    continue
                }
                let start = queues[other].firstIndex { $0.position.offset >= offset }
                cursors[other] = min(cursors[other], start ?? cursors[other])
            }
        }
    }

    /// The records of each key of each topic.
    private static func queuesByKey(_ history: [HistoryRecord]) -> [[HistoryRecord]] {
        var keys: [String] = []
        var queues: [String: [HistoryRecord]] = [:]
        for record in history {
            let place = partition(of: record)
            let key = "\(place.topic) \(record.change.key)"
            if queues[key] == nil { keys.append(key) }
            queues[key, default: []].append(record)
        }
        return keys.compactMap { queues[$0] }
    }

    /// Every order in which a history can arrive that keeps the order inside each key.
    static func allArrivals(_ history: [HistoryRecord]) -> [[HistoryRecord]] {
        merges(queuesByKey(history).map { $0[...] })
    }

    private static func merges(_ queues: [ArraySlice<HistoryRecord>]) -> [[HistoryRecord]] {
        guard queues.contains(where: { !$0.isEmpty }) else { return [[]] }
        return queues.indices.flatMap { queue -> [[HistoryRecord]] in
            guard let first = queues[queue].first else { return [] }
            var rest = queues
            rest[queue].removeFirst()
            return merges(rest).map { [first] + $0 }
        }
    }

    static func partition(of record: HistoryRecord) -> IndexTopicPartition {
        if case .invalidation = record.change {
            return IndexTopicPartition(.invalidations, record.position.partition)
        }
        return IndexTopicPartition(.devices, record.position.partition)
    }
}
