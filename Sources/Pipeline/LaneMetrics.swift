// The counters of one lane: shards of the process's metrics, so that no two lanes write the same
// memory.

internal import Base
internal import Gateways
internal import Telemetry

/// Why something waits although its time has come.
internal enum HoldReason: String {
    case quietHours = "quiet_hours"
    case silentCap = "silent_cap"
}

/// What a lane counts.
internal final class LaneMetrics {
    let events: Counter
    let alreadyFinished: Counter
    let reentries: Counter
    let foreignReentries: Counter
    private let misrouted: MisroutedCounters
    private var misroutedBySource: [String: Counter] = [:]
    let invalidations: Counter
    let eventsInFlight: Gauge
    let targetsInFlight: Gauge
    let recordBytes: Gauge
    let windows: Gauge
    let windowEvents: Gauge
    let windowBytes: Gauge
    let windowsEndedEarly: Counter
    /// What waits in each topic for retries and parked events.
    let backlogs: [Road: Gauge]
    private let heldBack: [LeverKind: Counter]
    private let deadLetters: [DeadLetterCode: Counter]
    private let eventOutcomes: [Outcome: Counter]
    private let registry: MetricsRegistry
    private var eventReasons: [Reason: Counter] = [:]
    private var holds: [HoldReason: Counter] = [:]
    /// What was sent although nobody could say whether it may.
    let uncounted: Counter
    private let settledAfter: Histogram
    /// From consumption to settlement, for summaries.
    @exclusivity(unchecked) private(set) var latency = LatencyHistogram()

    init(_ registry: MetricsRegistry, misrouted: MisroutedCounters) {
        self.registry = registry
        self.misrouted = misrouted
        events = registry.counter(
            "bugle_events_consumed_total", help: "Records read from the events topics.")
        alreadyFinished = registry.counter(
            "bugle_events_already_finished_total",
            help: "Records passed over because an earlier owner of the partition finished them.")
        reentries = registry.counter(
            "bugle_retry_records_read_total", help: "Records read from the retry topics.")
        foreignReentries = registry.counter(
            "bugle_retry_records_foreign_total",
            help: "Records of another group in the retry topics; they were passed over.")
        invalidations = registry.counter(
            "bugle_invalidations_total", help: "Verdicts on tokens written to the invalidations.")
        eventsInFlight = registry.gauge(
            "bugle_events_in_flight", help: "Events read and not completed.")
        targetsInFlight = registry.gauge(
            "bugle_targets_in_flight", help: "Targets of the events in flight.")
        recordBytes = registry.gauge(
            "bugle_record_bytes_in_flight", help: "Bytes of the records in flight.")
        windows = registry.gauge(
            "bugle_coalescing_windows", help: "Windows in which bursts of events are gathered.")
        windowEvents = registry.gauge(
            "bugle_coalescing_events", help: "Events that wait in windows.")
        windowBytes = registry.gauge(
            "bugle_coalescing_bytes", help: "Memory of windows and what waits in them, estimated.")
        uncounted = registry.counter(
            "bugle_caps_uncounted_total",
            help: "Events and targets that were sent uncounted, since the store refused to count.")
        windowsEndedEarly = registry.counter(
            "bugle_coalescing_ended_early_total",
            help: "Windows that ended early, for want of room or as an event would have expired.")
        backlogs = Self.backlogs(registry)
        heldBack = Dictionary(
            uniqueKeysWithValues: LeverKind.allCases.map { kind in
                (
                    kind,
                    registry.counter(
                        "bugle_held_back_total",
                        help: "Events, and of a paused gateway targets, that an operator's word "
                            + "sent to wait in Kafka.",
                        labels: [("lever", kind.rawValue)])
                )
            })
        deadLetters = Dictionary(
            uniqueKeysWithValues: DeadLetterCode.allCases.map { code in
                (
                    code,
                    registry.counter(
                        "bugle_dead_letters_total", help: "Records set aside, by reason.",
                        labels: [("code", code.rawValue)])
                )
            })
        eventOutcomes = Dictionary(
            uniqueKeysWithValues: Self.eventOutcomes.map { outcome in
                (
                    outcome,
                    registry.counter(
                        "bugle_event_outcomes_total", help: "Events that ended before fan-out.",
                        labels: [("outcome", outcome.rawValue)])
                )
            })
        settledAfter = registry.histogram(
            "bugle_settle_seconds", help: "From the consumption of an event to a target's outcome.",
            buckets: Histogram.latencyBuckets)
    }

