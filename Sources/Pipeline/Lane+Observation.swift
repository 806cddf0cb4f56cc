// What a lane tells about its state, twice a second: gauges and the counts its pools keep.

internal import Base
internal import EventLoop
internal import HTTP2
internal import Kafka
internal import Telemetry
internal import TokenIndex

extension Lane {
    /// Refreshes what probes and metrics read.
    func observe() {
        pulse.note(indexHindrance: index.isReady ? nil : index.readiness.description)
        metrics.eventsInFlight.set(events.count)
        metrics.targetsInFlight.set(targets.count)
        metrics.recordBytes.set(recordBytes)
        for observer in poolObservers { observer.observe() }
        for bulkhead in apps.lazy.flatMap(\.bulkheads) where bulkhead.answersUncounted > 0 {
            index.count(answers: bulkhead.answersUncounted, for: bulkhead.fuse)
            bulkhead.answersUncounted = 0
        }
        observeLag()
    }

    /// How far the events topics are behind: in records up to their ends, and by the age of the
    /// oldest event that is not complete, which is more honest than any guess from offsets.
    private func observeLag() {
        var records: Int64 = 0
        var oldest = loop.wall
        for partition in partitions where partition.road == .events {
            guard let end = partition.queue.end, let floor = partition.commitPoint else { continue }
            records += max(end - floor, 0)
            // Nobody knows how old an unread record is; at least as old as this lane knows of it.
            if end > max(floor, partition.ledger.newest + 1) {
                partition.behindSince = partition.behindSince ?? loop.wall
            } else {
                partition.behindSince = nil
            }
            oldest = min(oldest, partition.behindSince ?? oldest)
        }
        for event in events.inUse where event.partition?.road == .events {
            oldest = min(oldest, event.timestamp)
        }
        pulse.note(lag: records, age: loop.wall - oldest)
    }
}

/// Publishes the statistics of one pool.
internal final class PoolObserver {
    private let pool: HTTP2Pool
    private var seen: PoolStatistics
    private let connections: Gauge
    private let inFlight: Gauge
    private let queued: Gauge
    private let counters: [(KeyPath<PoolStatistics, Int>, Counter)]

    init(_ pool: HTTP2Pool, _ registry: MetricsRegistry) {
        self.pool = pool
        seen = pool.statistics
        let labels = [("host", pool.origin.host)]
        connections = registry.gauge(
            "bugle_connections", help: "Connections that take requests.", labels: labels)
        inFlight = registry.gauge(
            "bugle_requests_in_flight", help: "Requests written and not answered.", labels: labels)
        queued = registry.gauge(
            "bugle_requests_queued", help: "Requests that wait to be written.", labels: labels)
        func counter(_ name: String, _ help: String) -> Counter {
            registry.counter(name, help: help, labels: labels)
        }
        counters = [
            (\.connectionsOpened, counter("bugle_connections_opened_total", "Connections opened.")),
            (
                \.connectFailures,
                counter("bugle_connect_failures_total", "Connections that did not come about.")
            ),
            (
                \.connectionsLost,
                counter("bugle_connections_lost_total", "Connections lost with requests in flight.")
            ),
            (\.goAways, counter("bugle_goaways_total", "GOAWAY frames received.")),
            (\.refusals, counter("bugle_streams_refused_total", "Streams refused by the peer.")),
            (
                \.resends,
                counter(
                    "bugle_requests_resent_total",
                    "Requests written again because they were provably not processed.")
            ),
            (\.timeouts, counter("bugle_requests_timed_out_total", "Requests without an answer.")),
            (
                \.pingsUnanswered,
                counter("bugle_pings_unanswered_total", "PINGs without an answer in time.")
            ),
        ]
    }

    func observe() {
        connections.set(pool.openConnectionCount)
        inFlight.set(pool.inFlight)
        queued.set(pool.queued)
        let now = pool.statistics
        for (path, counter) in counters { counter.add(now[keyPath: path] - seen[keyPath: path]) }
        seen = now
    }
}
