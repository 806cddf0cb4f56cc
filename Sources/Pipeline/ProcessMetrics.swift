// What is counted for the process as a whole: asked for when somebody reads the metrics, from what
// lanes and committer say about themselves anyhow.

internal import Base
internal import Gateways
internal import Kafka
internal import Telemetry

/// The metrics of a dispatcher that belong to no single lane.
internal struct ProcessMetrics {
    let lanes: [LaneThread]
    let committer: Committer
    let assignments: Assignments
    let mode: CommitMode

    func register(in registry: MetricsRegistry) {
        registerLag(registry)
        registerLanes(registry)
        registerCommits(registry)
        for bottleneck in Bottleneck.allCases where bottleneck != .none {
            registry.gauge(
                "bugle_seconds_to_drain",
                help: "Time that the unread events take at this pace, by what holds it back.",
                labels: [("bottleneck", bottleneck.rawValue)]
            ) { [lanes] in
                let drain = DrainEstimate.slowest(lanes.map(\.load))
                return drain.bottleneck == bottleneck ? drain.seconds : 0
            }
        }
    }

    private func registerLag(_ registry: MetricsRegistry) {
        registry.gauge(
            "bugle_assigned_partitions", help: "Partitions assigned here, of all topics read."
        ) { [assignments] in Double(assignments.count) }
        registry.gauge(
            "bugle_events_partitions", help: "Partitions of the events topics assigned here."
        ) { [lanes] in Double(lanes.reduce(0) { $0 + $1.load.partitions }) }
        registry.gauge(
            "bugle_consumer_lag_records",
            help: "Records of the assigned events partitions that are not complete."
        ) { [lanes] in Double(lanes.reduce(0) { $0 + $1.lag }) }
        registry.gauge(
            "bugle_consumer_lag_seconds", help: "Age of the oldest event that is not complete."
        ) { [lanes] in lanes.map(\.lagAge.seconds).max() ?? 0 }
        registry.gauge(
            "bugle_unread_records", help: "Records of the assigned events partitions not read yet."
        ) { [lanes] in Double(lanes.reduce(0) { $0 + $1.load.unread }) }
        registry.gauge(
            "bugle_offset_span",
            help: "How far reading is ahead of the oldest open event, in the worst partition."
        ) { [lanes] in Double(lanes.map(\.load.offsetSpan).max() ?? 0) }
        registry.gauge(
            "bugle_partitions_held_back",
            help: "Partitions read no further because one of their events is open for long."
        ) { [lanes] in Double(lanes.reduce(0) { $0 + $1.load.heldBack }) }
    }

    private func registerLanes(_ registry: MetricsRegistry) {
        for (number, lane) in lanes.enumerated() {
            let labels = [("lane", String(number))]
            registry.counter(
                "bugle_lane_busy_seconds_total", help: "Time that a lane worked.", labels: labels
            ) { lane.load.busy.seconds }
            registry.counter(
                "bugle_lane_idle_seconds_total", help: "Time that a lane waited for work.",
                labels: labels
            ) { lane.load.idle.seconds }
        }
    }

    private func registerCommits(_ registry: MetricsRegistry) {
        registry.gauge("bugle_outbox_records", help: "Records posted and not yet delivered.") {
            [committer] in Double(committer.backlog.records)
        }
        registry.gauge(
            "bugle_outbox_bytes", help: "Bytes of records posted and not yet delivered."
        ) { [committer] in Double(committer.backlog.bytes) }
        registry.gauge(
            "bugle_commit_age_seconds",
            help: "How long posted results wait for a commit; 0 when none do."
        ) { [committer] in committer.commitAge(at: SystemTime.shared.monotonic).seconds }
        let modeName =
            switch mode {
            case .plain: "plain"
            case .transactional: "transactional"
            }
        let labels = [("mode", modeName)]
        func count(
            _ name: String, _ help: String,
            _ read: @escaping @Sendable (CommitterStatistics) -> UInt64
        ) {
            registry.counter(name, help: help, labels: labels) { [committer] in
                Double(read(committer.statistics))
            }
        }
        count(
            "bugle_commits_total", "Commits that succeeded; each is a transaction in that mode."
        ) { $0.commits }
        count("bugle_commit_failures_total", "Commits that were refused or not answered.") {
            $0.commitFailures
        }
        count("bugle_records_delivered_total", "Records that the brokers took.") { $0.delivered }
        count("bugle_records_redelivered_total", "Records produced once more after a failure.") {
            $0.redelivered
        }
        count("bugle_producer_rebuilds_total", "Producers replaced after a fatal error.") {
            $0.rebuilds
        }
    }
}