    private static let eventOutcomes = [Outcome.expired, .noDevices, .suppressed, .coalesced]

    private static func backlogs(_ registry: MetricsRegistry) -> [Road: Gauge] {
        var gauges: [Road: Gauge] = [:]
        for tier in RetryTier.allCases {
            gauges[.retry(tier)] = registry.gauge(
                "bugle_retry_backlog_records",
                help: "Records in the assigned partitions of the retry topics.",
                labels: [("tier", tier.suffix)])
        }
        for lot in ParkingLot.all {
            gauges[.parked(lot)] = registry.gauge(
                "bugle_parked_backlog_records",
                help: "Records in the assigned partitions of the parking topics.",
                labels: [
                    ("gateway", lot.gateway.rawValue), ("environment", lot.environment.rawValue),
                ])
        }
        gauges[.held] = registry.gauge(
            "bugle_held_backlog_records",
            help: "Records in the assigned partitions of the topic of held events.")
        return gauges
    }

    func settled(_ target: TargetInFlight, of event: EventInFlight, _ settlement: Settlement) {
        target.bulkhead?.metrics.ended(settlement, target.notes)
        let span = target.settledAt - event.consumedAt
        settledAfter.observe(span)
        latency.record(span)
    }

    func endedWithoutTargets(_ event: EventInFlight, _ outcome: Outcome, _ reason: Reason?) {
        eventOutcomes[outcome]?.add(1)
        guard let reason else { return }
        count(
            reason, in: &eventReasons, "bugle_event_reasons_total",
            "Events that ended before fan-out, by reason.")
    }

    /// An event or a target waits for a better time.
    func delayed(_ reason: HoldReason) {
        count(reason, in: &holds, "bugle_holds_total", "What waits for a better time, by reason.")
    }

    /// Few of the reasons ever occur: a series is there from the first time on.
    private func count<Key: RawRepresentable<String> & Hashable>(
        _ reason: Key, in counters: inout [Key: Counter], _ name: String, _ help: String
    ) {
        let counter =
            counters[reason]
            ?? registry.counter(name, help: help, labels: [("reason", reason.rawValue)])
        counters[reason] = counter
        counter.add(1)
    }

    /// One in 16 records is looked at, and stands for the others.
    func misrouted(source: String) {
        if let counter = misroutedBySource[source] { return counter.add(16) }
        let counter = misrouted.counter(of: source)
        // Sources may be many; those beyond the bound are looked up again.
        if misroutedBySource.count < MisroutedCounters.sourcesMax {
            misroutedBySource[source] = counter
        }
        counter.add(16)
    }

    func held(_ kind: LeverKind) { heldBack[kind]?.add(1) }

    func folded() { eventOutcomes[.coalesced]?.add(1) }

    func deadLettered(_ code: DeadLetterCode) { deadLetters[code]?.add(1) }
}

/// What one bulkhead counts on one lane.
internal final class BulkheadMetrics {
    private struct Seen {
        var inFlight = 0
        var limit = 0
        var waiting = 0
        var trippedFuses = 0
        var refusals = 0
        var breakersOpen = 0
    }

    let retries: Counter
    let postponed: Counter
    private let openBreakers: Gauge
    let unanswered: Counter
    private let wokenUnseen: Counter
    private let inFlight: Gauge
    private let limit: Gauge
    private let waiting: Gauge
    private let trippedFuse: Gauge
    private let refused: Gauge
    private let registry: MetricsRegistry
    private let app: String
    private let gateway: Gateway
    private var reasons: [Reason: Counter] = [:]
    private var seen = Seen()
    private let accepted: Counter
    private let outcomes: [Outcome: Counter]
    private let answers: [Counter]
    private let answeredAfter: Histogram

