// A member of a group as the dispatcher has it, small: a handler that hands partitions to one lane,
// and that lane, which turns every record into a result through the committer.

import Base
import EventLoop
import Glibc
import Kafka
import Synchronization

/// What the group thread said, in order; waiting for it needs no sleep.
final class GroupEvents: AssignmentHandler {
    enum Event: Sendable {
        case assigned([PartitionAssignment])
        case revoked([PartitionAssignment], RevokeTicket)
        case lost([PartitionAssignment])
    }

    private struct State: Sendable {
        var events: [Event] = []
        var errors: [KafkaError] = []
    }

    private let state = Mutex(State())
    private let arrival = Semaphore()

    func assigned(_ partitions: [PartitionAssignment]) { add(.assigned(partitions)) }
    func revoked(_ partitions: [PartitionAssignment], ticket: RevokeTicket) {
        add(.revoked(partitions, ticket))
    }
    func lost(_ partitions: [PartitionAssignment]) { add(.lost(partitions)) }
    func groupError(_ error: KafkaError) { state.withLock { $0.errors.append(error) } }

    private func add(_ event: Event) {
        state.withLock { $0.events.append(event) }
        arrival.signal()
    }

    func next(within span: TimeSpan) -> Event? {
        guard arrival.wait(upTo: span) else { return nil }
        return state.withLock { $0.events.removeFirst() }
    }

    var errors: [KafkaError] { state.withLock { $0.errors } }
}

/// Consumer, committer, group thread and one lane, the latter driven by the test's own thread.
final class TestMember {
    private final class Owned {
        let assignment: PartitionAssignment
        var ledger = PartitionLedger()
        init(_ assignment: PartitionAssignment) { self.assignment = assignment }
    }

    private struct Held {
        var owned: Owned
        var offset: Int64
        var key: [UInt8]
    }

    let events = GroupEvents()
    /// What the committer reported.
    let reports = Reports()
    let consumer: Consumer
    let committer: Committer
    private let group: GroupThread
    private let results: OutputTopic
    private var owned: [TopicPartition: Owned] = [:]
    private var held: [Held] = []

    /// While true, records are begun and not finished.
    var holds = false
    /// Records begun so far, as `partition/offset`, with repetitions.
    private(set) var seen: [String] = []
    /// Records that an earlier assignment had finished, in the same form.
    private(set) var skipped: [String] = []
    /// Where partitions ended when their end was reached last.
    private(set) var ends: [TopicPartition: Int64] = [:]
    /// Records at which their partition was numbered anew, in the same form.
    private(set) var restarts: [String] = []
    private(set) var lostCount = 0
    /// Finish tickets as soon as the lane has posted what it has.
    var answersTickets = true

    static let input = "events"
    static let output = "results"

    /// The broker in process settles a rebalance after the session timeout, less a second; others
    /// refuse less than six seconds.
    static func groupSettings(
        _ id: String, sessionTimeout: TimeSpan = .seconds(4)
    ) -> GroupConfiguration {
        var settings = GroupConfiguration(groupID: id)
        settings.sessionTimeout = sessionTimeout
        settings.heartbeatInterval = .milliseconds(300)
        settings.maxPollInterval = .seconds(60)
        settings.fetchWait = .milliseconds(10)
        settings.drainDeadline = .seconds(10)
        return settings
    }

    init(
        _ configuration: KafkaConfiguration, group settings: GroupConfiguration,
        committer committerSettings: CommitterConfiguration = .init(topics: [TestMember.output])
    ) throws {
        var committerSettings = committerSettings
        committerSettings.commitInterval = .milliseconds(20)
        committerSettings.onEvent = { [reports] event in reports.add(event) }
        consumer = try Consumer(configuration, group: settings)
        committer = try Committer(configuration, committerSettings)
        guard let topic = committer.topic(Self.output) else { throw KafkaTestError.noTopic }
        results = topic
        group = try GroupThread(
            consumer, topics: [Self.input], handler: events, committer: committer)
    }

    var partitions: [TopicPartition] { owned.keys.sorted() }
    var heldCount: Int { held.count }
    func assignment(of place: TopicPartition) -> PartitionAssignment? { owned[place]?.assignment }
    func dropHeld() { held = [] }

