// The fuses of the index in memory, and the rule of all of them. Pure; `FuseScripts` is the same
// in Redis.

internal import Base

/// All fuses of a store.
internal struct FuseBook {
    private struct Fuse {
        /// Answers by minute since the epoch.
        var answers: [Int64: Int] = [:]
        /// The addresses judged, with the time of their record.
        var tokens: [AddressID: Int64] = [:]
        var tripped: (id: String, since: UnixMillis, reason: String)?
    }

    /// What a counted verdict leads to.
    enum Tally: Equatable {
        /// It takes effect.
        case pass
        /// It takes effect for now. Too many are of its kind, but not all of them weigh yet: the fuse
        /// is to be weighed again.
        case young
        /// The fuse has tripped before.
        case tripped(String)
        /// The fuse trips now; with it the addresses judged before.
        case trips(String, [AddressID])
    }

    private struct Churn: Hashable {
        var app: String
        var gateway: Gateway
        var environment: GatewayEnvironment

        init(_ app: String, _ gateway: Gateway, _ environment: GatewayEnvironment) {
            self.app = app
            self.gateway = gateway
            self.environment = environment
        }
    }

    private var fuses: [FuseName: Fuse] = [:]
    /// The last fuse of each name that an operator settled, and how.
    private var settlements: [FuseName: (fuseID: String, settlement: FuseSettlement)] = [:]
    private var churn: [Churn: ChurnHistory] = [:]

    mutating func count(answers: Int, for name: FuseName, at now: UnixMillis) {
        let minute = now.value / 60_000
        fuses[name, default: Fuse()].answers[minute, default: 0] += answers
        let key = Churn(name.app, name.gateway, name.environment)
        churn[key, default: ChurnHistory()].count(answers: answers, at: now)
    }

    /// Counts a verdict; nil only weighs those that are counted.
    mutating func tally(
        _ id: AddressID?, _ name: FuseName, reason: String, at time: Int64, now: UnixMillis,
        _ policy: FusePolicy
    ) -> Tally {
        var fuse = fuses[name] ?? Fuse()
        defer { fuses[name] = fuse }
        let start = now.value - policy.window.millis
        if let tripped = fuse.tripped {
            // What is older than the surge is read again, not part of it.
            guard time >= tripped.since.value - policy.window.millis else { return .pass }
            if let id { fuse.tokens[id] = time }
            return .tripped(tripped.id)
        }
        guard time >= start else { return .pass }
        if let id { fuse.tokens[id] = time }
        fuse.tokens = fuse.tokens.filter { $0.value >= start }
        fuse.answers = fuse.answers.filter { ($0.key + 1) * 60_000 > start }
        let answers = fuse.answers.values.reduce(0, +)
        guard policy.trips(tokens: fuse.tokens.count, answers: answers) else { return .pass }
        let end = now.value - FusePolicy.weighedAfter.millis
        let weighed = fuse.tokens.values.count { $0 <= end }
        guard policy.trips(tokens: weighed, answers: answers) else { return .young }
        let fuseID = name.id(at: now)
        fuse.tripped = (fuseID, now, reason)
        return .trips(fuseID, fuse.tokens.keys.filter { $0 != id }.sorted())
    }

    /// Takes in what the topic says a fuse holds: after a loss it is all that is left of it. Which
    /// record is read first is a matter of chance, so it decides nothing: of a fuse the earliest
    /// one says since when and why, and of two fuses of a name the later one goes on.
    ///
    /// Whoever holds verdicts back hears of a settlement a moment late: once everything is read,
    /// what comes for a fuse that is settled is not taken in, and the answer says how it was.
    mutating func adopt(
        _ id: AddressID, _ name: FuseName, fuseID: String, reason: String, at time: Int64,
        isReadingBack: Bool
    ) -> FuseSettlement? {
        if !isReadingBack, let last = settlements[name], !Self.isLater(fuseID, last.fuseID) {
            return last.settlement
        }
        var fuse = fuses[name] ?? Fuse()
        fuse.tokens[id] = time
        let told = (id: fuseID, since: UnixMillis(time), reason: reason)
        if let tripped = fuse.tripped {
            let isEarlier = tripped.id == fuseID && told.since < tripped.since
            if isEarlier || Self.isLater(fuseID, tripped.id) { fuse.tripped = told }
        } else {
            fuse.tripped = told
        }
        fuses[name] = fuse
        return nil
    }