    init(
        _ registry: MetricsRegistry, app: String, gateway: Gateway,
        environment: GatewayEnvironment
    ) {
        let labels = [
            ("app", app), ("gateway", gateway.rawValue), ("environment", environment.rawValue),
        ]
        self.registry = registry
        self.app = app
        self.gateway = gateway
        inFlight = registry.gauge(
            "bugle_bulkhead_in_flight", help: "Requests under way.", labels: labels)
        limit = registry.gauge(
            "bugle_bulkhead_limit",
            help: "Requests that may be under way; lower than configured while a gateway asks.",
            labels: labels)
        waiting = registry.gauge(
            "bugle_bulkhead_waiting", help: "Requests that wait for that.", labels: labels)
        trippedFuse = registry.gauge(
            "bugle_fuse_tripped", help: "Lanes that know of a fuse that holds verdicts back.",
            labels: labels)
        refused = registry.gauge(
            "bugle_bulkhead_refused",
            help: "Lanes whose last pushes were refused for our credential, topic or project.",
            labels: labels)
        retries = registry.counter(
            "bugle_retries_total", help: "Attempts that were put off and made again.",
            labels: labels)
        postponed = registry.counter(
            "bugle_targets_postponed_total",
            help: "Targets that were put off through a retry topic.", labels: labels)
        openBreakers = registry.gauge(
            "bugle_breakers_open", help: "Lanes that hold events of a bulkhead back.",
            labels: labels)
        unanswered = registry.counter(
            "bugle_requests_unanswered_total", help: "Requests that ended without an answer.",
            labels: labels)
        wokenUnseen = registry.counter(
            "bugle_fcm_high_without_display_total",
            help: "Accepted messages of high priority to Android that the system does not show.",
            labels: labels)
        func counter(of outcome: Outcome) -> Counter {
            registry.counter(
                "bugle_outcomes_total", help: "Terminal outcomes of targets.",
                labels: labels + [("outcome", outcome.rawValue)])
        }
        accepted = counter(of: .accepted)
        outcomes = Dictionary(
            uniqueKeysWithValues: Outcome.allCases.filter { $0 != .accepted }
                .map { ($0, counter(of: $0)) })
        answers = Self.classes.map { statusClass in
            registry.counter(
                "bugle_answers_total", help: "Answers of gateways by class of status.",
                labels: labels + [("status", statusClass)])
        }
        answeredAfter = registry.histogram(
            "bugle_gateway_seconds", help: "From a request's HEADERS to its answer.",
            labels: labels, buckets: Histogram.latencyBuckets)
    }

    func ended(_ settlement: Settlement, _ notes: RenderingNotes) {
        if settlement.outcome == .accepted {
            // What is not accepted wakes nobody, and does not count against the app.
            if notes.contains(.wakesUnseen) { wokenUnseen.add(1) }
            return accepted.add(1)
        }
        outcomes[settlement.outcome]?.add(1)
        if let reason = settlement.reason { count(reason) }
    }

    /// Few of the many reasons ever occur: a series is there from the first time on.
    private func count(_ reason: Reason) {
        if let counter = reasons[reason] { return counter.add(1) }
        let counter = registry.counter(
            "bugle_reasons_total", help: "Targets that were not accepted, by reason.",
            labels: [
                ("app", app), ("gateway", gateway.rawValue), ("reason", reason.rawValue),
            ])
        counter.add(1)
        reasons[reason] = counter
    }

    /// Takes a bulkhead's state in; the push services of web push are summed.
    func note(_ budget: Budget, waiting: Int, isRefused: Bool, isHeldBack: Bool) {
        seen.inFlight += budget.inFlight
        seen.limit += Int(budget.limit)
        seen.waiting += waiting
        seen.refusals = max(seen.refusals, isRefused ? 1 : 0)
        seen.breakersOpen += isHeldBack ? 1 : 0
    }

    /// Takes in that its fuse has tripped.
    func noteTrippedFuse() { seen.trippedFuses = 1 }

    /// Shows what was taken in since the last time.
    func publish() {
        inFlight.set(seen.inFlight)
        limit.set(seen.limit)
        waiting.set(seen.waiting)
        trippedFuse.set(seen.trippedFuses)
        refused.set(seen.refusals)
        openBreakers.set(seen.breakersOpen)
        seen = Seen()
    }

    func answered(status: Int, after span: TimeSpan) {
        answers[min(max(status / 100, 1), 5) - 1].add(1)
        answeredAfter.observe(span)
    }

    private static let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"]
}
