// Receipts: a quarter of an hour after a message Expo tells what APNs or FCM made of it. What a
// receipt is asked for by, the ticket, waits in a topic of its own that works like the retry
// topics: written in the transaction of the message's result, due by its timestamp, complete when
// the receipt's record is written. So no ticket is lost and none is asked for twice, whatever
// crashes, and replicas share the work as they share the partitions.

internal import Base
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import JSON
internal import Kafka
internal import Telemetry
internal import TokenIndex

/// The tickets of one app on one lane that are due. Loop-confined.
internal final class ExpoReceipts {
    /// The gateway that asks; it owns this.
    unowned(unsafe) var gateway: ExpoGateway?
    private let loop: EventLoop
    private var due: [EventInFlight] = []
    private var asked: [UInt64: [EventInFlight]] = [:]
    private var failures: Int64 = 0
    /// Tickets in one question: fewer when answers were longer than what is kept of one.
    private var questionMax = ExpoLimits.receiptsPerRequest
    private lazy var timer = LoopTimer { [unowned self] in ask() }
    private let outcomes: (ok: Counter, error: Counter, missing: Counter, lost: Counter)

    private enum Limits {
        /// Tickets that one lane has read and not finished.
        static let open = 600
        /// How long a ticket waits for others.
        static let gather = TimeSpan.milliseconds(500)
        /// The first and the longest wait after a question without an answer.
        static let failureWait = TimeSpan.seconds(5)
        static let failureWaitMax = TimeSpan.minutes(5)
    }

    init(app: String, loop: EventLoop, _ registry: MetricsRegistry) {
        self.loop = loop
        func counter(_ status: String) -> Counter {
            registry.counter(
                "bugle_expo_receipts_total",
                help: "Receipts of Expo; missing ones are asked for again, lost ones no more.",
                labels: [("app", app), ("status", status)])
        }
        outcomes = (counter("ok"), counter("error"), counter("missing"), counter("lost"))
    }

    func close() {
        loop.cancel(timer)
        due = []
        asked = [:]
    }

    /// Whether another ticket may be taken in.
    var hasRoom: Bool { due.count + asked.values.reduce(0) { $0 + $1.count } < Limits.open }

    /// Takes in a ticket that is due.
    func add(_ ticket: EventInFlight) {
        due.append(ticket)
        if due.count >= ExpoLimits.receiptsPerRequest, failures == 0 { return ask() }
        if !timer.isScheduled { loop.schedule(timer, at: loop.now + Limits.gather) }
    }

    /// Lets go of the tickets of partitions that leave.
    func abandon(_ partitions: [AssignedPartition]) {
        let leaves = { (ticket: EventInFlight) in
            partitions.contains { $0 === ticket.partition }
        }
        due.removeAll(where: leaves)
        for tag in asked.keys { asked[tag]?.removeAll(where: leaves) }
    }

    private func ask() {
        loop.cancel(timer)
        guard let gateway, !due.isEmpty else { return }
        let tickets = Array(due.prefix(questionMax))
        due.removeFirst(tickets.count)
        asked[gateway.ask(for: tickets.lazy.compactMap { $0.ticket?.id })] = tickets
        if !due.isEmpty { loop.schedule(timer, at: loop.now + Limits.gather) }
    }

    /// An answer to a question, or none.
    func answered(_ tag: UInt64, _ result: HTTPResult, _ lane: Lane) {
        guard let tickets = asked.removeValue(forKey: tag) else { return }
        var receipts: [String: ExpoReceipt]?
        if case .response(let response) = result {
            let answer = GatewayAnswer(
                status: response.status, body: response.body, now: loop.wall)
            let sentAt = Dictionary(
                tickets.compactMap { $0.ticket.map { ($0.id, $0.sentAt) } },
                uniquingKeysWith: { first, _ in first })
            receipts = ExpoVerdict.receipts(
                answer, sentAt: { sentAt[$0] ?? UnixMillis(0) }, parser: lane.answerParser)
            if response.isBodyTruncated { questionMax = max(questionMax / 2, 1) }
            if response.status == 401 || response.status == 403 {
                lane.alarms.receiptsRefused(status: response.status)
            }
        }
        guard let receipts else {
            // All of them are asked for again, later each time, as long as Expo has receipts.
            failures += 1
            due = tickets.filter { !giveUp($0, lane) } + due
            let wait = min(
                Limits.failureWait * (1 << min(failures - 1, 6)), Limits.failureWaitMax)
            loop.cancel(timer)
            return loop.schedule(timer, at: loop.now + wait)
        }
        failures = 0
        for event in tickets {
            guard let ticket = event.ticket else { continue }
            guard let receipt = receipts[ticket.id] else {
                if giveUp(event, lane) { continue }
                outcomes.missing.add(1)
                lane.putBackTicket(event)
                continue
            }
            (receipt.isOK ? outcomes.ok : outcomes.error).add(1)
            lane.settleTicket(event, ticket, receipt)
        }
        lane.flushAtEndOfTurn()
    }

