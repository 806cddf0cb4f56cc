// What the writer of the index finds out, passed on: alarms to the operator, records to the topic
// of verdicts.

internal import Base
internal import Kafka
internal import Telemetry
internal import TokenIndex

/// Confined to the feed's thread.
internal final class IndexNoticeBoard {
    private let settings: IndexFeedSettings
    private let registry: MetricsRegistry
    private let log: Log
    private let faults: RateLimitedLog
    private let swept: Counter
    private let evicts: Gauge
    private var producer: TopicProducer?
    private var unpublished: [InvalidationRecord] = []
    private var retryAt = MonotonicTime(nanos: .min / 2)

    /// Records that may wait for the cluster; what is over is dropped, and its effect stays in the
    /// store only.
    private static let recordsMax = 100_000
    private static let retryInterval = TimeSpan.seconds(1)
    private static let deliveryTimeout = TimeSpan.seconds(5)

    init(_ settings: IndexFeedSettings, registry: MetricsRegistry, log: Log) {
        self.settings = settings
        self.registry = registry
        self.log = log
        faults = RateLimitedLog(log)
        swept = registry.counter(
            "bugle_index_stale_total",
            help: "Addresses that sweeps found not seen for too long.")
        evicts = registry.gauge(
            "bugle_redis_evicts",
            help: "1 when Redis may evict keys of the token index, as its writer sees it.")
    }

    func take(_ notice: IndexNotice) {
        switch notice {
        case .fuseTripped(let fuse): tell(fuse)
        case .churn(let alarm): tell(alarm)
        case .publish(let record):
            if unpublished.count < Self.recordsMax { unpublished.append(record) }
        case .swept(let report): tell(report)
        case .evicts(let isSo): evicts.set(isSo ? 1 : 0)
        }
    }

    /// This process does not write any more, and knows no longer.
    func stopWriting() { evicts.set(0) }

    /// Writes what waits, and waits for it to be there.
    func publish() {
        let now = SystemTime.shared.monotonic
        guard !unpublished.isEmpty, now >= retryAt else { return }
        do throws(KafkaError) {
            let producer = if let producer { producer } else { try TopicProducer(settings.kafka) }
            self.producer = producer
            let bytes = ByteWriter()
            for record in unpublished {
                bytes.removeAll()
                record.encode(to: bytes)
                try producer.send(
                    to: settings.invalidations, key: Array(record.addressID.text.utf8),
                    value: bytes.array)
            }
            try producer.flush(timeout: Self.deliveryTimeout)
            unpublished = []
        } catch {
            // All of them again, by a new producer: a record that is there twice says the same, and one
            // that has failed may never send again.
            producer = nil
            retryAt = now + Self.retryInterval
            faults.warning(
                "verdicts cannot be written", ["error": LogValue(error.description)])
        }
    }

    private func tell(_ fuse: TrippedFuse) {
        counter(
            "bugle_fuse_trips_total", "Fuses that tripped: verdicts are held back since.",
            fuse.name.app, fuse.name.gateway, fuse.name.environment
        ).add(1)
        log.error(
            "the fuse has tripped: verdicts on tokens are held back until somebody settles it; "
                + "most likely \(fuse.likelyCause)",
            [
                "fuse": LogValue(fuse.id), "app": LogValue(fuse.name.app),
                "gateway": LogValue(fuse.name.gateway.rawValue),
                "environment": LogValue(fuse.name.environment.rawValue),
                "credential": LogValue(fuse.name.credential), "reason": LogValue(fuse.reason),
                "held": LogValue(fuse.held),
                "remedy": LogValue("bugle index release \(fuse.id), or discard"),
            ])
    }

    private func tell(_ alarm: ChurnAlarm) {
        counter(
            "bugle_churn_alarms_total", "Hours in which unusually many tokens died.", alarm.app,
            alarm.gateway, alarm.environment
        ).add(1)
        log.warning(
            "unusually many tokens die: a broken release of the app, or a registry that hands out "
                + "old tokens",
            [
                "app": LogValue(alarm.app), "gateway": LogValue(alarm.gateway.rawValue),
                "environment": LogValue(alarm.environment.rawValue),
                "dead_this_hour": LogValue(alarm.dead),
            ])
    }

    private func tell(_ report: SweepReport) {
        swept.add(report.stale)
        guard report.stale > 0 else { return }
        log.info(
            "addresses were not seen for too long and are not sent to",
            ["stale": LogValue(report.stale), "installs": LogValue(report.installs)])
    }

    private func counter(
        _ name: String, _ help: String, _ app: String, _ gateway: Gateway,
        _ environment: GatewayEnvironment
    ) -> Counter {
        registry.counter(
            name, help: help,
            labels: [
                ("app", app), ("gateway", gateway.rawValue),
                ("environment", environment.rawValue),
            ])
    }
}
