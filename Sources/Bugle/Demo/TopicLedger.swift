// Reads the topics of a finished run, as anybody could, and hands what stands there to the check.

internal import Base
internal import Config
internal import JSON
internal import Kafka

/// Reads events, results and dead letters from their beginning.
internal struct TopicLedger {
    let kafka: KafkaConfiguration
    let topics: Configuration.Topics

    private static let deadline = TimeSpan.seconds(30)

    /// What was published, by its place: events with the targets that `scenario` expects.
    func published(_ scenario: DemoScenario) throws(Failure) -> [LedgerPlace: Published] {
        let parser = JSONParser()
        var published: [LedgerPlace: Published] = [:]
        try read(topics.events.map(\.name)) { record in
            let place = LedgerPlace(record)
            guard record.withHeader(DemoRecord.poisonHeader, { _ in true }) == nil else {
                published[place] = .poison
                return
            }
            let event = record.value.flatMap { try? parser.parse($0) }
            let user = event?["user_id"]?.string ?? event?["userid"]?.string ?? ""
            let targets = scenario.targets(of: user)
            published[place] = .event(
                id: event?["id"]?.string ?? place.eventID, required: targets.required,
                possible: targets.possible,
                collapse: event?["collapse_key"]?.string.map { "\(user) \($0)" })
        }
        return published
    }

    /// Adds up results and dead letters.
    func collect(into check: inout LedgerCheck) throws(Failure) {
        let parser = JSONParser()
        var results: [RecordedResult] = []
        try read([topics.results]) { record in
            guard let value = record.value, let result = try? parser.parse(value) else { return }
            results.append(RecordedResult(result))
        }
        for result in results { check.add(result) }
        var letters: [LedgerPlace] = []
        try read([topics.deadLetters]) { record in
            letters.append(
                LedgerPlace(
                    topic: record.text("bugle-original-topic") ?? "",
                    partition: record.text("bugle-original-partition").flatMap(Int32.init) ?? -1,
                    offset: record.text("bugle-original-offset").flatMap(Int64.init) ?? -1))
        }
        for place in letters { check.addDeadLetter(of: place) }
    }

    private func read(
        _ names: [String], _ body: (borrowing KafkaRecord) -> Void
    ) throws(Failure) {
        let isRead: Bool
        do throws(KafkaError) {
            let reader = try TopicReader(kafka, topics: names, from: .beginning)
            let deadline = SystemTime.shared.monotonic + Self.deadline
            isRead = reader.readToEnd(deadline: deadline, body)
        } catch {
            throw .failed("the ledger cannot be read: \(error)")
        }
        guard isRead else {
            let names = names.joined(separator: ", ")
            throw .failed("the ledger cannot be read: no end of \(names) within the deadline")
        }
    }
}

extension KafkaRecord {
    /// A header as text.
    fileprivate borrowing func text(_ name: StaticString) -> String? {
        withHeader(name) { String(decoding: $0, as: UTF8.self) }
    }
}

extension LedgerPlace {
    fileprivate init(_ record: borrowing KafkaRecord) {
        self.init(topic: record.topic, partition: record.partition, offset: record.offset)
    }

    /// `folded_into` of a result.
    fileprivate init?(_ place: JSONValue) {
        guard let topic = place["topic"]?.string,
            let partition = place["partition"]?.int64.flatMap({ Int32(exactly: $0) }),
            let offset = place["offset"]?.int64
        else { return nil }
        self.init(topic: topic, partition: partition, offset: offset)
    }

    /// The id of an event that states none.
    fileprivate var eventID: String { "\(topic)-\(partition)-\(offset)" }
}

extension RecordedResult {
    fileprivate init(_ result: JSONValue) {
        self.init(
            place: LedgerPlace(
                topic: result["input_topic"]?.string ?? "",
                partition: Int32(clamping: result["input_partition"]?.int64 ?? -1),
                offset: result["input_offset"]?.int64 ?? -1),
            resultID: result["result_id"]?.string ?? "",
            messageID: result["message_id"]?.string, eventID: result["event_id"]?.string ?? "",
            installID: result["install_id"]?.string, gateway: result["gateway"]?.string ?? "",
            outcome: result["outcome"]?.string ?? "",
            targets: Int(result["targets"]?.int64 ?? 0),
            foldedInto: result["folded_into"].flatMap { LedgerPlace($0) })
    }
}