    /// One turn of the lane: waits up to `span` for news of the group, then reads and finishes
    /// what is there. Returns the number of records begun.
    @discardableResult
    func turn(waiting span: TimeSpan = .milliseconds(5)) -> Int {
        while let event = events.next(within: owned.isEmpty ? span : .zero) { take(event) }
        var count = 0
        var batch = committer.makeBatch()
        for owned in owned.values {
            count += owned.assignment.queue.consume(max: 1_000) { record in
                if !owned.ledger.begin(record.offset) {
                    restarts.append("\(record.partition)/\(record.offset)")
                    committer.post(batch)
                    batch = committer.makeBatch()
                    batch.restart(owned.assignment.epoch, at: record.offset)
                    owned.ledger = PartitionLedger()
                    _ = owned.ledger.begin(record.offset)
                }
                if owned.assignment.finished.contains(record.offset) {
                    skipped.append("\(record.partition)/\(record.offset)")
                    batch.completeEvent(
                        epoch: owned.assignment.epoch, owned.ledger.complete(record.offset))
                    return
                }
                seen.append("\(record.partition)/\(record.offset)")
                let key = record.key.map { Array($0) } ?? []
                if holds {
                    held.append(Held(owned: owned, offset: record.offset, key: key))
                } else {
                    finish(record.offset, key, owned, in: batch)
                }
            }
        }
        if !batch.isEmpty { committer.post(batch) }
        if count == 0, let event = events.next(within: span) { take(event) }
        return count
    }

    /// Turns until `condition` holds; false when it did not in time.
    func turn(until limit: TimeSpan = .seconds(40), _ condition: () throws -> Bool) rethrows -> Bool
    {
        let deadline = SystemTime.shared.monotonic + limit
        while try !condition() {
            if SystemTime.shared.monotonic > deadline { return false }
            turn()
        }
        return true
    }

    /// Finishes held records; those for which `chosen` is false stay held.
    func release(where chosen: (Int64) -> Bool = { _ in true }) {
        finishHeld { chosen($0.offset) }
    }

    private func finishHeld(_ isChosen: (Held) -> Bool) {
        let batch = committer.makeBatch()
        for item in held where isChosen(item) {
            finish(item.offset, item.key, item.owned, in: batch)
        }
        held.removeAll(where: isChosen)
        committer.post(batch)
    }

    @discardableResult
    func stop(within span: TimeSpan = .seconds(15)) -> Bool {
        let deadline = SystemTime.shared.monotonic + span
        let stopper = GroupStop(group, deadline: deadline)
        while !stopper.isDone {
            if let event = events.next(within: .milliseconds(10)) { take(event) }
        }
        return stopper.wasClean && committer.stop(deadline: deadline)
    }

    private func take(_ event: GroupEvents.Event) {
        switch event {
        case .assigned(let partitions):
            for partition in partitions {
                owned[partition.place] = Owned(partition)
                partition.queue.onFault = { [unowned self] fault in
                    guard case .endOfPartition(let offset) = fault else { return }
                    ends[partition.place] = offset
                }
            }
        case .revoked(let partitions, let ticket):
            for partition in partitions { owned[partition.place] = nil }
            if answersTickets {
                let leaving = Set(partitions.map(\.epoch))
                finishHeld { leaving.contains($0.owned.assignment.epoch) }
                ticket.finish()
            }
        case .lost(let partitions):
            lostCount += partitions.count
            for partition in partitions {
                owned[partition.place] = nil
                held.removeAll { $0.owned.assignment.epoch == partition.epoch }
            }
        }
    }

    private func finish(_ offset: Int64, _ key: [UInt8], _ owned: Owned, in batch: OutboxBatch) {
        let key = batch.bytes { $0.append(key) }
        let value = batch.bytes {
            $0.append(decimal: Int64(owned.assignment.place.partition))
            $0.append("/")
            $0.append(decimal: offset)
        }
        batch.addRecord(to: results, key: key, value: value)
        batch.completeEvent(
            epoch: owned.assignment.epoch, owned.ledger.complete(offset))
    }
}

final class Reports: Sendable {
    private let events = Mutex<[CommitterEvent]>([])
    func add(_ event: CommitterEvent) { events.withLock { $0.append(event) } }
    var all: [CommitterEvent] { events.withLock { $0 } }
    var commitErrors: [KafkaError] {
        events.withLock { events in
            events.compactMap { if case .commitFailed(let error, _) = $0 { error } else { nil } }
        }
    }
}

enum KafkaTestError: Error { case noTopic, noBroker }

/// Stops a group from another thread, while the lane goes on answering.
private final class GroupStop: Sendable {
    private let outcome = Mutex<Bool?>(nil)

    init(_ group: GroupThread, deadline: MonotonicTime) {
        Thread.start { [self] in
            let clean = group.stop(deadline: deadline)
            outcome.withLock { $0 = clean }
        }
    }

    var isDone: Bool { outcome.withLock { $0 != nil } }
    var wasClean: Bool { outcome.withLock { $0 ?? false } }
}

/// A plain thread for what blocks.
enum Thread {
    private final class Body {
        let run: () -> Void
        init(_ run: @escaping () -> Void) { self.run = run }
    }

    static func start(_ run: @escaping @Sendable () -> Void) {
        var thread = pthread_t()
        let body = Unmanaged.passRetained(Body(run)).toOpaque()
        pthread_create(
            &thread, nil,
            { opaque in
                guard let opaque else { return nil }
                Unmanaged<Body>.fromOpaque(opaque).takeRetainedValue().run()
                return nil
            }, body)
        pthread_detach(thread)
    }
}
