// The ledger's balance, found out from the records alone: every event has exactly one outcome for
// each of its targets, every poison record a dead letter, and the gateways have seen what the
// results claim. Pure, and apart from everything that dispatches.

internal import Base

/// Where a record stands.
internal struct LedgerPlace: Hashable {
    var topic: String
    var partition: Int32
    var offset: Int64
}

/// What was published.
internal enum Published {
    /// An event, with the installs that must get it and those that may: an install whose token
    /// dies is a target until the gateway has said so. Of events with the same `collapse` (user and
    /// key) only the newest has to get there.
    case event(
        id: String, required: Set<String>, possible: Set<String>, collapse: String? = nil)
    /// A record that cannot become a push.
    case poison
}

/// A record of the results topic, as far as the balance needs it.
internal struct RecordedResult {
    var place: LedgerPlace
    var resultID: String
    var messageID: String?
    var eventID: String
    /// nil for an event-level result.
    var installID: String?
    var gateway: String
    var outcome: String
    var targets: Int
    /// The event that was sent for this one.
    var foldedInto: LedgerPlace?
}

/// What a check found.
internal struct LedgerReport: Equatable {
    /// Events published.
    var events = 0
    /// Results, each counted once.
    var targets = 0
    /// Outcomes per gateway; event-level ones under `-`.
    var outcomes: [String: [String: Int]] = [:]
    /// Dead letters, each record counted once.
    var deadLetters = 0
    /// Results that were written more than once.
    var repeated = 0
    /// Messages that a gateway took more than once.
    var sentTwice = 0
    /// What is missing or does not fit, one line each.
    var missing: [String] = []

    /// Whether nothing is missing.
    var isBalanced: Bool { missing.isEmpty }
}

/// Adds up records and compares them with what was published.
internal struct LedgerCheck {
    /// Results of each place, by their id.
    private var results: [LedgerPlace: [String: RecordedResult]] = [:]
    private var letters: Set<LedgerPlace> = []
    private var report = LedgerReport()

    init() {}

    /// Takes a result in.
    mutating func add(_ result: RecordedResult) {
        if let known = results[result.place]?[result.resultID] {
            report.repeated += 1
            if known.outcome != result.outcome || known.installID != result.installID {
                report.missing.append(
                    "\(name(result)): two outcomes, \(known.outcome) and \(result.outcome)")
            }
            return
        }
        results[result.place, default: [:]][result.resultID] = result
        let gateway = result.gateway.isEmpty ? "-" : result.gateway
        report.outcomes[gateway, default: [:]][result.outcome, default: 0] += 1
        report.targets += 1
    }

    /// Takes a dead letter in, by the place of the record it came from.
    mutating func addDeadLetter(of place: LedgerPlace) {
        if letters.insert(place).inserted {
            report.deadLetters += 1
        } else {
            report.repeated += 1
        }
    }

    /// Compares with what was published and with the messages that the gateways took.
    consuming func finish(
        published: [LedgerPlace: Published], wanted: Int, takenMessages: [String: Int]?
    ) -> LedgerReport {
        for (place, record) in published {
            switch record {
            case .event(let id, let required, let possible, let collapse):
                report.events += 1
                checkEvent(id, place, required, possible)
                checkFolded(id, place, collapse, published)
            case .poison:
                if !letters.contains(place) {
                    report.missing.append(
                        "\(Self.name(place)): a poison record without dead letter")
                }
            }
        }
        if report.events != wanted {
            report.missing.append("\(report.events) events are in the topic, published \(wanted)")
        }
        checkStrangers(published)
        if let takenMessages { checkGateways(takenMessages) }
        report.missing.sort()
        return report
    }

    private mutating func checkEvent(
        _ id: String, _ place: LedgerPlace, _ required: Set<String>, _ possible: Set<String>
    ) {
        let found = results[place].map { Array($0.values) } ?? []
        guard let first = found.first else {
            report.missing.append("\(id): no outcome")
            return
        }
        let installs = Set(found.compactMap(\.installID))
        for install in required.subtracting(installs).sorted() {
            report.missing.append("\(id): no outcome for \(install)")
        }
        for install in installs.subtracting(possible).sorted() {
            report.missing.append("\(id): sent to \(install), which is not its user's")
        }
        if found.count != max(installs.count, 1) {
            report.missing.append("\(id): \(found.count) outcomes for \(installs.count) targets")
        }
        if found.contains(where: { $0.targets != found.count }) {
            report.missing.append(
                "\(id): has \(found.count) outcomes, \(first.targets) are claimed")
        }
        for result in found {
            if result.eventID != id {
                report.missing.append("\(id): a result names the event \(result.eventID)")
            }
            if let install = result.installID, required.contains(install),
                result.outcome != Outcome.accepted.rawValue,
                result.outcome != Outcome.coalesced.rawValue
            {
                report.missing.append("\(id): \(result.outcome) for \(install), expected accepted")
            }
        }
    }

    /// What another event was sent for: a newer one of the same user and key, to the same install.
    private mutating func checkFolded(
        _ id: String, _ place: LedgerPlace, _ collapse: String?,
        _ published: [LedgerPlace: Published]
    ) {
        for result in (results[place] ?? [:]).values
        where result.outcome == Outcome.coalesced.rawValue {
            let name = name(result)
            guard let newer = result.foldedInto else {
                report.missing.append("\(name): coalesced, but into nothing")
                continue
            }
            guard let collapse, case .event(_, _, _, collapse) = published[newer] else {
                report.missing.append("\(name): coalesced into an event of another key")
                continue
            }
            if newer.topic == place.topic, newer.partition == place.partition,
                newer.offset <= place.offset
            {
                report.missing.append("\(name): coalesced into an older event")
            }
            if results[newer]?.values.contains(where: { $0.installID == result.installID }) != true
            {
                report.missing.append("\(name): coalesced into an event that went elsewhere")
            }
        }
    }

    /// Results and letters of records that nobody published, and letters of good events.
    private mutating func checkStrangers(_ published: [LedgerPlace: Published]) {
        for (place, found) in results {
            if case .event = published[place] { continue }
            // A poison record whose user can be read has a result that says so.
            let isDeadLetter = found.values.allSatisfy {
                $0.outcome == Outcome.deadLettered.rawValue
            }
            if published[place] == nil || !isDeadLetter {
                report.missing.append("\(Self.name(place)): results without an event")
            }
        }
        for place in letters {
            if case .poison = published[place] { continue }
            report.missing.append("\(Self.name(place)): a dead letter of a good event")
        }
    }

    /// What was accepted was received, and what was received has a result.
    private mutating func checkGateways(_ taken: [String: Int]) {
        var claimed: Set<String> = []
        for result in results.values.flatMap(\.values) {
            guard let message = result.messageID else { continue }
            claimed.insert(message)
            if result.outcome == Outcome.accepted.rawValue && taken[message] == nil {
                report.missing.append("\(name(result)): accepted, but no gateway received it")
            }
        }
        for (message, count) in taken {
            if !claimed.contains(message) {
                report.missing.append("message \(message): received by a gateway, without result")
            }
            if count > 1 { report.sentTwice += 1 }
        }
    }

    private func name(_ result: RecordedResult) -> String {
        "\(result.eventID) for \(result.installID ?? "nobody")"
    }

    private static func name(_ place: LedgerPlace) -> String {
        "\(place.topic)[\(place.partition)]@\(place.offset)"
    }
}