    /// Lets go of a ticket that Expo has no receipt for any more.
    private func giveUp(_ event: EventInFlight, _ lane: Lane) -> Bool {
        guard let ticket = event.ticket, loop.wall - ticket.sentAt > lane.settings.receiptAgeMax
        else { return false }
        outcomes.lost.add(1)
        lane.settleTicket(event, ticket, nil)
        lane.flushAtEndOfTurn()
        return true
    }
}

extension Lane {
    /// Takes a ticket from its topic: it waits at the head until it is due.
    func takeTicket(
        _ input: InputRecord, _ event: EventInFlight, of partition: AssignedPartition
    ) {
        event.timestamp = input.timestamp
        do throws(Refusal) {
            event.ticket = try TicketRecord(input, parser: headerParser)
        } catch {
            return setAside(event, input, error)
        }
        // As for retries: a clock that is behind must not make the wait longer than it is.
        let wait = min(input.timestamp, loop.wall) + settings.receiptWait - loop.wall
        if wait > .zero { hold(ticket: event, at: partition, for: wait) } else { ask(event) }
    }

    /// Asks for the receipt of a ticket, when there is room to.
    private func ask(_ event: EventInFlight) {
        guard let ticket = event.ticket, let partition = event.partition else { return }
        guard let receipts = app(named: ticket.app)?.expo?.receipts else {
            // The app has no Expo any more: there is nobody to ask.
            return settleTicket(event, ticket, nil)
        }
        if receipts.hasRoom {
            receipts.add(event)
        } else {
            hold(ticket: event, at: partition, for: .seconds(1))
        }
    }

    private func hold(
        ticket event: EventInFlight, at partition: AssignedPartition, for span: TimeSpan
    ) {
        partition.head = event
        let timer = LoopTimer { [unowned self, unowned event] in
            event.holdTimer = nil
            event.partition?.head = nil
            mayHaveRecords = true
            ask(event)
            flushAtEndOfTurn()
        }
        event.holdTimer = timer
        loop.schedule(timer, at: loop.now + span)
    }

    /// Puts a ticket back to the end of its topic.
    func putBackTicket(_ event: EventInFlight) {
        if let partition = event.partition, !partition.isLost {
            event.source.add(
                to: outbox, settings.ticketsTopic, partition: partition.assignment.place.partition)
        }
        finish(event)
    }

    /// Writes what a receipt says: the record of it, and the verdict on the token if it is one. Of
    /// a receipt that was never there it says so.
    func settleTicket(_ event: EventInFlight, _ ticket: TicketRecord, _ receipt: ExpoReceipt?) {
        guard event.partition?.isLost == false else { return finish(event) }
        let reason = receipt?.reason?.rawValue
        let status = receipt.map { $0.isOK ? "ok" : "error" } ?? "unknown"
        let value = outbox.bytes { bytes in
            var object = JSONObjectWriter(bytes)
            object.integer("v", 1)
            object.string("result_id", ticket.resultID)
            object.string("message_id", ticket.messageID)
            object.string("status", status)
            object.string("reason", orNull: reason)
            object.integer("at", loop.wall.value)
            object.end()
        }
        outbox.addRecord(
            to: settings.receiptsTopic, key: outbox.bytes(copying: ticket.userID), value: value)
        if case .invalidate(let asOf) = receipt?.tokenAction {
            let record = ticket.invalidation(reason: reason ?? Reason.other.rawValue, asOf: asOf)
            outbox.addRecord(
                to: settings.invalidationsTopic,
                key: outbox.bytes(copying: record.addressID.text),
                value: outbox.bytes { record.encode(to: $0) })
            metrics.invalidations.add(1)
        }
        if let receipt { alarms.receipt(receipt, app: ticket.app) }
        finish(event)
    }

    /// The ticket of a target that Expo took leaves in the same batch as its result.
    func addTicket(of target: TargetInFlight, of event: EventInFlight) {
        guard target.settlement?.outcome == .accepted, target.gatewayID.count > 0,
            let address = target.address, let sentAt = target.sentAt, let app = event.app
        else { return }
        let value = outbox.bytes { bytes in
            TicketRecord.write(
                target.gatewayID.text, of: target, to: address, app: app.name,
                eventID: event.envelope?.id ?? "", sentAt: sentAt, to: bytes)
        }
        outbox.addRecord(
            to: settings.ticketsTopic, partition: event.partition?.assignment.place.partition,
            key: outbox.bytes(copying: event.envelope?.userID), value: value)
    }
}