    /// The ids of a name differ in the moment that they end with.
    private static func isLater(_ id: String, _ other: String) -> Bool {
        let (id, other) = (id.utf8, other.utf8)
        return id.count == other.count
            ? other.lexicographicallyPrecedes(id) : id.count > other.count
    }

    /// An address is not held any more; the last one makes the fuse whole again. `settlement` is
    /// what is remembered of it then.
    mutating func settled(_ id: AddressID, _ name: FuseName, _ settlement: FuseSettlement?) {
        guard let tripped = fuses[name]?.tripped else { return }
        fuses[name]?.tokens[id] = nil
        guard fuses[name]?.tokens.isEmpty ?? false else { return }
        fuses[name] = nil
        if let settlement { settlements[name] = (tripped.id, settlement) }
    }

    /// An address is forgotten: it counts for no fuse, and none holds it.
    mutating func forgotten(_ id: AddressID) {
        for (name, fuse) in fuses where fuse.tokens[id] != nil {
            fuses[name]?.tokens[id] = nil
            if fuse.tripped != nil, fuse.tokens.count == 1 { fuses[name] = nil }
        }
    }

    var tripped: [TrippedFuse] {
        fuses.compactMap { name, fuse in
            fuse.tripped.map {
                TrippedFuse(
                    id: $0.id, name: name, since: $0.since, reason: $0.reason,
                    held: fuse.tokens.count)
            }
        }.sorted { $0.id < $1.id }
    }

    func held(by name: FuseName) -> [AddressID] {
        (fuses[name]?.tokens.keys.map { $0 } ?? []).sorted()
    }

    /// Counts a token that died in the ordinary way; an alarm at most once an hour.
    mutating func churned(_ record: InvalidationRecord, now: UnixMillis) -> ChurnAlarm? {
        guard let gateway = record.gateway, let environment = record.environment else { return nil }
        let key = Churn(record.addressID.app, gateway, environment)
        let dead = churn[key, default: ChurnHistory()].died(at: now)
        return dead.map {
            ChurnAlarm(app: key.app, gateway: gateway, environment: environment, dead: $0)
        }
    }
}

/// Answers and dead tokens by the hour, seven days of them.
internal struct ChurnHistory {
    private var answers: [Int64: Int] = [:]
    private var dead: [Int64: Int] = [:]
    private var alarmedAt = Int64.min

    static let hours: Int64 = 168
    /// With less history nothing is said.
    static let hoursMin = 24
    static let deadMin = 50
    /// How many times the mean share of dead tokens is unusual.
    static let factor = 3

    mutating func count(answers count: Int, at now: UnixMillis) {
        answers[now.value / 3_600_000, default: 0] += count
    }

    /// The number within the hour when it is worth an alarm.
    mutating func died(at now: UnixMillis) -> Int? {
        let hour = now.value / 3_600_000
        dead[hour, default: 0] += 1
        guard let count = dead[hour], count >= Self.deadMin, count % 10 == 0, alarmedAt != hour
        else { return nil }
        answers = answers.filter { $0.key >= hour - Self.hours }
        dead = dead.filter { $0.key >= hour - Self.hours }
        let past = answers.filter { $0.key < hour }
        guard past.count >= Self.hoursMin else { return nil }
        let pastAnswers = past.values.reduce(0, +)
        let pastDead = dead.filter { $0.key < hour }.values.reduce(0, +)
        guard count * pastAnswers > Self.factor * pastDead * max(answers[hour] ?? 0, count)
        else { return nil }
        alarmedAt = hour
        return count
    }
}
